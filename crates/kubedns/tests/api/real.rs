//! Tests kubedns with a real kube-apiserver. The environment variables `KUBE_APISERVER` and `ETCD`
//! name the binaries. If a variable is missing, the test is skipped.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cluster::connect::{Access, Connection};
use cluster::objects::ScheduledPod;
use cluster::watch::Scope;
use cluster::watch::{Collection, list_objects};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::Request;
use kube::{Client, Config};
use serde_json::{Value, json};
use testkit::eventually;
use testkit::objects::{mk_endpoints, mk_headless, mk_kubeconfig, mk_service};
use testkit::ports::free_port;
use testkit::process::{Process, Program};

use super::check;
use super::cluster::PATIENCE;
use super::process::Kubedns;

const WEB: &str = "web.apps.svc.cluster.local.";
const DB_0: &str = "db-0.db.apps.svc.cluster.local.";
const LATE: &str = "late.apps.svc.cluster.local.";

/// A kube-apiserver with its own etcd and the default roles.
struct RealCluster {
    directory: tempfile::TempDir,
    binary: PathBuf,
    etcd: u16,
    port: u16,
    server: Option<Process>,
    _etcd: Process,
}

impl RealCluster {
    fn start(binary: PathBuf, etcd: &Path) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (client, peer, port) = (free_port(), free_port(), free_port());
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let etcd = Program::at(etcd).args([
            format!("--data-dir={}", directory.path().join("etcd").display()),
            format!("--listen-client-urls={}", url(client)),
            format!("--advertise-client-urls={}", url(client)),
            format!("--listen-peer-urls={}", url(peer)),
            format!("--initial-advertise-peer-urls={}", url(peer)),
            format!("--initial-cluster=default={}", url(peer)),
            "--unsafe-no-fsync".to_owned(),
        ]);
        let tokens = "admin,admin,1,system:masters\ndns,system:serviceaccount:kube-system:kube-dns,2\ntenant,tenant,3\n";
        std::fs::write(directory.path().join("tokens.csv"), tokens).unwrap();
        let mut cluster = Self {
            directory,
            binary,
            etcd: client,
            port,
            server: None,
            _etcd: etcd.start(),
        };
        cluster.start_server();
        cluster
    }

    fn start_server(&mut self) {
        // kube-apiserver reads the elliptic curve keys of service accounts in SEC 1 format only.
        let (key, accounts) = (tls("server.key"), tls("service-account.key"));
        self.server = None;
        let server = Program::at(&self.binary).args([
            format!("--etcd-servers=http://127.0.0.1:{}", self.etcd),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={}", self.port),
            format!(
                "--cert-dir={}",
                self.directory.path().join("certificates").display()
            ),
            format!("--tls-cert-file={}", tls("server.pem").display()),
            format!("--tls-private-key-file={}", key.display()),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!("--service-account-key-file={}", accounts.display()),
            format!("--service-account-signing-key-file={}", accounts.display()),
            format!(
                "--token-auth-file={}",
                self.directory.path().join("tokens.csv").display()
            ),
            "--authorization-mode=RBAC".to_owned(),
            "--disable-admission-plugins=ServiceAccount".to_owned(),
            "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
            "--endpoint-reconciler-type=none".to_owned(),
        ]);
        self.server = Some(server.start());
    }

    /// Writes a kubeconfig with `token`, and returns its path.
    fn kubeconfig(&self, token: &str) -> PathBuf {
        let path = self.directory.path().join(token);
        let server = format!("https://127.0.0.1:{}", self.port);
        let cluster = json!({"server": server, "certificate-authority": tls("ca.pem")});
        let text = mk_kubeconfig(&cluster, &json!({"token": token})).to_string();
        std::fs::write(&path, text).unwrap();
        path
    }

    async fn client(&self, token: &str) -> Client {
        let file = Kubeconfig::read_from(self.kubeconfig(token)).unwrap();
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
            .await
            .unwrap();
        Client::try_from(config).unwrap()
    }

    /// Creates a running pod with these addresses in namespace `apps`.
    async fn create_pod(&self, name: &str, host_network: bool, addresses: &[&str]) {
        let containers = json!([{"name": "main", "image": "example.test/main"}]);
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "apps", "name": name},
            "spec": {"nodeName": "node-1", "hostNetwork": host_network, "containers": containers},
        });
        self.create("/api/v1/namespaces/apps/pods", &pod).await;
        let ips: Vec<Value> = addresses.iter().map(|ip| json!({"ip": ip})).collect();
        let status =
            json!({"status": {"phase": "Running", "podIP": addresses.first(), "podIPs": ips}});
        let (parameters, patch) = (PatchParams::default(), Patch::Merge(status));
        let request = Request::new("/api/v1/namespaces/apps/pods");
        let request = request
            .patch_subresource("status", name, &parameters, &patch)
            .unwrap();
        self.client("admin")
            .await
            .request::<Value>(request)
            .await
            .unwrap();
    }

    /// Creates an object, and retries until the API server accepts it.
    async fn create(&self, path: &str, object: &Value) {
        let client = self.client("admin").await;
        let data = serde_json::to_vec(object).unwrap();
        eventually(4 * PATIENCE, || {
            let request = Request::new(path)
                .create(&PostParams::default(), data.clone())
                .unwrap();
            let client = client.clone();
            async move { client.request::<Value>(request).await.map(drop) }
        })
        .await;
    }
}

