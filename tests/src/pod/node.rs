//! The node of a pod: the network, the API server, and name servers for external names.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::JoinHandle;

use apiserver::{Faults, Options, RunningApiServer, Store};
use testkit::tls::Gate;
use testkit::upstream::{Upstream, Zone};
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_util::sync::CancellationToken;

use super::netns::{NetNs, ip, runtime};

/// The address of the API server for pods: the cluster IP of the Service `kubernetes`.
pub const API_SERVER: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);
/// The name server in the node's resolv.conf.
pub const NAME_SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 53);
/// A name server for a stub domain.
pub const STUB_SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 54);
/// The token of the pod's service account. The API server accepts no other token.
pub const TOKEN: &str = "the-token-of-kube-dns";

/// Records of the node's name server.
const OUTSIDE: &[&str] = &[
    "www.outside.test. 60 IN A 198.51.100.80",
    "api.names.test. 60 IN A 10.96.0.1",
    "kubedns.names.test. 60 IN A 10.77.0.60",
];
/// Records of the stub domain's server. TTL 0 keeps caches from answering after the stub domain is
/// removed.
const STUB: &[&str] = &["www.acme.test. 0 IN A 198.51.100.90"];

/// A node. Dropping the node stops its servers.
pub struct Node {
    /// The objects in the API server.
    pub store: Store,
    /// The faults of the API server.
    pub faults: Faults,
    /// The network namespace of the node, from which a kubelet sends probes.
    pub namespace: NetNs,
    /// The network namespace of a client on another machine.
    pub client: NetNs,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl Node {
    /// Creates the network namespaces `name` and `client`, and starts the servers.
    pub fn start(name: &str, client: &str) -> Self {
        wire(name, client);
        let (namespace, client) = (NetNs::named(name), NetNs::named(client));
        let stop = CancellationToken::new();
        let (tell, told) = mpsc::channel();
        let thread = {
            let (namespace, stop) = (namespace.clone(), stop.clone());
            std::thread::spawn(move || {
                namespace.enter();
                runtime().block_on(async move {
                    let servers = Servers::start().await;
                    // Sending fails only if the test has ended.
                    let _ = tell.send((servers.api.store.clone(), servers.api.faults.clone()));
                    stop.cancelled().await;
                });
            })
        };
        let (store, faults) = told.recv().expect("the servers must start");
        Self {
            store,
            faults,
            namespace,
            client,
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            // The panic hook has printed any panic of the thread.
            let _ = thread.join();
        }
    }
}

/// The path of the certificate with which pods verify the API server.
pub fn ca_certificate() -> PathBuf {
    data("ca.crt")
}

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("data/pod")
        .join(name)
}

/// Creates the namespaces of node and client, and connects them. podman later connects the node
/// with pods.
fn wire(node: &str, client: &str) {
    ip(&format!("netns add {node}"));
    ip(&format!("netns add {client}"));
    ip(&format!("-n {node} link set lo up"));
    for address in [API_SERVER, NAME_SERVER, STUB_SERVER] {
        ip(&format!("-n {node} address add {address}/32 dev lo"));
    }
    ip(&format!(
        "-n {node} link add to-client type veth peer name to-node netns {client}"
    ));
    ip(&format!("-n {node} address add 10.78.0.1/24 dev to-client"));
    ip(&format!("-n {node} link set to-client up"));
    ip(&format!("-n {client} address add 10.78.0.2/24 dev to-node"));
    ip(&format!("-n {client} link set to-node up"));
    ip(&format!("-n {client} link set lo up"));
    ip(&format!("-n {client} route add default via 10.78.0.1"));
    // Each network namespace has its own value of this setting. The file has the value of the
    // namespace in which the file is opened.
    let forward = || std::fs::write("/proc/sys/net/ipv4/ip_forward", "1");
    NetNs::named(node)
        .run(forward)
        .expect("the node must forward");
}

struct Servers {
    api: RunningApiServer,
    _gate: Gate,
    _upstreams: [Upstream; 2],
}

impl Servers {
    async fn start() -> Self {
        let api = RunningApiServer::start(Options::default());
        api.faults.require_token(Some(TOKEN));
        api.faults.kube_dns_role();
        let certificate = CertificateDer::from_pem_file(data("server.crt"))
            .expect("the certificate must be readable");
        let key =
            PrivateKeyDer::from_pem_file(data("server.key")).expect("the key must be readable");
        let tls = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key);
        let tls = tls.expect("the key must fit the certificate");
        let gate = Gate::at((API_SERVER, 443).into(), tls, api.address).await;
        let outside = Zone::new(OUTSIDE.iter().copied()).handler();
        let stub = Zone::new(STUB.iter().copied()).handler();
        let upstreams = [
            Upstream::start_on((NAME_SERVER, 53).into(), outside).await,
            Upstream::start_on((STUB_SERVER, 53).into(), stub).await,
        ];
        Self {
            api,
            _gate: gate,
            _upstreams: upstreams,
        }
    }
}
