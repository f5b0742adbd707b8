//! Metrics of the upstreams of each route, read from the forwarder at every scrape.

use std::collections::HashMap;
use std::sync::Arc;

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntGaugeVec, Opts};
use skydns::Zone;
use skydns::backend::{Backend, View as _};
use skydns::forward::Forwarder;
use wire::Upstream;

const NAME: &str = "kubedns_forward_upstream_up";
const HELP: &str =
    "0 while this upstream of this route is silent, or gives no usable answers; else 1.";
const LABELS: [&str; 2] = ["route", "upstream"];

/// Bound of the exported series. The number of stub domains and servers has no bound.
const MAX_SERIES: usize = 256;

/// Exports the state of the upstreams in use. The route is a stub domain, or `.` for external
/// names.
#[derive(Debug)]
pub(crate) struct UpstreamState<B> {
    forwarder: Arc<Forwarder>,
    backend: Arc<B>,
    descs: Vec<Desc>,
}

impl<B: Backend> UpstreamState<B> {
    /// Creates a collector for the upstreams of the published zone.
    pub(crate) fn new(forwarder: Arc<Forwarder>, backend: Arc<B>) -> prometheus::Result<Self> {
        let labels = LABELS.map(str::to_owned).into();
        let desc = Desc::new(NAME.to_owned(), HELP.to_owned(), labels, HashMap::new())?;
        Ok(Self {
            forwarder,
            backend,
            descs: vec![desc],
        })
    }
}

impl<B: Backend> Collector for UpstreamState<B> {
    fn desc(&self) -> Vec<&Desc> {
        self.descs.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let Ok(gauges) = IntGaugeVec::new(Opts::new(NAME, HELP), &LABELS) else {
            return Vec::new();
        };
        // The series of upstreams that are no longer in use end.
        let view = self.backend.view();
        for (route, upstream) in routes(view.zone()).into_iter().take(MAX_SERIES) {
            // The forwarder keeps one state of each upstream, for all routes.
            let gauge = gauges.with_label_values(&[route.as_str(), &upstream.to_string()]);
            gauge.set((!self.forwarder.is_down(upstream)).into());
        }
        gauges.collect()
    }
}

/// Each upstream with its route, beginning with those for external names.
fn routes(zone: &Zone) -> Vec<(String, &Upstream)> {
    let mut routes = Vec::new();
    for upstream in zone.upstreams.iter() {
        routes.push((".".to_owned(), upstream));
    }
    for (domain, servers) in zone.stub_domains() {
        let domain = domain.to_string();
        for server in servers.iter() {
            routes.push((domain.trim_end_matches('.').to_owned(), server));
        }
    }
    routes
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use cluster::snapshot::{Published, Snapshot};
    use skydns::forward::{ForwardLimits, ForwardMetrics, UpstreamQuery};
    use testkit::ports::free_port;
    use wire::{Name, Transport};

    use super::*;

    fn upstream(port: u16) -> Upstream {
        SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into()
    }

    #[tokio::test]
    async fn failed_upstream_is_down_in_each_route() {
        let [dead, unasked] = [free_port(), free_port()].map(upstream);
        let domain = Name::parse("cluster.local.").unwrap();
        let stub = (Name::parse("acme.local.").unwrap(), [dead.clone()].into());
        let zone = Zone {
            upstreams: [unasked.clone(), dead.clone()].into(),
            ..Zone::new(&domain)
        };
        let published = Arc::new(Published::new(Snapshot::new(
            zone.with_stub_domains([stub]),
        )));
        let metrics = ForwardMetrics::new(&prometheus::Registry::new()).unwrap();
        let forwarder = Arc::new(Forwarder::new(ForwardLimits::default(), metrics));

        // Three failures in a row make an upstream down.
        for name in [&b"\x01a\0"[..], b"\x01b\0", b"\x01c\0"] {
            let servers = [dead.clone()].into();
            let client = Ipv4Addr::LOCALHOST.into();
            let asked =
                forwarder.exchange(UpstreamQuery::new(name, 1), servers, client, Transport::Udp);
            assert!(asked.await.is_err());
        }

        let families = UpstreamState::new(forwarder, published).unwrap().collect();
        let shown = families[0].get_metric().iter().map(|metric| {
            let labels = metric
                .get_label()
                .iter()
                .map(|label| label.value().to_owned());
            (
                labels.collect::<Vec<_>>(),
                metric.get_gauge().get_value() > 0.0,
            )
        });
        let shown: HashMap<_, _> = shown.collect();

        let [dead, unasked] = [dead, unasked].map(|upstream| upstream.to_string());
        let expected = [
            ((".", &unasked), true),
            ((".", &dead), false),
            (("acme.local", &dead), false),
        ];
        let expected =
            expected.map(|((route, upstream), up)| (vec![route.to_owned(), upstream.clone()], up));
        assert_eq!(shown, HashMap::from(expected));
    }
}
