//! Routes computed from configurations.

use super::*;
use crate::config::arguments::DnsmasqArguments;

/// Computes routes. The SERVFAIL server (see [`RouteSources::servfail_server`]) is at port 9999.
/// kubedns is behind dnsmasq and follows `config`.
pub(crate) fn computed(
    config: &Config,
    resolv_conf: &[Nameserver],
    names: &ResolvedNames,
    arguments: &DnsmasqArguments,
) -> ComputedRoutes {
    let listening = &ListenAddresses::from_arguments(arguments);
    Routes::compute(&route_sources(config, resolv_conf, names, listening))
}

fn route_sources<'a>(
    config: &'a Config,
    resolv_conf: &'a [Nameserver],
    names: &'a ResolvedNames,
    listening: &'a ListenAddresses,
) -> RouteSources<'a> {
    RouteSources {
        config,
        resolv_conf,
        argument_servers: &[],
        names,
        listening,
        servfail_server: "127.0.0.1:9999".parse().unwrap(),
        probe_label: None,
        loops: const { &BTreeSet::new() },
        forward: ForwardMode::Dnsmasq,
        kubedns: "127.0.0.1:10053".parse().unwrap(),
        kubedns_follows: true,
        kubedns_is_behind: true,
    }
}

fn local() -> DnsmasqArguments {
    DnsmasqArguments::from_words(vec!["--listen-address=127.0.0.1".into()])
}

fn parse(data: &[(&str, &str)]) -> Config {
    let data = data
        .iter()
        .map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec()));
    dnsconfig::parse(&data.collect()).unwrap()
}

/// Computes routes from `stubDomains`, `upstreamNameservers` and the servers of resolv.conf.
/// Returns the routes and the omitted servers, separated by semicolons.
fn compute(
    stub_domains: &str,
    upstreams: &str,
    resolv_conf: &[&str],
    names: &ResolvedNames,
) -> String {
    let config = parse(&[
        ("stubDomains", stub_domains),
        ("upstreamNameservers", upstreams),
    ]);
    let resolv_conf: Vec<Nameserver> = resolv_conf
        .iter()
        .map(|server| server.parse().unwrap())
        .collect();
    let ComputedRoutes { routes, omitted } = computed(&config, &resolv_conf, names, &local());
    let mut lines = crate::dnsmasq::servers_file::server_values(&routes);
    lines.extend(omitted.iter().map(|omitted| match omitted {
        OmittedServer::Loop(server) => format!("loop {}", described(server)),
        OmittedServer::LeadsBack(server) => format!("probed loop {}", described(server)),
        OmittedServer::Unresolved { domain, name } => format!("unresolved {name} for {domain}"),
    }));
    lines.join("; ")
}

/// Formats a server as `192.0.2.1:53 for acme.example`.
fn described(RoutedServer { domain, server }: &RoutedServer) -> String {
    format!("{server} for {}", domain.as_deref().unwrap_or("all"))
}

