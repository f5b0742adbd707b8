//! Metrics of the upstreams of each route. Every scrape reads the upstreams from the published
//! zone, and their states from the forwarder.

use std::collections::HashMap;
use std::sync::Arc;

use daemon::metrics::gauge_value;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntGaugeVec, Opts};
use skydns::Zone;
use skydns::backend::{Backend, View as _};
use skydns::forward::Forwarder;
use wire::{Name, Upstream};

const NAME: &str = "kubedns_forward_upstream_up";
const HELP: &str =
    "0 while this upstream of this route is silent, or gives no usable answers; else 1.";
const LABELS: [&str; 2] = ["route", "upstream"];
const SERVERS: &str = "kubedns_forward_route_servers";
const HELP_SERVERS: &str = "Number of servers of this route, including servers that are down. Servers given by name whose address is not known, and servers that forward queries back to kubedns, are not counted. If 0, names of this route are answered with SERVFAIL.";

/// The route of external names outside stub domains.
const EXTERNAL_NAMES: &str = ".";

/// Maximum number of exported series of each metric. The configuration may have any number of stub
/// domains and servers.
const MAX_SERIES: usize = 256;

/// Exports the state of the upstreams in use. The label `route` is a stub domain, or `.` for
/// external names outside stub domains.
#[derive(Debug)]
pub(crate) struct UpstreamState<B> {
    forwarder: Arc<Forwarder>,
    backend: Arc<B>,
    descs: Vec<Desc>,
}

impl<B: Backend> UpstreamState<B> {
    /// Creates a collector for the upstreams of the published zone.
    pub(crate) fn new(forwarder: Arc<Forwarder>, backend: Arc<B>) -> prometheus::Result<Self> {
        let mut descs = Vec::new();
        for (name, help, labels) in [
            (NAME, HELP, LABELS.as_slice()),
            (SERVERS, HELP_SERVERS, &LABELS[..1]),
        ] {
            let labels = labels.iter().map(|label| (*label).to_owned()).collect();
            let desc = Desc::new(name.to_owned(), help.to_owned(), labels, HashMap::new())?;
            descs.push(desc);
        }
        Ok(Self {
            forwarder,
            backend,
            descs,
        })
    }
}

impl<B: Backend> Collector for UpstreamState<B> {
    fn desc(&self) -> Vec<&Desc> {
        self.descs.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let upstreams = IntGaugeVec::new(Opts::new(NAME, HELP), &LABELS);
        let counts = IntGaugeVec::new(Opts::new(SERVERS, HELP_SERVERS), &LABELS[..1]);
        let (Ok(upstreams), Ok(counts)) = (upstreams, counts) else {
            return Vec::new();
        };

        // The metrics are new at each scrape, so upstreams that are no longer in use have no
        // series.
        let view = self.backend.view();
        for (route, upstream) in routes(view.zone()).into_iter().take(MAX_SERIES) {
            // The forwarder keeps one state of each upstream, for all routes.
            let gauge = upstreams.with_label_values(&[route.as_str(), &upstream.to_string()]);
            gauge.set((!self.forwarder.is_down(upstream)).into());
        }
        for (route, servers) in server_counts(view.zone()).into_iter().take(MAX_SERIES) {
            counts
                .with_label_values(&[&route])
                .set(gauge_value(servers));
        }

        let mut families = upstreams.collect();
        families.extend(counts.collect());
        families
    }
}

/// Each route with the number of its servers, including those that are down.
fn server_counts(zone: &Zone) -> Vec<(String, usize)> {
    let mut counts = vec![(EXTERNAL_NAMES.to_owned(), zone.upstreams.len())];
    for (domain, servers) in zone.stub_domains() {
        counts.push((domain_text(domain), servers.len()));
    }
    counts
}

fn domain_text(domain: &Name) -> String {
    domain.to_string().trim_end_matches('.').to_owned()
}

/// The upstreams of all routes, each with its route. The route [`EXTERNAL_NAMES`] comes first.
fn routes(zone: &Zone) -> Vec<(String, &Upstream)> {
    let mut routes = Vec::new();
    for upstream in zone.upstreams.iter() {
        routes.push((EXTERNAL_NAMES.to_owned(), upstream));
    }
    for (domain, servers) in zone.stub_domains() {
        for server in servers.iter() {
            routes.push((domain_text(domain), server));
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
    use wire::Transport;

    use super::*;

    fn upstream(port: u16) -> Upstream {
        SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into()
    }

    #[tokio::test]
    async fn failed_upstream_is_down_in_each_route_and_servers_are_counted() {
        let [dead, unasked] = [free_port(), free_port()].map(upstream);
        let domain = Name::parse("cluster.local.").unwrap();
        let stub = (Name::parse("acme.local.").unwrap(), [dead.clone()].into());
        let serverless = (Name::parse("corp.local.").unwrap(), [].into());
        let zone = Zone {
            upstreams: [unasked.clone(), dead.clone()].into(),
            ..Zone::new(&domain)
        };
        let published = Arc::new(Published::new(Snapshot::new(
            zone.with_stub_domains([stub, serverless]),
        )));
        let metrics = ForwardMetrics::new(&prometheus::Registry::new()).unwrap();
        let forwarder = Arc::new(Forwarder::new(ForwardLimits::default(), metrics));

        // After three failures in a row, an upstream counts as down.
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

        let counts = families[1].get_metric().iter().map(|metric| {
            let route = metric.get_label()[0].value().to_owned();
            (route, metric.get_gauge().get_value().to_string())
        });
        let expected = [(".", "2"), ("acme.local", "1"), ("corp.local", "0")];
        let expected = expected.map(|(route, count)| (route.to_owned(), count.to_owned()));
        assert_eq!(counts.collect::<HashMap<_, _>>(), HashMap::from(expected));
    }
}
