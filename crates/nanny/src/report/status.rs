//! The status of the nanny, for operators and programs: one JSON document.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use chrono::{DateTime, SecondsFormat, Utc};
use dnsconfig::ConfigState;
use serde::Serialize;
use wire::Nameserver;

use crate::config::routes::{OmittedServer, Routes};

/// The whole document. Absent values are null, so that every field is always present.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Status {
    /// The version of the nanny.
    pub(crate) version: &'static str,
    /// The commit that the nanny was built from, or `unknown`.
    pub(crate) commit: &'static str,
    pub(crate) dnsmasq: DnsmasqStatus,
    pub(crate) configuration: ConfigurationStatus,
    /// The servers for each name.
    pub(crate) routes: RoutesStatus,
}

#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DnsmasqStatus {
    pub(crate) version: String,
    /// Security fixes that this dnsmasq lacks.
    pub(crate) missing_fixes: Vec<&'static str>,
    pub(crate) pid: Option<i32>,
    /// dnsmasq has started and answers probes.
    pub(crate) up: bool,
    pub(crate) started_at: Option<String>,
    /// Restarts by reason: `died`, `hung`, `configuration`.
    pub(crate) restarts: BTreeMap<&'static str, u64>,
    pub(crate) last_end: Option<String>,
}

#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ConfigurationStatus {
    /// The effect of an edit: `reload` or `restart`; `none` when edits are not applied.
    pub(crate) edits_by: &'static str,
    pub(crate) version: String,
    pub(crate) loaded_at: Option<String>,
    pub(crate) edits: u64,
    pub(crate) rejected: u64,
    /// The error of the newest configuration; null if that configuration is in force.
    pub(crate) error: Option<ErrorStatus>,
    /// Ignored keys, one line each.
    pub(crate) warnings: Vec<String>,
    pub(crate) stub_domains: BTreeMap<String, Vec<String>>,
    pub(crate) upstream_nameservers: Vec<String>,
    /// Reloads of the servers by dnsmasq.
    pub(crate) reloads: u64,
    pub(crate) last_reload_at: Option<String>,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct ErrorStatus {
    /// The mistake, and the accepted form.
    pub(crate) text: String,
    /// The key, if a value was wrong.
    pub(crate) key: Option<String>,
    pub(crate) value: Option<String>,
    pub(crate) at: String,
}

/// The servers for each name that are in force in dnsmasq.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RoutesStatus {
    /// Stub domain -> addresses; server names are resolved.
    pub(crate) stub_domains: BTreeMap<String, Vec<String>>,
    pub(crate) upstreams: Vec<String>,
    /// The source of `upstreams`: `configuration`, `resolv.conf` or `kubedns`. With `kubedns`, the
    /// only upstream is kubedns or the SERVFAIL server.
    pub(crate) upstreams_from: &'static str,
    /// Names of stub servers that have no address yet.
    pub(crate) unresolved: BTreeSet<String>,
    /// Servers left out because their queries come back to dnsmasq.
    pub(crate) loops: BTreeSet<String>,
    /// The server for stub domains without a usable server: the nanny itself, which answers
    /// SERVFAIL.
    #[serde(rename = "nowhere")]
    pub(crate) servfail_server: Option<String>,
    /// The version of the configuration that kubedns reports, if the nanny polls kubedns.
    pub(crate) kubedns_configuration: Option<String>,
    /// The reason why the newest routes are pending; null when dnsmasq has them.
    pub(crate) pending: Option<PendingStatus>,
    /// The servers in `loops` that the nanny found, not those that dnsmasq found.
    #[serde(skip)]
    omitted_loops: BTreeSet<String>,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct PendingStatus {
    pub(crate) reason: String,
    pub(crate) since: String,
}

impl ConfigurationStatus {
    /// Copies the state of the configuration's source.
    pub(crate) fn set(&mut self, state: &ConfigState) {
        self.version = state.version.to_string();
        self.loaded_at = Some(time(state.loaded_at));
        self.edits = state.edits;
        self.rejected = state.rejected;
        self.error = state.error.as_ref().map(|error| ErrorStatus {
            text: error.text.clone(),
            key: error.key.clone(),
            value: error.value.clone(),
            at: time(error.at),
        });
        self.warnings = strings(&state.unknown_keys);
        let domains = state.config.stub_domains.iter();
        self.stub_domains = domains
            .map(|(domain, servers)| (domain.clone(), strings(servers)))
            .collect();
        self.upstream_nameservers = strings(&state.config.upstream_nameservers);
    }
}

impl RoutesStatus {
    /// Copies the routes in force. Loops that dnsmasq found are removed: after each reload dnsmasq
    /// looks for loops again.
    pub(crate) fn set(&mut self, routes: &Routes) {
        let domains = routes.stub_domains.iter();
        self.stub_domains = domains
            .map(|(domain, servers)| (domain.clone(), strings(servers)))
            .collect();
        self.upstreams = strings(&routes.upstreams);
        self.upstreams_from = routes.upstreams_from.label();
        self.loops = self.omitted_loops.clone();
    }

    /// Copies the omissions of the newest routes.
    pub(crate) fn omit(&mut self, omissions: &BTreeSet<OmittedServer>) {
        self.unresolved.clear();
        let before = std::mem::take(&mut self.omitted_loops);
        for omission in omissions {
            match omission {
                OmittedServer::Unresolved { name, .. } => self.unresolved.insert(name.clone()),
                OmittedServer::Loop { server, .. } => self.omitted_loops.insert(server.to_string()),
            };
        }
        self.loops.retain(|server| !before.contains(server));
        self.loops.extend(self.omitted_loops.iter().cloned());
    }

    /// Sets the reason why the newest routes are pending; `None` when they are in force.
    pub(crate) fn set_pending(&mut self, reason: Option<&str>) {
        let since = self
            .pending
            .take()
            .map_or_else(|| time(SystemTime::now()), |pending| pending.since);
        self.pending = reason.map(|reason| PendingStatus {
            reason: reason.to_owned(),
            since,
        });
    }

    pub(crate) fn add_loop(&mut self, server: Nameserver) {
        self.loops.insert(server.to_string());
    }
}

/// A time as in RFC 3339, to the millisecond.
pub(crate) fn time(time: SystemTime) -> String {
    DateTime::<Utc>::from(time).to_rfc3339_opts(SecondsFormat::Millis, true)
}

fn strings<T: ToString>(values: &[T]) -> Vec<String> {
    values.iter().map(ToString::to_string).collect()
}
