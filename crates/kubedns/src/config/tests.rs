use std::ffi::OsString;
use std::path::Path;

use daemon::flags::Style;

use skydns::Zone;
use testkit::upstream::Upstream;
use wire::Name;

use super::*;
use crate::loops::Loops;
use crate::sync::ZoneTemplate;
use cluster::connect::{Access, Connection};

async fn open(flags: &[&str], from: fn(&Options) -> ConfigFrom) -> Configuration {
    let options: Options =
        daemon::flags::parse("kube-dns", Style::Pflag, flags.iter().map(OsString::from)).unwrap();
    let access = Access {
        master_url: Some("http://127.0.0.1:1".to_owned()),
        ..Access::default()
    };
    let connection = Arc::new(Connection::new(access).await.unwrap());
    let metrics = Metrics::new(&daemon::metrics::Metrics::new("test").unwrap()).unwrap();
    let from = from(&options);
    Configuration::open(&options, from, &connection, &metrics)
}

fn from_options(options: &Options) -> ConfigFrom {
    options.config_from().unwrap()
}

/// The search domains after those of the cluster.
fn search_domains(settings: &watch::Receiver<Arc<Settings>>) -> Option<Vec<String>> {
    let settings = settings.borrow();
    let search = settings.search.as_ref()?;
    Some(search.domains().iter().map(ToString::to_string).collect())
}

#[tokio::test]
async fn search_domains_come_from_the_flag_or_follow_resolv_conf() {
    let directory = tempfile::tempdir().unwrap();
    let resolv_conf = directory.path().join("resolv.conf");
    let search =
        "search kube-system.svc.cluster.local Corp.test x.search.cluster.local example.test\n";
    std::fs::write(&resolv_conf, search).unwrap();
    let file = format!("--resolv-conf={}", resolv_conf.display());
    let suffix = "--search-suffix=search.cluster.local";
    let words = [&*file, suffix, "--config-period=100ms"];
    let without = open(&words[..1], from_options).await.subscribe();
    assert_eq!(search_domains(&without), None);
    let flag = open(
        &[&words[..], &["--search-domains=a.test"]].concat(),
        from_options,
    )
    .await
    .subscribe();
    assert_eq!(search_domains(&flag), Some(vec!["a.test.".to_owned()]));
    let routes = flag.borrow().routes(Topology::DropIn);
    assert_ne!(
        routes,
        without.borrow().routes(Topology::DropIn),
        "dnsmasq empties its cache"
    );
    let opened = open(&words, from_options).await;
    let (mut settings, stop) = (opened.subscribe(), CancellationToken::new());
    assert_eq!(
        search_domains(&settings),
        Some(vec!["corp.test.".to_owned(), "example.test.".to_owned()])
    );
    let edits = async {
        write(&resolv_conf, "nameserver 192.0.2.4\n");
        let empty = |now: &Arc<Settings>| {
            now.search
                .as_ref()
                .is_some_and(|search| search.domains().is_empty())
        };
        settings.wait_for(empty).await.unwrap();
        stop.cancel();
    };
    tokio::join!(opened.run(stop.clone()), edits);
}

/// Writes a file atomically.
fn write(path: &Path, text: &str) {
    let hidden = path.with_file_name(".new");
    std::fs::write(&hidden, text).unwrap();
    std::fs::rename(&hidden, path).unwrap();
}

fn upstreams(settings: &watch::Receiver<Arc<Settings>>) -> Vec<String> {
    settings
        .borrow()
        .upstreams
        .iter()
        .map(ToString::to_string)
        .collect()
}

#[tokio::test]
async fn the_flags_alone_give_federations_and_nameservers() {
    let flags = [
        "--federations=fed=fed.example",
        "--nameservers=192.0.2.1,nonsense,[2001:db8::1]:5353",
    ];
    let settings = open(&flags, from_options).await.subscribe();
    assert_eq!(upstreams(&settings), ["192.0.2.1:53", "[2001:db8::1]:5353"]);
    assert_eq!(
        settings.borrow().federations.get("fed").map(String::as_str),
        Some("fed.example")
    );
}