/// Waits until the default roles exist, so that `client` may list Services.
async fn until_allowed(client: &Client) {
    eventually(PATIENCE, || {
        let request = Request::new("/api/v1/services")
            .list(&ListParams::default())
            .unwrap();
        let client = client.clone();
        async move { client.request::<Value>(request).await.map(drop) }
    })
    .await;
}

fn tls(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../cluster/testdata/tls")
        .join(name)
}

#[tokio::test]
async fn kubedns_works_with_real_api_server() {
    let binary = |variable: &str| std::env::var_os(variable).map(PathBuf::from);
    let (Some(apiserver), Some(etcd)) = (binary("KUBE_APISERVER"), binary("ETCD")) else {
        println!("skipped: KUBE_APISERVER and ETCD do not name binaries");
        return;
    };
    let mut cluster = RealCluster::start(apiserver, &etcd);
    let services = "/api/v1/namespaces/apps/services";
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "apps"}});
    cluster.create("/api/v1/namespaces", &namespace).await;
    let web = json!({"clusterIP": "10.96.0.7", "ports": [{"name": "http", "port": 80}]});
    cluster
        .create(services, &mk_service("apps", "web", web))
        .await;
    cluster
        .create(services, &mk_headless("apps", "db", &["sql:5432"]))
        .await;
    let endpoints = mk_endpoints("apps", "db", &["10.0.0.1 db-0"], &["sql:5432"]);
    cluster
        .create("/api/v1/namespaces/apps/endpoints", &endpoints)
        .await;

    until_allowed(&cluster.client("dns").await).await;
    let config = format!("--kubecfg-file={}", cluster.kubeconfig("dns").display());
    let kubedns = Kubedns::start_with(&[&config], &[]).await;
    kubedns.until_ready().await;
    kubedns.until_answered(WEB, "A", "10.96.0.7").await;
    kubedns.until_answered(DB_0, "A", "10.0.0.1").await;
    assert_eq!(
        kubedns.logged("forbidden"),
        1,
        "exactly one list must be forbidden: the role system:kube-dns does not permit EndpointSlices: {:#?}",
        kubedns.process.stderr()
    );

    check_shows_stock_role(config, &kubedns).await;

    cluster.start_server();
    assert_eq!(kubedns.answers(WEB, "A").await, "10.96.0.7");
    let late = json!({"clusterIP": "10.96.0.8", "ports": [{"name": "http", "port": 80}]});
    cluster
        .create(services, &mk_service("apps", "late", late))
        .await;
    kubedns.until_answered(LATE, "A", "10.96.0.8").await;
    kubedns.stop().await;
    roles_in_namespaces_are_enough(&cluster).await;
    pods_are_found_by_first_address(&cluster).await;
}

