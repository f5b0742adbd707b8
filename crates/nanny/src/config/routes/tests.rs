//! Routes computed from configurations.

use super::*;
use crate::config::arguments::Arguments;

/// Computes routes. The SERVFAIL server is at port 9999. kubedns is behind dnsmasq and follows the
/// configuration.
pub(crate) fn computed(
    config: &Config,
    resolv_conf: &[Nameserver],
    names: &Resolutions,
    arguments: &Arguments,
) -> (Routes, BTreeSet<Omission>) {
    let listening = &Listening::of(arguments);
    Routes::compute(&ingredients(config, resolv_conf, names, listening))
}

fn ingredients<'a>(
    config: &'a Config,
    resolv_conf: &'a [Nameserver],
    names: &'a Resolutions,
    listening: &'a Listening,
) -> Ingredients<'a> {
    Ingredients {
        config,
        resolv_conf,
        names,
        listening,
        servfail_server: "127.0.0.1:9999".parse().unwrap(),
        forward: Forward::Dnsmasq,
        kubedns: "127.0.0.1:10053".parse().unwrap(),
        kubedns_follows: true,
        kubedns_is_behind: true,
    }
}

fn local() -> Arguments {
    Arguments::from_words(vec!["--listen-address=127.0.0.1".into()])
}

/// Computes routes from `stubDomains`, `upstreamNameservers` and the servers of resolv.conf.
/// Returns the routes and omissions, separated by semicolons.
fn compute(
    stub_domains: &str,
    upstreams: &str,
    resolv_conf: &[&str],
    names: &Resolutions,
) -> String {
    let data = [
        ("stubDomains", stub_domains),
        ("upstreamNameservers", upstreams),
    ];
    let data = data.map(|(key, value)| (key.to_owned(), value.as_bytes().to_vec()));
    let config = dnsconfig::parse(&data.into()).unwrap();
    let resolv_conf: Vec<Nameserver> = resolv_conf
        .iter()
        .map(|server| server.parse().unwrap())
        .collect();
    let (routes, omissions) = computed(&config, &resolv_conf, names, &local());
    let mut lines = crate::dnsmasq::servers_file::values(&routes);
    lines.extend(omissions.iter().map(|omission| match omission {
        Omission::Loop { domain, server } => {
            format!("loop {server} for {}", domain.as_deref().unwrap_or("all"))
        }
        Omission::Unresolved { domain, name } => format!("unresolved {name} for {domain}"),
    }));
    lines.join("; ")
}

fn plain(stub_domains: &str, upstreams: &str, resolv_conf: &[&str]) -> String {
    compute(
        stub_domains,
        upstreams,
        resolv_conf,
        &Resolutions::default(),
    )
}

