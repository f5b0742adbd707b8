//! Values of the `ConfigMap` that are accepted or rejected. Many of the outcomes were recorded from
//! kube-dns. Some values and limits do not exist in kube-dns.

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

/// The stub domains, the upstreams and the federations, separated by `; `, or the error.
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

/// Asserts the outcomes of `ConfigMap`s with one key. Each row has the key, its value, ` => `, and
/// the outcome.
fn assert_outcomes(table: &str, outcome: impl Fn(&[(&str, &str)]) -> String) {
    for row in table.trim().lines().map(str::trim) {
        let (entry, expected) = row.split_once(" => ").unwrap();
        let (key, value) = entry.split_once(' ').unwrap();
        let found = outcome(&[(key, value)]);
        assert_eq!(found, expected.trim_matches('`'), "{row}");
    }
}

const VALID_VALUES: &str = r#"
    upstreamNameservers ["192.0.2.1", "192.0.2.2:5353", "2001:db8::1"] => * -> 192.0.2.1:53; * -> 192.0.2.2:5353; * -> [2001:db8::1]:53
    stubDomains {"acme.example": ["192.0.2.10", "192.0.2.11:5353", "2001:db8::10", "[2001:db8::11]:5353"]} => acme.example -> 192.0.2.10:53 192.0.2.11:5353 [2001:db8::10]:53 [2001:db8::11]:5353
    stubDomains {"acme.example": []} => `acme.example -> `
    stubDomains {"acme.example": null} => `acme.example -> `
    stubDomains {"a.example": ["www.outside.test:5353", "ns.apps.svc.cluster.local"]} => a.example -> www.outside.test:5353 ns.apps.svc.cluster.local:53
    upstreamNameservers ["tls://192.0.2.1%dns.example", "tcp://192.0.2.2", "192.0.2.3", "192.0.2.4"] => * -> tls://192.0.2.1:853#dns.example; * -> tcp://192.0.2.2:53; * -> 192.0.2.3:53; * -> 192.0.2.4:53
    stubDomains {"a.example": ["tls://192.0.2.1", "ns.a.example", "dns://192.0.2.2"]} => a.example -> tls://192.0.2.1:853 ns.a.example:53 192.0.2.2:53
    federations a=b.example => a = b.example
"#;

