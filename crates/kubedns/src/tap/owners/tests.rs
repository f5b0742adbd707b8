use apiserver::{Action, Options, Resource, Rule, RunningApiServer};
use cluster::connect::Access;
use cluster::objects::FromApi as _;
use serde_json::{Value, json};

use super::*;

/// Timeout of look-ups, unless a test sets another. It is generous for slow machines.
const PATIENCE: Duration = Duration::from_secs(30);
/// Timeout of look-ups that the API server does not answer in time.
const SOON: Duration = Duration::from_millis(100);

struct Cluster {
    server: RunningApiServer,
    owners: OwnerFinder,
}

impl Cluster {
    async fn start(namespaces: Namespaces, protobuf: bool) -> Self {
        let server = RunningApiServer::start(Options {
            protobuf,
            ..Options::empty()
        });
        let connection = connect(&server).await;
        let scope = Scope {
            namespaces,
            services: None,
        };
        let owners = OwnerFinder {
            timeout: PATIENCE,
            ..OwnerFinder::new(&connection, &scope, None)
        };
        Self { server, owners }
    }

    async fn with_pods(pods: &[&str]) -> Self {
        let cluster = Self::start(Namespaces::All, true).await;
        cluster.set(pods);
        cluster
    }

    fn set(&self, pods: &[&str]) {
        for text in pods {
            self.server.set(pod(text));
        }
    }

    /// The owner of each address as text, `-` for none.
    async fn owner_texts(&self, addresses: &[IpAddr]) -> Vec<String> {
        let owners = tokio::time::timeout(2 * PATIENCE, self.owners.find_owners(addresses))
            .await
            .unwrap();
        let text = |address| {
            owners
                .get(address)
                .and_then(ClientOwner::text)
                .unwrap_or_else(|| "-".to_owned())
        };
        addresses.iter().map(text).collect()
    }

    /// Advances the clock of this thread. The server then closes its idle connections, and a
    /// request on one of them would fail. So `owners` gets a new `Connection`, which has no idle
    /// connections.
    async fn after(&mut self, time: Duration) {
        tokio::time::pause();
        tokio::time::advance(time).await;
        tokio::time::resume();

        self.owners.connection = connect(&self.server).await;
    }

    /// Number of requests since the previous call.
    fn requests(&self) -> usize {
        let requests = self.server.faults.requests().len();
        self.server.faults.clear_requests();
        requests
    }
}

/// A pod from the text `namespace/name phase node network address ...`.
fn pod(text: &str) -> Value {
    let words: Vec<&str> = text.split(' ').collect();
    let [key, phase, node, network, addresses @ ..] = words.as_slice() else {
        panic!("{text}")
    };
    let (namespace, name) = key.split_once('/').unwrap();
    let ips: Vec<Value> = addresses.iter().map(|ip| json!({"ip": ip})).collect();
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": namespace, "name": name},
        "spec": {"nodeName": node, "hostNetwork": *network == "host"},
        "status": {"phase": phase, "podIP": addresses.first(), "podIPs": ips},
    })
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// The addresses from 10.0.0.1 on.
fn addresses(count: u8) -> Vec<IpAddr> {
    (1..=count).map(|host| [10, 0, 0, host].into()).collect()
}

async fn connect(server: &RunningApiServer) -> Arc<Connection> {
    let access = Access {
        master_url: Some(server.url()),
        ..Access::default()
    };
    Arc::new(Connection::new(access).await.unwrap())
}

#[tokio::test]
async fn owners_are_found_in_both_encodings() {
    let pods = [
        "apps/web-0 Running node-1 pod 10.0.0.1 fd00::1",
        "apps/ended Succeeded node-2 pod 10.0.0.1",
        "apps/old Failed node-2 pod 10.0.0.2",
        "kube-system/proxy Running node-1 host 192.0.2.1",
        "kube-system/exporter Running node-1 host 192.0.2.1",
        "apps/agent Running node-2 host 192.0.2.2",
        "apps/leaving Running node-1 pod 10.0.0.3",
        "apps/coming Running node-1 pod 10.0.0.3",
        "apps/six Running node-1 pod fd00::6",
    ];
    for protobuf in [true, false] {
        let cluster = Cluster::start(Namespaces::All, protobuf).await;
        cluster.set(&pods);
        let web = "pod apps/web-0 on node-1";
        for (name, address, owner) in [
            ("a pod, and one that has ended", "10.0.0.1", web),
            ("IPv6", "fd00::6", "pod apps/six on node-1"),
            ("ended", "10.0.0.2", "-"),
            ("several pods of a node", "192.0.2.1", "node node-1"),
            ("a pod with its node's address", "192.0.2.2", "node node-2"),
            ("an address of two running pods", "10.0.0.3", "-"),
            ("a further address of a pod", "fd00::1", "-"),
            ("outside of the cluster", "198.51.100.1", "-"),
        ] {
            let found = cluster.owner_texts(&[ip(address)]).await;
            assert_eq!(found, [owner], "{name}, protobuf: {protobuf}");
        }
    }
}

