//! Runs manifests as real pods, with real images, containers and network namespaces. The tests need
//! root and some programs, such as podman: see `tests::pod::means`. If something is missing, the
//! tests are skipped with a message, or fail if the environment variable `KUBE_DNS_RS_PODS` is
//! `required`.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on has to end there"
)]

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use testkit::eventually;
use testkit::objects::{mk_cluster_ip, mk_endpoints_of, mk_headless, mk_ports};
use testkit::processes::send;
use testkit::table;
use tests::pod::container::Container;
use tests::pod::node::{NAME_SERVER, TOKEN, ca_certificate};
use tests::pod::played::PATIENCE;
use tests::pod::{Place, PlayedPod, kubelet, means};

/// Queries of a client in the cluster, and the answers of the pod.
const ANSWERS: &str = "
    kubernetes.default.svc.cluster.local.             | A   | NOERROR 10.96.0.1
    _https._tcp.kubernetes.default.svc.cluster.local. | SRV | NOERROR 10 100 443 kubernetes.default.svc.cluster.local.
    1.0.96.10.in-addr.arpa.                           | PTR | NOERROR kubernetes.default.svc.cluster.local.
    missing.default.svc.cluster.local.                | A   | NXDOMAIN
    www.outside.test.                                 | A   | NOERROR 198.51.100.80
    missing.outside.test.                             | A   | NXDOMAIN
";

/// The manifests for older generations of kube-dns.
const GENERATIONS: &[(&str, Config)] = &[
    ("legacy-1.4", Config::None),
    ("legacy-1.5", Config::OfTheApi),
    ("legacy-1.6", Config::Mounted),
    ("legacy-1.9", Config::Mounted),
];

/// The way in which a generation of kube-dns gets its `ConfigMap`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Config {
    /// There is no ConfigMap.
    None,
    /// kubedns requests the ConfigMap from the API server. The role `system:kube-dns` does not
    /// permit this request.
    OfTheApi,
    /// The ConfigMap is mounted as a volume.
    Mounted,
}

#[test]
fn stock() {
    plays("stock-1.36");
}

#[test]
fn hardened() {
    plays("hardened");
}

#[test]
fn direct() {
    plays("direct");
}

#[test]
fn alone() {
    plays("alone");
}

/// Runs the manifests of all older generations on one node, one after the other.
#[test]
fn pods_of_older_generations_answer() {
    if !means::are_there() {
        return;
    }
    let place = Arc::new(Place::make());
    for (manifest, config) in GENERATIONS {
        means::say(manifest);
        plays_briefly(PlayedPod::in_place(&place, manifest), *config);
    }
}

/// The binaries in the images look names up in DNS and in `/etc/hosts`. Their C library may differ
/// from the C library of the build machine.
#[test]
fn names_are_looked_up() {
    if !means::are_there() {
        return;
    }
    let place = Place::make();
    let kubeconfig = kubeconfig_with_a_name(&place);
    let kubedns = concat!(
        "--ip 10.77.0.60 localhost/kube-dns-rs/kubedns:",
        env!("CARGO_PKG_VERSION"),
        " --kubecfg-file=/kubeconfig --dns-port=10053"
    );
    start(
        &place,
        &format!("--volume {kubeconfig}:/kubeconfig:ro {kubedns}"),
    );
    becomes_good(&place, "10.77.0.60:8081", "/readiness");

    let probe = |label: &str, name: &str| {
        format!("--probe={label},{name}:10053,kubernetes.default.svc.cluster.local,1,A")
    };
    let probes = [
        probe("bydns", "kubedns.names.test"),
        probe("byhosts", "kubedns.hosts.test"),
    ]
    .join(" ");
    let sidecar = concat!(
        "--ip 10.77.0.61 --add-host kubedns.hosts.test:10.77.0.60 localhost/kube-dns-rs/sidecar:",
        env!("CARGO_PKG_VERSION")
    );
    start(&place, &format!("{sidecar} {probes}"));
    for label in ["bydns", "byhosts"] {
        becomes_good(&place, "10.77.0.61:10054", &format!("/healthcheck/{label}"));
    }
}

fn kubeconfig_with_a_name(place: &Place) -> String {
    let authority = STANDARD.encode(std::fs::read(ca_certificate()).unwrap());
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\nusers: [{{name: u, user: {{token: {TOKEN}}}}}]\n\
         clusters: [{{name: c, cluster: {{server: 'https://api.names.test', \
         certificate-authority-data: {authority}}}}}]\n"
    );
    let file = place.directory().join("kubeconfig");
    std::fs::write(&file, text).unwrap();
    file.display().to_string()
}

