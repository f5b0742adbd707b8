//! The settings in force follow changes of the configuration's files or `ConfigMap`, of
//! resolv.conf, and of the addresses of stub servers.

use std::ffi::OsString;
use std::path::Path;

use cluster::connect::{Access, Connection};
use daemon::flags::Style;
use tempfile::TempDir;
use testkit::upstream::Upstream;

use super::*;
use crate::metrics::Metrics;

/// Opens the configuration. The API server is unreachable.
async fn open(flags: &[&str]) -> Configuration {
    let words = flags.iter().map(OsString::from);
    let options: Options = daemon::flags::parse("kube-dns", Style::Pflag, words).unwrap();
    let access = Access {
        master_url: Some("http://127.0.0.1:1".to_owned()),
        ..Access::default()
    };
    let connection = Arc::new(Connection::new(access).await.unwrap());
    let metrics = Metrics::new(&daemon::metrics::Metrics::new("test").unwrap()).unwrap();

    let from = options.config_from().unwrap();
    let feed = ConfigFeed::open(&options, from, &connection, &metrics);
    let zone = options.zone().unwrap();
    let config_flags = ConfigFlags::new(&options, &zone, "127.0.0.1:10053".parse().unwrap());
    let loops = watch::Sender::default();
    Configuration::open(
        &options,
        config_flags,
        feed,
        loops.subscribe(),
        &metrics.config,
    )
}

/// Files of a test.
struct Files {
    directory: TempDir,
}

impl Files {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("config")).unwrap();
        Self { directory }
    }

    /// The flags with which kubedns reads these files.
    fn flags(&self) -> [String; 3] {
        let path = self.directory.path().display();
        [
            format!("--config-dir={path}/config"),
            format!("--resolv-conf={path}/resolv.conf"),
            "--config-period=100ms".to_owned(),
        ]
    }

    /// Writes a key of the configuration.
    fn set_key(&self, key: &str, value: &str) {
        write_atomically(&self.directory.path().join("config"), key, value);
    }

    fn remove_key(&self, key: &str) {
        std::fs::remove_file(self.directory.path().join("config").join(key)).unwrap();
    }

    fn set_resolv_conf(&self, text: &str) {
        write_atomically(self.directory.path(), "resolv.conf", text);
    }
}

fn write_atomically(directory: &Path, name: &str, text: &str) {
    let hidden = directory.join(".new");
    std::fs::write(&hidden, text).unwrap();
    std::fs::rename(&hidden, directory.join(name)).unwrap();
}

fn words(flags: &[String]) -> Vec<&str> {
    flags.iter().map(String::as_str).collect()
}

fn upstreams(in_force: &InForce) -> Vec<String> {
    let servers = in_force.zone.upstreams.iter();
    servers.map(ToString::to_string).collect()
}

/// Each stub domain with its servers.
fn stub_domains(in_force: &InForce) -> Vec<String> {
    let mut lines = Vec::new();
    for (domain, servers) in &in_force.servers.stub_domains {
        let servers: Vec<String> = servers.iter().map(ToString::to_string).collect();
        lines.push(format!("{domain}: {}", servers.join(" ")));
    }
    lines
}

async fn until_upstreams(in_force: &mut watch::Receiver<Arc<InForce>>, expected: &[&str]) {
    let is_expected = |now: &Arc<InForce>| upstreams(now) == expected;
    in_force.wait_for(is_expected).await.unwrap();
}

#[tokio::test]
async fn federations_flag_needs_no_config_map() {
    let flags = ["--federations=fed=fed.example"];
    let in_force = open(&flags).await.subscribe();
    let federations = in_force.borrow().federations.clone();
    let domain = federations.get("fed").map(String::as_str);
    assert_eq!(domain, Some("fed.example"));
    assert!(in_force.borrow().zone.is_known);
}

