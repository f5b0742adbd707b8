//! Metrics and warnings about the configuration.

use std::collections::BTreeSet;

use daemon::metrics::{gauge_value, unix_seconds};
use dnsconfig::{Config, ConfigState};
use skydns::Zone;
use skydns::forward::KeyPin;
use wire::Upstream;

use crate::metrics::ConfigMetrics;
use crate::options::{DnsmasqTopology, Domain};

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
        .set(gauge_value(in_force.unresolved_names.len()));
    metrics
        .forward_loops
        .set(gauge_value(in_force.looping_servers));

    // A counter can only be increased, so the difference is added.
    let counted = metrics.rejected.get();
    metrics
        .rejected
        .inc_by(state.rejected.saturating_sub(counted));
}

/// Logs the configured servers that are this server itself. Warns if the new `zone` has no
/// upstreams. Otherwise logs the upstreams if they differ from those of `published`, the old zone.
pub(crate) fn log_servers(in_force: &InForce, zone: &Zone, published: &Zone) {
    for upstream in &in_force.own_servers {
        tracing::warn!(%upstream, "upstream server is this server itself, ignored");
    }

    if zone.upstreams.is_empty() && !in_force.zone.is_known {
        tracing::warn!(
            "no usable upstream servers before the ConfigMap is read: \
             kubedns cannot resolve external names yet"
        );
    } else if zone.upstreams.is_empty() {
        tracing::warn!("no usable upstream servers: kubedns cannot resolve external names");
    } else if zone.upstreams != published.upstreams {
        let upstreams: Vec<String> = zone.upstreams.iter().map(ToString::to_string).collect();
        let upstreams = format!("[{}]", upstreams.join(", "));
        let stub_domains = zone.stub_domains().len();
        tracing::info!(upstreams, stub_domains, "forwarding external names");
    }
}

/// Warns of the first stub domain that has servers and equals a cluster domain. Whether these
/// servers are used depends on the topology.
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
            "dnsmasq asks kubedns, the stub domain's servers or both, and uses the first answer"
        }
        DnsmasqTopology::Cache | DnsmasqTopology::Direct | DnsmasqTopology::Alone => {
            "the stub domain's servers are asked only with --fallthrough"
        }
    };
    tracing::warn!(
        stub_domain = stub_domain.trim_end_matches('.'),
        effect,
        "stub domain equals the cluster domain"
    );
}

/// Warns of pinned names that match no upstream over TLS: the keys of the intended upstreams may be
/// unchecked. Does nothing before the configuration is known, because the upstreams are not known
/// then.
pub(super) fn warn_of_unmatched_pins(in_force: &InForce, flags: &ConfigFlags) {
    if !in_force.zone.is_known {
        return;
    }
    for name in unmatched_pins(&flags.pins, &in_force.servers.all()) {
        tracing::warn!(
            name,
            "no upstream server over TLS has this name, so its pins in --upstream-tls-pin have no effect"
        );
    }
}

/// The pinned names that match no upstream over TLS in `upstreams`.
fn unmatched_pins<'a>(pins: &'a [KeyPin], upstreams: &BTreeSet<&Upstream>) -> BTreeSet<&'a str> {
    let is_unmatched = |pin: &&KeyPin| !upstreams.iter().any(|upstream| pin.is_for(upstream));
    let unmatched = pins.iter().filter(is_unmatched);
    unmatched.map(|pin| pin.name.as_str()).collect()
}

fn is_cluster_domain(stub_domain: &str, domains: &[Domain]) -> bool {
    let bare = stub_domain.trim_end_matches('.');
    domains
        .iter()
        .any(|domain| domain.bare().eq_ignore_ascii_case(bare))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unmatched_pins_are_found() {
        let with_name = "tls://9.9.9.9#dns.quad9.net";
        for (pins, upstreams, expected) in [
            ("dns.quad9.net", with_name, ""),
            ("9.9.9.9", with_name, "9.9.9.9"),
            ("9.9.9.9", "tls://9.9.9.9:8853", ""),
            ("9.9.9.9", "tcp://9.9.9.9 9.9.9.9", "9.9.9.9"),
            ("::1", "tls://[::1]:24853", ""),
            ("::1 a.test ::1 b.test", with_name, "::1 a.test b.test"),
            ("", with_name, ""),
            ("a.test", "", "a.test"),
        ] {
            let names = pins.split_whitespace().map(str::to_owned);
            let pins: Vec<KeyPin> = names
                .map(|name| KeyPin {
                    name,
                    sha256: [0; 32],
                })
                .collect();
            let upstreams = upstreams
                .split_whitespace()
                .map(|text| text.parse().unwrap());
            let upstreams: Vec<Upstream> = upstreams.collect();

            let found = unmatched_pins(&pins, &upstreams.iter().collect());
            let found: Vec<&str> = found.into_iter().collect();
            assert_eq!(found.join(" "), expected, "{pins:?} {upstreams:?}");
        }
    }
}