/// Starts a container from one of our images in the network of the pods. The container uses the
/// name server of the node.
fn start(place: &Place, words: &str) {
    let network = place.podman.network();
    let options = format!("run --detach --network {network} --dns {NAME_SERVER} {words}");
    place.podman.run(options.split(' '));
}

fn becomes_good(place: &Place, address: &str, path: &str) {
    let address = address.parse().unwrap();
    let good = eventually(PATIENCE, || {
        kubelet::is_good(address, path, Duration::from_secs(5))
    });
    place.node.namespace.block_on(good);
}

/// Runs all checks of a manifest with one pod, because starting a pod takes a long time.
fn plays(manifest: &str) {
    if !means::are_there() {
        return;
    }
    let forwarding = host_forwards();
    let pod = PlayedPod::of(manifest);
    has_the_rights_of_its_manifest(&pod);
    answers(&pod);
    follows_the_cluster(&pod);
    follows_the_config_map(&pod);
    a_dnsmasq_that_ends_is_started_again(&pod);
    containers_that_end_come_back(&pod);
    containers_that_hang_come_back(&pod);
    assert_eq!(
        host_forwards(),
        forwarding,
        "IP forwarding of the host must not change"
    );
    assert!(
        !host_rules().contains("10.77.0."),
        "the packet filter of the host must not change"
    );
    let traces = pod.place.traces();
    drop(pod);
    let left: Vec<_> = traces.iter().filter(|path| path.exists()).collect();
    assert!(
        left.is_empty(),
        "these paths of the test still exist: {left:?}"
    );
}

/// Runs the checks for a manifest of an older generation. The probes of the pod have already
/// succeeded.
fn plays_briefly(pod: PlayedPod, config: Config) {
    // kubedns begins with the default configuration. With `OfTheApi`, it keeps this configuration
    // for now, because the role of kubedns does not permit reading the ConfigMap.
    answers(&pod);
    if config == Config::OfTheApi {
        // The API server now permits all requests. kubedns would retry the denied request only
        // after a few minutes. The restart below makes kubedns read the ConfigMap at once.
        pod.node().faults.clear();
    }
    comes_back(&pod, "kubedns", "killed", kill);
    if config != Config::None {
        follows_the_config_map(&pod);
    }
    let faults = &pod.node().faults;
    faults.clear();
    faults.kube_dns_role();
    pod.remove();
}

/// The IP forwarding setting of the host. podman may change this setting only in the node's network
/// namespace.
fn host_forwards() -> String {
    std::fs::read_to_string("/proc/sys/net/ipv4/ip_forward").unwrap()
}

