//! Small clusters, each held in an index.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use cluster::index::{Index, IndexOptions, SyncProgress};
use cluster::objects::{
    Change, EndpointSlice, Endpoints, EndpointsSource, Event, FromApi, Service,
};
use cluster::snapshot::{Published, Snapshot};
use dnsconfig::{Config, ConfigState};
use serde_json::{Value, json};
use skydns::Zone;
use testkit::objects::{
    mk_addresses, mk_cluster_ip, mk_endpoint_slice, mk_endpoints, mk_endpoints_of,
    mk_external_name, mk_headless, mk_ports, with_annotations,
};
use wire::Name;
use wire::Upstream;

use crate::document::Explanation;
use crate::facts::dnsmasq_arguments::DnsmasqArguments;
use crate::facts::dnsmasq_path::DnsFront;
use crate::moment::Moment;
use crate::request::{ExplainParameters, ExplainRequest};
use crate::survey::NameSurvey;
use crate::{DnsmasqTopology, ServerState};
use crate::{command, text};

/// Time of all explanations: 2026-11-05T08:00:00Z.
pub(super) const NOW: Moment = Moment(1_793_865_600);

/// An index, and the other state that explanations depend on.
pub(super) struct Cluster {
    pub(super) index: Index,
    pub(super) published: Arc<Published>,
    pub(super) source: EndpointsSource,
    pub(super) server: ServerState,
    pub(super) topology: DnsmasqTopology,
    pub(super) hosts: PathBuf,
    /// The options of dnsmasq, if the nanny reports them.
    pub(super) arguments: Option<DnsmasqArguments>,
    /// Servers from dnsmasq's options. For external names, dnsmasq queries them in addition to its
    /// other upstreams. The nanny reports these servers.
    pub(super) added_servers: Vec<String>,
}

impl Cluster {
    /// A cluster without objects. Its lists are not complete yet.
    pub(super) fn new() -> Self {
        Self::with(IndexOptions::default())
    }

    /// A cluster like that of [`new`](Self::new); `options` are the options of the index.
    pub(super) fn with(options: IndexOptions) -> Self {
        let zone = Zone::new(&Name::parse("cluster.local").unwrap());
        let stub_domain = (
            Name::parse("acme.test").unwrap(),
            mk_upstreams("192.0.2.7:53"),
        );
        let zone = Zone {
            upstreams: mk_upstreams("192.0.2.53:53"),
            ..zone.with_stub_domains([stub_domain])
        };
        let published = Arc::new(Published::new(Snapshot::new(zone)));

        let stub_servers = vec!["192.0.2.7".parse().unwrap()];
        let mut config = ConfigState::new(Config {
            stub_domains: BTreeMap::from([("acme.test".to_owned(), stub_servers)]),
            ..Config::default()
        });
        config.loaded_at = UNIX_EPOCH + Duration::from_secs(NOW.0 - 3600);

        Self {
            index: Index::with_options(options, Arc::clone(&published)),
            published,
            source: EndpointsSource::Endpoints,
            server: ServerState {
                progress: SyncProgress::Waiting,
                draining: false,
                lost_watches: Vec::new(),
                lost_zones: Vec::new(),
                config,
                has_upstreams: true,
                failing: Vec::new(),
                node: None,
            },
            topology: DnsmasqTopology::DropIn,
            hosts: PathBuf::new(),
            arguments: None,
            added_servers: Vec::new(),
        }
    }

    /// A cluster with ClusterIP, headless and ExternalName Services.
    pub(super) fn with_everything() -> Self {
        Self::with_everything_and(IndexOptions::default())
    }

    /// A cluster like that of [`with_everything`](Self::with_everything); `options` are the options
    /// of the index.
    pub(super) fn with_everything_and(options: IndexOptions) -> Self {
        let mut cluster = Self::with(options);
        cluster
            .index
            .set_federations(BTreeMap::from([("fed".into(), "fed.example".into())]));
        for service in services() {
            cluster.add_service(&service);
        }
        for endpoints in endpoints() {
            cluster.add_endpoints(&endpoints);
        }
        cluster.sync();
        cluster
    }