#[test]
fn server_that_leads_back_is_left_out() {
    let config = parse(&[
        (
            "stubDomains",
            r#"{"acme.example": ["192.0.2.1", "192.0.2.2"], "beta.example": ["192.0.2.1"]}"#,
        ),
        ("upstreamNameservers", r#"["192.0.2.1"]"#),
    ]);
    let arguments = DnsmasqArguments::from_words(vec!["--server=192.0.2.3@eth0".into()]);
    let server = |domain: Option<&str>, server: &str| RoutedServer {
        domain: domain.map(str::to_owned),
        server: server.parse().unwrap(),
    };
    let compute = |loops: &BTreeSet<RoutedServer>| {
        Routes::compute(&RouteSources {
            probe_label: Some("forward-loop.1"),
            argument_servers: &arguments.movable_servers(),
            loops,
            ..route_sources(
                &config,
                &[],
                &ResolvedNames::default(),
                &ListenAddresses::from_arguments(&local()),
            )
        })
    };
    let lines = |routes: &Routes| crate::dnsmasq::servers_file::server_values(routes).join("; ");
    let probes =
        "/forward-loop.1.acme.example/127.0.0.1#9999; /forward-loop.1.beta.example/127.0.0.1#9999";
    let upstreams = "192.0.2.3@eth0; 192.0.2.1";

    let before = compute(&BTreeSet::new());
    let servers = "/acme.example/192.0.2.1; /acme.example/192.0.2.2; /beta.example/192.0.2.1";
    assert_eq!(
        lines(&before.routes),
        format!("{servers}; {probes}; {upstreams}")
    );
    let servers = before.routes.probed.iter().map(described);
    let expected = [
        "192.0.2.1:53 for all",
        "192.0.2.3:53 for all",
        "192.0.2.1:53 for acme.example",
        "192.0.2.2:53 for acme.example",
        "192.0.2.1:53 for beta.example",
    ];
    assert_eq!(servers.collect::<Vec<_>>(), expected);

    // 192.0.2.1 forwards back only names in `acme.example`. It stays in use for all other names.
    let loops = BTreeSet::from([server(Some("acme.example"), "192.0.2.1")]);
    let one = compute(&loops);
    let servers = "/acme.example/192.0.2.2; /beta.example/192.0.2.1";
    assert_eq!(
        lines(&one.routes),
        format!("{servers}; {probes}; {upstreams}")
    );
    assert_eq!(one.routes.probed, before.routes.probed);
    let left_out = loops.iter().cloned().map(OmittedServer::LeadsBack);
    assert_eq!(one.omitted, left_out.collect());

    for (looping, left) in [("192.0.2.1", "192.0.2.3@eth0"), ("192.0.2.3", "192.0.2.1")] {
        let routes = compute(&BTreeSet::from([server(None, looping)])).routes;
        assert!(lines(&routes).ends_with(&format!("{probes}; {left}")));
        assert!(routes.drop_server_of(&before.routes));
    }

    let all = compute(&before.routes.probed);
    let servers = "/acme.example/127.0.0.1#9999; /beta.example/127.0.0.1#9999";
    assert_eq!(lines(&all.routes), format!("{servers}; {probes}"));
    assert_eq!(all.routes.failing.len(), 2);
}

/// The nanny need not probe a kubedns that is behind dnsmasq. If a query that dnsmasq sends to
/// kubedns comes back to dnsmasq, the loop passes through an upstream of kubedns, and kubedns
/// itself finds the loop.
#[test]
fn kubedns_behind_dnsmasq_is_not_probed() {
    let argument = DnsmasqArguments::from_words(vec!["-S127.0.0.1#10053".into()]);
    let bogus_priv = parse(&[("bogusPriv", "true")]);
    let tls = parse(&[("upstreamNameservers", r#"["tls://192.0.2.2"]"#)]);
    let kubedns = parse(&[("upstreamNameservers", r#"["127.0.0.1:10053"]"#)]);
    for (config, arguments, is_behind, expected) in [
        (&Config::default(), &argument, true, "127.0.0.1#10053"),
        (&bogus_priv, &local(), true, "127.0.0.1#10053"),
        (&tls, &local(), true, "127.0.0.1#10053"),
        (&kubedns, &local(), true, "127.0.0.1#10053"),
        (&kubedns, &local(), false, ""),
    ] {
        let routes = Routes::compute(&RouteSources {
            argument_servers: &arguments.movable_servers(),
            probe_label: Some("forward-loop.1"),
            loops: &BTreeSet::from([RoutedServer {
                domain: None,
                server: "127.0.0.1:10053".parse().unwrap(),
            }]),
            kubedns_is_behind: is_behind,
            ..route_sources(
                config,
                &[],
                &ResolvedNames::default(),
                &ListenAddresses::from_arguments(&local()),
            )
        })
        .routes;
        let values = crate::dnsmasq::servers_file::server_values(&routes).join("; ");
        assert_eq!(values, expected, "{config:?}");
        assert_eq!(routes.probed.is_empty(), is_behind, "{config:?}");
    }
}

fn plain(stub_domains: &str, upstreams: &str, resolv_conf: &[&str]) -> String {
    let no_names = ResolvedNames::default();
    compute(stub_domains, upstreams, resolv_conf, &no_names)
}

#[test]
fn upstream_servers_replace_resolv_conf() {
    let both = plain("{}", "[]", &["192.0.2.1", "2001:db8::1"]);
    assert_eq!(both, "192.0.2.1; 2001:db8::1");
    let configured = plain("{}", r#"["192.0.2.2:5353"]"#, &["192.0.2.1"]);
    assert_eq!(configured, "192.0.2.2#5353");
    assert_eq!(plain("{}", "[]", &[]), "");
}

#[test]
fn stub_domains_are_routed_to_their_servers() {
    let two = r#"{"b.example": ["192.0.2.2", "192.0.2.2", "[2001:db8::2]:54"], "a.example": ["192.0.2.1"], "c.example": []}"#;
    assert_eq!(
        plain(two, "[]", &["192.0.2.9"]),
        "/a.example/192.0.2.1; /b.example/192.0.2.2; /b.example/2001:db8::2#54; 192.0.2.9"
    );
}

#[test]
fn domain_without_resolved_server_gets_servfail() {
    let stubs = r#"{"a.example": ["ns.a.example:54", "192.0.2.1"], "b.example": ["ns.b.example"]}"#;
    let names = ResolvedNames::from([(
        "ns.a.example",
        vec!["192.0.2.7".parse().unwrap(), "2001:db8::7".parse().unwrap()],
    )]);
    assert_eq!(
        compute(stubs, "[]", &[], &names),
        "/a.example/192.0.2.7#54; /a.example/2001:db8::7#54; /a.example/192.0.2.1; /b.example/127.0.0.1#9999; \
         unresolved ns.b.example for b.example"
    );
    assert_eq!(
        plain(stubs, "[]", &[]),
        "/a.example/192.0.2.1; /b.example/127.0.0.1#9999; unresolved ns.a.example for a.example; \
         unresolved ns.b.example for b.example"
    );
}

#[test]
fn tls_and_tcp_servers_are_queried_by_kubedns() {
    let stubs = r#"{"a.example": ["tls://192.0.2.1"], "b.example": ["tcp://192.0.2.1", "192.0.2.1"], "c.example": ["192.0.2.1"]}"#;
    assert_eq!(
        plain(
            stubs,
            r#"["tls://192.0.2.2#dns.example", "192.0.2.3"]"#,
            &["192.0.2.9"]
        ),
        "/a.example/127.0.0.1#10053; /b.example/127.0.0.1#10053; /c.example/192.0.2.1; 127.0.0.1#10053"
    );
    let encrypted = plain("{}", r#"["tls://192.0.2.2"]"#, &["192.0.2.9"]);
    assert_eq!(encrypted, "127.0.0.1#10053");
}

/// The cases differ in the forwarder, in the upstreams, and in whether kubedns is known to follow
/// the same configuration.
#[test]
fn tls_upstreams_need_kubedns_that_follows_configuration() {
    const PLAIN: &str = r#"["192.0.2.2"]"#;
    const TLS: &str = r#"["192.0.2.2", "tls://192.0.2.3"]"#;
    let names = ResolvedNames::default();
    let listening = ListenAddresses::from_arguments(&local());
    let [plain, nowhere, kubedns] = ["192.0.2.2", "127.0.0.1#9999", "127.0.0.1#10053"];
    let besides_stub = |server: &str| format!("/a.example/192.0.2.1; {server}");
    let all_to = |server: &str| format!("/a.example/{server}; {server}");
    for (forward, upstreams, kubedns_follows, expected) in [
        (ForwardMode::Dnsmasq, PLAIN, false, besides_stub(plain)),
        (ForwardMode::Dnsmasq, TLS, false, besides_stub(nowhere)),
        (ForwardMode::Dnsmasq, TLS, true, besides_stub(kubedns)),
        (ForwardMode::Kubedns, PLAIN, false, all_to(kubedns)),
        (ForwardMode::Kubedns, PLAIN, true, all_to(kubedns)),
        (ForwardMode::Kubedns, TLS, false, all_to(nowhere)),
        (ForwardMode::Kubedns, TLS, true, all_to(kubedns)),
    ] {
        let config = parse(&[
            ("stubDomains", r#"{"a.example": ["192.0.2.1"]}"#),
            ("upstreamNameservers", upstreams),
        ]);
        let from = route_sources(&config, &[], &names, &listening);
        let ComputedRoutes { routes, omitted } = Routes::compute(&RouteSources {
            forward,
            kubedns_follows,
            ..from
        });
        let values = crate::dnsmasq::servers_file::server_values(&routes).join("; ");
        let case = format!("{forward:?} {upstreams} {kubedns_follows}");
        assert_eq!((values, omitted.len()), (expected, 0), "{case}");
    }
}

/// Computes the routes of names in `hosts` and `aliases`. The cases differ in the forwarder, in
/// whether kubedns follows the configuration, and in whether kubedns is behind dnsmasq.
#[test]
fn own_names_go_to_kubedns_behind_dnsmasq() {
    let config = parse(&[
        (
            "hosts",
            "192.0.2.1 db.acme.example db\n2001:db8::1 db\n192.0.2.3 *.wild.example\n",
        ),
        (
            "aliases",
            r#"{"registry.acme.example": "registry.infra", "*.db.acme.example": "db.infra"}"#,
        ),
        (
            "stubDomains",
            r#"{"acme.example": ["192.0.2.9"], "db.acme.example": ["192.0.2.8"]}"#,
        ),
    ]);
    let without = "/acme.example/192.0.2.9; /db.acme.example/192.0.2.8; 192.0.2.2";
    let own_names = "/1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa/127.0.0.1#10053; \
                     /1.2.0.192.in-addr.arpa/127.0.0.1#10053; /db/127.0.0.1#10053; \
                     /registry.acme.example/127.0.0.1#10053; /wild.example/127.0.0.1#10053";
    let own_stub = "/db.acme.example/127.0.0.1#10053";
    let with: &str = &format!("{own_names}; /acme.example/192.0.2.9; {own_stub}; 192.0.2.2");
    let all_to_kubedns: &str =
        &format!("{own_names}; /acme.example/127.0.0.1#10053; {own_stub}; 127.0.0.1#10053");
    let names = ResolvedNames::default();
    let listening = ListenAddresses::from_arguments(&local());
    let resolv_conf = ["192.0.2.2".parse().unwrap()];
    let from = route_sources(&config, &resolv_conf, &names, &listening);
    for (forward, kubedns_follows, kubedns_is_behind, expected) in [
        (ForwardMode::Dnsmasq, true, true, with),
        (ForwardMode::Dnsmasq, false, true, without),
        (ForwardMode::Dnsmasq, true, false, without),
        (ForwardMode::Kubedns, true, true, all_to_kubedns),
    ] {
        let ComputedRoutes { routes, .. } = Routes::compute(&RouteSources {
            forward,
            kubedns_is_behind,
            kubedns_follows,
            ..from
        });
        let values = crate::dnsmasq::servers_file::server_values(&routes).join("; ");
        let case = format!("{forward:?} {kubedns_follows} {kubedns_is_behind}");
        assert_eq!(values, expected, "{case}");
    }
}

/// Computes the routes with rules for external names. The cases differ in the rule, in whether
/// kubedns follows the configuration, and in whether kubedns is behind dnsmasq.
#[test]
fn external_rules_lead_to_kubedns() {
    const HOSTS: (&str, &str) = ("hosts", "192.0.2.1 db.corp.example");
    const STUBS: (&str, &str) = (
        "stubDomains",
        r#"{"acme.example": ["192.0.2.9"], "none.example": []}"#,
    );
    let names = ResolvedNames::default();
    let listening = ListenAddresses::from_arguments(&local());
    let resolv_conf = ["192.0.2.2".parse().unwrap()];
    let own_names = "/1.2.0.192.in-addr.arpa/127.0.0.1#10053; /db.corp.example/127.0.0.1#10053";
    let with: &str = &format!("{own_names}; /acme.example/127.0.0.1#10053; 127.0.0.1#10053");
    let without: &str = &format!("{own_names}; /acme.example/192.0.2.9; 192.0.2.2");
    let alone = "/acme.example/192.0.2.9; 192.0.2.2";
    let denied = r#"{"wpad": "NXDOMAIN"}"#;
    for (key, rule, kubedns_follows, kubedns_is_behind, expected) in [
        ("filterTypes", r#"{".": ["AAAA"]}"#, true, true, with),
        ("filterTypes", r#"{".": []}"#, true, true, without),
        ("filterTypes", r#"{".": ["AAAA"]}"#, false, true, alone),
        ("filterTypes", r#"{".": ["AAAA"]}"#, true, false, alone),
        ("deniedNames", denied, true, true, with),
        ("bogusPriv", "true", true, true, with),
        ("bogusPriv", "false", true, true, without),
    ] {
        let config = parse(&[HOSTS, STUBS, (key, rule)]);
        let from = route_sources(&config, &resolv_conf, &names, &listening);
        let ComputedRoutes { routes, .. } = Routes::compute(&RouteSources {
            kubedns_is_behind,
            kubedns_follows,
            ..from
        });
        let values = crate::dnsmasq::servers_file::server_values(&routes).join("; ");
        let case = format!("{key} {rule} {kubedns_follows} {kubedns_is_behind}");
        assert_eq!(values, expected, "{case}");
    }
}

#[test]
fn servers_at_listen_address_are_omitted_as_loops() {
    assert_eq!(
        plain(
            r#"{"a.example": ["127.0.0.1"], "b.example": ["127.0.0.1", "192.0.2.1"]}"#,
            r#"["127.0.0.1", "192.0.2.2"]"#,
            &[]
        ),
        "/a.example/127.0.0.1#9999; /b.example/192.0.2.1; 192.0.2.2; loop 127.0.0.1:53 for all; \
         loop 127.0.0.1:53 for a.example; loop 127.0.0.1:53 for b.example"
    );
    let of_node = plain("{}", "[]", &["127.0.0.1", "192.0.2.1"]);
    assert_eq!(of_node, "192.0.2.1; loop 127.0.0.1:53 for all");
}

/// When an edit removes a server, queries may still await its reply. The nanny must recognize such
/// an edit, so that these queries are not dropped.
#[test]
fn edit_that_removes_server_is_recognized() {
    const UPSTREAM: (&str, &str) = ("upstreamNameservers", r#"["192.0.2.7"]"#);
    const UPSTREAMS: (&str, &str) = ("upstreamNameservers", r#"["192.0.2.7", "192.0.2.8"]"#);
    const STUB: (&str, &str) = ("stubDomains", r#"{"acme.example": ["192.0.2.9"]}"#);
    const STUBS: (&str, &str) = (
        "stubDomains",
        r#"{"acme.example": ["192.0.2.9", "192.0.2.8"], "b.example": ["192.0.2.9"]}"#,
    );
    const HOST: (&str, &str) = ("hosts", "192.0.2.1 db.example");
    const HOSTS: (&str, &str) = ("hosts", "192.0.2.1 db.example\n192.0.2.1 db2.example");
    const ALIAS: (&str, &str) = ("aliases", r#"{"db.example": "db.infra"}"#);

    let names = ResolvedNames::default();
    let listening = ListenAddresses::from_arguments(&local());
    let routes = |data: &[(&str, &str)]| {
        let config = parse(data);
        Routes::compute(&RouteSources {
            kubedns_follows: true,
            kubedns_is_behind: true,
            ..route_sources(&config, &[], &names, &listening)
        })
        .routes
    };
    for (smaller, larger) in [
        (&[UPSTREAM][..], &[UPSTREAMS][..]),
        (&[STUB], &[STUBS]),
        (&[UPSTREAM], &[UPSTREAM, STUB]),
        (&[HOST], &[HOSTS]),
        (&[UPSTREAM], &[UPSTREAM, ALIAS]),
    ] {
        let (before, after) = (routes(larger), routes(smaller));
        assert!(after.drop_server_of(&before), "{larger:?} {smaller:?}");
        assert!(!before.drop_server_of(&after), "{smaller:?} {larger:?}");
    }

    // Both configurations have the name `db.example`, which dnsmasq forwards to kubedns.
    assert!(!routes(&[HOST]).drop_server_of(&routes(&[HOST])));
    assert!(!routes(&[HOST]).drop_server_of(&routes(&[ALIAS])));
}
