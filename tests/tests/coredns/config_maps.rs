//! Starts kubedns and a real `CoreDNS`, if one is installed, for the same `ConfigMap`. `CoreDNS` has
//! the configuration that `kube-dns check config --corefile` writes. Both must give the same
//! answers, apart from the differences in `DIFFERENT`.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;

use apiserver::RunningApiServer;
use serde_json::json;
use testkit::config_map;
use testkit::objects::mk_cluster_ip;
use testkit::process::{Process, Program, address};
use testkit::upstream::{Upstream, Zone};
use tests::conformance::vector::Response;
use tests::e2e::write_kubeconfig;

use crate::server::{ALONE, CoreDns, PATIENCE, ask, assert_listed, installed, until_ready};

/// A `ConfigMap`, and questions for both servers.
struct Case {
    name: &'static str,
    /// The keys and their values. `STUB` in a value is replaced by the address of the upstream with
    /// the records [`STUB`]. Each case also gets the key `upstreamNameservers` with the address of
    /// the upstream with the records [`GENERAL`].
    keys: &'static [(&'static str, &'static str)],
    questions: &'static [&'static str],
}

/// Records of the upstream `GENERAL`, which the key `upstreamNameservers` names.
const GENERAL: &[&str] = &[
    "www.outside.test. 120 IN A 198.51.100.10",
    "www.outside.test. 120 IN AAAA 2001:db8::10",
    "www.acme.test. 120 IN A 198.51.100.99",
    "old.corp.test. 120 IN A 198.51.100.30",
    "old.corp.test. 120 IN AAAA 2001:db8::30",
    "v6.corp.test. 120 IN A 198.51.100.31",
    "v6.corp.test. 120 IN AAAA 2001:db8::31",
    "4.3.2.1.in-addr.arpa. 120 IN PTR www.outside.test.",
    "9.9.9.10.in-addr.arpa. 120 IN PTR private.outside.test.",
];

/// Records of the upstream `STUB`, which the key `stubDomains` names.
const STUB: &[&str] = &[
    "www.acme.test. 120 IN A 10.150.0.10",
    "www.corp.cluster.local. 120 IN A 10.150.0.11",
    "7.0.150.10.in-addr.arpa. 120 IN PTR www.acme.test.",
];