    pub(super) fn add_service(&mut self, service: &Value) {
        let service = Service::from_api(&service.to_string()).unwrap().object;
        self.index.apply(Event::Service(Change::Apply(service)));
    }

    pub(super) fn add_endpoints(&mut self, endpoints: &Value) {
        let endpoints = Endpoints::from_api(&endpoints.to_string()).unwrap().object;
        self.index.apply(Event::Endpoints(Change::Apply(endpoints)));
    }

    pub(super) fn add_slice(&mut self, slice: &Value) {
        let slice = EndpointSlice::from_api(&slice.to_string()).unwrap().object;
        self.index.apply(Event::EndpointSlice(Change::Apply(slice)));
    }

    /// Adds stub domains to the configuration, each with one server. Only dnsmasq uses them: the
    /// zone of kubedns does not change.
    pub(super) fn add_stub_domains(&mut self, domains: &[(&str, &str)]) {
        let mut config = (*self.server.config.config).clone();
        for (domain, server) in domains {
            config
                .stub_domains
                .insert((*domain).to_owned(), vec![server.parse().unwrap()]);
        }
        self.server.config.config = config.into();
    }

    /// Tells the index that the lists of Services and endpoints are complete, and publishes the
    /// records and the objects.
    pub(super) fn sync(&mut self) {
        self.index.apply(Event::Service(Change::RelistDone));
        self.index.apply(match self.source {
            EndpointsSource::Endpoints => Event::Endpoints(Change::RelistDone),
            EndpointsSource::EndpointSlices => Event::EndpointSlice(Change::RelistDone),
        });
        self.index.apply(Event::EndpointsFrom(self.source));
        self.index.publish();
        self.server.progress = SyncProgress::Synced;
    }

    /// Explains a name; `None` if the request is invalid.
    pub(super) fn try_explain(&self, parameters: &ExplainParameters) -> Option<Explanation> {
        let front = DnsFront {
            config: Arc::clone(&self.server.config.config),
            topology: self.topology,
            hosts: self.hosts.clone(),
            arguments: self.arguments.clone(),
            added_servers: self.added_servers.clone(),
        };
        let request = ExplainRequest::parse(parameters).ok()?;

        let survey = NameSurvey::query_records(self.published.get(), &front, request);
        let view = self.index.published_objects().get();
        let found = view.map(|view| survey.object_lookup().look_up(&view));
        Some(survey.conclude(found.as_ref(), &self.server, NOW))
    }

    /// Explains a name. `words` are the arguments of `kube-dns explain`, separated by spaces.
    pub(super) fn explain(&self, words: &str) -> Explanation {
        let options = command::parse_words(words.split(' ').map(Into::into)).unwrap();
        self.try_explain(&options.parameters).unwrap()
    }

    /// The explanation as text. For `words` see [`explain`](Self::explain).
    pub(super) fn text(&self, words: &str) -> String {
        text::render_explanation(&self.explain(words))
    }

    /// The codes of the reasons in an explanation. For `words` see [`explain`](Self::explain).
    pub(super) fn reasons(&self, words: &str) -> Vec<String> {
        self.explain(words)
            .detail
            .reasons
            .into_iter()
            .map(|reason| reason.code)
            .collect()
    }

    /// Compares the explanations of several names with the same expected values, as
    /// [`expect`](Self::expect) does.
    pub(super) fn expect_each<const N: usize>(
        &self,
        pointers: [&str; N],
        names: &[&str],
        expected: [&str; N],
    ) {
        for words in names {
            self.expect(pointers, &[(words, expected)]);
        }
    }

