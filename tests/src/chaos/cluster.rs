//! The objects of the API server in the chaos tests, and the expected answers.

use serde_json::Value;
use testkit::objects::{mk_cluster_ip, mk_endpoints, mk_external_name, mk_headless};
use testkit::table;

use crate::steady::Question;

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

/// Queries that are not for the Services `web-0`, `web-1`, ..., and the expected answers.
const OTHERS: &str = "
    db.shop.svc.cluster.local.                       | A   | NOERROR 10.244.0.1 10.244.0.2 10.244.0.3
    db-1.db.shop.svc.cluster.local.                  | A   | NOERROR 10.244.0.2
    storefront.shop.svc.cluster.local.               | A   | NOERROR -> web-0.shop.svc.cluster.local. 10.96.1.0
    _https._tcp.kubernetes.default.svc.cluster.local. | SRV | NOERROR 10 100 443 kubernetes.default.svc.cluster.local.
    missing.shop.svc.cluster.local.                  | A   | NXDOMAIN
    # A resolver sends such a query when it completes an external name with its search list.
    www.example.com.shop.svc.cluster.local.          | A   | NXDOMAIN
";

/// Queries about the objects of the cluster, sent to one port of 127.0.0.1. Every sixth query is
/// sent over TCP.
pub fn questions(path: &'static str, port: u16) -> Vec<Question> {
    let ask = |name: &str, rtype, right: &str| Question::new(path, port, name, rtype, right);
    let mut all = Vec::new();
    for n in 0..WEBS {
        let web = format!("web-{n}.shop.svc.cluster.local.");
        let reverse = format!("{n}.1.96.10.in-addr.arpa.");
        all.push(ask(&web, "A", &format!("NOERROR 10.96.1.{n}")));
        all.push(ask(&web, "AAAA", &format!("NOERROR fd00:96::1:{n}")));
        all.push(ask(&reverse, "PTR", &format!("NOERROR {web}")));
    }
    let others = table::rows(OTHERS).into_iter();
    all.extend(others.map(|[name, rtype, right]| ask(name, rtype, right)));

    for question in all.iter_mut().skip(5).step_by(6) {
        question.tcp = true;
    }
    all
}