#[tokio::test]
async fn upstreams_come_from_the_configuration_then_the_flag_then_resolv_conf() {
    let directory = tempfile::tempdir().unwrap();
    let (config, resolv_conf) = (
        directory.path().join("config"),
        directory.path().join("resolv.conf"),
    );
    std::fs::create_dir(&config).unwrap();
    std::fs::write(&resolv_conf, "nameserver 192.0.2.3\noptions ndots:5\n").unwrap();
    let flags = [
        format!("--config-dir={}", config.display()),
        format!("--resolv-conf={}", resolv_conf.display()),
        "--config-period=100ms".to_owned(),
    ];
    let words: Vec<&str> = flags.iter().map(String::as_str).collect();
    let opened = open(&words, from_options).await;
    let (mut settings, stop) = (opened.subscribe(), CancellationToken::new());
    assert_eq!(upstreams(&settings), ["192.0.2.3:53"]);
    let with_flag = open(
        &[&words[..], &["--nameservers=192.0.2.2"]].concat(),
        from_options,
    )
    .await
    .subscribe();
    assert_eq!(upstreams(&with_flag), ["192.0.2.2:53"]);
    let edits = async {
        write(&config.join("upstreamNameservers"), r#"["192.0.2.1"]"#);
        settings
            .wait_for(|now| now.upstreams == ["192.0.2.1:53".parse().unwrap()])
            .await
            .unwrap();
        write(
            &config.join("stubDomains"),
            r#"{"a.test":["192.0.2.7:54","ns.a.test"]}"#,
        );
        settings
            .wait_for(|now| now.stub_domains.len() == 1)
            .await
            .unwrap();
        let stub = settings.borrow().stub_domains.clone();
        assert_eq!(
            stub,
            [("a.test".to_owned(), vec!["192.0.2.7:54".parse().unwrap()])]
        );
        std::fs::remove_file(config.join("upstreamNameservers")).unwrap();
        settings
            .wait_for(|now| now.upstreams == ["192.0.2.3:53".parse().unwrap()])
            .await
            .unwrap();
        std::fs::write(&resolv_conf, "nameserver 192.0.2.4\n").unwrap();
        settings
            .wait_for(|now| now.upstreams == ["192.0.2.4:53".parse().unwrap()])
            .await
            .unwrap();
        std::fs::write(&resolv_conf, "").unwrap();
        settings
            .wait_for(|now| now.upstreams.is_empty())
            .await
            .unwrap();
        stop.cancel();
    };
    tokio::join!(opened.run(stop.clone()), edits);
}

#[tokio::test]
async fn in_the_direct_topology_dnsmasq_stands_for_all_servers() {
    let directory = tempfile::tempdir().unwrap();
    let write = |key: &str, text: &str| std::fs::write(directory.path().join(key), text).unwrap();
    write("upstreamNameservers", r#"["192.0.2.1"]"#);
    write(
        "stubDomains",
        r#"{"corp.cluster.local":["192.0.2.7:54"],"named.test":["ns.named.test"],"none.test":[]}"#,
    );
    let config = format!("--config-dir={}", directory.path().display());
    for (topology, expected) in [
        ("--topology=drop-in", ["192.0.2.1:53", "192.0.2.7:54", ""]),
        (
            "--topology=direct",
            ["127.0.0.1:5301", "127.0.0.1:5301", "127.0.0.1:5301"],
        ),
    ] {
        let flags = [&*config, topology, "--nameservers=127.0.0.1:5301"];
        let settings = Arc::clone(&open(&flags, from_options).await.subscribe().borrow());
        let text = |servers: &[wire::Upstream]| {
            servers.iter().map(ToString::to_string).collect::<String>()
        };
        let stubs = settings
            .stub_domains
            .iter()
            .map(|(_, servers)| text(servers));
        assert_eq!(
            std::iter::once(text(&settings.upstreams))
                .chain(stubs)
                .collect::<Vec<_>>(),
            expected
        );

        let domain = Name::parse("cluster.local").unwrap();
        let listening = vec!["192.0.2.99:53".parse().unwrap()];
        let zone = ZoneTemplate {
            zone: Zone::new(&domain),
            topology: Topology::DropIn,
            listening,
        }
        .with(&settings, &Loops::default());
        let below = Name::parse("www.corp.cluster.local").unwrap();
        let (servers, stub) = zone.servers_for(below.wire());
        assert_eq!(
            (text(servers).as_str(), stub.is_some()),
            (expected[1], true),
            "{topology}"
        );
        assert!(!zone.owns(below.wire()), "{topology}");
        for (name, is_routed) in [("www.named.test", true), ("www.none.test", false)] {
            let (servers, stub) = zone.servers_for(Name::parse(name).unwrap().wire());
            assert_eq!(
                (text(servers).as_str(), stub.is_some()),
                (if is_routed { expected[2] } else { expected[0] }, is_routed),
                "{topology} {name}"
            );
        }
    }
}

/// kubedns itself forwards to TCP and TLS upstreams. dnsmasq does not support them, and would
/// forward such names back to kubedns.
#[tokio::test]
async fn in_the_direct_topology_kubedns_itself_asks_what_dnsmasq_cannot() {
    let directory = tempfile::tempdir().unwrap();
    let write = |key: &str, text: &str| std::fs::write(directory.path().join(key), text).unwrap();
    write("upstreamNameservers", r#"["192.0.2.1","tls://192.0.2.2"]"#);
    write(
        "stubDomains",
        r#"{"plain.test":["192.0.2.7"],"tcp.test":["tcp://192.0.2.8"]}"#,
    );
    let config = format!("--config-dir={}", directory.path().display());
    let flags = [
        &*config,
        "--topology=direct",
        "--nameservers=127.0.0.1:5301",
    ];
    let settings = open(&flags, from_options).await.subscribe();
    assert_eq!(
        upstreams(&settings),
        ["192.0.2.1:53", "tls://192.0.2.2:853"]
    );
    let servers = |at: usize| settings.borrow().stub_domains[at].1[0].to_string();
    assert_eq!(
        [servers(0), servers(1)],
        ["127.0.0.1:5301", "tcp://192.0.2.8:53"]
    );
}

/// Names of stub domains in the ConfigMap must not reach the servers of resolv.conf. The API server
/// of this test is unreachable.
#[tokio::test(start_paused = true)]
async fn nobody_outside_is_asked_until_the_config_map_was_read() {
    for (topology, at_first) in [("drop-in", 1), ("direct", 1), ("cache", 0), ("alone", 0)] {
        let topology = format!("--topology={topology}");
        let flags = [
            "--config-map=kube-dns",
            "--nameservers=192.0.2.1",
            &topology,
        ];
        let opened = open(&flags, from_options).await;
        let (mut settings, stop) = (opened.subscribe(), CancellationToken::new());
        assert_eq!(upstreams(&settings).len(), at_first, "{topology}");
        let (begun, settled) = (tokio::time::Instant::now(), opened.settled());
        let later = async {
            settings
                .wait_for(|now| !now.upstreams.is_empty())
                .await
                .unwrap();
            let waited = if at_first == 0 {
                WITHHOLD_TIMEOUT
            } else {
                Duration::ZERO
            };
            assert_eq!(begun.elapsed().as_secs(), waited.as_secs(), "{topology}");
            assert!(!*settled.borrow(), "{topology}");
            stop.cancel();
        };
        tokio::join!(opened.run(stop.clone()), later);
    }
}

#[tokio::test]
async fn stub_servers_given_by_name_are_looked_up_under_the_cluster_domain_by_ourselves() {
    let kubedns = Upstream::answering("192.0.2.8").await;
    let directory = tempfile::tempdir().unwrap();
    let stubs = r#"{"a.test":["ns.apps.svc.cluster.local:54","192.0.2.7"],"b.test":["ns.apps.svc.cluster.local"]}"#;
    std::fs::write(directory.path().join("stubDomains"), stubs).unwrap();
    let flags = [
        format!("--config-dir={}", directory.path().display()),
        format!("--dns-port={}", kubedns.addr().port()),
        "--dns-bind-address=127.0.0.1".to_owned(),
    ];
    let opened = open(&flags.each_ref().map(String::as_str), from_options).await;
    let (mut settings, stop) = (opened.subscribe(), CancellationToken::new());
    let stub_domains = |settings: &Settings| {
        let text = |servers: &[wire::Upstream]| {
            servers
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(" ")
        };
        let domains = settings.stub_domains.iter();
        domains
            .map(|(domain, servers)| format!("{domain}: {}", text(servers)))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        stub_domains(&settings.borrow()),
        ["a.test: 192.0.2.7:53", "b.test: "]
    );
    let metrics = Arc::clone(&opened.metrics);
    assert_eq!(metrics.config.unresolved.get(), 1);
    let resolved = async {
        let expected = ["a.test: 192.0.2.8:54 192.0.2.7:53", "b.test: 192.0.2.8:53"];
        settings
            .wait_for(|now| stub_domains(now) == expected)
            .await
            .unwrap();
        assert_eq!(metrics.config.unresolved.get(), 0);
        stop.cancel();
    };
    tokio::join!(opened.run(stop.clone()), resolved);
}

#[tokio::test]
async fn routes_are_told_by_version_and_by_what_follows_from_it() {
    let told = |flags: &'static [&'static str], topology| async move {
        let settings = Arc::clone(&open(flags, from_options).await.subscribe().borrow());
        settings.routes(topology).to_vec()
    };
    let [one, same, other] = [
        told(&["--nameservers=192.0.2.1"], Topology::Cache).await,
        told(&["--nameservers=192.0.2.1:53"], Topology::DropIn).await,
        told(&["--nameservers=192.0.2.2"], Topology::Cache).await,
    ];
    assert_eq!(
        one[0],
        format!("configuration={}", Config::default().version())
    );
    assert_eq!([&one[0], &one[1]], [&same[0], &same[1]]);
    assert_eq!(
        (one[2].as_str(), same[2].as_str()),
        ("topology=cache", "topology=drop-in")
    );
    assert!(
        one[1].starts_with("routes=") && one[1] != other[1],
        "{one:?} {other:?}"
    );
}

#[tokio::test]
async fn a_refused_configuration_shows_in_the_metrics() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("upstreamNameservers"), "nonsense").unwrap();
    let flags = [
        format!("--config-dir={}", directory.path().display()),
        "--config-period=100ms".to_owned(),
    ];
    let opened = open(&flags.each_ref().map(String::as_str), from_options).await;
    let (metrics, stop) = (Arc::clone(&opened.metrics), CancellationToken::new());
    assert_eq!(
        (metrics.config.current.get(), metrics.config.rejected.get()),
        (0, 1)
    );
    let (mut settings, mut state) = (opened.subscribe(), opened.state());
    let edit = async {
        write(
            &directory.path().join("upstreamNameservers"),
            r#"["192.0.2.1"]"#,
        );
        settings
            .wait_for(|now| now.upstreams == ["192.0.2.1:53".parse().unwrap()])
            .await
            .unwrap();
        assert_eq!(
            (metrics.config.current.get(), metrics.config.rejected.get()),
            (1, 1)
        );
        assert!(state.borrow_and_update().error.is_none());
        stop.cancel();
    };
    tokio::join!(opened.run(stop.clone()), edit);
}
