//! A real `kubectl`, with its default flags, against this server.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use tokio::time::timeout;

use crate::client::{PATIENCE, Server};

const SHOP: &str = "\
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Service
metadata: {name: cart, namespace: shop}
spec: {ports: [{port: 80, name: http}], selector: {app: cart}}
---
apiVersion: v1
kind: Endpoints
metadata: {name: cart, namespace: shop}
subsets: [{addresses: [{ip: 10.0.0.1}], ports: [{port: 80, name: http, protocol: TCP}]}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: cart-1, namespace: shop, labels: {kubernetes.io/service-name: cart}}
addressType: IPv4
endpoints: [{addresses: [10.0.0.1]}]
ports: [{port: 80, name: http}]
";

struct Kubectl {
    program: PathBuf,
    home: tempfile::TempDir,
    server: Server,
}

impl Kubectl {
    /// `kubectl` from PATH and a server for it; nothing, and a loud line, if there is none.
    fn find() -> Option<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let program = std::env::split_paths(&path)
            .map(|directory| directory.join("kubectl"))
            .find(|file| file.is_file());
        let Some(program) = program else {
            println!("SKIPPED: there is no kubectl on the PATH, so nothing of this test was checked");
            return None;
        };
        Some(Self { program, home: tempfile::tempdir().unwrap(), server: Server::start() })
    }

    async fn run(&self, args: &str) -> String {
        self.run_with(args, "").await
    }

    /// Runs it with arguments split at blanks and text on its standard input; it must succeed.
    async fn run_with(&self, args: &str, input: &str) -> String {
        let output = self.output(args, input).await;
        let (stdout, stderr) = texts(&output);
        assert!(output.status.success(), "kubectl {args}: {stdout}{stderr}");
        stdout
    }

    /// Runs it; it must fail, and what it says is returned.
    async fn fails(&self, args: &str, input: &str) -> String {
        let output = self.output(args, input).await;
        let (stdout, stderr) = texts(&output);
        assert!(!output.status.success(), "kubectl {args}: {stdout}{stderr}");
        stderr
    }

    async fn output(&self, args: &str, input: &str) -> Output {
        let mut child = Command::new(&self.program)
            .arg(format!("--server=http://{}", self.server.address))
            .args(args.split(' '))
            .env("HOME", self.home.path())
            .env("KUBECONFIG", "/dev/null")
            .env("KUBE_EDITOR", self.home.path().join("editor"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(input.as_bytes()).await.unwrap();
        drop(stdin);
        timeout(3 * PATIENCE, child.wait_with_output()).await.expect("kubectl ends in time").unwrap()
    }

    /// An editor that replaces one text by another.
    fn editor(&self, from: &str, to: &str) {
        use std::os::unix::fs::PermissionsExt as _;
        let path: &Path = &self.home.path().join("editor");
        std::fs::write(path, format!("#!/bin/sh\nexec sed -i 's|{from}|{to}|' \"$1\"\n")).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
}

fn texts(output: &Output) -> (String, String) {
    (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

/// The columns of a table without their padding.
fn rows(table: &str) -> Vec<String> {
    table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

#[tokio::test]
async fn applies_and_edits() {
    let Some(kubectl) = Kubectl::find() else { return };
    let applied = kubectl.run_with("apply -f -", SHOP).await;
    assert_eq!(
        applied.lines().collect::<Vec<_>>(),
        [
            "namespace/shop created",
            "service/cart created",
            "endpoints/cart created",
            "endpointslice.discovery.k8s.io/cart-1 created",
        ]
    );
    let again = kubectl.run_with("apply -f -", SHOP).await;
    assert!(again.lines().take(3).all(|line| line.ends_with("unchanged")), "{again}");
    let changed = kubectl.run_with("apply -f -", &SHOP.replace("port: 80,", "port: 81,")).await;
    assert!(changed.contains("service/cart configured"), "{changed}");

    kubectl.editor("port: 81", "port: 82");
    assert_eq!(kubectl.run("edit service cart -n shop").await.trim(), "service/cart edited");
    assert_eq!(kubectl.run("get service cart -n shop -o jsonpath={.spec.ports[*].port}").await, "82");
    kubectl.run("label service cart -n shop tier=front").await;
    kubectl.run("annotate service cart -n shop note=x").await;
    let listed = kubectl.run("get service -A -l tier=front -o name").await;
    assert_eq!(listed.trim(), "service/cart");
    kubectl.server.stop().await;
}

#[tokio::test]
async fn patches_and_replaces() {
    let Some(kubectl) = Kubectl::find() else { return };
    kubectl.run_with("create -f -", SHOP).await;
    let patches = [
        (r#"--type=strategic -p={"spec":{"ports":[{"port":80,"name":"web"}]}}"#, "web"),
        (r#"--type=merge -p={"spec":{"ports":[{"port":80,"name":"merged"}]}}"#, "merged"),
        (r#"--type=json -p=[{"op":"replace","path":"/spec/ports/0/name","value":"json"}]"#, "json"),
    ];
    for (patch, name) in patches {
        kubectl.run(&format!("patch service cart -n shop {patch}")).await;
        assert_eq!(kubectl.run("get service cart -n shop -o jsonpath={.spec.ports[0].name}").await, name);
    }
    let address = kubectl.run("get service cart -n shop -o jsonpath={.spec.clusterIP}").await;
    kubectl.run_with("replace -f -", SHOP).await;
    assert_eq!(kubectl.run("get service cart -n shop -o jsonpath={.spec.clusterIP}").await, address);
    let refused =
        kubectl.fails(r#"patch service cart -n shop -p={"spec":{"clusterIP":"10.96.7.7"}}"#, "").await;
    assert!(refused.contains("may not change once set"), "{refused}");
    let refused = kubectl.fails("apply --server-side -f -", SHOP).await;
    assert!(refused.contains("Server-side apply not available on the server"), "{refused}");
    let refused = kubectl.fails("apply -f -", &SHOP.replace("selector", "slector")).await;
    assert!(refused.contains("unknown field \"spec.slector\""), "{refused}");
    kubectl.server.stop().await;
}

#[tokio::test]
async fn creates_what_it_builds_itself() {
    let Some(kubectl) = Kubectl::find() else { return };
    for args in [
        "create namespace t",
        "create configmap kube-dns -n kube-system --from-literal=upstreamNameservers=[]",
        "create service clusterip plain -n t --tcp=80:8080",
        "create service clusterip headless -n t --clusterip=None",
        "create service externalname out -n t --external-name=www.outside.test",
    ] {
        kubectl.run(args).await;
    }
    let table = kubectl.run("get service -n t").await;
    let rows: Vec<String> =
        rows(&table).iter().map(|row| row.rsplit_once(' ').unwrap().0.to_owned()).collect();
    assert_eq!(
        rows,
        [
            "NAME TYPE CLUSTER-IP EXTERNAL-IP PORT(S)",
            "headless ClusterIP None <none> <none>",
            "out ExternalName <none> www.outside.test <none>",
            "plain ClusterIP 10.96.1.1 <none> 80/TCP",
        ]
    );
    assert_eq!(
        kubectl.run("get configmap kube-dns -n kube-system -o jsonpath={.data}").await,
        r#"{"upstreamNameservers":"[]"}"#
    );
    let refused = kubectl.fails("create service clusterip Bad --tcp=80", "").await;
    assert!(refused.contains("a DNS-1035 label must consist of"), "{refused}");
    kubectl.server.stop().await;
}

#[tokio::test]
async fn shows_and_deletes() {
    let Some(kubectl) = Kubectl::find() else { return };
    kubectl.run_with("apply -f -", SHOP).await;
    let described = kubectl.run("describe service cart -n shop").await;
    assert!(described.contains("Endpoints:                10.0.0.1:80"), "{described}");
    let all = kubectl.run("get svc,ep,endpointslices,cm,no,ns -A").await;
    for row in
        ["shop endpoints/cart 10.0.0.1:80", "shop endpointslice.discovery.k8s.io/cart-1 IPv4 80 10.0.0.1"]
    {
        assert!(rows(&all).iter().any(|found| found.starts_with(row)), "{row}: {all}");
    }
    assert!(kubectl.run("api-resources").await.contains("endpointslices"));
    assert!(kubectl.run("get service kubernetes -o yaml").await.contains("clusterIP: 10.96.0.1"));
    assert_eq!(kubectl.run("delete service cart -n shop").await.trim(), "service \"cart\" deleted");
    kubectl.run("delete namespace shop").await;
    let gone = kubectl.fails("get endpoints cart -n shop", "").await;
    assert!(gone.contains("namespaces \"shop\" not found"), "{gone}");
    let object = json!({ "kind": "Service", "apiVersion": "v1", "metadata": { "name": "x", "namespace": "shop" },
                         "spec": { "ports": [{ "port": 1 }] } });
    let missing = kubectl.fails("create -f -", &object.to_string()).await;
    assert!(missing.contains("namespaces \"shop\" not found"), "{missing}");
    kubectl.server.stop().await;
}
