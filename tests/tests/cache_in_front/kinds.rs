//! The kinds of Services, and the questions about each kind. A test creates the objects of one kind
//! in many numbered namespaces.

use std::fmt;

use serde_json::Value;
use testkit::objects::{mk_cluster_ip, mk_external_name};
use testkit::query::Query;
use wire::reverse;

use crate::engine::{headless, v4, v6};

/// The value of `--search-suffix`: for names below this domain, kubedns walks the search list.
pub(crate) const SUFFIX: &str = "search.cluster.local";
const COMPLETED: &[(&str, &str)] = &[
    ("web", "web+"),
    ("_http._tcp.web", "_http._tcp.web+"),
    ("web-0.web", "web-0.web+"),
    ("ext", "ext+"),
    ("gone", "gone+"),
];

/// A kind of Service with its objects and names.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    /// Returns the objects for the namespace with this name and number.
    pub(crate) objects: fn(&str, u32) -> Vec<Value>,
    /// Names that are queried with seven types; see [`Kind::questions`].
    names: &'static [&'static str],
    /// Names that are answered with the CNAME of an ExternalName Service: the Service, wildcards
    /// and the namespace.
    alias_names: &'static [&'static str],
    /// Whether the ExternalName Service `ext` has a target that does not exist.
    pub(crate) leads_nowhere: bool,
}

/// A question about a Service. The name is relative to the namespace. A name with a final `+` is a
/// completed name: it is queried below [`SUFFIX`], without the `+`, and kubedns completes it with a
/// search list. Other names are queried below `svc.cluster.local`, except [`REVERSE`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Question {
    pub(crate) name: &'static str,
    pub(crate) rtype: &'static str,
}

const PLAIN: &[&str] = &["web", "_http._tcp.web"];
const MEMBERS: &[&str] = &["web", "_http._tcp.web", "web-0.web"];
const ALIASES: &[&str] = &["web", "_http._tcp.web", "ext"];
/// Names that are answered with a CNAME, relative to the namespace. The empty name is the namespace
/// itself.
const OF_ALIASES: &[&str] = &["ext", "*", ""];
/// Stands for the reverse name of the first IPv4 address of the namespace.
const REVERSE: &str = "reverse";

/// The fields that most kinds share.
const COMMON: Kind = Kind {
    name: "",
    objects: |_, _| Vec::new(),
    names: PLAIN,
    alias_names: &[],
    leads_nowhere: false,
};

