//! The settings in force, for each kind of input.

use dnsconfig::RawData;

use super::*;

/// The address on which this server listens in every [`Case`].
const OWN: &str = "127.0.0.1:10053";

/// The inputs, and what is in force with them.
struct Case {
    name: &'static str,
    flags: &'static [&'static str],
    /// Keys of the `ConfigMap`.
    data: &'static [(&'static str, &'static str)],
    resolv_conf: &'static str,
    /// The name of a stub server, and its address.
    resolved: Option<(&'static str, &'static str)>,
    /// Routes whose upstream forwards queries back to this server, each as domain and upstream. The
    /// domain of external names is `.`.
    loops: &'static [(&'static str, &'static str)],
    knowledge: ConfigKnowledge,
    /// The lines of [`show`].
    expected: &'static [&'static str],
}

const CASE: Case = Case {
    name: "",
    flags: &[],
    data: &[],
    resolv_conf: "",
    resolved: None,
    loops: &[],
    knowledge: ConfigKnowledge::Known,
    expected: &[],
};

const NAMESERVERS: &str = "--nameservers=192.0.2.2";
const TO_DNSMASQ: &str = "--nameservers=127.0.0.1:5301";
const RESOLV_CONF: &str = "nameserver 192.0.2.3\nsearch Corp.test x.cluster.local example.test\n";

