use super::*;
use serde_json::{from_value, json};

fn services() -> Vec<Service> {
    let objects = [
        json!({"metadata": {"name": "kubernetes", "namespace": "default"}, "spec": {"clusterIP": "10.96.0.1", "ports": [{"name": "https", "port": 443}]}}),
        json!({"metadata": {"name": "db", "namespace": "shop"}, "spec": {"clusterIP": "None", "clusterIPs": ["None"]}}),
        json!({"metadata": {"name": "web", "namespace": "default"}, "spec": {"clusterIP": "10.96.0.80", "clusterIPs": ["10.96.0.80", "fd00:10:96::80"], "ports": [{"name": "http", "port": 80}]}}),
        json!({"metadata": {"name": "pay", "namespace": "shop"}, "spec": {"type": "ExternalName", "externalName": "pay.acme.example"}}),
    ];
    objects.map(|object| from_value(object).unwrap()).into()
}

fn endpoints() -> Vec<Endpoints> {
    let objects = [
        json!({"metadata": {"name": "kubernetes", "namespace": "default"}, "subsets": [{"addresses": [{"ip": "192.0.2.10"}]}]}),
        json!({"metadata": {"name": "db", "namespace": "shop"}, "subsets": [{"addresses": [{"ip": "10.244.1.7", "hostname": "db-0"}]}]}),
    ];
    objects.map(|object| from_value(object).unwrap()).into()
}

fn text(
    services: &[Service],
    endpoints: &[Endpoints],
    access: &Access,
    stub_domain: bool,
) -> String {
    let ports = Ports::block(5300).unwrap();
    let (domain, kubedns) = ("cluster.local", Path::new("target/debug/kubedns"));
    Guide {
        services,
        endpoints,
        domain,
        ports,
        kubedns,
        access,
        stub_domain,
        is_alone: false,
    }
    .text()
}

/// The commands without comments.
fn commands(text: &str) -> Vec<&str> {
    text.lines()
        .filter_map(|line| line.strip_prefix("  "))
        .map(|line| line.split("  #").next().unwrap_or_default().trim_end())
        .collect()
}

#[test]
fn guide_for_embedded_api_server_lists_all_commands() {
    let access = Access::MasterUrl("http://127.0.0.1:5305".to_owned());
    let text = text(&services(), &endpoints(), &access, true);
    assert!(
        text.contains("\nStatus page: http://127.0.0.1:5304/\n"),
        "{text}"
    );
    assert_eq!(
        commands(&text),
        [
            "dig @127.0.0.1 -p 5300 web.default.svc.cluster.local",
            "dig @127.0.0.1 -p 5300 +tcp web.default.svc.cluster.local",
            "dig @127.0.0.1 -p 5300 -x 10.96.0.80",
            "dig @127.0.0.1 -p 5300 'web.*.svc.cluster.local'",
            "dig @127.0.0.1 -p 5300 web.default.svc.cluster.local AAAA",
            "dig @127.0.0.1 -p 5300 _http._tcp.web.default.svc.cluster.local SRV",
            "dig @127.0.0.1 -p 5300 db-0.db.shop.svc.cluster.local",
            "dig @127.0.0.1 -p 5300 db.shop.svc.cluster.local",
            "dig @127.0.0.1 -p 5300 pay.shop.svc.cluster.local",
            "dig @127.0.0.1 -p 5300 10-244-1-7.shop.pod.cluster.local",
            "dig @127.0.0.1 -p 5300 www.acme.example",
            "target/debug/kubedns explain webs.default --server http://127.0.0.1:5302",
            "target/debug/kubedns check cluster --kube-master-url=http://127.0.0.1:5305 --server=http://127.0.0.1:5302 \
             --sidecar=http://127.0.0.1:5304 --dns=127.0.0.1:5300 --domain=cluster.local",
            "curl http://127.0.0.1:5304/healthcheck/kubedns",
            "curl http://127.0.0.1:5304/healthcheck/dnsmasq",
            "curl http://127.0.0.1:5302/readiness",
            "curl http://127.0.0.1:5302/cache",
            "curl http://127.0.0.1:5304/metrics",
            "curl http://127.0.0.1:5303/metrics",
            "kubectl --server=http://127.0.0.1:5305 get services --all-namespaces",
            "kubectl --server=http://127.0.0.1:5305 create service clusterip hello --tcp=80",
            "dig @127.0.0.1 -p 5300 +short hello.default.svc.cluster.local",
            "kubectl --server=http://127.0.0.1:5305 edit configmap -n kube-system kube-dns",
        ]
    );
}

#[test]
fn guide_for_real_cluster_has_only_reading_commands() {
    let access = Access::Kubeconfig("/home/me/.kube/config".into());
    let text = text(&services()[..1], &endpoints()[..1], &access, false);
    let commands = commands(&text);
    assert!(
        commands.contains(&"dig @127.0.0.1 -p 5300 kubernetes.default.svc.cluster.local"),
        "{text}"
    );
    assert!(
        commands
            .contains(&"kubectl --kubeconfig=/home/me/.kube/config get services --all-namespaces"),
        "{text}"
    );
    assert!(
        text.contains(" check cluster --kubecfg-file=/home/me/.kube/config --server="),
        "{text}"
    );
    assert!(!text.contains("acme"), "{text}");
    assert!(
        !text.contains("edit") && !text.contains("create"),
        "no command may change a real cluster: {text}"
    );
}