pub(crate) const KINDS: &[Kind] = &[
    Kind {
        name: "ClusterIP",
        objects: |ns, n| {
            vec![mk_cluster_ip(
                ns,
                "web",
                &[&v4(n), &v6(n)],
                &["http:80", "metrics:9090"],
            )]
        },
        ..COMMON
    },
    Kind {
        name: "ClusterIP, port without a name",
        objects: |ns, n| vec![mk_cluster_ip(ns, "web", &[&v4(n)], &[":80"])],
        ..COMMON
    },
    Kind {
        name: "headless, hostnames",
        objects: |ns, n| {
            let pods = [
                format!("{} web-0", v4(n)),
                format!("{} web-0", v6(n)),
                format!("{} web-1", other(n)),
            ];
            headless(ns, "web", &pods, "http:80").into()
        },
        names: MEMBERS,
        ..COMMON
    },
    Kind {
        name: "headless, no hostnames",
        objects: |ns, n| headless(ns, "web", &[v4(n), other(n)], "http:80").into(),
        ..COMMON
    },
    Kind {
        name: "headless, port without a name",
        objects: |ns, n| headless(ns, "web", &[format!("{} web-0", v4(n))], ":80").into(),
        names: MEMBERS,
        ..COMMON
    },
    Kind {
        name: "ExternalName for a ClusterIP Service",
        objects: |ns, n| {
            let web = mk_cluster_ip(ns, "web", &[&v4(n), &v6(n)], &["http:80"]);
            vec![
                web,
                mk_external_name(ns, "ext", &format!("web.{ns}.svc.cluster.local")),
            ]
        },
        names: ALIASES,
        alias_names: OF_ALIASES,
        ..COMMON
    },
    Kind {
        name: "ExternalName for a headless Service",
        objects: |ns, n| {
            let [web, endpoints] = headless(ns, "web", &[format!("{} web-0", v4(n))], "http:80");
            vec![
                web,
                endpoints,
                mk_external_name(ns, "ext", &format!("web.{ns}.svc.cluster.local")),
            ]
        },
        names: ALIASES,
        alias_names: OF_ALIASES,
        ..COMMON
    },
    Kind {
        name: "ExternalName for an SRV name",
        objects: |ns, n| {
            let web = mk_cluster_ip(ns, "web", &[&v4(n)], &["http:80"]);
            vec![
                web,
                mk_external_name(ns, "ext", &format!("_http._tcp.web.{ns}.svc.cluster.local")),
            ]
        },
        names: ALIASES,
        alias_names: OF_ALIASES,
        ..COMMON
    },
    Kind {
        name: "ExternalName for an external name",
        objects: |ns, _| vec![mk_external_name(ns, "ext", &format!("{ns}.outside.test"))],
        names: &["ext"],
        alias_names: OF_ALIASES,
        ..COMMON
    },
    Kind {
        name: "ExternalName for a missing name",
        objects: |ns, _| {
            vec![mk_external_name(
                ns,
                "ext",
                &format!("gone.{ns}.svc.cluster.local"),
            )]
        },
        names: &["ext", "gone"],
        alias_names: OF_ALIASES,
        leads_nowhere: true,
    },
];

impl Kind {
    /// The questions about one Service, without completed names.
    pub(crate) fn questions(&self) -> Vec<Question> {
        let ask = |names: &'static [&'static str], types: &'static [&'static str]| {
            names
                .iter()
                .flat_map(move |name| types.iter().map(move |rtype| Question { name, rtype }))
        };
        let mut questions: Vec<Question> = ask(
            self.names,
            &["A", "AAAA", "SRV", "CNAME", "TXT", "ANY", "PTR"],
        )
        .collect();
        questions.extend(ask(
            &["_tcp.web", "*.web", "*", ""],
            &["A", "AAAA", "SRV", "CNAME"],
        ));
        questions.push(Question {
            name: REVERSE,
            rtype: "PTR",
        });
        questions
    }

    /// The questions about one Service, including those about completed names.
    pub(crate) fn questions_with_completed(&self) -> Vec<Question> {
        let names = COMPLETED
            .iter()
            .filter(|(name, _)| self.names.contains(name));
        let completed = names.flat_map(|(_, name)| {
            ["A", "AAAA", "SRV", "CNAME", "TXT"].map(|rtype| Question { name, rtype })
        });
        self.questions().into_iter().chain(completed).collect()
    }

    /// Returns whether a name is answered with the CNAME of an ExternalName Service.
    pub(crate) fn is_alias(&self, name: &str) -> bool {
        self.alias_names.contains(&name.trim_end_matches('+'))
    }
}

impl Question {
    /// Returns whether the name is completed with a search list.
    pub(crate) fn is_completed(&self) -> bool {
        self.name.ends_with('+')
    }

    /// The query for namespace number `n`.
    pub(crate) fn query(self, n: usize) -> Query {
        let n = u32::try_from(n).expect("the number must fit into 32 bits");
        let name = match self.name {
            REVERSE => reverse::name_of_address(v4(n).parse().expect("the address must be valid")),
            "" => format!("n{n}.svc.cluster.local."),
            name if name.ends_with('+') => format!("{}.n{n}.{SUFFIX}.", name.trim_end_matches('+')),
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

/// A second address for namespace number `n`.
fn other(n: u32) -> String {
    v4(0x0010_0000 + n)
}
