//! The kinds of Services, each once for every number, and what can be asked about one.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use serde_json::Value;
use testkit::objects::{mk_cluster_ip, mk_endpoints, mk_external_name, mk_headless};
use testkit::query::Query;

/// One kind of Service.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    /// The objects in namespace `n<number>`.
    pub(crate) objects: fn(&str, u32) -> Vec<Value>,
    /// Names that are asked for every type.
    names: &'static [&'static str],
    /// Names of ExternalName Services, and names that stand for them.
    pub(crate) alias_names: &'static [&'static str],
    /// Whether `_http._tcp.web` has port 80.
    pub(crate) has_ports: bool,
    /// Whether `ext` leads to a name that does not exist.
    pub(crate) leads_nowhere: bool,
}

/// A question about the Service: name below the namespace, type.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Question {
    pub(crate) name: &'static str,
    pub(crate) rtype: &'static str,
}

const PLAIN: &[&str] = &["web", "_http._tcp.web"];
const MEMBERS: &[&str] = &["web", "_http._tcp.web", "web-0.web"];
const ALIASES: &[&str] = &["web", "_http._tcp.web", "ext"];
/// The namespace itself is written as nothing.
const OF_ALIASES: &[&str] = &["ext", "*", ""];
const REVERSE: &str = "reverse";

pub(crate) const KINDS: &[Kind] = &[
    Kind {
        name: "ClusterIP",
        objects: |ns, n| vec![mk_cluster_ip(ns, "web", &[&v4(n), &v6(n)], &["http:80", "metrics:9090"])],
        names: PLAIN,
        alias_names: &[],
        has_ports: true,
        leads_nowhere: false,
    },
    Kind {
        name: "ClusterIP, port without a name",
        objects: |ns, n| vec![mk_cluster_ip(ns, "web", &[&v4(n)], &[":80"])],
        names: PLAIN,
        alias_names: &[],
        has_ports: false,
        leads_nowhere: false,
    },
    Kind {
        name: "headless, hostnames",
        objects: |ns, n| {
            let pods =
                [format!("{} web-0", v4(n)), format!("{} web-0", v6(n)), format!("{} web-1", other(n))];
            headless(ns, &pods, "http:80")
        },
        names: MEMBERS,
        alias_names: &[],
        has_ports: true,
        leads_nowhere: false,
    },
    Kind {
        name: "headless, no hostnames",
        objects: |ns, n| headless(ns, &[v4(n), other(n)], "http:80"),
        names: PLAIN,
        alias_names: &[],
        has_ports: true,
        leads_nowhere: false,
    },
    Kind {
        name: "headless, port without a name",
        objects: |ns, n| headless(ns, &[format!("{} web-0", v4(n))], ":80"),
        names: MEMBERS,
        alias_names: &[],
        has_ports: false,
        leads_nowhere: false,
    },
    Kind {
        name: "ExternalName for a ClusterIP Service",
        objects: |ns, n| {
            let web = mk_cluster_ip(ns, "web", &[&v4(n), &v6(n)], &["http:80"]);
            vec![web, mk_external_name(ns, "ext", &format!("web.{ns}.svc.cluster.local"))]
        },
        names: ALIASES,
        alias_names: OF_ALIASES,
        has_ports: true,
        leads_nowhere: false,
    },
    Kind {
        name: "ExternalName for a headless Service",
        objects: |ns, n| {
            let mut objects = headless(ns, &[format!("{} web-0", v4(n))], "http:80");
            objects.push(mk_external_name(ns, "ext", &format!("web.{ns}.svc.cluster.local")));
            objects
        },
        names: ALIASES,
        alias_names: OF_ALIASES,
        has_ports: true,
        leads_nowhere: false,
    },
    Kind {
        name: "ExternalName for an SRV name",
        objects: |ns, n| {
            let web = mk_cluster_ip(ns, "web", &[&v4(n)], &["http:80"]);
            vec![web, mk_external_name(ns, "ext", &format!("_http._tcp.web.{ns}.svc.cluster.local"))]
        },
        names: ALIASES,
        alias_names: OF_ALIASES,
        has_ports: true,
        leads_nowhere: false,
    },
    Kind {
        name: "ExternalName for a name outside",
        objects: |ns, _| vec![mk_external_name(ns, "ext", &format!("{ns}.outside.test"))],
        names: &["ext"],
        alias_names: OF_ALIASES,
        has_ports: false,
        leads_nowhere: false,
    },
    Kind {
        name: "ExternalName for nothing",
        objects: |ns, _| vec![mk_external_name(ns, "ext", &format!("gone.{ns}.svc.cluster.local"))],
        names: &["ext", "gone"],
        alias_names: OF_ALIASES,
        has_ports: false,
        leads_nowhere: true,
    },
];

impl Kind {
    /// Everything that is asked about one Service.
    pub(crate) fn questions(&self) -> Vec<Question> {
        let ask = |names: &'static [&'static str], types: &'static [&'static str]| {
            names.iter().flat_map(move |name| types.iter().map(move |rtype| Question { name, rtype }))
        };
        let mut questions: Vec<Question> =
            ask(self.names, &["A", "AAAA", "SRV", "CNAME", "TXT", "ANY", "PTR"]).collect();
        questions.extend(ask(&["_tcp.web", "*.web", "*", ""], &["A", "AAAA", "SRV", "CNAME"]));
        questions.push(Question { name: REVERSE, rtype: "PTR" });
        questions
    }
}

impl Question {
    /// The question about Service number `n`.
    pub(crate) fn query(self, n: usize) -> Query {
        let n = u32::try_from(n).expect("a small number");
        let mut octets = Ipv4Addr::from(FIRST + n).octets();
        octets.reverse();
        let name = match self.name {
            REVERSE => format!("{}.in-addr.arpa.", Ipv4Addr::from(octets)),
            "" => format!("n{n}.svc.cluster.local."),
            name => format!("{name}.n{n}.svc.cluster.local."),
        };
        Query::new(&name, self.rtype)
    }
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, rtype } = self;
        let name = if name.is_empty() { "(namespace)" } else { name };
        write!(f, "{name} {rtype}")
    }
}

const FIRST: u32 = 0x0a40_0000;

fn v4(n: u32) -> String {
    Ipv4Addr::from(FIRST + n).to_string()
}

/// A second address.
fn other(n: u32) -> String {
    Ipv4Addr::from(FIRST + 0x0010_0000 + n).to_string()
}

fn v6(n: u32) -> String {
    Ipv6Addr::from(0xfd00_0010_u128 << 96 | u128::from(n)).to_string()
}

fn headless(ns: &str, addresses: &[String], port: &str) -> Vec<Value> {
    let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
    vec![mk_headless(ns, "web", &[port]), mk_endpoints(ns, "web", &addresses, &[port])]
}