#[test]
fn pod_with_other_address_is_no_owner() {
    let found = [
        ScheduledPod::from_api(&pod("a/b Running c pod 10.0.0.1").to_string())
            .unwrap()
            .object,
    ];
    let owner = select_owner(ip("10.0.0.1"), &found).text();
    assert_eq!(owner.as_deref(), Some("pod a/b on c"));
    assert_eq!(
        select_owner(ip("10.0.0.2"), &found),
        ClientOwner::default(),
        "a listed pod without the address must not be the owner"
    );
}

#[tokio::test]
async fn results_of_lookups_are_cached_until_they_expire() {
    let mut cluster = Cluster::with_pods(&["a/b Running c pod 10.0.0.1"]).await;
    let addresses = [ip("10.0.0.1"), ip("10.0.0.2")];
    for requests in [2, 0] {
        assert_eq!(cluster.owner_texts(&addresses).await, ["pod a/b on c", "-"]);
        assert_eq!(cluster.requests(), requests);
    }
    cluster.set(&["a/b Failed c pod 10.0.0.1", "a/next Running c pod 10.0.0.1"]);
    cluster.after(OWNER_LIFETIME).await;
    let owners = cluster.owner_texts(&addresses).await;
    assert_eq!(owners, ["pod a/next on c", "-"]);
}

#[tokio::test]
async fn each_call_looks_up_as_many_owners_as_request_limit_allows() {
    let addresses = addresses(50);
    let only = |count: usize| {
        Namespaces::Only((0..count).map(|index| format!("n{index}").into()).collect())
    };
    for (namespaces, known, requests) in [
        (Namespaces::All, 20, 20),
        (only(3), 6, 18),
        (only(20), 1, 20),
        (only(21), 0, 0),
    ] {
        let name = format!("{namespaces:?}");
        let cluster = Cluster::start(namespaces, true).await;
        let pods: Vec<String> = addresses
            .iter()
            .map(|address| format!("n0/p{address} Running c pod {address}"))
            .collect();
        cluster.set(&pods.iter().map(String::as_str).collect::<Vec<_>>());
        for look in 1..=2 {
            let owners = cluster.owner_texts(&addresses).await;
            let first = owners.iter().position(|owner| owner == "-");
            assert_eq!(first, Some(look * known), "look {look}, {name}: {owners:?}");
            assert_eq!(cluster.requests(), requests, "look {look}, {name}");
        }
    }
}

#[tokio::test]
async fn cached_owners_are_bounded() {
    let mut cluster = Cluster::with_pods(&[]).await;
    let addresses: Vec<IpAddr> = (0..400u32).map(|host| IpAddr::V4(host.into())).collect();
    for page in addresses.chunks(MAX_REQUESTS) {
        cluster.owner_texts(page).await;
    }
    let cached = |cluster: &Cluster| cluster.owners.cache.lock().owners.len();
    assert_eq!(cluster.requests(), MAX_CACHED);
    assert_eq!(cached(&cluster), MAX_CACHED);
    cluster.after(OWNER_LIFETIME).await;
    cluster.owner_texts(&addresses).await;
    assert_eq!(cluster.requests(), MAX_REQUESTS);
    assert_eq!(cached(&cluster), MAX_REQUESTS);
}