    /// Compares explanations with the strings expected at JSON pointers. A value that is missing or
    /// is not a string counts as the empty string.
    pub(super) fn expect<const N: usize>(&self, pointers: [&str; N], rows: &[(&str, [&str; N])]) {
        for (words, expected) in rows {
            let explanation = json!(self.explain(words));
            let text_at = |pointer| explanation.pointer(pointer).and_then(Value::as_str);
            let found = pointers.map(|pointer| text_at(pointer).unwrap_or_default());
            assert_eq!(found, *expected, "{words}: {explanation:#}");
        }
    }
}

fn mk_upstreams(address: &str) -> Arc<[Upstream]> {
    [address.parse().unwrap()].into()
}

fn services() -> Vec<Value> {
    let mut early = mk_headless("apps", "early", &["sql:5432"]);
    early["spec"]["publishNotReadyAddresses"] = json!(true);
    let mut services = vec![
        mk_cluster_ip(
            "apps",
            "web",
            &["10.96.0.10", "fd00:10::a"],
            &["http:80", "metrics:9090", ":81"],
        ),
        mk_cluster_ip("prod", "web", &["10.96.0.11"], &["http:80"]),
        mk_cluster_ip("prod", "redis-master", &["10.96.0.12"], &["redis:6379"]),
        mk_cluster_ip("default", "kubernetes", &["10.96.0.1"], &["https:443"]),
        mk_headless("apps", "db", &["sql:5432"]),
        mk_headless("apps", "queue", &["amqp:5672"]),
        mk_headless("apps", "empty", &[]),
        early,
        mk_external_name("apps", "docs", "docs.example.com"),
        mk_external_name("apps", "circle", "circle.apps.svc.cluster.local"),
        mk_external_name("apps", "bare", "intranet"),
        mk_external_name("apps", "dangling", "nothing.apps.svc.cluster.local"),
        mk_external_name("apps", "broken", "not..a.name"),
    ];
    for service in &mut services {
        service["metadata"]["creationTimestamp"] = json!("2026-11-02T08:00:00Z");
    }
    services
}

/// An Endpoints object with ready and not ready addresses.
pub(super) fn mk_unready(
    (namespace, name): (&str, &str),
    ready: &[&str],
    not_ready: &[&str],
    port: &str,
) -> Value {
    let (ready, not_ready) = (mk_addresses(ready), mk_addresses(not_ready));
    let subset =
        json!({"addresses": ready, "notReadyAddresses": not_ready, "ports": mk_ports(&[port])});
    mk_endpoints_of(namespace, name, json!([subset]))
}

fn endpoints() -> Vec<Value> {
    let web = mk_unready(
        ("apps", "web"),
        &["10.244.1.5", "10.244.2.7"],
        &["10.244.3.9"],
        "http:8080",
    );
    let changed = [(
        "endpoints.kubernetes.io/last-change-trigger-time",
        "2026-11-05T07:55:00Z",
    )];
    let ready = ["10.244.1.20 db-0", "10.244.2.20 db-1"];
    let not_ready = ["10.244.3.20 db-2"];
    vec![
        with_annotations(web, &changed),
        mk_endpoints("prod", "web", &["10.244.4.1"], &["http:8080"]),
        mk_unready(("apps", "db"), &ready, &not_ready, "sql:5432"),
        mk_unready(("apps", "queue"), &[], &["10.244.1.30"], "amqp:5672"),
        mk_unready(("apps", "early"), &[], &["10.244.1.40"], "sql:5432"),
        mk_endpoints("apps", "ghost", &["10.244.1.50"], &["http:80"]),
    ]
}

/// A cluster with a Service that has three EndpointSlices.
pub(super) fn sliced() -> Cluster {
    let mut cluster = Cluster::new();
    cluster.source = EndpointsSource::EndpointSlices;
    cluster.add_service(&mk_headless("apps", "many", &["http:80"]));
    for slice in 0..3 {
        let addresses: Vec<String> = (0..100)
            .map(|host| format!("10.244.{slice}.{host}"))
            .collect();
        let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
        cluster.add_slice(&mk_endpoint_slice(
            "apps",
            "many",
            &slice.to_string(),
            &addresses,
            &["http:80"],
        ));
    }
    cluster.sync();
    cluster
}
