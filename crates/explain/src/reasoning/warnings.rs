//! Warnings about the state of kubedns, its configuration, the arguments of dnsmasq, and the zones,
//! objects and upstream servers of a name.

mod upstreams;

use cluster::index::SyncProgress;
use cluster::snapshot::Snapshot;
use dnsconfig::ConfigState;
use skydns::FurtherZone;
use wire::Name;

use crate::document::{CodedNote, DnsmasqAsks, ServiceObjects};
use crate::facts::candidate::{NameCandidate, queried_candidates};
use crate::facts::name_kind::further_zone;
use crate::facts::objects::FoundObjects;
use crate::facts::server_state::{LostZone, ServerState};
use crate::list::join;
use crate::moment::Moment;

pub(crate) use self::upstreams::warn_of_upstreams;

/// Warnings about the state of kubedns and its configuration, about an incomplete search for
/// similar names (`found`), and about Endpoints over capacity (`objects`). `now` is for the age of
/// the configuration.
pub(crate) fn warn_of_state(
    state: &ServerState,
    found: Option<&FoundObjects>,
    objects: &[ServiceObjects],
    now: Moment,
) -> Vec<CodedNote> {
    let mut warnings = Vec::new();
    warnings.extend(warn_of_progress(state));
    warnings.extend(warn_of_rejected_config(&state.config, now));
    for key in &state.config.unknown_keys {
        let text = format!("ConfigMap: {key}");
        warnings.push(CodedNote::new("config_unknown_key", text));
    }
    if state.draining {
        let text = "this kubedns is shutting down";
        warnings.push(CodedNote::new("draining", text));
    }

    if found.is_some_and(|found| found.cut) {
        let text = "there are too many Services to find all similar names";
        warnings.push(CodedNote::new("near_cut", text));
    }
    for ServiceObjects { key, endpoints, .. } in objects {
        let is_over_capacity = endpoints
            .as_ref()
            .is_some_and(|endpoints| endpoints.over_capacity);
        if is_over_capacity {
            let text = format!(
                "the control plane left addresses out of Endpoints {key}: there are more than \
                 1000 addresses"
            );
            warnings.push(CodedNote::new("over_capacity", text));
        }
    }
    warnings
}

fn warn_of_progress(state: &ServerState) -> Option<CodedNote> {
    match state.progress {
        SyncProgress::Waiting => {
            let text = "the first lists from the API server have not arrived yet: queries for \
                        names of the cluster get REFUSED";
            Some(CodedNote::new("not_synced", text))
        }
        SyncProgress::Stale | SyncProgress::StaleOverdue => {
            let text = "the first lists from the API server are not complete yet: the records come from the snapshot file of an earlier run";
            Some(CodedNote::new("stale", text))
        }
        SyncProgress::Synced => warn_of_lost_watches(state),
    }
}

fn warn_of_lost_watches(state: &ServerState) -> Option<CodedNote> {
    if state.lost_watches.is_empty() {
        return None;
    }

    let kinds = state.lost_watches.join(" and ");
    let text = format!("no watch of {kinds} is open: kubedns does not see their changes");
    Some(CodedNote::new("api_server_lost", text))
}

fn warn_of_rejected_config(config: &ConfigState, now: Moment) -> Option<CodedNote> {
    let error = &config.error.as_ref()?.text;
    let in_force = if config.is_default() {
        "the defaults are in force".to_owned()
    } else {
        let loaded = Moment::from(config.loaded_at).age_at(now);
        format!(
            "version {}, loaded {loaded}, stays in force",
            config.version
        )
    };
    let text = format!("the newest configuration is rejected: {error}; {in_force}");
    Some(CodedNote::new("config_rejected", text))
}

/// Warnings about those [lost zones](ServerState::lost_zones) that may hold `name`.
pub(crate) fn warn_of_lost_zones(
    state: &ServerState,
    snapshot: &Snapshot,
    name: &Name,
) -> Vec<CodedNote> {
    let name = name.to_lowercase();
    let own_domain = further_zone(snapshot, &name).map(|zone| &zone.domain);

    let mut warnings = Vec::new();
    for zone in snapshot.zones.iter() {
        let FurtherZone {
            domain, pointers, ..
        } = zone;
        // A zone with `pointers` is not authoritative for its domain, but may hold a PTR record of
        // the name.
        if Some(domain) != own_domain && !(*pointers && name.is_within(domain)) {
            continue;
        }
        let is_loaded = zone.records.has_synced();
        let lost = state
            .lost_zones
            .iter()
            .filter(|lost| lost.domain == *domain);
        warnings.extend(lost.map(|lost| lost_zone_note(lost, is_loaded)));
    }
    warnings
}

/// The warning about servers in dnsmasq's arguments that may answer in place of kubedns.
pub(crate) fn warn_of_added_servers(candidates: &[NameCandidate]) -> Option<CodedNote> {
    let mut paths = queried_candidates(candidates).map(|candidate| &candidate.dnsmasq);
    let path = paths.find(|path| path.asks == DnsmasqAsks::Kubedns && !path.servers.is_empty())?;
    let text = format!(
        "dnsmasq also asks {}, which its arguments add: pods may get answers from there instead of from kubedns",
        join(&path.servers)
    );
    Some(CodedNote::new("servers_added", text))
}

fn lost_zone_note(lost: &LostZone, is_loaded: bool) -> CodedNote {
    let LostZone { domain, reason } = lost;
    let text = if is_loaded {
        format!("the zone {domain} has no open watch, so its changes do not arrive: {reason}")
    } else {
        format!("the zone {domain} cannot be loaded: {reason}")
    };
    CodedNote::new("zone_lost", text)
}
