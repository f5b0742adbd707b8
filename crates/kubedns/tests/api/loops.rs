//! Upstreams that forward back to kubedns are detected, excluded, and used again after the loop has
//! ended.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use apiserver::RunningApiServer;
use testkit::eventually;
use testkit::reply::Reply;
use testkit::upstream::{Asked, Reaction, Upstream};

use super::process::Kubedns;

/// A long timeout, because kubedns probes only every 15 seconds during a loop.
const PATIENCE: Duration = Duration::from_mins(2);
const WWW: &str = "www.outside.test.";
const FOUND: &str = "upstream server forwards to this server, and gets no queries for external names while the loop lasts";
const FOUND_IN_DOMAIN: &str = "upstream server forwards to this server, and gets no queries for names in the domain while the loop lasts";
const GONE: &str = "forwarding loop through the upstream server has ended";

/// A resolver that can forward to kubedns.
struct Resolver {
    upstream: Upstream,
    /// The server that the resolver forwards to; `None` if the resolver answers all queries itself
    /// with 198.51.100.9.
    target: Arc<Mutex<Option<SocketAddr>>>,
}

impl Resolver {
    /// Starts a resolver that always answers names below `knows` itself. If `knows` is empty, there
    /// are no such names.
    async fn start(knows: &'static str) -> Self {
        let target = Arc::<Mutex<Option<SocketAddr>>>::default();
        let forwards_to = Arc::clone(&target);
        let upstream = Upstream::start_with_loop_probes(move |asked: &Asked| {
            let name = asked.name();
            let is_known = !knows.is_empty() && name.ends_with(knows);
            match *forwards_to.lock().unwrap() {
                Some(server) if !is_known => Reaction::send_on(asked, server),
                _ => Reply::to(&asked.packet)
                    .answer(&format!("{name} 60 IN A 198.51.100.9"))
                    .into(),
            }
        })
        .await;
        Self { upstream, target }
    }

    fn forward_to(&self, server: Option<SocketAddr>) {
        *self.target.lock().unwrap() = server;
    }

    /// Number of queries for names that end with `end`.
    fn count_of(&self, end: &str) -> usize {
        let asked = self.upstream.asked();
        let names = asked.iter().map(Asked::name);
        names.filter(|name| name.ends_with(end)).count()
    }
}

/// Writes a key of the configuration atomically.
fn write(directory: &Path, key: &str, text: &str) {
    let hidden = directory.join(".new");
    std::fs::write(&hidden, text).unwrap();
    std::fs::rename(&hidden, directory.join(key)).unwrap();
}

/// Starts kubedns with its configuration in a directory, so that upstreams that need the address of
/// kubedns can be added later.
async fn start(cluster: &RunningApiServer, config: &Path, flags: &[&str]) -> Kubedns {
    let directory = format!("--config-dir={}", config.display());
    let ours = [directory.as_str(), "--config-period=100ms"];
    Kubedns::start(cluster, &[&ours, flags].concat()).await
}

/// Configures the upstreams.
fn set_upstreams(config: &Path, addresses: &[SocketAddr]) {
    let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    let value = serde_json::to_string(&addresses).unwrap();
    write(config, "upstreamNameservers", &value);
}

async fn until_loops(kubedns: &Kubedns, expected: f64) {
    eventually(PATIENCE, || async {
        let loops = kubedns.metric("kubedns_forward_loops").await;
        if loops.is_some_and(|loops| (loops - expected).abs() < f64::EPSILON) {
            Ok(())
        } else {
            Err(loops)
        }
    })
    .await;
}