/// The packet filter rules of the host. podman must not change them, either.
fn host_rules() -> String {
    let output = std::process::Command::new("iptables-save")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn answers(pod: &PlayedPod) {
    assert!(pod.is_ready());
    for [name, rtype, expected] in table::rows(ANSWERS) {
        assert_eq!(pod.ask(name, rtype), expected, "{name} {rtype}");
    }
}

fn follows_the_cluster(pod: &PlayedPod) {
    let store = &pod.node().store;
    store
        .set(mk_cluster_ip("shop", "web", &["10.96.7.7"], &["http:80"]))
        .unwrap();
    store.set(mk_headless("shop", "db", &["sql:5432"])).unwrap();
    let addresses =
        json!([{"ip": "10.244.0.7", "hostname": "db-0"}, {"ip": "10.244.0.8", "hostname": "db-1"}]);
    let subsets = json!([{"addresses": addresses, "ports": mk_ports(&["sql:5432"])}]);
    store.set(mk_endpoints_of("shop", "db", subsets)).unwrap();
    pod.until("web.shop.svc.cluster.local.", "A", "NOERROR 10.96.7.7");
    pod.until(
        "db.shop.svc.cluster.local.",
        "A",
        "NOERROR 10.244.0.7 10.244.0.8",
    );
    pod.until("db-1.db.shop.svc.cluster.local.", "A", "NOERROR 10.244.0.8");
}

fn follows_the_config_map(pod: &PlayedPod) {
    let before = pod.pids();
    assert_eq!(pod.ask("www.acme.test.", "A"), "NXDOMAIN");
    pod.configure(&[("stubDomains", r#"{"acme.test": ["192.0.2.54"]}"#)]);
    pod.until("www.acme.test.", "A", "NOERROR 198.51.100.90");
    pod.configure(&[]);
    pod.until("www.acme.test.", "A", "NXDOMAIN");
    assert_eq!(pod.pids(), before, "the containers must not be restarted");
}

/// If dnsmasq ends, the nanny restarts dnsmasq without a restart of the container.
fn a_dnsmasq_that_ends_is_started_again(pod: &PlayedPod) {
    let before = pod.pids();
    if pod.manifest.pod.container("nanny").is_none() {
        return;
    }
    let container = pod.container("dnsmasq");
    let Some(dnsmasq) = container.process("dnsmasq") else {
        panic!("no dnsmasq")
    };
    send(dnsmasq, Signal::SIGKILL);
    block_on(eventually(PATIENCE, || async {
        container
            .process("dnsmasq")
            .is_some_and(|new| new != dnsmasq)
    }));
    pod.until("www.outside.test.", "A", "NOERROR 198.51.100.80");
    assert_eq!(pod.pids(), before, "the containers must not be restarted");
}

fn containers_that_end_come_back(pod: &PlayedPod) {
    for (name, _) in pod.containers() {
        comes_back(pod, &name, "killed", kill);
    }
}

/// If a container hangs, the liveness prober restarts the container.
fn containers_that_hang_come_back(pod: &PlayedPod) {
    let kubelet = pod.kubelet();
    for (name, _) in pod.containers() {
        comes_back(pod, &name, "stopped", |container| {
            container.signal_all(Signal::SIGSTOP);
        });
    }
    drop(kubelet);
}

fn kill(container: &Container) {
    send(container.pid().unwrap(), Signal::SIGKILL);
}

/// Calls `harm`, and waits until the container is restarted and the pod answers as before.
fn comes_back(pod: &PlayedPod, name: &str, harmed: &str, harm: impl FnOnce(&Container)) {
    let container = pod.container(name);
    let before = container.pid().unwrap();
    means::say(&format!("{name} is {harmed}"));
    harm(&container);
    block_on(eventually(PATIENCE, || async {
        container.pid().is_some_and(|pid| pid != before)
    }));
    pod.until_healthy();
    pod.until(
        "kubernetes.default.svc.cluster.local.",
        "A",
        "NOERROR 10.96.0.1",
    );
    pod.until("www.outside.test.", "A", "NOERROR 198.51.100.80");
}

/// Checks that each process has the privileges that the manifest grants to its container.
fn has_the_rights_of_its_manifest(pod: &PlayedPod) {
    let rights = pod.rights();
    for container in &pod.manifest.pod.containers {
        let asked = Asked::of(&container.spec);
        let (_, held) = rights
            .iter()
            .find(|(name, _)| *name == container.name)
            .unwrap();
        assert!(!held.is_empty(), "{}: no process", container.name);
        for process in held {
            let [effective, bound] = process.capabilities;
            assert_eq!(process.user, asked.user, "{}", container.name);
            assert_eq!(
                process.no_new_privileges, asked.no_new_privileges,
                "{}",
                container.name
            );
            assert_eq!(
                process.read_only_root, asked.read_only_root,
                "{}",
                container.name
            );
            assert_eq!(effective, asked.effective(), "{}", container.name);
            assert!(
                asked.capabilities.is_none_or(|added| bound == added),
                "{}: {bound:x}",
                container.name
            );
        }
    }
}

/// The privileges in the `securityContext` of a container. Without `runAsUser`, the image
/// determines the user.
struct Asked {
    user: (u32, u32),
    no_new_privileges: bool,
    read_only_root: bool,
    /// The added capabilities, if all others are dropped; `None` if the container keeps the default
    /// ones.
    capabilities: Option<u64>,
}

impl Asked {
    fn of(container: &Value) -> Self {
        let field = |name: &str| container.pointer(&format!("/securityContext/{name}"));
        let id = |name| {
            field(name)
                .and_then(Value::as_u64)
                .map(|id| u32::try_from(id).unwrap())
        };
        let own = if container["name"] == "dnsmasq" {
            0
        } else {
            1001
        };
        let drops_all = field("capabilities/drop/0")
            .and_then(Value::as_str)
            .is_some_and(|name| name.eq_ignore_ascii_case("all"));
        let added = field("capabilities/add")
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        let added = added.map(|name| capability(name.as_str().unwrap())).sum();
        Self {
            user: (
                id("runAsUser").unwrap_or(own),
                id("runAsGroup").unwrap_or(own),
            ),
            no_new_privileges: field("allowPrivilegeEscalation") == Some(&json!(false)),
            read_only_root: field("readOnlyRootFilesystem") == Some(&json!(true)),
            capabilities: drops_all.then_some(added),
        }
    }

    /// The effective capabilities of the container's processes: none unless the user is root.
    fn effective(&self) -> u64 {
        if self.user.0 == 0 {
            self.capabilities.unwrap_or_default()
        } else {
            0
        }
    }
}

/// The bit of a capability, from linux/capability.h.
fn capability(name: &str) -> u64 {
    match name {
        "SETGID" => 1 << 6,
        "NET_BIND_SERVICE" => 1 << 10,
        other => panic!("the bit of {other} is not listed here"),
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    tests::pod::netns::runtime().block_on(future)
}