#[tokio::test]
async fn failure_pauses_lookups() {
    let delay = u64::try_from(PATIENCE.as_millis()).unwrap() * 10;
    let refused = |code| Action::Refuse { code };
    for (name, action, pause) in [
        ("the role does not allow it", refused(403), PAUSE_REFUSED),
        ("too many requests", refused(429), PAUSE_FAILED),
        (
            "an API server without the field selector",
            refused(400),
            PAUSE_FAILED,
        ),
        ("no answer", Action::Freeze, PAUSE_FAILED),
        ("too slow", Action::Delay { ms: delay }, PAUSE_FAILED),
        ("garbage", Action::Garbage, PAUSE_FAILED),
        ("cut", Action::Cut { after: 10 }, PAUSE_FAILED),
    ] {
        let mut cluster = Cluster::with_pods(&["a/b Running c pod 10.0.0.1"]).await;
        let is_silent = matches!(action, Action::Freeze | Action::Delay { .. });
        cluster.owners.timeout = if is_silent { SOON } else { PATIENCE };
        let addresses = addresses(10);
        let rule = cluster
            .server
            .faults
            .add(Rule::new(action).on([Resource::Pods]));
        assert_eq!(cluster.owner_texts(&addresses).await, ["-"; 10], "{name}");
        assert!((1..=MAX_PARALLEL).contains(&cluster.requests()), "{name}");
        cluster.server.faults.remove(rule);
        assert_eq!(cluster.owner_texts(&addresses).await, ["-"; 10], "{name}");
        assert_eq!(
            cluster.requests(),
            0,
            "{name}: the API server must not be asked again at once"
        );
        cluster.owners.timeout = PATIENCE;
        cluster.after(pause).await;
        let owners = cluster.owner_texts(&addresses).await;
        assert_eq!(owners[0], "pod a/b on c", "{name}");
    }
}

#[tokio::test]
async fn owners_found_before_timeout_are_returned() {
    let addresses = addresses(10);
    let mut cluster = Cluster::with_pods(&[]).await;
    for address in &addresses {
        cluster.set(&[&format!("a/p{address} Running c pod {address}")]);
    }
    cluster.owners.timeout = Duration::from_secs(2);
    cluster
        .server
        .faults
        .add(Rule::new(Action::Freeze).on([Resource::Pods]).skip(3));
    let owners = cluster.owner_texts(&addresses).await;
    let found = owners.iter().filter(|owner| owner.starts_with("pod a/p"));
    assert_eq!(found.count(), 3, "{owners:?}");
}

#[tokio::test]
async fn cached_owners_are_found_without_api_server_until_they_expire() {
    let mut cluster = Cluster::with_pods(&["a/b Running c pod 10.0.0.1"]).await;
    let owners = cluster.owner_texts(&[ip("10.0.0.1")]).await;
    assert_eq!(owners, ["pod a/b on c"]);
    cluster.server.faults.freeze();
    cluster.owners.timeout = SOON;
    let addresses = [ip("10.0.0.1"), ip("10.0.0.2")];
    assert_eq!(cluster.owner_texts(&addresses).await, ["pod a/b on c", "-"]);
    cluster.after(OWNER_LIFETIME).await;
    let owners = cluster.owner_texts(&addresses).await;
    assert_eq!(owners, ["-", "-"], "an expired owner must not be shown");
}

#[tokio::test]
async fn concurrent_calls_share_one_lookup() {
    let cluster = Cluster::with_pods(&["a/b Running c pod 10.0.0.1"]).await;
    cluster
        .server
        .faults
        .add(Rule::new(Action::Delay { ms: 20 }).on([Resource::Pods]));
    let addresses = [ip("10.0.0.1")];
    let looks = futures::future::join_all((0..5).map(|_| cluster.owner_texts(&addresses))).await;
    assert_eq!(looks.concat(), ["pod a/b on c"; 5]);
    assert_eq!(cluster.requests(), 1);
}

#[tokio::test]
async fn pods_of_node_are_listed_once() {
    let mut cluster = Cluster::with_pods(&[
        "apps/web-0 Running node-1 pod 10.0.0.1 fd00::1",
        "apps/web-1 Running node-1 pod 10.0.0.2",
        "apps/ended Succeeded node-1 pod 10.0.0.3",
        "apps/elsewhere Running node-2 pod 10.0.1.1",
        "kube-system/proxy Running node-1 host 192.0.2.1",
    ])
    .await;
    cluster.owners.node = Some("node-1".to_owned());

    let addresses = [
        "10.0.0.1",
        "fd00::1",
        "10.0.0.2",
        "10.0.0.3",
        "10.0.1.1",
        "192.0.2.1",
    ];
    assert_eq!(
        cluster.owner_texts(&addresses.map(ip)).await,
        [
            "pod apps/web-0 on node-1",
            "pod apps/web-0 on node-1",
            "pod apps/web-1 on node-1",
            "-",
            "-",
            "node node-1",
        ]
    );
    assert_eq!(cluster.requests(), 1);

    // Known owners need no list.
    cluster.owner_texts(&[ip("10.0.0.2")]).await;
    assert_eq!(cluster.requests(), 0);
}
