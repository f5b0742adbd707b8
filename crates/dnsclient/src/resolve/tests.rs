//! Lookups at test servers in place of kubedns and the node's resolver.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use testkit::eventually;
use testkit::reply::Reply;
use testkit::upstream::{Asked, Reaction, Upstream};

use super::*;

const EVENTUALLY: Duration = Duration::from_secs(30);

struct TestResolver {
    wanted: watch::Sender<BTreeSet<String>>,
    resolv_conf: watch::Sender<ResolvConf>,
    results: watch::Receiver<ResolvedNames>,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl TestResolver {
    fn start(kubedns: &Upstream, system: &Upstream, wanted: &[&str]) -> Self {
        Self::start_with_hosts(kubedns, system, wanted, PathBuf::from("/nowhere"))
    }

    fn start_with_hosts(
        kubedns: &Upstream,
        system: &Upstream,
        wanted: &[&str],
        hosts: PathBuf,
    ) -> Self {
        let sources = LookupSources {
            kubedns: kubedns.addr().into(),
            cluster_domains: vec!["cluster.test".to_owned()],
            hosts,
        };
        let (wanted, wants) =
            watch::channel(wanted.iter().map(|name| (*name).to_owned()).collect());
        let file = ResolvConf {
            nameservers: vec![system.addr().into()],
            ..ResolvConf::default()
        };
        let (resolv_conf, follows) = watch::channel(file);
        let mut resolver = ServerNameResolver::new(sources, wants, follows);
        resolver.pace = LookupPace {
            shortest_life: Duration::from_millis(300),
            longest_life: Duration::from_secs(1),
            first_pause: Duration::from_millis(50),
            longest_pause: Duration::from_millis(200),
        };
        let (results, stop) = (resolver.subscribe(), CancellationToken::new());
        let mut tasks = JoinSet::new();
        tasks.spawn(resolver.run(stop.clone()));
        Self {
            wanted,
            resolv_conf,
            results,
            stop,
            tasks,
        }
    }

    async fn until(&mut self, name: &str, expected: &str) {
        let results = self.results.clone();
        eventually(EVENTUALLY, || {
            let found = shown(&results.borrow(), name);
            let outcome = if found == expected {
                Ok(())
            } else {
                Err(found)
            };
            async move { outcome }
        })
        .await;
    }

    async fn end(mut self) {
        self.stop.cancel();
        self.tasks.join_next().await.unwrap().unwrap();
    }
}

fn shown(resolutions: &ResolvedNames, name: &str) -> String {
    resolutions
        .addresses(name)
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(" ")
}

/// A server that answers A queries with `v4`, and AAAA queries with one address, with the given
/// TTL.
async fn serving(v4: &'static [&'static str], ttl: u32) -> Upstream {
    Upstream::start(move |asked: &Asked| {
        let name = asked.name();
        let reply = Reply::to(&asked.packet);
        let reply = match asked.rtype().as_str() {
            "A" => v4.iter().fold(reply, |reply, ip| {
                reply.answer(&format!("{name} {ttl} IN A {ip}"))
            }),
            _ => reply.answer(&format!("{name} {ttl} IN AAAA 2001:db8::1")),
        };
        Reaction::from(reply)
    })
    .await
}

#[tokio::test]
async fn only_cluster_names_are_looked_up_at_kubedns() {
    let kubedns = serving(&["192.0.2.2", "192.0.2.1"], 30).await;
    let system = serving(&["198.51.100.1"], 30).await;
    let mut running = TestResolver::start(
        &kubedns,
        &system,
        &["ns.apps.svc.cluster.test", "ns.other.test"],
    );
    running
        .until(
            "ns.apps.svc.cluster.test",
            "192.0.2.1 192.0.2.2 2001:db8::1",
        )
        .await;
    running
        .until("ns.other.test", "198.51.100.1 2001:db8::1")
        .await;
    assert!(
        kubedns
            .asked()
            .iter()
            .all(|asked| asked.name() == "ns.apps.svc.cluster.test.")
    );
    assert!(
        system
            .asked()
            .iter()
            .all(|asked| asked.name() == "ns.other.test.")
    );

    running.wanted.send_replace(BTreeSet::new());
    running.until("ns.other.test", "").await;
    running.end().await;
}