#[test]
fn upstream_servers_replace_those_of_resolv_conf() {
    assert_eq!(
        plain("{}", "[]", &["192.0.2.1", "2001:db8::1"]),
        "192.0.2.1; 2001:db8::1"
    );
    assert_eq!(
        plain("{}", r#"["192.0.2.2:5353"]"#, &["192.0.2.1"]),
        "192.0.2.2#5353"
    );
    assert_eq!(plain("{}", "[]", &[]), "");
}

#[test]
fn stub_domains() {
    let two = r#"{"b.example": ["192.0.2.2", "192.0.2.2", "[2001:db8::2]:54"], "a.example": ["192.0.2.1"], "c.example": []}"#;
    assert_eq!(
        plain(two, "[]", &["192.0.2.9"]),
        "/a.example/192.0.2.1; /b.example/192.0.2.2; /b.example/2001:db8::2#54; 192.0.2.9"
    );
}

#[test]
fn names_are_routed_to_all_their_addresses_or_nowhere() {
    let stubs = r#"{"a.example": ["ns.a.example:54", "192.0.2.1"], "b.example": ["ns.b.example"]}"#;
    let names = Resolutions::from([(
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
fn servers_that_dnsmasq_cannot_ask_are_asked_by_kubedns() {
    let stubs = r#"{"a.example": ["tls://192.0.2.1"], "b.example": ["tcp://192.0.2.1", "192.0.2.1"], "c.example": ["192.0.2.1"]}"#;
    assert_eq!(
        plain(
            stubs,
            r#"["tls://192.0.2.2#dns.example", "192.0.2.3"]"#,
            &["192.0.2.9"]
        ),
        "/a.example/127.0.0.1#10053; /b.example/127.0.0.1#10053; /c.example/192.0.2.1; 127.0.0.1#10053"
    );
    assert_eq!(
        plain("{}", r#"["tls://192.0.2.2"]"#, &["192.0.2.9"]),
        "127.0.0.1#10053"
    );
}

/// Computes the routes for each forwarder, before and after kubedns is known to follow the
/// configuration.
#[test]
fn kubedns_is_asked_for_what_it_would_ask_of_others_only_once_it_follows() {
    const PLAIN: &str = r#"["192.0.2.2"]"#;
    const TLS: &str = r#"["192.0.2.2", "tls://192.0.2.3"]"#;
    let (names, listening) = (Resolutions::default(), Listening::of(&local()));
    for (forward, upstreams, kubedns_follows, expected) in [
        (
            Forward::Dnsmasq,
            PLAIN,
            false,
            "/a.example/192.0.2.1; 192.0.2.2",
        ),
        (
            Forward::Dnsmasq,
            TLS,
            false,
            "/a.example/192.0.2.1; 127.0.0.1#9999",
        ),
        (
            Forward::Dnsmasq,
            TLS,
            true,
            "/a.example/192.0.2.1; 127.0.0.1#10053",
        ),
        (Forward::Kubedns, PLAIN, false, "127.0.0.1#10053"),
        (Forward::Kubedns, PLAIN, true, "127.0.0.1#10053"),
        (Forward::Kubedns, TLS, false, "127.0.0.1#9999"),
        (Forward::Kubedns, TLS, true, "127.0.0.1#10053"),
    ] {
        let data = [
            ("stubDomains", r#"{"a.example": ["192.0.2.1"]}"#),
            ("upstreamNameservers", upstreams),
        ];
        let data = data.map(|(key, value)| (key.to_owned(), value.as_bytes().to_vec()));
        let config = dnsconfig::parse(&data.into()).unwrap();
        let from = ingredients(&config, &[], &names, &listening);
        let (routes, omissions) = Routes::compute(&Ingredients {
            forward,
            kubedns_follows,
            ..from
        });
        let values = crate::dnsmasq::servers_file::values(&routes).join("; ");
        assert_eq!(
            (values.as_str(), omissions.len()),
            (expected, 0),
            "{forward:?} {upstreams} {kubedns_follows}"
        );
    }
}

/// Computes the routes of names in `hosts` and `aliases`. The cases differ in the forwarder, in
/// whether kubedns follows the configuration, and in whether kubedns is behind dnsmasq.
#[test]
fn kubedns_behind_dnsmasq_is_asked_for_names_of_your_own() {
    let data = [
        ("hosts", "192.0.2.1 db.acme.example db\n2001:db8::1 db\n"),
        ("aliases", r#"{"registry.acme.example": "registry.infra"}"#),
        (
            "stubDomains",
            r#"{"acme.example": ["192.0.2.9"], "db.acme.example": ["192.0.2.8"]}"#,
        ),
    ];
    let data = data.map(|(key, value)| (key.to_owned(), value.as_bytes().to_vec()));
    let config = dnsconfig::parse(&data.into()).unwrap();
    let without = "/acme.example/192.0.2.9; /db.acme.example/192.0.2.8; 192.0.2.2";
    let with = "/1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa/127.0.0.1#10053; \
                /1.2.0.192.in-addr.arpa/127.0.0.1#10053; /db/127.0.0.1#10053; /db.acme.example/127.0.0.1#10053; \
                /registry.acme.example/127.0.0.1#10053; /acme.example/192.0.2.9; 192.0.2.2";
    let (names, listening, resolv_conf) = (
        Resolutions::default(),
        Listening::of(&local()),
        ["192.0.2.2".parse().unwrap()],
    );
    let from = ingredients(&config, &resolv_conf, &names, &listening);
    for (forward, kubedns_follows, kubedns_is_behind, expected) in [
        (Forward::Dnsmasq, true, true, with),
        (Forward::Dnsmasq, false, true, without),
        (Forward::Dnsmasq, true, false, without),
        (Forward::Kubedns, true, true, "127.0.0.1#10053"),
    ] {
        let (routes, _) = Routes::compute(&Ingredients {
            forward,
            kubedns_is_behind,
            kubedns_follows,
            ..from
        });
        let values = crate::dnsmasq::servers_file::values(&routes).join("; ");
        assert_eq!(
            values, expected,
            "{forward:?} {kubedns_follows} {kubedns_is_behind}"
        );
    }
}

#[test]
fn servers_that_are_dnsmasq_itself_are_left_out() {
    assert_eq!(
        plain(
            r#"{"a.example": ["127.0.0.1"], "b.example": ["127.0.0.1", "192.0.2.1"]}"#,
            r#"["127.0.0.1", "192.0.2.2"]"#,
            &[]
        ),
        "/a.example/127.0.0.1#9999; /b.example/192.0.2.1; 192.0.2.2; loop 127.0.0.1:53 for all; \
         loop 127.0.0.1:53 for a.example; loop 127.0.0.1:53 for b.example"
    );
    assert_eq!(
        plain("{}", "[]", &["127.0.0.1", "192.0.2.1"]),
        "192.0.2.1; loop 127.0.0.1:53 for all"
    );
}
