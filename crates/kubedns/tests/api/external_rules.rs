//! Rules of the configuration for external names. The answers follow valid edits of the rules. The
//! upstream does not receive the queries that `filterTypes`, `deniedNames` or `bogusPriv` answers.

use apiserver::RunningApiServer;
use testkit::objects::mk_external_name;
use testkit::query::Query;
use testkit::reply::Reply;
use testkit::upstream::{Asked, Upstream};

use super::process::Kubedns;

const EXTERNAL: &str = "www.outside.test.";

/// An upstream that has a private address for names that begin with `private`, and a public address
/// for all others.
async fn upstream() -> Upstream {
    Upstream::start(|asked: &Asked| {
        let (name, reply) = (asked.name(), Reply::to(&asked.packet));
        let address = if name.starts_with("private") {
            "10.0.0.1"
        } else {
            "198.51.100.1"
        };
        match asked.rtype().as_str() {
            "A" => reply.answer(&format!("{name} 60 IN A {address}")).into(),
            _ => reply.into(),
        }
    })
    .await
}

#[tokio::test]
async fn answers_follow_external_rules_and_valid_edits() {
    let (cluster, config) = (RunningApiServer::empty(), tempfile::tempdir().unwrap());
    cluster.set(mk_external_name("apps", "out", "target.outside.test"));
    let upstream = upstream().await;
    let write = |key: &str, text: &str| std::fs::write(config.path().join(key), text).unwrap();
    write("filterTypes", r#"{".": ["AAAA"]}"#);
    write("deniedNames", r#"{"ads.test": "NXDOMAIN"}"#);
    write("bogusPriv", "true\n");
    write("rebindProtection", r#"{"except": ["lan.test"]}"#);
    let directory = format!("--config-dir={}", config.path().display());
    let servers = format!("--nameservers={}", upstream.addr());
    let flags = [
        &directory,
        &servers,
        "--topology=alone",
        "--extended-errors",
    ];
    let kubedns = Kubedns::ready(&cluster, &flags).await;

    for (name, rtype, expected) in [
        (EXTERNAL, "A", "198.51.100.1"),
        (EXTERNAL, "AAAA", "NOERROR"),
        ("www.ads.test.", "A", "NXDOMAIN"),
        ("1.0.0.10.in-addr.arpa.", "PTR", "NXDOMAIN"),
        ("out.apps.svc.cluster.local.", "AAAA", "NOERROR"),
        ("private.outside.test.", "A", "NOERROR"),
        ("private.lan.test.", "A", "10.0.0.1"),
    ] {
        let answers = kubedns.answers(name, rtype).await;
        assert_eq!(answers, expected, "{name} {rtype}");
    }
    for (name, rtype, expected) in [
        (EXTERNAL, "A", 1),
        (EXTERNAL, "AAAA", 0),
        ("www.ads.test.", "A", 0),
        ("1.0.0.10.in-addr.arpa.", "PTR", 0),
        ("target.outside.test.", "AAAA", 0),
    ] {
        assert_eq!(upstream.count_of(name, rtype), expected, "{name} {rtype}");
    }
    let with_edns = Query::new(EXTERNAL, "AAAA").edns(1232);
    let answer = testkit::client::ask(kubedns.dns, &with_edns).await;
    let options = answer.edns.map_or_else(Vec::new, |edns| edns.options);
    let cause = options
        .iter()
        .map(|(_, data)| String::from_utf8_lossy(data));
    assert!(cause.collect::<String>().contains("the key filterTypes"));

    let (_, explained) = kubedns
        .get("/explain?name=www.outside.test.&type=AAAA")
        .await;
    assert!(
        explained.contains("the key filterTypes of the ConfigMap"),
        "{explained}"
    );

    // An invalid edit leaves the rules in force. A valid edit then exempts `outside.test`.
    write("filterTypes", r#"{".": ["MX"]}"#);
    kubedns.until_metric("kubedns_config_current", 0.0).await;
    assert_eq!(kubedns.answers(EXTERNAL, "AAAA").await, "NOERROR");
    assert_eq!(upstream.count_of(EXTERNAL, "AAAA"), 0);
    write("filterTypes", r#"{".": ["AAAA"], "outside.test": []}"#);
    kubedns.until_metric("kubedns_config_current", 1.0).await;
    kubedns.answers(EXTERNAL, "AAAA").await;
    assert_eq!(upstream.count_of(EXTERNAL, "AAAA"), 1);
    kubedns.stop().await;
}
