//! The objects of the API server in the chaos tests, and the expected answers.

use serde_json::Value;
use testkit::objects::{mk_cluster_ip, mk_endpoints, mk_external_name, mk_headless};

use crate::steady::Question;

/// The cluster domain.
pub const DOMAIN: &str = "cluster.local";

/// Number of the Services `web-0`, `web-1`, ...
const WEBS: u8 = 6;

/// The objects that exist at the start of a test.
pub fn objects() -> Vec<Value> {
    let mut all = vec![
        mk_cluster_ip("default", "kubernetes", &["10.96.0.1"], &["https:443"]),
        mk_headless("shop", "db", &["sql:5432"]),
        mk_endpoints(
            "shop",
            "db",
            &["10.244.0.1 db-0", "10.244.0.2 db-1", "10.244.0.3 db-2"],
            &["sql:5432"],
        ),
        mk_external_name("shop", "storefront", "web-0.shop.svc.cluster.local"),
    ];
    all.extend((0..WEBS).map(|n| {
        let (v4, v6) = (format!("10.96.1.{n}"), format!("fd00:96::1:{n}"));
        mk_cluster_ip("shop", &format!("web-{n}"), &[&v4, &v6], &["http:80"])
    }));
    all
}

/// Queries for these objects to one port of 127.0.0.1. Every sixth query is sent over TCP.
pub fn questions(path: &'static str, port: u16) -> Vec<Question> {
    let ask = |name: &str, rtype: &'static str, right: &str| {
        Question::new(path, port, name, rtype, right)
    };
    let inside = |name: &str| format!("{name}.svc.{DOMAIN}.");
    let mut all = Vec::new();
    for n in 0..WEBS {
        let web = inside(&format!("web-{n}.shop"));
        all.push(ask(&web, "A", &format!("NOERROR 10.96.1.{n}")));
        all.push(ask(&web, "AAAA", &format!("NOERROR fd00:96::1:{n}")));
        all.push(ask(
            &format!("{n}.1.96.10.in-addr.arpa."),
            "PTR",
            &format!("NOERROR {web}"),
        ));
    }
    all.push(ask(
        &inside("db.shop"),
        "A",
        "NOERROR 10.244.0.1 10.244.0.2 10.244.0.3",
    ));
    all.push(ask(&inside("db-1.db.shop"), "A", "NOERROR 10.244.0.2"));
    let web_0 = inside("web-0.shop");
    all.push(ask(
        &inside("storefront.shop"),
        "A",
        &format!("NOERROR -> {web_0} 10.96.1.0"),
    ));
    all.push(ask(&inside("_https._tcp.kubernetes.default"), "SRV", &{
        format!("NOERROR 10 100 443 {}", inside("kubernetes.default"))
    }));
    all.push(ask(&inside("missing.shop"), "A", "NXDOMAIN"));
    // A resolver sends such a query when it completes an external name with its search list.
    all.push(ask(
        &format!("www.example.com.shop.svc.{DOMAIN}."),
        "A",
        "NXDOMAIN",
    ));
    let every_sixth = |(n, question): (usize, Question)| {
        if n % 6 == 5 {
            question.over_tcp()
        } else {
            question
        }
    };
    all.into_iter().enumerate().map(every_sixth).collect()
}