const CASES: &[Case] = &[
    Case {
        name: "stub domains",
        keys: &[(
            "stubDomains",
            r#"{"acme.test": ["STUB"], "corp.cluster.local": ["STUB"], "150.10.in-addr.arpa": ["STUB"]}"#,
        )],
        questions: &[
            "www.acme.test. A",
            "www.acme.test. AAAA",
            "unknown.acme.test. A",
            "www.corp.cluster.local. A",
            "unknown.corp.cluster.local. A",
            "7.0.150.10.in-addr.arpa. PTR",
            "www.outside.test. A",
            "unknown.outside.test. A",
            "4.3.2.1.in-addr.arpa. PTR",
            "web.shop.svc.cluster.local. A",
            "unknown.shop.svc.cluster.local. A",
            "10.0.96.10.in-addr.arpa. PTR",
        ],
    },
    Case {
        name: "hosts",
        keys: &[(
            "hosts",
            "10.9.9.8 a.apps.test\n10.9.9.9 *.apps.test\n10.150.0.20 db.acme.test db\n2001:db8::20 db.acme.test",
        )],
        questions: &[
            "a.apps.test. A",
            "a.apps.test. AAAA",
            "b.apps.test. A",
            "b.apps.test. AAAA",
            "c.b.apps.test. A",
            "apps.test. A",
            "db.acme.test. A",
            "db.acme.test. AAAA",
            "db.acme.test. MX",
            "db. A",
            "db. AAAA",
            "20.0.150.10.in-addr.arpa. PTR",
            "www.outside.test. A",
        ],
    },
    Case {
        name: "aliases",
        keys: &[(
            "aliases",
            r#"{"registry.acme.test": "web.shop", "mirror.acme.test": "www.outside.test", "*.w.test": "web.shop"}"#,
        )],
        questions: &[
            "registry.acme.test. A",
            "registry.acme.test. AAAA",
            "_http._tcp.registry.acme.test. SRV",
            "mirror.acme.test. A",
            "mirror.acme.test. MX",
            "x.w.test. A",
            "y.x.w.test. A",
            "w.test. A",
        ],
    },
    Case {
        name: "filtered types",
        keys: &[(
            "filterTypes",
            r#"{".": ["AAAA"], "v6.corp.test": [], "old.corp.test": ["A"]}"#,
        )],
        questions: &[
            "www.outside.test. A",
            "www.outside.test. AAAA",
            "v6.corp.test. A",
            "v6.corp.test. AAAA",
            "old.corp.test. A",
            "old.corp.test. AAAA",
            "web.shop.svc.cluster.local. AAAA",
        ],
    },
    Case {
        name: "denied names",
        keys: &[(
            "deniedNames",
            r#"{"ads.test": "NXDOMAIN", "wpad": "NODATA", "outside.test": "NODATA"}"#,
        )],
        questions: &[
            "ads.test. A",
            "www.ads.test. A",
            "www.ads.test. TXT",
            "wpad. A",
            "x.wpad. AAAA",
            "www.outside.test. A",
            "adsx.test. A",
            "web.shop.svc.cluster.local. A",
        ],
    },
    Case {
        name: "reverse names of private addresses",
        keys: &[
            ("bogusPriv", "true"),
            ("stubDomains", r#"{"150.10.in-addr.arpa": ["STUB"]}"#),
            ("hosts", "10.7.7.7 seven.acme.test"),
        ],
        questions: &[
            "9.9.9.10.in-addr.arpa. PTR",
            "1.0.16.172.in-addr.arpa. PTR",
            "1.1.168.192.in-addr.arpa. PTR",
            "1.1.254.169.in-addr.arpa. PTR",
            "4.3.2.1.in-addr.arpa. PTR",
            "7.0.150.10.in-addr.arpa. PTR",
            "7.7.7.10.in-addr.arpa. PTR",
            "10.0.96.10.in-addr.arpa. PTR",
        ],
    },
    Case {
        name: "several rules",
        keys: &[
            ("stubDomains", r#"{"acme.test": ["STUB"]}"#),
            ("hosts", "10.9.9.9 *.apps.test"),
            ("aliases", r#"{"*.w.test": "www.acme.test"}"#),
            ("filterTypes", r#"{".": ["AAAA"]}"#),
            ("deniedNames", r#"{"secret.acme.test": "NXDOMAIN"}"#),
        ],
        questions: &[
            "www.acme.test. A",
            "www.acme.test. AAAA",
            "secret.acme.test. A",
            "x.w.test. A",
            "b.apps.test. A",
            "www.outside.test. A",
            "www.outside.test. AAAA",
        ],
    },
];

/// The questions, as `CASE: QUESTION`, that the real `CoreDNS` answers differently from kubedns,
/// each with the reason.
const DIFFERENT: &[(&str, &str)] = &[
    ("hosts: db. AAAA", NO_SOA),
    ("hosts: db.acme.test. MX", NO_SOA),
    (
        "aliases: _http._tcp.registry.acme.test. SRV",
        "the priority in CoreDNS' SRV records is 0, in those of kube-dns 10",
    ),
    ("aliases: mirror.acme.test. A", NO_CNAME),
    ("aliases: mirror.acme.test. MX", NO_CNAME),
    ("several rules: x.w.test. A", NO_CNAME),
];
const NO_SOA: &str = "the NODATA answers of CoreDNS' plugin hosts have no SOA record";
const NO_CNAME: &str =
    "CoreDNS' plugin rewrite answers with the records of the target, without a CNAME record";

#[tokio::test]
async fn written_corefile_answers_as_kubedns_with_same_config_map() {
    let Some(program) = installed() else {
        return;
    };

    let mut differing = BTreeSet::new();
    for case in CASES {
        let servers = Servers::start(&program, case).await;
        for question in case.questions {
            let expected = outline(&ask(servers.kubedns, question).await);
            let found = outline(&ask(servers.coredns.address, question).await);
            if found != expected {
                println!("{}: {question}", case.name);
                println!("kubedns: {expected}\nCoreDNS: {found}");
                differing.insert(format!("{}: {question}", case.name));
            }
        }
    }

    assert_listed(&differing, DIFFERENT);
}

/// The RCODE, the answer records with their TTLs, and whether the answer has a SOA record, which
/// negative answers need. The flags are not compared, because RA, and for some names AA, differ on
/// purpose. Names and timers in SOA records are not compared either, because they differ, too.
fn outline(answer: &Response) -> String {
    let mut parts = vec![answer.rcode.clone()];
    parts.extend(answer.answer.iter().cloned());
    if !answer.authority.is_empty() {
        parts.push("and a SOA record".to_owned());
    }
    parts.join(" | ")
}

/// Both servers, with the same flags, the same `ConfigMap` and the same Service.
struct Servers {
    kubedns: SocketAddr,
    coredns: CoreDns,
    _process: Process,
    _api_server: RunningApiServer,
    _upstreams: [Upstream; 2],
    _files: tempfile::TempDir,
}

impl Servers {
    async fn start(coredns: &Path, case: &Case) -> Self {
        let api_server = RunningApiServer::empty();
        // CoreDNS answers NXDOMAIN for a Service whose Namespace it does not know.
        api_server.set(json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"},
        }));
        api_server.set(mk_cluster_ip("shop", "web", &["10.96.0.10"], &["http:80"]));
        let general = Upstream::start(Zone::new(GENERAL.iter().copied()).handler()).await;
        let stub = Upstream::start(Zone::new(STUB.iter().copied()).handler()).await;

        let files = tempfile::tempdir().expect("a temporary directory must be made");
        let kubeconfig = write_kubeconfig(files.path(), &api_server.url(), &json!({}))
            .expect("the file must be written");
        let volume = files.path().join("config");
        let mut data: Vec<(&str, String)> = case
            .keys
            .iter()
            .map(|(key, value)| (*key, value.replace("STUB", &stub.addr().to_string())))
            .collect();
        data.push((
            "upstreamNameservers",
            json!([general.addr().to_string()]).to_string(),
        ));
        config_map::replace(&volume, &data).expect("the ConfigMap must be written");

        let flags = [
            "--strict-dns".to_owned(),
            format!("--kubecfg-file={}", kubeconfig.display()),
        ];
        let (kubedns, process) = start_kubedns(&flags, &volume).await;
        let coredns = CoreDns::start(coredns, &flags, &volume).await;
        Self {
            kubedns,
            coredns,
            _process: process,
            _api_server: api_server,
            _upstreams: [general, stub],
            _files: files,
        }
    }
}

async fn start_kubedns(flags: &[String], config_map: &Path) -> (SocketAddr, Process) {
    let mut process = Program::named("kubedns")
        .args(flags)
        .args(ALONE)
        .args(["--dns-port=0", "--healthz-port=0"])
        .args([format!("--config-dir={}", config_map.display())])
        .env("PROMETHEUS_PORT", "0")
        .start();
    let server = address(&process.line_with("serving DNS", PATIENCE).await);
    let status = address(&process.line_with("serving /readiness", PATIENCE).await);
    until_ready(&mut process, status, "/readiness").await;
    (server, process)
}
