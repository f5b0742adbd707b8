//! Upstreams that forward back to kubedns are detected, excluded, and used again after the loop has
//! ended.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use testkit::eventually;
use testkit::message::Message;
use testkit::reply::Reply;
use testkit::upstream::Upstream;
use tokio::net::UdpSocket;
use tokio::task::JoinSet;

use super::cluster::Cluster;
use super::process::Kubedns;

/// Timeout of all waits: during a loop, kubedns probes every 15 seconds.
const PATIENCE: Duration = Duration::from_mins(2);
const FOUND: &str = "upstream server forwards to this server, left out while it does";
const GONE: &str = "forwarding loop has ended, upstream server in use again";

/// The state of a resolver: the target of its forwarding, and the names of its queries.
#[derive(Default)]
struct Forwarding {
    /// The target; `None` if the resolver answers all names with 198.51.100.9.
    to: Option<SocketAddr>,
    /// Domain whose names the resolver always answers itself.
    knows: &'static str,
    asked: Vec<String>,
}

/// A resolver that can forward to kubedns.
struct Resolver {
    address: SocketAddr,
    forwarding: Arc<Mutex<Forwarding>>,
    _tasks: JoinSet<()>,
}

impl Resolver {
    async fn start(knows: &'static str) -> Self {
        let socket = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
        let address = socket.local_addr().unwrap();
        let forwarding = Arc::new(Mutex::new(Forwarding {
            knows,
            ..Forwarding::default()
        }));
        let (shared, mut tasks) = (Arc::clone(&forwarding), JoinSet::new());
        tasks.spawn(async move {
            let (mut buffer, mut resolving) = ([0; 512], JoinSet::new());
            loop {
                let (length, from) = socket.recv_from(&mut buffer).await.unwrap();
                let (socket, shared, packet) = (
                    Arc::clone(&socket),
                    Arc::clone(&shared),
                    buffer[..length].to_vec(),
                );
                resolving.spawn(async move {
                    if let Some(reply) = resolve(&shared, &packet).await {
                        let _ = socket.send_to(&reply, from).await;
                    }
                });
            }
        });
        Self {
            address,
            forwarding,
            _tasks: tasks,
        }
    }

    fn forward_to(&self, server: Option<SocketAddr>) {
        self.forwarding.lock().unwrap().to = server;
    }

    /// Number of queries for names that end with `end`.
    fn count_of(&self, end: &str) -> usize {
        self.forwarding
            .lock()
            .unwrap()
            .asked
            .iter()
            .filter(|name| name.ends_with(end))
            .count()
    }
}

async fn resolve(forwarding: &Mutex<Forwarding>, packet: &[u8]) -> Option<Vec<u8>> {
    let name = Message::parse(packet).ok()?.questions.first()?.name.clone();
    let to = {
        let mut forwarding = forwarding.lock().unwrap();
        let known = !forwarding.knows.is_empty() && name.ends_with(forwarding.knows);
        forwarding.asked.push(name.clone());
        forwarding.to.filter(|_| !known)
    };
    match to {
        Some(server) => testkit::client::udp(server, packet, Duration::from_secs(5))
            .await
            .ok(),
        None => Some(
            Reply::to(packet)
                .answer(&format!("{name} 60 IN A 198.51.100.9"))
                .wire(),
        ),
    }
}

/// Writes a key of the configuration atomically.
fn write(directory: &Path, key: &str, text: &str) {
    let hidden = directory.join(".new");
    std::fs::write(&hidden, text).unwrap();
    std::fs::rename(&hidden, directory.join(key)).unwrap();
}

