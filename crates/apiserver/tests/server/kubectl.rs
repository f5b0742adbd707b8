//! A real `kubectl`, with its default flags, against this server.

use serde_json::json;
use testkit::kubectl::Kubectl;

use crate::client::Server;

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

/// Runs a test with `kubectl` against a new server.
async fn with_kubectl(test: impl AsyncFnOnce(&Kubectl)) {
    let (server, home) = (Server::start(), tempfile::tempdir().unwrap());
    test(&Kubectl::on(server.address, home.path())).await;
}

/// The lines of a table, without the padding of the columns.
fn rows(table: &str) -> Vec<String> {
    table
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect()
}

#[tokio::test]
async fn kubectl_applies_and_edits_objects() {
    with_kubectl(async |kubectl| {
        let applied = kubectl.with_input("apply -f -", SHOP).await;
        assert_eq!(
            applied.lines().collect::<Vec<_>>(),
            [
                "namespace/shop created",
                "service/cart created",
                "endpoints/cart created",
                "endpointslice.discovery.k8s.io/cart-1 created",
            ]
        );

        let again = kubectl.with_input("apply -f -", SHOP).await;
        assert!(
            again
                .lines()
                .take(3)
                .all(|line| line.ends_with("unchanged")),
            "{again}"
        );

        let changed = kubectl
            .with_input("apply -f -", &SHOP.replace("port: 80,", "port: 81,"))
            .await;
        assert!(changed.contains("service/cart configured"), "{changed}");

        let edited = kubectl
            .edit("service cart -n shop", "s|port: 81|port: 82|")
            .await;
        assert_eq!(edited.trim(), "service/cart edited");
        assert_eq!(
            kubectl
                .run("get service cart -n shop -o jsonpath={.spec.ports[*].port}")
                .await,
            "82"
        );

        kubectl.run("label service cart -n shop tier=front").await;
        kubectl.run("annotate service cart -n shop note=x").await;
        let named = kubectl.run("get service -A -l tier=front -o name").await;
        assert_eq!(named.trim(), "service/cart");
    })
    .await;
}

#[tokio::test]
async fn kubectl_patches_and_replaces_objects() {
    with_kubectl(async |kubectl| {
        kubectl.with_input("create -f -", SHOP).await;
        let patches = [
            (
                r#"--type=strategic -p={"spec":{"ports":[{"port":80,"name":"web"}]}}"#,
                "web",
            ),
            (
                r#"--type=merge -p={"spec":{"ports":[{"port":80,"name":"merged"}]}}"#,
                "merged",
            ),
            (
                r#"--type=json -p=[{"op":"replace","path":"/spec/ports/0/name","value":"json"}]"#,
                "json",
            ),
        ];
        let field = async |path: &str| {
            kubectl
                .run(&format!(
                    "get service cart -n shop -o jsonpath={{.spec.{path}}}"
                ))
                .await
        };
        for (patch, name) in patches {
            kubectl
                .run(&format!("patch service cart -n shop {patch}"))
                .await;
            assert_eq!(field("ports[0].name").await, name);
        }
        let address = field("clusterIP").await;
        kubectl.with_input("replace -f -", SHOP).await;
        assert_eq!(field("clusterIP").await, address);
    })
    .await;
}

#[tokio::test]
async fn unsupported_and_invalid_changes_are_refused() {
    with_kubectl(async |kubectl| {
        kubectl.with_input("create -f -", SHOP).await;
        let misspelt = SHOP.replace("selector", "slector");
        for (arguments, input, why) in [
            (
                r#"patch service cart -n shop -p={"spec":{"clusterIP":"10.96.7.7"}}"#,
                "",
                "may not change once set",
            ),
            (
                "apply --server-side -f -",
                SHOP,
                "Server-side apply not available on the server",
            ),
            (
                "apply -f -",
                misspelt.as_str(),
                "unknown field \"spec.slector\"",
            ),
        ] {
            let refused = kubectl.refused(arguments, input).await;
            assert!(refused.contains(why), "{arguments}: {refused}");
        }
    })
    .await;
}

#[tokio::test]
async fn kubectl_creates_objects_without_manifests() {
    with_kubectl(async |kubectl| {
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
        // The column AGE is left out, because its values vary.
        let rows: Vec<String> = rows(&table)
            .iter()
            .map(|row| row.rsplit_once(' ').unwrap().0.to_owned())
            .collect();
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
            kubectl
                .run("get configmap kube-dns -n kube-system -o jsonpath={.data}")
                .await,
            r#"{"upstreamNameservers":"[]"}"#
        );
        let refused = kubectl
            .refused("create service clusterip Bad --tcp=80", "")
            .await;
        assert!(
            refused.contains("a DNS-1035 label must consist of"),
            "{refused}"
        );
    })
    .await;
}

#[tokio::test]
async fn kubectl_shows_and_deletes_objects() {
    with_kubectl(async |kubectl| {
        kubectl.with_input("apply -f -", SHOP).await;
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
        let object = json!({ "kind": "Service", "apiVersion": "v1", "metadata": { "name": "x", "namespace": "shop" },
                             "spec": { "ports": [{ "port": 1 }] } });
        for (arguments, input) in
            [("get endpoints cart -n shop", String::new()), ("create -f -", object.to_string())]
        {
            let gone = kubectl.refused(arguments, &input).await;
            assert!(gone.contains("namespaces \"shop\" not found"), "{arguments}: {gone}");
        }
    })
    .await;
}