#[tokio::test]
async fn looping_upstream_is_left_out_until_loop_ends() {
    let (cluster, config) = (RunningApiServer::empty(), tempfile::tempdir().unwrap());
    let looping = Resolver::start("").await;
    let good = Upstream::answering("198.51.100.1").await;
    let kubedns = start(&cluster, config.path(), &[]).await;
    until_loops(&kubedns, 0.0).await;
    looping.forward_to(Some(kubedns.dns));
    set_upstreams(config.path(), &[looping.upstream.addr(), good.addr()]);
    until_loops(&kubedns, 1.0).await;
    assert_eq!(kubedns.answers(WWW, "A").await, "198.51.100.1");
    let count = looping.count_of("outside.test.");
    assert_eq!(
        count, 0,
        "the looping upstream must receive no queries of clients"
    );

    // After a change of the configuration, kubedns probes the upstream again, but does not log the
    // loop again.
    let probed = looping.count_of(".forward-loop.test.");
    let stub_domains = format!(r#"{{"corp.example":["{}"]}}"#, good.addr());
    write(config.path(), "stubDomains", &stub_domains);
    eventually(PATIENCE, || async {
        looping.count_of(".forward-loop.test.") > probed
    })
    .await;
    kubedns
        .until_answered("www.corp.example.", "A", "198.51.100.1")
        .await;
    let more = kubedns.answers("more.outside.test.", "A").await;
    assert_eq!(more, "198.51.100.1");

    looping.forward_to(None);
    until_loops(&kubedns, 0.0).await;
    // kubedns first queries the upstream whose loop has ended. If that upstream is slow, kubedns
    // also queries the other upstream, whose answer may then come earlier.
    kubedns
        .until_answered("last.outside.test.", "A", "198.51.100.9")
        .await;
    eventually(PATIENCE, || std::future::ready(kubedns.logged(GONE) == 1)).await;
    assert_eq!(kubedns.logged(FOUND), 1);
    kubedns.stop().await;
}

#[tokio::test]
async fn external_query_gets_servfail_if_all_upstreams_loop() {
    let (cluster, config) = (RunningApiServer::empty(), tempfile::tempdir().unwrap());
    let looping = [Resolver::start("").await, Resolver::start("").await];
    let kubedns = start(&cluster, config.path(), &[]).await;
    for looping in &looping {
        looping.forward_to(Some(kubedns.dns));
    }
    let addresses = looping.each_ref().map(|looping| looping.upstream.addr());
    let until_told = |text: &'static str, times: usize| {
        let kubedns = &kubedns;
        eventually(PATIENCE, move || {
            std::future::ready(kubedns.logged(text) == times)
        })
    };
    until_told("no usable upstream servers", 1).await;
    set_upstreams(config.path(), &addresses);
    until_loops(&kubedns, 2.0).await;
    assert_eq!(kubedns.answers("www.outside.test.", "A").await, "SERVFAIL");
    let counts = looping
        .each_ref()
        .map(|looping| looping.count_of("outside.test."));
    assert_eq!(counts, [0, 0]);
    until_told(FOUND, 2).await;
    until_told("no usable upstream servers", 2).await;
    kubedns.stop().await;
}

/// A resolver of the node may forward cluster names to kubedns, and resolve all other names itself.
#[tokio::test]
async fn missing_names_are_not_forwarded_to_looping_upstream() {
    let (cluster, config) = (RunningApiServer::empty(), tempfile::tempdir().unwrap());
    let resolver = Resolver::start("test.").await;
    let flags = ["--fallthrough=svc.cluster.local"];
    let kubedns = start(&cluster, config.path(), &flags).await;
    set_upstreams(config.path(), &[resolver.upstream.addr()]);
    kubedns
        .until_answered("vm.svc.cluster.local.", "A", "198.51.100.9")
        .await;
    assert_eq!(kubedns.answers("vm.cluster.local.", "A").await, "NXDOMAIN");
    assert_eq!(resolver.count_of("vm.cluster.local."), 0);

    resolver.forward_to(Some(kubedns.dns));
    until_loops(&kubedns, 1.0).await;
    eventually(PATIENCE, || async {
        kubedns.answers("missing.svc.cluster.local.", "A").await == "NXDOMAIN"
    })
    .await;

    // kubedns answers NXDOMAIN for missing names now, but still recognizes its own probes.
    let probe_count = || resolver.count_of(".forward-loop.svc.cluster.local.");
    let probed = probe_count();
    eventually(PATIENCE, || async { probe_count() >= probed + 2 }).await;
    until_loops(&kubedns, 1.0).await;
    assert_eq!(kubedns.logged(GONE), 0);
    let missing = kubedns.answers("missing.svc.cluster.local.", "A").await;
    assert_eq!(missing, "NXDOMAIN");
    assert_eq!(kubedns.answers(WWW, "A").await, "198.51.100.9");
    kubedns.stop().await;
}

/// A DNS server in the cluster answers its own domain, and forwards all other names to kubedns.
#[tokio::test]
async fn only_stub_domain_with_loop_gets_servfail() {
    let (cluster, config) = (RunningApiServer::empty(), tempfile::tempdir().unwrap());
    let server = Resolver::start("corp.example.").await;
    let good = Upstream::answering("198.51.100.1").await;
    let kubedns = start(&cluster, config.path(), &[]).await;
    server.forward_to(Some(kubedns.dns));
    let address = server.upstream.addr();
    let stub_domains = format!(r#"{{"corp.example":["{address}"],"loop.example":["{address}"]}}"#);
    write(config.path(), "stubDomains", &stub_domains);
    set_upstreams(config.path(), &[good.addr()]);
    until_loops(&kubedns, 1.0).await;
    kubedns.until_answered(WWW, "A", "198.51.100.1").await;
    let own = kubedns.answers("www.corp.example.", "A").await;
    assert_eq!(own, "198.51.100.9");
    // Names of the stub domain with the loop must not be forwarded to another server.
    let looping = kubedns.answers("www.loop.example.", "A").await;
    assert_eq!(looping, "SERVFAIL");
    assert_eq!(good.count_of("www.loop.example.", "A"), 0);
    assert_eq!(kubedns.logged(FOUND_IN_DOMAIN), 1);

    write(config.path(), "stubDomains", "{}");
    until_loops(&kubedns, 0.0).await;
    eventually(PATIENCE, || std::future::ready(kubedns.logged(GONE) == 1)).await;
    kubedns.stop().await;
}
