//! Accepted and rejected values, as recorded from kube-dns, and limits that kube-dns does not have.

use std::time::Duration;

use super::*;
use crate::query_log::DEFAULT_RATE;
use wire::query_filter::QueryFilter;

fn data(entries: &[(&str, &str)]) -> RawData {
    entries
        .iter()
        .map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec()))
        .collect()
}

/// One line per stub domain and upstream, or the error.
fn outcome(entries: &[(&str, &str)]) -> String {
    let config = match parse(&data(entries)) {
        Ok(config) => config,
        Err(error) => return error.to_string(),
    };
    let mut lines = Vec::new();
    for (domain, servers) in &config.stub_domains {
        let servers: Vec<String> = servers.iter().map(ToString::to_string).collect();
        lines.push(format!("{domain} -> {}", servers.join(" ")));
    }
    lines.extend(
        config
            .upstream_nameservers
            .iter()
            .map(|server| format!("* -> {server}")),
    );
    lines.extend(
        config
            .federations
            .iter()
            .map(|(name, domain)| format!("{name} = {domain}")),
    );
    lines.join("; ")
}

#[test]
fn valid_values_are_parsed() {
    for (entries, expected) in [
        (vec![], ""),
        (
            vec![
                ("upstreamNameservers", "[]"),
                ("stubDomains", "{}"),
                ("federations", ""),
            ],
            "",
        ),
        (
            vec![("upstreamNameservers", "null"), ("stubDomains", "null")],
            "",
        ),
        (
            vec![(
                "upstreamNameservers",
                r#"["192.0.2.1", "192.0.2.2:5353", "2001:db8::1"]"#,
            )],
            "* -> 192.0.2.1:53; * -> 192.0.2.2:5353; * -> [2001:db8::1]:53",
        ),
        (
            vec![(
                "stubDomains",
                r#"{"acme.example": ["192.0.2.10", "192.0.2.11:5353", "2001:db8::10", "[2001:db8::11]:5353"]}"#,
            )],
            "acme.example -> 192.0.2.10:53 192.0.2.11:5353 [2001:db8::10]:53 [2001:db8::11]:5353",
        ),
        (
            vec![("stubDomains", r#"{"acme.example": []}"#)],
            "acme.example -> ",
        ),
        (
            vec![("stubDomains", r#"{"acme.example": null}"#)],
            "acme.example -> ",
        ),
        (
            vec![(
                "stubDomains",
                r#"{"a.example": ["www.outside.test:5353", "ns.apps.svc.cluster.local"]}"#,
            )],
            "a.example -> www.outside.test:5353 ns.apps.svc.cluster.local:53",
        ),
        (
            vec![(
                "upstreamNameservers",
                r#"["tls://192.0.2.1%dns.example", "tcp://192.0.2.2", "192.0.2.3", "192.0.2.4"]"#,
            )],
            "* -> tls://192.0.2.1:853#dns.example; * -> tcp://192.0.2.2:53; * -> 192.0.2.3:53; * -> 192.0.2.4:53",
        ),
        (
            vec![(
                "stubDomains",
                r#"{"a.example": ["tls://192.0.2.1", "ns.a.example", "dns://192.0.2.2"]}"#,
            )],
            "a.example -> tls://192.0.2.1:853 ns.a.example:53 192.0.2.2:53",
        ),
        (vec![("federations", "a=b.example")], "a = b.example"),
        (
            vec![
                ("other", "not json {"),
                ("upstreamNameservers", r#"["192.0.2.1"]"#),
            ],
            "* -> 192.0.2.1:53",
        ),
    ] {
        assert_eq!(outcome(&entries), expected, "{entries:?}");
    }
}

#[test]
fn unknown_key_names_similar_key() {
    for (key, expected) in [
        ("upstreamNameserver", "did you mean upstreamNameservers?"),
        ("upstreamnameservers", "did you mean upstreamNameservers?"),
        ("stub_domains", "did you mean stubDomains?"),
        ("stubDomian", "did you mean stubDomains?"),
        ("Federation", "did you mean federations?"),
        ("host", "did you mean hosts?"),
        ("Aliase", "did you mean aliases?"),
        (
            "Corefile",
            "the keys are aliases, federations, hosts, queryLog, stubDomains, upstreamNameservers",
        ),
    ] {
        let unknown: Vec<String> = unknown_keys(&data(&[(key, ""), ("stubDomains", "{}")]))
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            unknown,
            [format!("unknown key {key:?} is ignored: {expected}")]
        );
    }
    let many: Vec<String> = (0..99).map(|number| format!("key-{number}")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|key| (key.as_str(), "")).collect();
    assert_eq!(unknown_keys(&data(&many)).len(), 16);
}

/// Asserts that the value of `key` is rejected with `reason`, in one line that names both.
fn assert_invalid(key: &str, value: &str, reason: &str) {
    let error = parse(&data(&[(key, value)])).unwrap_err();
    assert_eq!(error.key(), key);
    assert_eq!(error.value(), value);
    assert_eq!(error.reason().to_string(), reason, "{value:?}");

    let line = error.to_string();
    assert!(line.starts_with(reason), "{line}");
    assert!(
        line.contains(&format!("key {key}, value {value:?}; accepted: ")),
        "{line}"
    );
    assert!(!line.contains('\n'), "{line}");
}

#[test]
fn invalid_upstream_nameservers_have_reason() {
    for (value, reason) in [
        (
            r#"["[2001:db8::1]"]"#,
            "address [2001:db8::1]: missing port in address",
        ),
        (
            &format!("[{}]", vec![r#""192.0.2.1""#; 16].join(",")),
            "upstreamNameservers cannot have more than 15 entries",
        ),
        ("[", "unexpected end of JSON input"),
        ("", "unexpected end of JSON input"),
        (
            "[nonsense",
            "invalid JSON: expected ident at line 1 column 3",
        ),
        (r#"["dns.example"]"#, r#"bad IP address: "dns.example""#),
        (r#"["10.0.0.300"]"#, r#"bad IP address: "10.0.0.300""#),
        (r#"[""]"#, r#"bad IP address: """#),
        ("[null]", r#"bad IP address: """#),
        (
            r#"["https://192.0.2.1"]"#,
            r#"unknown protocol "https": dns, tcp or tls"#,
        ),
        (
            r#"["tls://192.0.2.1#a_b"]"#,
            r#"bad TLS server name: "a_b""#,
        ),
    ] {
        assert_invalid("upstreamNameservers", value, reason);
    }
}

#[test]
fn invalid_stub_domains_have_reason() {
    for (value, reason) in [
        (
            r#"{"a.example": ["tls://a.example"]}"#,
            r#"invalid nameserver: "tls://a.example""#,
        ),
        (r#"{"acme.example""#, "unexpected end of JSON input"),
        (
            r#"{"Acme_": ["192.0.2.10"]}"#,
            r#"invalid domain name: "Acme_""#,
        ),
        (
            r#"{"-bad-": ["192.0.2.1"]}"#,
            r#"invalid domain name: "-bad-""#,
        ),
        (
            r#"{"acme.example": ["ns.apps.svc.cluster.local."]}"#,
            r#"invalid nameserver: "ns.apps.svc.cluster.local.""#,
        ),
        (
            r#"{"a.example": ["192.0.2.1\nlog-queries"]}"#,
            r#"invalid nameserver: "192.0.2.1\nlog-queries""#,
        ),
        (
            r#"{"a.example/b": ["192.0.2.1"]}"#,
            r#"invalid domain name: "a.example/b""#,
        ),
    ] {
        assert_invalid("stubDomains", value, reason);
    }
}

#[test]
fn invalid_federations_have_reason() {
    assert_invalid("federations", "fed", "invalid format, must be key=value");
}

#[test]
fn query_log_is_parsed() {
    let log = |text: &str| parse(&data(&[("queryLog", text)])).map(|config| config.query_log);
    assert_eq!(log("null"), Ok(None));
    let all = log("{}").unwrap().unwrap();
    assert_eq!(
        (all.filter, all.rate, all.until, all.lasts),
        (QueryFilter::default(), DEFAULT_RATE, None, None)
    );
    let text = r#"{"name": "*.acme.example", "client": "10.0.0.0/8", "rcode": "SERVFAIL", "type": "A,AAAA",
        "rate": 10, "seconds": 60, "until": "2026-01-31T12:00:00Z"}"#;
    let some = log(text).unwrap().unwrap();
    assert!(
        some.filter.matches_name(b"a.acme.example") && !some.filter.matches_name(b"acme.example")
    );
    assert_eq!(
        (some.rate, some.lasts, some.until.is_some()),
        (10, Some(Duration::from_mins(1)), true)
    );
    for (text, reason) in [
        ("", "unexpected end of JSON input"),
        (
            r#"{"nam": "x"}"#,
            "invalid JSON: unknown field `nam`, expected one of `name`, `client`, `rcode`",
        ),
        (r#"{"name": 1}"#, "invalid JSON: invalid type: integer `1`"),
        (
            r#"{"rcode": "SERVFAI"}"#,
            "rcode: unknown RCODE \"SERVFAI\"",
        ),
        (r#"{"type": "B"}"#, "type: unknown type \"B\""),
        (r#"{"client": "10.0.0.0/40"}"#, "client \"10.0.0.0/40\""),
        (
            r#"{"rate": 0}"#,
            "rate 0: 1 to 100000 lines per second are accepted",
        ),
        (r#"{"seconds": -1}"#, "invalid JSON: "),
        (
            r#"{"until": "tomorrow"}"#,
            "until \"tomorrow\": a time like 2026-01-31T12:00:00Z is accepted",
        ),
    ] {
        let error = log(text).unwrap_err();
        assert!(
            error.to_string().starts_with(reason) && error.key() == "queryLog",
            "{text}: {error}"
        );
    }
}

#[test]
fn query_log_keeps_version() {
    let config = |text: &str| parse(&data(&[("queryLog", text)])).unwrap();
    assert_eq!(config("null"), Config::default());
    assert_ne!(config("{}"), config(r#"{"rate": 5}"#));
    assert_eq!(
        config("{}"),
        config(r#" { "rate": 1000 } "#),
        "as it is meant, however it is written"
    );
    for text in ["null", "{}", r#"{"rate": 5}"#] {
        assert_eq!(
            config(text).version(),
            Config::default().version(),
            "{text}"
        );
    }
}

#[test]
fn invalid_value_rejects_all() {
    let entries = [
        ("upstreamNameservers", r#"["192.0.2.1"]"#),
        ("stubDomains", r#"{"-bad-": []}"#),
    ];
    assert!(outcome(&entries).starts_with("invalid domain name"));
}

#[test]
fn binary_value_rejects_all() {
    for key in ["stubDomains", "unknown"] {
        let raw = RawData::from([(key.to_owned(), vec![0xff, 0xfe])]);
        assert_eq!(parse(&raw).unwrap_err().reason, Reason::NotUtf8);
    }
}

#[test]
fn sizes_are_bounded() {
    let large = RawData::from([("stubDomains".to_owned(), vec![b' '; MAX_VALUE + 1])]);
    let error = parse(&large).unwrap_err();
    assert!(
        error.to_string().starts_with("too large: 1048577 octets"),
        "{error}"
    );
    assert!(error.to_string().len() < 500);

    let servers = vec!["\"192.0.2.1\""; MAX_STUB_SERVERS + 1].join(",");
    let many = format!(r#"{{"a.example": [{servers}]}}"#);
    assert!(
        outcome(&[("stubDomains", &many)]).starts_with("too many servers of one stub domain: 65")
    );

    let domains: Vec<String> = (0..=MAX_STUB_DOMAINS)
        .map(|i| format!("\"d{i}.example\": []"))
        .collect();
    let many = format!("{{{}}}", domains.join(","));
    assert!(outcome(&[("stubDomains", &many)]).starts_with("too many stub domains: 4097"));
}

mod properties {
    use proptest::prelude::*;

    use super::super::*;

    /// Text that is often valid JSON for `stubDomains`, with arbitrary strings.
    fn stub_domains() -> impl Strategy<Value = String> {
        let word = prop_oneof![
            "[a-z0-9.:\\[\\]-]{0,20}",
            any::<String>(),
            Just("192.0.2.1".to_owned()),
            Just("a.example".to_owned()),
            Just("tls://192.0.2.1%a.example:8853".to_owned()),
        ];
        proptest::collection::btree_map(word.clone(), proptest::collection::vec(word, 0..4), 0..4)
            .prop_map(|map| serde_json::to_string(&map).unwrap_or_default())
    }

    proptest! {
        #[test]
        fn accepted_values_are_names_and_addresses(text in prop_oneof![stub_domains(), any::<String>()]) {
            let data = RawData::from([("stubDomains".to_owned(), text.into_bytes())]);
            if let Ok(config) = parse(&data) {
                for (domain, servers) in &config.stub_domains {
                    prop_assert!(rfc1123::is_subdomain(domain));
                    for server in servers {
                        let shown = server.to_string();
                        prop_assert!(shown.bytes().all(|b| b.is_ascii_alphanumeric() || b"-.:[]/#".contains(&b)));
                        let again: Result<ServerAddr, _> = shown.parse();
                        prop_assert_eq!(again.as_ref(), Ok(server));
                    }
                }
            }
        }

        #[test]
        fn any_octets_are_parsed(key in "(stubDomains|upstreamNameservers|federations|queryLog|x)", value: Vec<u8>) {
            let result = parse(&RawData::from([(key, value)]));
            if let Err(error) = result {
                prop_assert!(!error.to_string().contains('\n'));
            }
        }
    }
}

/// The targets of aliases, or the error for the cluster domain `cluster.local`.
fn own_names(entries: &[(&str, &str)]) -> String {
    match parse_for(
        &data(entries),
        &BTreeSet::from(["cluster.local".to_owned()]),
    ) {
        Ok(config) => {
            let targets = config
                .aliases
                .iter()
                .map(|(alias, target)| format!("{alias} -> {target}; "));
            targets.collect::<Vec<_>>().concat()
        }
        Err(error) => error
            .to_string()
            .split(" (key ")
            .next()
            .unwrap_or_default()
            .to_owned(),
    }
}

#[test]
fn own_names_are_parsed() {
    for (entries, expected) in [
        (vec![("aliases", "null"), ("hosts", "")], ""),
        (
            vec![("aliases", r#"{"Registry.acme.example.": "registry.infra"}"#)],
            "registry.acme.example -> registry.infra; ",
        ),
        (
            vec![("aliases", r#"{"a": "b.example."}"#)],
            "a -> b.example.; ",
        ),
        (
            vec![("aliases", r#"{"a": "b.acme.example"}"#)],
            "a -> b.acme.example.; ",
        ),
        (
            vec![("aliases", r#"{"a": "web.apps.svc.cluster.local"}"#)],
            "a -> web.apps.svc.cluster.local.; ",
        ),
        (vec![("aliases", r#"{"a": "b."}"#)], "a -> b.; "),
        (
            vec![("aliases", r#"{"a": "b"}"#)],
            r#"invalid target of "a": "b""#,
        ),
        (
            vec![("aliases", r#"{"a": "_b.c"}"#)],
            r#"invalid target of "a": "_b.c""#,
        ),
        (
            vec![("aliases", r#"{"a": "192.0.2.1"}"#)],
            r#"invalid target of "a": "192.0.2.1""#,
        ),
        (
            vec![("aliases", r#"{"_a.b": "b.c"}"#)],
            r#"invalid domain name: "_a.b""#,
        ),
        (
            vec![("aliases", r#"{"a": "b.c", "A": "b.c"}"#)],
            r#""a" is listed twice"#,
        ),
        (
            vec![("aliases", r#"{"a": ["b.c"]}"#)],
            "invalid JSON: invalid type: sequence, expected a string at line 1 column 6",
        ),
        (
            vec![("aliases", r#"{"a": "b.c""#)],
            "unexpected end of JSON input",
        ),
        (
            vec![("hosts", "192.0.2.1 a\n192.0.2 b")],
            r#"line 2: bad IP address: "192.0.2""#,
        ),
        (
            vec![("hosts", "192.0.2.1 a"), ("aliases", r#"{"a": "b.c"}"#)],
            r#""a" is in both keys, hosts and aliases"#,
        ),
        (
            vec![("hosts", "192.0.2.1 a web.apps.svc.Cluster.local")],
            r#""web.apps.svc.cluster.local" is in the cluster domain, which is reserved for Services"#,
        ),
        (
            vec![("aliases", r#"{"cluster.local": "b.c"}"#)],
            r#""cluster.local" is in the cluster domain, which is reserved for Services"#,
        ),
        (vec![("hosts", "192.0.2.1 xcluster.local")], ""),
    ] {
        assert_eq!(own_names(&entries), expected, "{entries:?}");
    }
}

#[test]
fn hosts_version_follows_addresses_and_order() {
    let version = |hosts: &str| parse(&data(&[("hosts", hosts)])).unwrap().version();
    assert_ne!(version("192.0.2.1 a"), version("192.0.2.2 a"));
    assert_ne!(
        version("192.0.2.1 a b"),
        version("192.0.2.1 b a"),
        "the order of reverse records"
    );
    assert_eq!(
        version("192.0.2.1 a b"),
        version("192.0.2.1 A. # b\n192.0.2.1 b")
    );
}
