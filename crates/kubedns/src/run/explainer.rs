//! Creates the [`Explainer`], and gives it the state of this process. The explainer explains how
//! kubedns answers a name.

use std::sync::Arc;

use cluster::index::Index;
use cluster::objects::Kind;
use cluster::snapshot::Published;
use cluster::watch::WatchMetrics;
use dnsconfig::Config;
use explain::{Explainer, FailingCause, FailingUpstream, LostZone, ServerState};
use reports::kubedns::KubednsReport;
use skydns::forward::Forwarder;
use tokio::sync::watch;
use wire::{Name, ServerAddr, Upstream};

use super::server::BoundServer;
use crate::config::InForce;
use crate::etcd::LostZones;
use crate::metrics::Metrics;
use crate::options::Domain;
use crate::own_node::OwnNode;
use crate::status::Status;

/// The sources of the state of this process.
struct StateSources {
    config: watch::Receiver<dnsconfig::ConfigState>,
    in_force: watch::Receiver<Arc<InForce>>,
    forwarder: Arc<Forwarder>,
    status: Status,
    watch: WatchMetrics,
    /// The domain of the cluster set.
    clusterset: Option<Name>,
    /// The zones of etcd whose watch is not open.
    lost: LostZones,
    node: Option<OwnNode>,
}

/// Creates the explainer of `server`. `node` is the node of this pod if
/// [`Options::serves_own_node`](crate::options::Options::serves_own_node) is true; otherwise it is
/// `None`.
pub(super) fn new(
    server: &BoundServer<Published>,
    status: &Status,
    index: &Index,
    metrics: &Metrics,
    node: Option<OwnNode>,
) -> Explainer {
    let options = &server.options;
    let sources = StateSources {
        config: server.configuration.state(),
        in_force: server.configuration.subscribe(),
        forwarder: Arc::clone(&server.dns.forwarder),
        status: status.clone(),
        watch: metrics.watch.clone(),
        clusterset: options.clusterset_domain.0.first().map(Domain::name),
        lost: server.etcd.lost(),
        node,
    };

    Explainer::new(
        Arc::clone(status.published()),
        index.published_objects(),
        Arc::new(move || sources.server_state()),
        Arc::clone(status.share()),
        options.topology,
    )
    .with_nanny_status(&options.nanny_status)
}

impl StateSources {
    fn server_state(&self) -> ServerState {
        let mut lost_zones = self.lost.zones();
        lost_zones.extend(self.lost_clusterset());

        let config = self.config.borrow().clone();
        let in_force = Arc::clone(&self.in_force.borrow());
        ServerState {
            progress: self.status.progress(),
            draining: self.status.is_draining(),
            failing: failing_upstreams(&in_force, &config.config, &self.forwarder),
            config,
            lost_watches: self.lost_watches(),
            lost_zones,
            has_upstreams: !in_force.servers.upstreams.is_empty(),
            node: self.node.as_ref().map(OwnNode::report),
        }
    }

    /// The kinds of objects that this process needs and whose watch is not open. This process and
    /// the sidecar both call [`KubednsReport::lost_watches`], so they report the same kinds.
    fn lost_watches(&self) -> Vec<String> {
        let report = KubednsReport {
            watches: self.watch.connections(),
            endpoints_source: self.watch.endpoints_source(),
            ..KubednsReport::default()
        };
        let lost = report.lost_watches().into_iter();
        lost.map(str::to_owned).collect()
    }

    /// The zone of the cluster set, if one of its watches is not open.
    fn lost_clusterset(&self) -> Option<LostZone> {
        let domain = self.clusterset.as_ref()?;
        let mut closed = vec![Kind::ServiceImport, Kind::ImportedSlice];
        closed.retain(|kind| !self.watch.is_connected(*kind));
        if closed.is_empty() {
            return None;
        }

        let kinds: Vec<String> = closed.iter().map(ToString::to_string).collect();
        Some(LostZone {
            domain: domain.to_lowercase(),
            reason: format!("the watch of {} is not open", kinds.join(" and ")),
        })
    }
}

/// The failing upstream servers and servers of stub domains, each with the cause.
fn failing_upstreams(
    in_force: &InForce,
    config: &Config,
    forwarder: &Forwarder,
) -> Vec<FailingUpstream> {
    let usable = &in_force.zone.upstreams;
    let mut failing = failing_servers(None, &in_force.servers.upstreams, usable, forwarder);

    for (domain, servers) in &in_force.servers.stub_domains {
        let Ok(domain) = Name::parse(domain) else {
            continue;
        };
        let mut stub_domains = in_force.zone.stub_domains.iter();
        let usable = stub_domains.find(|(known, _)| *known == domain);
        let usable = usable.map_or(&[][..], |(_, usable)| usable);
        let domain = Some(domain.to_lowercase());
        failing.extend(failing_servers(domain.as_ref(), servers, usable, forwarder));
    }

    failing.extend(servers_without_address(in_force, config));
    failing
}

/// Those of `servers` that are down or not in `usable`. A server is not in `usable` if it is this
/// DNS server, or forwards queries for names in `domain` back to this DNS server. If `domain` is
/// `None`, the servers are for external names.
fn failing_servers(
    domain: Option<&Name>,
    servers: &[Upstream],
    usable: &[Upstream],
    forwarder: &Forwarder,
) -> Vec<FailingUpstream> {
    let mut failing = Vec::new();
    for server in servers {
        let cause = if !usable.contains(server) {
            FailingCause::Loop
        } else if forwarder.is_down(server) {
            FailingCause::Down
        } else {
            continue;
        };
        failing.push(FailingUpstream {
            domain: domain.cloned(),
            server: server.to_string(),
            cause,
        });
    }
    failing
}

fn servers_without_address(in_force: &InForce, config: &Config) -> Vec<FailingUpstream> {
    let mut failing = Vec::new();
    for (domain, servers) in &config.stub_domains {
        let Ok(domain) = Name::parse(domain) else {
            continue;
        };
        for server in servers {
            let ServerAddr::Name { name, .. } = server else {
                continue;
            };
            if in_force.unresolved_names.contains(name) {
                failing.push(FailingUpstream {
                    domain: Some(domain.to_lowercase()),
                    server: server.to_string(),
                    cause: FailingCause::WithoutAddress,
                });
            }
        }
    }
    failing
}

#[cfg(test)]
mod tests;
