//! Metrics and warnings about the configuration.

use daemon::metrics::{gauge_value, unix_seconds};
use dnsconfig::{Config, ConfigState};

use crate::metrics::ConfigMetrics;
use crate::options::{ClusterDomains, DnsmasqTopology};

use super::in_force::{ConfigFlags, InForce};

/// Sets the metrics of the configuration.
pub(super) fn set_metrics(metrics: &ConfigMetrics, state: &ConfigState, in_force: &InForce) {
    metrics.current.set(state.error.is_none().into());
    metrics
        .unknown_keys
        .set(gauge_value(state.unknown_keys.len()));
    metrics.loaded.set(unix_seconds(state.loaded_at));
    metrics.info.set(&state.version.to_string());
    metrics
        .unresolved
        .set(gauge_value(in_force.unresolved_names));

    // A counter only grows by differences.
    let counted = metrics.rejected.get();
    metrics
        .rejected
        .inc_by(state.rejected.saturating_sub(counted));
}

/// Warns of a stub domain that equals a cluster domain: the stub domain has little effect.
pub(super) fn warn_of_stub_domain(config: &Config, flags: &ConfigFlags) {
    // A stub domain without servers is ignored, so it clashes with nothing.
    let clash = config
        .stub_domains
        .iter()
        .find(|(domain, servers)| !servers.is_empty() && is_cluster_domain(domain, &flags.domains));
    let Some((stub_domain, _)) = clash else {
        return;
    };

    let effect = match flags.topology {
        DnsmasqTopology::DropIn => {
            "dnsmasq asks kubedns or its servers, or both, and the first answer counts"
        }
        DnsmasqTopology::Cache | DnsmasqTopology::Direct | DnsmasqTopology::Alone => {
            "its servers are not asked"
        }
    };
    tracing::warn!(
        stub_domain = stub_domain.trim_end_matches('.'),
        effect,
        "stub domain equals the cluster domain"
    );
}

fn is_cluster_domain(stub_domain: &str, domains: &ClusterDomains) -> bool {
    let bare = stub_domain.trim_end_matches('.');
    domains
        .all()
        .any(|domain| domain.bare().eq_ignore_ascii_case(bare))
}