const CASES: &[Case] = &[
    Case {
        name: "no servers anywhere",
        expected: &[". ->"],
        ..CASE
    },
    Case {
        name: "resolv.conf",
        resolv_conf: RESOLV_CONF,
        expected: &[". -> 192.0.2.3:53"],
        ..CASE
    },
    Case {
        name: "the flag overrides resolv.conf",
        flags: &["--nameservers=192.0.2.2,nonsense,[2001:db8::1]:5353"],
        resolv_conf: RESOLV_CONF,
        expected: &[". -> 192.0.2.2:53 [2001:db8::1]:5353"],
        ..CASE
    },
    Case {
        name: "the configuration overrides the flag",
        flags: &[NAMESERVERS],
        data: &[("upstreamNameservers", r#"["192.0.2.1"]"#)],
        resolv_conf: RESOLV_CONF,
        expected: &[". -> 192.0.2.1:53"],
        ..CASE
    },
    Case {
        name: "withheld: before the ConfigMap is read, external names have no upstream",
        flags: &[NAMESERVERS],
        resolv_conf: RESOLV_CONF,
        knowledge: ConfigKnowledge::Withheld,
        expected: &["not known", ". ->"],
        ..CASE
    },
    Case {
        name: "assumed: before the ConfigMap is read, it counts as empty",
        flags: &[NAMESERVERS],
        knowledge: ConfigKnowledge::Assumed,
        expected: &["not known", ". -> 192.0.2.2:53"],
        ..CASE
    },
    Case {
        name: "federations",
        flags: &[NAMESERVERS],
        data: &[("federations", "fed=fed.example")],
        expected: &["federation fed fed.example", ". -> 192.0.2.2:53"],
        ..CASE
    },
    Case {
        name: "stub domains; one without servers has no effect",
        flags: &[NAMESERVERS],
        data: &[(
            "stubDomains",
            r#"{"a.test":["192.0.2.7:54"],"none.test":[]}"#,
        )],
        expected: &[". -> 192.0.2.2:53", "a.test. -> 192.0.2.7:54"],
        ..CASE
    },
    Case {
        name: "a stub server is given by a name that has no address",
        flags: &[NAMESERVERS],
        data: &[("stubDomains", r#"{"a.test":["192.0.2.7","ns.a.test:54"]}"#)],
        expected: &[
            "1 unresolved of ns.a.test",
            ". -> 192.0.2.2:53",
            "a.test. -> 192.0.2.7:53",
        ],
        ..CASE
    },
    Case {
        name: "a stub server is given by a name that has an address",
        flags: &[NAMESERVERS],
        data: &[("stubDomains", r#"{"a.test":["192.0.2.7","ns.a.test:54"]}"#)],
        resolved: Some(("ns.a.test", "192.0.2.8")),
        expected: &[
            "0 unresolved of ns.a.test",
            ". -> 192.0.2.2:53",
            "a.test. -> 192.0.2.7:53 192.0.2.8:54",
        ],
        ..CASE
    },
    Case {
        name: "direct: kubedns forwards to dnsmasq if dnsmasq supports all servers of the route",
        flags: &["--topology=direct", TO_DNSMASQ],
        data: &[
            ("upstreamNameservers", r#"["192.0.2.1"]"#),
            (
                "stubDomains",
                r#"{"a.test":["192.0.2.7"],"b.test":["ns.b.test"]}"#,
            ),
        ],
        expected: &[
            ". -> 127.0.0.1:5301",
            "a.test. -> 127.0.0.1:5301",
            "b.test. -> 127.0.0.1:5301",
        ],
        ..CASE
    },
    Case {
        name: "direct: kubedns itself forwards to servers that dnsmasq does not support",
        flags: &["--topology=direct", TO_DNSMASQ],
        data: &[
            ("upstreamNameservers", r#"["192.0.2.1","tls://192.0.2.2"]"#),
            (
                "stubDomains",
                r#"{"a.test":["192.0.2.7"],"b.test":["tcp://192.0.2.8","ns.b.test"]}"#,
            ),
        ],
        expected: &[
            "1 unresolved of ns.b.test",
            ". -> 192.0.2.1:53 tls://192.0.2.2:853",
            "a.test. -> 127.0.0.1:5301",
            "b.test. -> tcp://192.0.2.8:53",
        ],
        ..CASE
    },
    Case {
        name: "a looping upstream is left out of the looping route only",
        data: &[
            ("upstreamNameservers", r#"["192.0.2.1","192.0.2.2"]"#),
            ("stubDomains", r#"{"a.test":["192.0.2.1"]}"#),
        ],
        loops: &[(".", "192.0.2.1:53")],
        expected: &["1 looping", ". -> 192.0.2.2:53", "a.test. -> 192.0.2.1:53"],
        ..CASE
    },
    Case {
        name: "a stub domain remains even if all its servers loop",
        flags: &[NAMESERVERS],
        data: &[("stubDomains", r#"{"a.test":["192.0.2.7"]}"#)],
        loops: &[("a.test", "192.0.2.7:53")],
        expected: &["1 looping", ". -> 192.0.2.2:53", "a.test. ->"],
        ..CASE
    },
    Case {
        name: "this server does not forward to itself",
        data: &[
            ("upstreamNameservers", r#"["127.0.0.1:10053","192.0.2.1"]"#),
            ("stubDomains", r#"{"a.test":["127.0.0.1:10053"]}"#),
        ],
        expected: &[
            "own 127.0.0.1:10053",
            "own 127.0.0.1:10053",
            ". -> 192.0.2.1:53",
            "a.test. ->",
        ],
        ..CASE
    },
    Case {
        name: "names of a fallthrough domain that do not exist are forwarded",
        flags: &[NAMESERVERS, "--fallthrough=svc.cluster.local"],
        loops: &[(".", "192.0.2.9:53")],
        expected: &[
            "1 looping",
            ". -> 192.0.2.2:53",
            "fallthrough svc.cluster.local.",
        ],
        ..CASE
    },
    Case {
        name: "names of a fallthrough domain are not forwarded to an upstream that forwards them back",
        flags: &[NAMESERVERS, "--fallthrough=svc.cluster.local"],
        loops: &[("svc.cluster.local.", "192.0.2.2:53")],
        expected: &["1 looping", ". -> 192.0.2.2:53"],
        ..CASE
    },
    Case {
        name: "search domains of resolv.conf outside the cluster",
        flags: &["--search-suffix=search.test"],
        resolv_conf: RESOLV_CONF,
        expected: &[". -> 192.0.2.3:53", "search corp.test. example.test."],
        ..CASE
    },
    Case {
        name: "search domains of the flag",
        flags: &["--search-suffix=search.test", "--search-domains=a.test"],
        resolv_conf: RESOLV_CONF,
        expected: &[". -> 192.0.2.3:53", "search a.test."],
        ..CASE
    },
    Case {
        name: "hosts of the ConfigMap",
        flags: &[NAMESERVERS],
        data: &[("hosts", "192.0.2.20 db.acme.example\n")],
        expected: &[". -> 192.0.2.2:53", "own names"],
        ..CASE
    },
];

#[test]
fn inputs_determine_settings_in_force() {
    for case in CASES {
        assert_eq!(show(&compute(case)), case.expected, "{}", case.name);
    }
}

#[test]
fn found_loops_change_neither_probes_nor_route_texts() {
    let configured = Case {
        flags: &["--fallthrough=svc.cluster.local"],
        data: &[
            ("upstreamNameservers", r#"["192.0.2.1"]"#),
            ("stubDomains", r#"{"a.test":["192.0.2.7","ns.a.test"]}"#),
        ],
        ..CASE
    };
    let before = compute(&configured);
    let after = compute(&Case {
        loops: &[
            (".", "192.0.2.1:53"),
            ("svc.cluster.local.", "192.0.2.1:53"),
            ("a.test", "192.0.2.7:53"),
        ],
        ..configured
    });

    assert_eq!(before.probed_routes.len(), 3);
    assert_eq!(after.probed_routes, before.probed_routes);
    assert_eq!(after.server_names, before.server_names);
    assert_eq!(
        after.zone.routes, before.zone.routes,
        "the TXT record of routes.kubedns. (CHAOS) must stay the same, or the nanny empties the cache of dnsmasq"
    );
    assert_ne!(after.zone.upstreams, before.zone.upstreams);
}

#[test]
fn queries_for_stub_domain_below_cluster_domain_are_forwarded() {
    for flags in [&["--topology=drop-in"], &["--topology=direct"]] {
        let flags: &[&str] = flags;
        let in_force = in_force_of(flags, r#"{"corp.cluster.local":["192.0.2.7"]}"#);
        let cluster_zone = Zone::new(&Name::parse("cluster.local").unwrap());
        let zone = in_force.zone.apply_to(&cluster_zone);

        let below = Name::parse("www.corp.cluster.local").unwrap();
        assert!(!zone.owns(below.wire()), "{flags:?}");
        let (servers, stub_domain) = zone.servers_for(below.wire());
        assert_eq!(*servers, in_force.zone.stub_domains[0].1, "{flags:?}");
        assert!(stub_domain.is_some(), "{flags:?}");
    }
}

fn in_force_of(flags: &[&str], stub_domains: &str) -> InForce {
    let data = RawData::from([("stubDomains".to_owned(), stub_domains.as_bytes().to_vec())]);
    compute_with(flags, &data, &CASE)
}

#[test]
fn route_texts_contain_version_routes_and_topology() {
    let one = route_texts_of(&["--nameservers=192.0.2.1", "--topology=cache"]);
    let same = route_texts_of(&["--nameservers=192.0.2.1:53", "--topology=drop-in"]);
    let other = route_texts_of(&["--nameservers=192.0.2.2", "--topology=cache"]);

    let version = Config::default().version();
    assert_eq!(one[0], format!("configuration={version}"));
    assert_eq!(one[..2], same[..2]);
    assert_eq!(one[2], "topology=cache");
    assert_eq!(same[2], "topology=drop-in");
    assert!(one[1].starts_with("routes="), "{one:?}");
    assert_ne!(one[1], other[1]);
}

#[test]
fn search_list_changes_route_texts() {
    let without = route_texts_of(&[]);
    let with = route_texts_of(&["--search-suffix=search.test"]);
    assert_ne!(
        without, with,
        "the TXT record of routes.kubedns. (CHAOS) must differ, so that the nanny empties the cache of dnsmasq"
    );
}

fn route_texts_of(flags: &[&str]) -> Vec<String> {
    compute_with(flags, &RawData::new(), &CASE)
        .zone
        .routes
        .to_vec()
}

fn compute(case: &Case) -> InForce {
    let mut data = RawData::new();
    for (key, value) in case.data {
        data.insert((*key).to_owned(), value.as_bytes().to_vec());
    }
    compute_with(case.flags, &data, case)
}

/// The settings in force with these flags and keys, and all other inputs of `case`.
fn compute_with(flags: &[&str], data: &RawData, case: &Case) -> InForce {
    let words = [&["kube-dns"], flags].concat();
    let options: Options = clap::Parser::try_parse_from(words).unwrap();
    let zone = options.zone().unwrap();

    let names = match case.resolved {
        Some((name, address)) => ResolvedNames::from([(name, vec![address.parse().unwrap()])]),
        None => ResolvedNames::default(),
    };
    let mut loops = Loops::new();
    for (domain, upstream) in case.loops {
        let domain = Some(*domain).filter(|domain| *domain != ".");
        loops.insert(ForwardingRoute::new(domain, upstream.parse().unwrap()));
    }
    InForce::compute(&ConfigInputs {
        flags: &ConfigFlags::new(&options, &zone, OWN.parse().unwrap()),
        knowledge: case.knowledge,
        config: &dnsconfig::parse(data).unwrap(),
        resolv_conf: &ResolvConf::parse(case.resolv_conf),
        names: &names,
        loops: &loops,
    })
}

/// A line for each route, and lines for some of the other settings.
fn show(in_force: &InForce) -> Vec<String> {
    let mut lines = Vec::new();
    if !in_force.zone.is_known {
        lines.push("not known".to_owned());
    }
    for (name, domain) in &in_force.federations {
        lines.push(format!("federation {name} {domain}"));
    }
    if !in_force.server_names.is_empty() {
        let names: Vec<&str> = in_force.server_names.iter().map(String::as_str).collect();
        let unresolved = in_force.unresolved_names.len();
        lines.push(format!("{unresolved} unresolved of {}", names.join(" ")));
    }
    for server in &in_force.own_servers {
        lines.push(format!("own {server}"));
    }
    if in_force.looping_servers > 0 {
        lines.push(format!("{} looping", in_force.looping_servers));
    }

    let zone = &in_force.zone;
    lines.push(show_route(".", &zone.upstreams));
    for (domain, servers) in &zone.stub_domains {
        lines.push(show_route(&domain.to_string(), servers));
    }
    for domain in zone.fallthrough.iter() {
        lines.push(format!("fallthrough {domain}"));
    }
    if let Some(search) = &zone.search {
        let domains: Vec<String> = search.domains().iter().map(ToString::to_string).collect();
        lines.push(format!("search {}", domains.join(" ")));
    }
    if zone.own_names.is_some() {
        lines.push("own names".to_owned());
    }
    lines
}

fn show_route(domain: &str, servers: &[Upstream]) -> String {
    let servers: Vec<String> = servers.iter().map(ToString::to_string).collect();
    format!("{domain} -> {}", servers.join(" "))
        .trim_end()
        .to_owned()
}