/// Checks that `check cluster` reports the objects that cannot be read with the role
/// system:kube-dns.
async fn check_shows_stock_role(config: String, kubedns: &Kubedns) {
    let words = [
        config,
        format!("--server=http://{}", kubedns.status),
        format!("--dns={}", kubedns.dns),
    ];
    let (_, checks) = check::check(&words).await;
    let slices = "endpointslices cannot be listed";
    let config_map = "ConfigMap kube-system/kube-dns cannot be read from here";
    let headless = "a headless Service: db.apps.svc.cluster.local has 1 address (";
    for (outcome, start, detail) in [
        ("passed", "https://127.0.0.1", "answers: Kubernetes v"),
        ("passed", "endpoints can be listed", ""),
        ("warning", slices, "is forbidden"),
        ("skipped", config_map, "is forbidden"),
        ("passed", headless, ""),
    ] {
        check::assert_says(&checks, outcome, start, detail);
    }
}

/// Gives the user `tenant` a Role in each of two namespaces, and checks that these Roles are enough
/// for kubedns and for `check cluster`, both with `--namespaces`.
async fn roles_in_namespaces_are_enough(cluster: &RealCluster) {
    let verbs = ["list", "watch"];
    let rules = json!([
        {"apiGroups": [""], "resources": ["services"], "verbs": verbs},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": verbs},
    ]);
    let api = "rbac.authorization.k8s.io";
    for namespace in ["default", "apps"] {
        let metadata = json!({"namespace": namespace, "name": "dns"});
        let role = json!({
            "apiVersion": format!("{api}/v1"), "kind": "Role", "metadata": metadata, "rules": rules,
        });
        let binding = json!({
            "apiVersion": format!("{api}/v1"), "kind": "RoleBinding", "metadata": metadata,
            "subjects": [{"apiGroup": api, "kind": "User", "name": "tenant"}],
            "roleRef": {"apiGroup": api, "kind": "Role", "name": "dns"},
        });
        let path = format!("/apis/{api}/v1/namespaces/{namespace}");
        cluster.create(&format!("{path}/roles"), &role).await;
        cluster
            .create(&format!("{path}/rolebindings"), &binding)
            .await;
    }

    let config = format!("--kubecfg-file={}", cluster.kubeconfig("tenant").display());
    let namespaces = "--namespaces=default,apps".to_owned();
    let kubedns = Kubedns::start_with(&[&config, &namespaces], &[]).await;
    kubedns.until_ready().await;
    kubedns.until_answered(WEB, "A", "10.96.0.7").await;

    let words = [
        config,
        format!("--server=http://{}", kubedns.status),
        format!("--dns={}", kubedns.dns),
    ];
    let (_, checks) = check::check(&words).await;
    let line = "services cannot be listed";
    check::assert_says(&checks, "failed", line, "at the cluster scope");
    let (_, checks) = check::check(&[&words[..], &[namespaces]].concat()).await;
    for line in ["services can be listed", "endpointslices can be listed"] {
        check::assert_says(&checks, "passed", line, "");
    }
    kubedns.stop().await;
}

async fn pods_are_found_by_first_address(cluster: &RealCluster) {
    cluster
        .create_pod("web-0", false, &["10.0.0.1", "fd00::1"])
        .await;
    cluster.create_pod("proxy", true, &["192.0.2.1"]).await;
    let access = Access {
        kubeconfig: Some(cluster.kubeconfig("admin")),
        ..Access::default()
    };
    let connection = Arc::new(Connection::new(access).await.unwrap());
    for (address, name, host_network, addresses) in [
        ("10.0.0.1", "web-0", false, 2),
        ("192.0.2.1", "proxy", true, 1),
    ] {
        let pods = Collection::pods_at(address.parse().unwrap(), &Scope::default()).remove(0);
        let found: Vec<ScheduledPod> = list_objects(&connection, pods, 16, PATIENCE).await.unwrap();
        let [
            ScheduledPod {
                pod,
                node,
                host_network: shared,
            },
        ] = found.as_slice()
        else {
            panic!("{found:?}")
        };
        assert_eq!((pod.key.name.as_str(), node.as_str()), (name, "node-1"));
        assert_eq!((*shared, pod.addresses.len()), (host_network, addresses));
    }
    // The second address of a pod, and an address of no pod.
    for address in ["fd00::1", "10.0.0.10"] {
        let pods = Collection::pods_at(address.parse().unwrap(), &Scope::default()).remove(0);
        let found = list_objects::<ScheduledPod>(&connection, pods, 16, PATIENCE).await;
        assert_eq!(found, Ok(Vec::new()), "{address}");
    }
}