#[tokio::test]
async fn unanswered_name_does_not_delay_another_name() {
    let kubedns = Upstream::start(|_: &Asked| Reaction::silence()).await;
    let system = serving(&["198.51.100.1"], 30).await;
    let mut running =
        TestResolver::start(&kubedns, &system, &["dead.cluster.test", "ns.other.test"]);
    running
        .until("ns.other.test", "198.51.100.1 2001:db8::1")
        .await;
    assert_eq!(shown(&running.results.borrow(), "dead.cluster.test"), "");
    running.end().await;
}

#[tokio::test]
async fn repeated_lookup_updates_addresses_unless_it_fails() {
    let round = std::sync::Arc::new(AtomicU32::new(0));
    let rounds = std::sync::Arc::clone(&round);
    let kubedns = Upstream::start(move |asked: &Asked| {
        let reply = Reply::to(&asked.packet);
        let name = asked.name();
        Reaction::from(
            match (asked.rtype().as_str(), rounds.load(Ordering::Relaxed)) {
                ("A", 0) => reply.answer(&format!("{name} 1 IN A 192.0.2.1")),
                ("A", 1) => reply.answer(&format!("{name} 1 IN A 192.0.2.2")),
                (_, 2) => reply.rcode("SERVFAIL"),
                (_, 3) => reply.rcode("NXDOMAIN"),
                _ => reply,
            },
        )
    })
    .await;
    let system = serving(&[], 1).await;
    let mut running = TestResolver::start(&kubedns, &system, &["ns.cluster.test"]);
    running.until("ns.cluster.test", "192.0.2.1").await;
    round.store(1, Ordering::Relaxed);
    running.until("ns.cluster.test", "192.0.2.2").await;

    round.store(2, Ordering::Relaxed);
    let before = kubedns.count();
    eventually(EVENTUALLY, || {
        std::future::ready(kubedns.count() >= before + 4)
    })
    .await;
    let address = shown(&running.results.borrow(), "ns.cluster.test");
    assert_eq!(
        address, "192.0.2.2",
        "the address must be kept during failures"
    );
    round.store(3, Ordering::Relaxed);
    running.until("ns.cluster.test", "").await;
    running.end().await;
}

#[tokio::test]
async fn changed_resolv_conf_is_used() {
    let kubedns = serving(&[], 1).await;
    let dead =
        Upstream::start(|asked: &Asked| Reaction::from(Reply::to(&asked.packet).rcode("REFUSED")))
            .await;
    let mut running = TestResolver::start(&kubedns, &dead, &["ns.other.test"]);
    eventually(EVENTUALLY, || std::future::ready(dead.count() >= 2)).await;
    let good = serving(&["198.51.100.7"], 30).await;
    let file = ResolvConf {
        nameservers: vec![dead.addr().into(), good.addr().into()],
        ..ResolvConf::default()
    };
    running.resolv_conf.send_replace(file);
    running
        .until("ns.other.test", "198.51.100.7 2001:db8::1")
        .await;
    running.end().await;
}

#[tokio::test]
async fn hosts_file_precedes_servers() {
    let directory = tempfile::tempdir().unwrap();
    let hosts = directory.path().join("hosts");
    std::fs::write(&hosts, "203.0.113.5 ns.other.test\n").unwrap();
    let (kubedns, system) = (serving(&[], 1).await, serving(&["198.51.100.1"], 1).await);
    let mut running = TestResolver::start_with_hosts(&kubedns, &system, &["ns.other.test"], hosts);
    running.until("ns.other.test", "203.0.113.5").await;
    assert_eq!(system.count(), 0);
    running.end().await;
}
