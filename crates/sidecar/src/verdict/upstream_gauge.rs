//! The metric of the upstreams. It has the same name in every topology, whichever container queries
//! the upstreams.

use std::collections::BTreeSet;

use daemon::metrics::{MetricError, Metrics};
use parking_lot::Mutex;
use prometheus::IntGaugeVec;

use super::routes::{RouteServers, ServerState};
use crate::metric_name::metric_name;

/// Limit of the exported series. kubedns has the same limit for its own series.
const MAX_SERIES: usize = 256;

/// Exports the servers of each route: 0 for a server that is down, else 1.
#[derive(Debug)]
pub(super) struct UpstreamGauge {
    up: IntGaugeVec,
    /// The route and the server of each series.
    exported: Mutex<BTreeSet<(String, String)>>,
}

impl UpstreamGauge {
    /// Starts without series.
    pub(super) fn new(namespace: &str, metrics: &Metrics) -> Result<Self, MetricError> {
        let up = metrics.int_gauge_vec(
            &metric_name(namespace, "upstream_up"),
            "0 while an upstream is down for the container that queries it, else 1.",
            &["route", "upstream"],
        )?;
        Ok(Self {
            up,
            exported: Mutex::default(),
        })
    }

    /// Exports at most [`MAX_SERIES`] of these servers, and removes all other series.
    pub(super) fn export(&self, routes: &RouteServers) {
        let mut wanted = BTreeSet::new();
        for (route, servers) in routes {
            for (server, state) in servers {
                wanted.insert((route.clone(), server.clone(), *state != ServerState::Down));
            }
        }
        let wanted: Vec<_> = wanted.into_iter().take(MAX_SERIES).collect();

        let mut exported = self.exported.lock();
        let before = std::mem::take(&mut *exported);
        for (route, server, is_up) in wanted {
            let series = self.up.with_label_values(&[&route, &server]);
            series.set(is_up.into());
            exported.insert((route, server));
        }

        // Series of other upstreams are removed. Otherwise each upstream that ever existed would
        // keep its series. A missing series is not an error.
        for (route, server) in before.difference(&exported) {
            let _ = self.up.remove_label_values(&[route, server]);
        }
    }
}