#[tokio::test]
async fn edits_of_files_are_followed() {
    let files = Files::new();
    files.set_resolv_conf("nameserver 192.0.2.3\noptions ndots:5\n");
    let opened = open(&words(&files.flags())).await;
    let mut in_force = opened.subscribe();
    let stop = CancellationToken::new();
    assert_eq!(upstreams(&in_force.borrow()), ["192.0.2.3:53"]);

    let edits = async {
        files.set_key("upstreamNameservers", r#"["192.0.2.1"]"#);
        until_upstreams(&mut in_force, &["192.0.2.1:53"]).await;
        files.set_key("stubDomains", r#"{"a.test":["192.0.2.7:54","ns.a.test"]}"#);
        in_force
            .wait_for(|now| stub_domains(now) == ["a.test: 192.0.2.7:54"])
            .await
            .unwrap();
        files.remove_key("upstreamNameservers");
        until_upstreams(&mut in_force, &["192.0.2.3:53"]).await;

        files.set_resolv_conf("nameserver 192.0.2.4\n");
        until_upstreams(&mut in_force, &["192.0.2.4:53"]).await;
        files.set_resolv_conf("");
        until_upstreams(&mut in_force, &[]).await;
        stop.cancel();
    };
    tokio::join!(opened.run(stop.clone()), edits);
}

/// The first reply of the API server changes the configuration, and sets `is_known`. Both changes
/// are published together.
#[tokio::test]
async fn first_config_map_is_published_once() {
    let opened = open(&["--config-map=kube-dns", "--topology=alone"]).await;
    let mut publisher = opened.publisher;
    let mut in_force = publisher.in_force.subscribe();
    let (feed, source) = dnsconfig::ConfigSource::api();
    let follower = source.open();
    publisher.inputs.state = follower.subscribe();
    let stop = CancellationToken::new();

    let edits = async {
        let upstreams = br#"["192.0.2.1"]"#.to_vec();
        feed.set([("upstreamNameservers".to_owned(), upstreams)].into());
        in_force.changed().await.unwrap();
        assert!(in_force.borrow().zone.is_known);
        assert_eq!(self::upstreams(&in_force.borrow()), ["192.0.2.1:53"]);
        stop.cancel();
    };
    let following = stop.run_until_cancelled(publisher.follow_inputs());
    tokio::join!(follower.run(stop.clone()), following, edits);
    assert!(!in_force.has_changed().unwrap_or_default());
}

#[tokio::test]
async fn rejected_edit_publishes_nothing() {
    let files = Files::new();
    files.set_key("upstreamNameservers", r#"["192.0.2.1"]"#);
    let opened = open(&words(&files.flags())).await;
    let in_force = opened.subscribe();
    let mut state = opened.state();
    let stop = CancellationToken::new();

    let edits = async {
        files.set_key("upstreamNameservers", "nonsense");
        state.wait_for(|state| state.error.is_some()).await.unwrap();
        stop.cancel();
    };
    tokio::join!(opened.run(stop.clone()), edits);
    assert!(!in_force.has_changed().unwrap_or_default());
    assert_eq!(upstreams(&in_force.borrow()), ["192.0.2.1:53"]);
}

#[tokio::test]
async fn search_domains_follow_resolv_conf() {
    let files = Files::new();
    files.set_resolv_conf("search corp.test example.test\n");
    let mut flags = files.flags().to_vec();
    flags.push("--search-suffix=search.test".to_owned());
    let opened = open(&words(&flags)).await;
    let mut in_force = opened.subscribe();
    let stop = CancellationToken::new();
    assert_eq!(search_domain_count(&in_force.borrow()), 2);

    let edits = async {
        files.set_resolv_conf("nameserver 192.0.2.4\n");
        in_force
            .wait_for(|now| search_domain_count(now) == 0)
            .await
            .unwrap();
        stop.cancel();
    };
    tokio::join!(opened.run(stop.clone()), edits);
}

fn search_domain_count(in_force: &InForce) -> usize {
    let search = in_force.zone.search.as_ref().unwrap();
    search.domains().len()
}

/// Until the ConfigMap is read, its stub domains are unknown. Queries for names in these domains
/// must not be sent to the servers of `--nameservers`. So in topologies in which only kubedns
/// forwards to upstreams, kubedns has no upstreams at first. In this test, the ConfigMap is never
/// read, so kubedns uses the flag after [`WITHHOLD_TIMEOUT`].
#[tokio::test(start_paused = true)]
async fn upstreams_are_withheld_if_only_kubedns_forwards() {
    for (topology, is_withheld) in [
        ("--topology=drop-in", false),
        ("--topology=direct", false),
        ("--topology=cache", true),
        ("--topology=alone", true),
    ] {
        let flags = ["--config-map=kube-dns", "--nameservers=192.0.2.1", topology];
        let opened = open(&flags).await;
        let mut in_force = opened.subscribe();
        let stop = CancellationToken::new();
        let begun = tokio::time::Instant::now();
        let is_missing = in_force.borrow().zone.upstreams.is_empty();
        assert_eq!(is_missing, is_withheld, "{topology}");

        let later = async {
            until_upstreams(&mut in_force, &["192.0.2.1:53"]).await;
            let waited = if is_withheld {
                WITHHOLD_TIMEOUT
            } else {
                Duration::ZERO
            };
            assert_eq!(begun.elapsed().as_secs(), waited.as_secs(), "{topology}");
            assert!(!in_force.borrow().zone.is_known, "{topology}");
            stop.cancel();
        };
        tokio::join!(opened.run(stop.clone()), later);
    }
}

/// The names of the stub servers are in the cluster domain, so they are queried at the address of
/// kubedns. In this test, a scripted server answers at this address instead of kubedns.
#[tokio::test]
async fn stub_server_names_are_looked_up() {
    let kubedns = Upstream::answering("192.0.2.8").await;
    let files = Files::new();
    let stubs = r#"{"a.test":["ns.apps.svc.cluster.local:54","192.0.2.7"],"b.test":["ns.apps.svc.cluster.local"]}"#;
    files.set_key("stubDomains", stubs);
    let mut flags = files.flags().to_vec();
    flags.push(format!("--dns-port={}", kubedns.addr().port()));
    flags.push("--dns-bind-address=127.0.0.1".to_owned());

    let opened = open(&words(&flags)).await;
    let mut in_force = opened.subscribe();
    let stop = CancellationToken::new();
    let metrics = Arc::clone(&opened.publisher.metrics);
    let unresolved = ["a.test: 192.0.2.7:53", "b.test: "];
    assert_eq!(stub_domains(&in_force.borrow()), unresolved);
    assert_eq!(metrics.unresolved.get(), 1);

    let lookups = async {
        let resolved = ["a.test: 192.0.2.8:54 192.0.2.7:53", "b.test: 192.0.2.8:53"];
        in_force
            .wait_for(|now| stub_domains(now) == resolved)
            .await
            .unwrap();
        assert_eq!(metrics.unresolved.get(), 0);
        stop.cancel();
    };
    tokio::join!(opened.run(stop.clone()), lookups);
}

#[tokio::test]
async fn rejected_configuration_is_counted() {
    let files = Files::new();
    files.set_key("upstreamNameservers", "nonsense");
    let opened = open(&words(&files.flags())).await;
    let metrics = Arc::clone(&opened.publisher.metrics);
    let mut in_force = opened.subscribe();
    let state = opened.state();
    let stop = CancellationToken::new();
    assert_eq!(metrics.current.get(), 0);
    assert_eq!(metrics.rejected.get(), 1);

    let edits = async {
        files.set_key("upstreamNameservers", r#"["192.0.2.1"]"#);
        until_upstreams(&mut in_force, &["192.0.2.1:53"]).await;
        assert_eq!(metrics.current.get(), 1);
        assert_eq!(metrics.rejected.get(), 1);
        assert!(state.borrow().error.is_none());
        stop.cancel();
    };
    tokio::join!(opened.run(stop.clone()), edits);
}