#[test]
fn valid_values_are_parsed() {
    assert_outcomes(VALID_VALUES, outcome);
    let empty = [
        ("upstreamNameservers", "[]"),
        ("stubDomains", "{}"),
        ("federations", ""),
    ];
    let null = [("upstreamNameservers", "null"), ("stubDomains", "null")];
    for without_values in [&[][..], &empty, &null] {
        assert_eq!(outcome(without_values), "", "{without_values:?}");
    }
    let beside_unknown = [
        ("other", "not json {"),
        ("upstreamNameservers", r#"["192.0.2.1"]"#),
    ];
    assert_eq!(outcome(&beside_unknown), "* -> 192.0.2.1:53");
}

#[test]
fn unknown_key_message_names_known_keys() {
    for (key, expected) in [
        ("upstreamNameserver", "did you mean upstreamNameservers?"),
        ("upstreamnameservers", "did you mean upstreamNameservers?"),
        ("stub_domains", "did you mean stubDomains?"),
        ("stubDomian", "did you mean stubDomains?"),
        ("Federation", "did you mean federations?"),
        ("host", "did you mean hosts?"),
        ("Aliase", "did you mean aliases?"),
        ("filter-types", "did you mean filterTypes?"),
        ("bogus-priv", "did you mean bogusPriv?"),
        (
            "Corefile",
            "the keys are aliases, bogusPriv, deniedNames, federations, filterTypes, hosts, queryLog, \
             rebindProtection, stubDomains, upstreamNameservers",
        ),
    ] {
        let unknown: Vec<String> = unknown_keys(&data(&[(key, ""), ("stubDomains", "{}")]))
            .iter()
            .map(ToString::to_string)
            .collect();
        let expected = [format!("unknown key {key:?} is ignored: {expected}")];
        assert_eq!(unknown, expected);
    }
    let many: Vec<String> = (0..99).map(|number| format!("key-{number}")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|key| (key.as_str(), "")).collect();
    assert_eq!(unknown_keys(&data(&many)).len(), 16);
}

/// Asserts that the value of `key` is rejected with `reason`, in one line that names the key and
/// the value.
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

/// Each row has the key, its value, and the reason in the error.
const INVALID_VALUES: &str = r#"
    upstreamNameservers ["[2001:db8::1]"] => address [2001:db8::1]: missing port in address
    upstreamNameservers [ => unexpected end of JSON input
    upstreamNameservers  => unexpected end of JSON input
    upstreamNameservers [nonsense => invalid JSON: expected ident at line 1 column 3
    upstreamNameservers ["dns.example"] => bad IP address: "dns.example"
    upstreamNameservers ["10.0.0.300"] => bad IP address: "10.0.0.300"
    upstreamNameservers [""] => bad IP address: ""
    upstreamNameservers [null] => bad IP address: ""
    upstreamNameservers ["https://192.0.2.1"] => unknown protocol "https": expected dns, tcp or tls
    upstreamNameservers ["tls://192.0.2.1#a_b"] => bad TLS server name: "a_b"
    stubDomains {"a.example": ["tls://a.example"]} => invalid nameserver: "tls://a.example"
    stubDomains {"acme.example" => unexpected end of JSON input
    stubDomains {"Acme_": ["192.0.2.10"]} => invalid domain name: "Acme_"
    stubDomains {"-bad-": ["192.0.2.1"]} => invalid domain name: "-bad-"
    stubDomains {"acme.example": ["ns.apps.svc.cluster.local."]} => invalid nameserver: "ns.apps.svc.cluster.local."
    stubDomains {"a.example": ["192.0.2.1\nlog-queries"]} => invalid nameserver: "192.0.2.1\nlog-queries"
    stubDomains {"a.example/b": ["192.0.2.1"]} => invalid domain name: "a.example/b"
    federations fed => invalid format, must be key=value
"#;

#[test]
fn invalid_values_have_reason() {
    for row in INVALID_VALUES.trim().lines().map(str::trim) {
        let (entry, reason) = row.split_once(" => ").unwrap();
        let (key, value) = entry.split_once(' ').unwrap();
        assert_invalid(key, value, reason);
    }
    let many = format!("[{}]", vec![r#""192.0.2.1""#; 16].join(","));
    let reason = "upstreamNameservers cannot have more than 15 entries";
    assert_invalid("upstreamNameservers", &many, reason);
}

#[test]
fn query_log_is_parsed() {
    let log = |text: &str| parse(&data(&[("queryLog", text)])).map(|config| config.query_log);
    assert_eq!(log("null"), Ok(None));
    let all = log("{}").unwrap().unwrap();
    assert_eq!(all.filter, QueryFilter::default());
    assert_eq!((all.rate, all.until, all.lasts), (DEFAULT_RATE, None, None));
    let text = r#"{"name": "*.acme.example", "client": "10.0.0.0/8", "rcode": "SERVFAIL", "type": "A,AAAA",
        "rate": 10, "seconds": 60, "until": "2026-01-31T12:00:00Z"}"#;
    let some = log(text).unwrap().unwrap();
    let matches = |name: &str| some.filter.matches_name(name.as_bytes());
    assert!(matches("a.acme.example") && !matches("acme.example"));
    assert_eq!((some.rate, some.lasts), (10, Some(Duration::from_mins(1))));
    assert!(some.until.is_some());
    for row in INVALID_QUERY_LOGS.trim().lines().map(str::trim) {
        let (text, reason) = row.split_once("=> ").unwrap();
        let error = log(text.trim()).unwrap_err();
        assert!(error.to_string().starts_with(reason), "{text}: {error}");
        assert_eq!(error.key(), "queryLog", "{text}");
    }
}

/// Each row has a value of `queryLog`, and the beginning of its error.
const INVALID_QUERY_LOGS: &str = r#"
    => unexpected end of JSON input
    {"nam": "x"} => invalid JSON: unknown field `nam`, expected one of `name`, `client`, `rcode`
    {"name": 1} => invalid JSON: invalid type: integer `1`
    true => invalid JSON: invalid type: boolean `true`, expected an object
    {"rcode": "SERVFAI"} => rcode: unknown RCODE "SERVFAI"
    {"type": "B"} => type: unknown type "B"
    {"client": "10.0.0.0/40"} => client "10.0.0.0/40"
    {"rate": 0} => rate is 0, but must be from 1 to 100000 lines per second
    {"seconds": -1} => invalid JSON:
    {"until": "tomorrow"} => until is "tomorrow", but must be a time like 2026-01-31T12:00:00Z
"#;

#[test]
fn query_log_does_not_change_version() {
    let config = |text: &str| parse(&data(&[("queryLog", text)])).unwrap();
    assert_eq!(config("null"), Config::default());
    assert_ne!(config("{}"), config(r#"{"rate": 5}"#));
    assert_eq!(
        config("{}"),
        config(r#" { "rate": 1000 } "#),
        "values with the same meaning must be equal"
    );
    let version = Config::default().version();
    for text in ["null", "{}", r#"{"rate": 5}"#] {
        assert_eq!(config(text).version(), version, "{text}");
    }
}

#[test]
fn invalid_value_rejects_whole_config_map() {
    let entries = [
        ("upstreamNameservers", r#"["192.0.2.1"]"#),
        ("stubDomains", r#"{"-bad-": []}"#),
    ];
    assert!(outcome(&entries).starts_with("invalid domain name"));
}

#[test]
fn binary_value_is_rejected_even_under_unknown_key() {
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
        error
            .to_string()
            .starts_with("too large: more than 1048576 octets"),
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

    /// JSON in the form of `stubDomains`. The strings are often valid names or servers, but may be
    /// arbitrary.
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
        fn any_octets_are_accepted_or_rejected_in_one_line(key in "(stubDomains|upstreamNameservers|federations|queryLog|x)", value: Vec<u8>) {
            let result = parse(&RawData::from([(key, value)]));
            if let Err(error) = result {
                prop_assert!(!error.to_string().contains('\n'));
            }
        }
    }
}

/// The targets of the aliases in a cluster with the domain `cluster.local`, or the error.
fn hosts_and_aliases(entries: &[(&str, &str)]) -> String {
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

const HOSTS_AND_ALIASES: &str = r#"
    aliases {"Registry.acme.example.": "registry.infra"} => `registry.acme.example -> registry.infra; `
    aliases {"a": "b.example."} => `a -> b.example.; `
    aliases {"a": "b.acme.example"} => `a -> b.acme.example.; `
    aliases {"a": "web.apps.svc.cluster.local"} => `a -> web.apps.svc.cluster.local.; `
    aliases {"a": "b."} => `a -> b.; `
    aliases {"a": "b"} => invalid target of "a": "b"
    aliases {"a": "_b.c"} => invalid target of "a": "_b.c"
    aliases {"a": "192.0.2.1"} => invalid target of "a": "192.0.2.1"
    aliases {"_a.b": "b.c"} => invalid domain name: "_a.b"
    aliases {"a": "b.c", "A": "b.c"} => "a" is listed twice (case and a trailing dot are ignored)
    aliases {"a": ["b.c"]} => invalid JSON: invalid type: sequence, expected a string at line 1 column 6
    aliases {"a": "b.c" => unexpected end of JSON input
    aliases {"*.Apps.example": "web.apps"} => `*.apps.example -> web.apps; `
    aliases {"a": "*.b.example"} => invalid target of "a": "*.b.example"
    aliases {"*.apps.svc.cluster.local": "b.c"} => "*.apps.svc.cluster.local" is in the cluster domain, which is reserved for Services
    aliases {"*.cluster.local": "b.c"} => "*.cluster.local" is in the cluster domain, which is reserved for Services
    hosts 192.0.2.1 a web.apps.svc.Cluster.local => "web.apps.svc.cluster.local" is in the cluster domain, which is reserved for Services
    aliases {"cluster.local": "b.c"} => "cluster.local" is in the cluster domain, which is reserved for Services
    hosts 192.0.2.1 xcluster.local => ``
"#;

#[test]
fn hosts_and_aliases_are_parsed() {
    assert_outcomes(HOSTS_AND_ALIASES, hosts_and_aliases);
    assert_eq!(hosts_and_aliases(&[("aliases", "null"), ("hosts", "")]), "");
    let bad_line = [("hosts", "192.0.2.1 a\n192.0.2 b")];
    assert_eq!(
        hosts_and_aliases(&bad_line),
        r#"line 2: bad IP address: "192.0.2""#
    );
    let twice = [("hosts", "192.0.2.1 a"), ("aliases", r#"{"a": "b.c"}"#)];
    let expected = r#""a" is in both keys, hosts and aliases"#;
    assert_eq!(hosts_and_aliases(&twice), expected);
}

#[test]
fn hosts_version_follows_addresses_and_order() {
    let version = |hosts: &str| parse(&data(&[("hosts", hosts)])).unwrap().version();
    assert_ne!(version("192.0.2.1 *.a"), version("192.0.2.2 *.a"));
    assert_ne!(version("192.0.2.1 *.a"), version("192.0.2.1 a"));
    assert_ne!(version("192.0.2.1 a"), version("192.0.2.2 a"));
    assert_ne!(
        version("192.0.2.1 a b"),
        version("192.0.2.1 b a"),
        "another order of the PTR records must change the version"
    );
    let lines = version("192.0.2.1 A. # b\n192.0.2.1 b");
    assert_eq!(version("192.0.2.1 a b"), lines);
}

/// The rules for external names in a cluster with the domain `cluster.local`, or the error.
fn external_rules(entries: &[(&str, &str)]) -> String {
    let domains = BTreeSet::from(["cluster.local".to_owned()]);
    let rules = match parse_for(&data(entries), &domains) {
        Ok(config) => config.external_rules,
        Err(error) => {
            let line = error.to_string();
            return line.split(" (key ").next().unwrap_or_default().to_owned();
        }
    };

    let mut lines = Vec::new();
    for (domain, types) in &rules.filter_types {
        let types: Vec<String> = types.iter().map(ToString::to_string).collect();
        lines.push(format!("{domain}: no {}", types.join(" ")));
    }
    for (domain, answer) in &rules.denied_names {
        lines.push(format!("{domain}: {answer}"));
    }
    if rules.bogus_priv {
        lines.push("private reverse names".to_owned());
    }
    if let Some(protection) = &rules.rebind_protection {
        let except: Vec<&str> = protection.except.iter().map(String::as_str).collect();
        lines.push(format!("private addresses only for {}", except.join(" ")));
    }
    lines.join("; ")
}

const EXTERNAL_RULES: &str = r#"
    filterTypes {".": ["AAAA"]} => .: no AAAA
    filterTypes {".": ["AAAA", "A", "A"], "Corp.example.": []} => `.: no A AAAA; corp.example: no `
    filterTypes null => ``
    filterTypes {"a.example": ["MX"]} => "a.example" has the type "MX", but only A and AAAA are accepted
    filterTypes {"": ["A"]} => invalid domain name: ""
    filterTypes {"*.a.example": ["A"]} => invalid domain name: "*.a.example"
    filterTypes {"a": ["A"], "A.": ["A"]} => "a" is listed twice (case and a trailing dot are ignored)
    filterTypes ["AAAA"] => invalid JSON: invalid type: sequence, expected a map at line 1 column 0
    deniedNames {"ads.example": "NXDOMAIN", "wpad": "NODATA"} => ads.example: NXDOMAIN; wpad: NODATA
    deniedNames {"ads.example": "REFUSED"} => "ads.example" has the answer "REFUSED", but only NXDOMAIN and NODATA are accepted
    deniedNames {".": "NXDOMAIN"} => "." (all names) is not accepted here; use the name of a domain
    deniedNames {"a.cluster.local": "NXDOMAIN"} => "a.cluster.local" is in the cluster domain, which is reserved for Services
    bogusPriv true => private reverse names
    bogusPriv false => ``
    rebindProtection {} => `private addresses only for `
    rebindProtection null => ``
    rebindProtection {"except": ["Corp.example.", "b"]} => private addresses only for b corp.example
    rebindProtection {"except": ["."]} => "." (all names) is not accepted here; use the name of a domain
    rebindProtection {"but": []} => invalid JSON: unknown field `but`, expected `except` at line 1 column 6
    rebindProtection true => invalid JSON: invalid type: boolean `true`, expected an object at line 1 column 4
    bogusPriv yes => "yes" is neither true nor false
"#;

#[test]
fn external_rules_are_parsed() {
    assert_outcomes(EXTERNAL_RULES, external_rules);
    let many: Vec<String> = (0..4097).map(|n| format!("\"d{n}\": []")).collect();
    let many = format!("{{{}}}", many.join(","));
    let error = "too many domains: 4097, at most 4096 are accepted";
    assert_eq!(external_rules(&[("filterTypes", &many)]), error);
}

#[test]
fn version_follows_external_rules() {
    let version = |key: &str, value: &str| parse(&data(&[(key, value)])).unwrap().version();
    let versions = [
        ("bogusPriv", "false"),
        ("bogusPriv", "true"),
        ("filterTypes", r#"{".": []}"#),
        ("filterTypes", r#"{".": ["A"]}"#),
        ("filterTypes", r#"{".": ["AAAA"]}"#),
        ("deniedNames", r#"{"a": "NXDOMAIN"}"#),
        ("deniedNames", r#"{"a": "NODATA"}"#),
        ("rebindProtection", "{}"),
        ("rebindProtection", r#"{"except": ["a"]}"#),
    ]
    .map(|(key, value)| version(key, value).as_u64());
    assert_eq!(BTreeSet::from(versions).len(), versions.len());
}
