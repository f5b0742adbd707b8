//! What becomes of configurations.

use super::*;
use crate::config::arguments::Arguments;

/// With the server for domains that fail at port 9999.
pub(crate) fn computed(
    config: &Config,
    resolv_conf: &[Nameserver],
    names: &Resolutions,
    arguments: &Arguments,
) -> (Routes, BTreeSet<Omission>) {
    let servfail_server = "127.0.0.1:9999".parse().unwrap();
    let listening = &Listening::of(arguments);
    Routes::compute(&Ingredients { config, resolv_conf, names, listening, servfail_server })
}

/// Computes with `stubDomains`, `upstreamNameservers` and the servers of resolv.conf; one line a route or omission.
fn compute(stub_domains: &str, upstreams: &str, resolv_conf: &[&str], names: &Resolutions) -> String {
    let data = [("stubDomains", stub_domains), ("upstreamNameservers", upstreams)];
    let data = data.map(|(key, value)| (key.to_owned(), value.as_bytes().to_vec()));
    let config = dnsconfig::parse(&data.into()).unwrap();
    let resolv_conf: Vec<Nameserver> = resolv_conf.iter().map(|server| server.parse().unwrap()).collect();
    let arguments = Arguments::from_words(vec!["--listen-address=127.0.0.1".into()]);
    let (routes, omissions) = computed(&config, &resolv_conf, names, &arguments);
    let mut lines = crate::dnsmasq::servers_file::values(&routes);
    lines.extend(omissions.iter().map(|omission| match omission {
        Omission::Loop { domain, server } => {
            format!("loop {server} for {}", domain.as_deref().unwrap_or("all"))
        }
        Omission::NotPlain { domain, server } => {
            format!("{server} for {} is not plain", domain.as_deref().unwrap_or("all"))
        }
        Omission::Unresolved { domain, name } => format!("unresolved {name} for {domain}"),
    }));
    lines.join("; ")
}

fn plain(stub_domains: &str, upstreams: &str, resolv_conf: &[&str]) -> String {
    compute(stub_domains, upstreams, resolv_conf, &Resolutions::default())
}

#[test]
fn upstream_servers_replace_those_of_resolv_conf() {
    assert_eq!(plain("{}", "[]", &["192.0.2.1", "2001:db8::1"]), "192.0.2.1; 2001:db8::1");
    assert_eq!(plain("{}", r#"["192.0.2.2:5353"]"#, &["192.0.2.1"]), "192.0.2.2#5353");
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
fn servers_that_dnsmasq_cannot_ask_get_nothing() {
    assert_eq!(
        plain(
            r#"{"a.example": ["tls://192.0.2.1"], "b.example": ["tcp://192.0.2.1", "192.0.2.1"]}"#,
            r#"["tls://192.0.2.2#dns.example", "192.0.2.3"]"#,
            &["192.0.2.9"]
        ),
        "/a.example/127.0.0.1#9999; /b.example/192.0.2.1; 192.0.2.3; tls://192.0.2.2:853#dns.example for all is not \
         plain; tls://192.0.2.1:853 for a.example is not plain; tcp://192.0.2.1:53 for b.example is not plain"
    );
    assert_eq!(
        plain("{}", r#"["tls://192.0.2.2"]"#, &["192.0.2.9"]),
        "tls://192.0.2.2:853 for all is not plain"
    );
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
    assert_eq!(plain("{}", "[]", &["127.0.0.1", "192.0.2.1"]), "192.0.2.1; loop 127.0.0.1:53 for all");
}