/// Starts kubedns with its configuration in a directory: upstreams that need the address of kubedns
/// can be added later.
async fn start(cluster: &Cluster, config: &Path) -> Kubedns {
    let flags = [
        format!("--config-dir={}", config.display()),
        "--config-period=100ms".to_owned(),
    ];
    Kubedns::start(cluster, &flags.each_ref().map(String::as_str)).await
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
async fn looping_upstream_is_left_out() {
    let (cluster, config) = (Cluster::start(), tempfile::tempdir().unwrap());
    let (looping, good) = (
        Resolver::start("").await,
        Upstream::answering("198.51.100.1").await,
    );
    let kubedns = start(&cluster, config.path()).await;
    until_loops(&kubedns, 0.0).await;
    looping.forward_to(Some(kubedns.dns));
    let both = format!(r#"["{}","{}"]"#, looping.address, good.addr());
    write(config.path(), "upstreamNameservers", &both);
    until_loops(&kubedns, 1.0).await;
    assert_eq!(
        kubedns.answers("www.outside.test.", "A").await,
        "198.51.100.1"
    );
    assert_eq!(
        looping.count_of("outside.test."),
        0,
        "it is no longer asked"
    );

    // After a change the loop is probed again, but not logged again.
    let looked = looping.count_of(".forward-loop.test.");
    write(
        config.path(),
        "stubDomains",
        &format!(r#"{{"corp.example":["{}"]}}"#, good.addr()),
    );
    eventually(PATIENCE, || async {
        looping.count_of(".forward-loop.test.") > looked
    })
    .await;
    kubedns
        .until_answered("www.corp.example.", "A", "198.51.100.1")
        .await;
    assert_eq!(
        kubedns.answers("more.outside.test.", "A").await,
        "198.51.100.1"
    );

    looping.forward_to(None);
    until_loops(&kubedns, 0.0).await;
    // kubedns queries this upstream first, and also the other one if the first is slow.
    kubedns
        .until_answered("last.outside.test.", "A", "198.51.100.9")
        .await;
    eventually(PATIENCE, || std::future::ready(kubedns.logged(GONE) == 1)).await;
    assert_eq!(kubedns.logged(FOUND), 1);
    kubedns.stop().await;
}

#[tokio::test]
async fn loops_everywhere_leave_no_upstream() {
    let (cluster, config) = (Cluster::start(), tempfile::tempdir().unwrap());
    let looping = [Resolver::start("").await, Resolver::start("").await];
    let kubedns = start(&cluster, config.path()).await;
    for looping in &looping {
        looping.forward_to(Some(kubedns.dns));
    }
    let [first, second] = looping.each_ref().map(|looping| looping.address);
    let until_told = |text: &'static str, times: usize| {
        let kubedns = &kubedns;
        eventually(PATIENCE, move || {
            std::future::ready(kubedns.logged(text) == times)
        })
    };
    until_told("no upstream servers", 1).await;
    write(
        config.path(),
        "upstreamNameservers",
        &format!(r#"["{first}","{second}"]"#),
    );
    until_loops(&kubedns, 2.0).await;
    assert_eq!(kubedns.answers("www.outside.test.", "A").await, "SERVFAIL");
    assert_eq!(
        looping
            .each_ref()
            .map(|looping| looping.count_of("outside.test.")),
        [0, 0]
    );
    until_told(FOUND, 2).await;
    until_told("no upstream servers", 2).await;
    kubedns.stop().await;
}

/// A resolver of the node may forward cluster names to kubedns, and resolve all other names itself.
#[tokio::test]
async fn looping_upstream_gets_no_missing_names() {
    let (cluster, config) = (Cluster::start(), tempfile::tempdir().unwrap());
    let resolver = Resolver::start("test.").await;
    let directory = format!("--config-dir={}", config.path().display());
    let flags = [
        &*directory,
        "--config-period=100ms",
        "--fallthrough=svc.cluster.local",
    ];
    let kubedns = Kubedns::start(&cluster, &flags).await;
    write(
        config.path(),
        "upstreamNameservers",
        &format!(r#"["{}"]"#, resolver.address),
    );
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
    assert_eq!(
        kubedns.answers("www.outside.test.", "A").await,
        "198.51.100.9"
    );
    kubedns.stop().await;
}

/// A DNS server in the cluster answers its own domain, and forwards all other names to kubedns.
#[tokio::test]
async fn stub_server_may_forward_other_names() {
    let (cluster, config) = (Cluster::start(), tempfile::tempdir().unwrap());
    let (server, good) = (
        Resolver::start("corp.example.").await,
        Upstream::answering("198.51.100.1").await,
    );
    let kubedns = start(&cluster, config.path()).await;
    server.forward_to(Some(kubedns.dns));
    let address = server.address;
    let stub_domains = format!(r#"{{"corp.example":["{address}"],"loop.example":["{address}"]}}"#);
    write(config.path(), "stubDomains", &stub_domains);
    write(
        config.path(),
        "upstreamNameservers",
        &format!(r#"["{}"]"#, good.addr()),
    );
    until_loops(&kubedns, 1.0).await;
    kubedns
        .until_answered("www.outside.test.", "A", "198.51.100.1")
        .await;
    assert_eq!(
        kubedns.answers("www.corp.example.", "A").await,
        "198.51.100.9"
    );
    assert_eq!(
        kubedns.answers("www.loop.example.", "A").await,
        "SERVFAIL",
        "its names must not be forwarded elsewhere"
    );
    assert_eq!(good.count_of("www.loop.example.", "A"), 0);
    kubedns.stop().await;
}
