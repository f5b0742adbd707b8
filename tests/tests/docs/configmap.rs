//! Parses the examples of docs/configmap.md with the parser of kubedns and the nanny, and compares
//! the results with the page. Checks the examples in `examples/configmaps`, too.

use dnsconfig::{Config, ConfigError, ConfigKey, RawData};
use nanny::config::routes::{Routes, UpstreamOrigin, own_names};
use nanny::dnsmasq::servers_file;
use serde::Deserialize;
use tests::docs::markdown::{Block, Page, code};
use wire::{Nameserver, ServerAddr, Upstream, UpstreamProtocol};

#[derive(Deserialize)]
struct ConfigMap {
    data: std::collections::BTreeMap<String, String>,
}

fn parse(yaml: &str) -> Result<Config, ConfigError> {
    let map: ConfigMap =
        serde_norway::from_str(yaml).unwrap_or_else(|error| panic!("{error} in\n{yaml}"));
    let data: RawData = map
        .data
        .into_iter()
        .map(|(key, value)| (key, value.into_bytes()))
        .collect();
    dnsconfig::parse_for(
        &data,
        &std::collections::BTreeSet::from(["cluster.local".to_owned()]),
    )
}

/// The lines of dnsmasq's servers file for this configuration. Servers that are given by name are
/// left out, and so are servers with a protocol other than plain DNS.
fn lines_for_dnsmasq(config: &Config) -> String {
    let address = |server: &ServerAddr| match server {
        ServerAddr::Address(server) => server.plain(),
        ServerAddr::Name { .. } => None,
    };
    let kubedns = Nameserver::new([127, 0, 0, 1].into(), 10053);
    let stub_domains = config.stub_domains.iter();
    let stub_domains = stub_domains
        .map(|(domain, servers)| (domain.clone(), servers.iter().filter_map(address).collect()));
    let routes = Routes {
        stub_domains: stub_domains.collect(),
        upstreams: config
            .upstream_nameservers
            .iter()
            .filter_map(Upstream::plain)
            .collect(),
        upstreams_from: UpstreamOrigin::Configuration,
        own_names: own_names(config).map(|name| (name, kubedns)).collect(),
        ..Routes::default()
    };
    let lines: Vec<String> = servers_file::server_values(&routes)
        .iter()
        .map(|value| format!("server={value}"))
        .collect();
    lines.join("\n") + "\n"
}

/// Each code block with the info string `info`, and the code block after it.
fn pairs<'a>(page: &'a Page, info: &'a str) -> impl Iterator<Item = (&'a Block, &'a Block)> {
    page.blocks
        .iter()
        .zip(page.blocks.iter().skip(1))
        .filter(move |(block, _)| block.info == info)
}

#[test]
fn good_examples_mean_what_is_documented() {
    let page = Page::read("configmap.md");
    let mut count = 0;
    for (example, meaning) in pairs(&page, "yaml") {
        let config = parse(&example.text).unwrap_or_else(|error| panic!("{error}"));
        assert_ne!(config, Config::default());
        assert_eq!(
            (meaning.info.as_str(), &meaning.text),
            ("text", &lines_for_dnsmasq(&config)),
            "{}",
            example.text
        );
        count += 1;
    }
    assert_eq!(count, 4);
}

#[test]
fn upstreams_of_tls_example_use_tls_and_have_names() {
    let page = Page::read("configmap.md");
    let example = page
        .blocks
        .iter()
        .find(|block| block.info == "yaml tls")
        .expect("the page must have an example");
    let config = parse(&example.text).unwrap_or_else(|error| panic!("{error}"));
    let named =
        |upstream: &Upstream| upstream.protocol == UpstreamProtocol::Tls && upstream.name.is_some();
    assert_eq!(
        (
            config.upstream_nameservers.len(),
            config.upstream_nameservers.iter().all(named)
        ),
        (3, true)
    );
}

#[test]
fn rules_example_is_accepted() {
    let page = Page::read("configmap.md");
    let mut blocks = page.blocks.iter();
    let example = blocks
        .find(|block| block.info == "yaml rules")
        .expect("the page must have an example");
    let config = parse(&example.text).unwrap_or_else(|error| panic!("{error}"));
    let rules = config.external_rules;
    let counts = [rules.filter_types.len(), rules.denied_names.len()];
    assert_eq!((counts, rules.bogus_priv), ([3, 2], true));
    assert!(rules.rebind_protection.is_some());
}

#[test]
fn bad_examples_fail_as_documented() {
    let page = Page::read("configmap.md");
    let (mut said, mut reasons, mut lines) = (Vec::new(), Vec::new(), Vec::new());
    for (example, reason) in pairs(&page, "yaml refused") {
        let error = parse(&example.text).expect_err(&example.text);
        assert_eq!(reason.info, "text");
        said.push(reason.text.trim_end());
        reasons.push(error.reason().to_string());
        lines.push(error.to_string());
    }
    assert_eq!(said, reasons);
    assert_eq!(lines.len(), 9);
    let logged = page
        .blocks
        .iter()
        .find(|block| block.info == "text log")
        .unwrap();
    assert!(
        lines.contains(&logged.text.trim_end().to_owned()),
        "{} is not among\n{}",
        logged.text,
        lines.join("\n")
    );
}

#[test]
fn server_forms_match_the_table() {
    let page = Page::read("configmap.md");
    let rows = page.rows("Keys", &["value", "`upstreamNameservers`", "`stubDomains`"]);
    assert!(rows.len() > 10);
    for row in rows {
        let [value, upstream, stub] = row else {
            panic!("{row:?}")
        };
        let value = code(value);
        let taken = |taken: bool| if taken { "yes" } else { "no" };
        let accepted = taken(value.parse::<Upstream>().is_ok());
        assert_eq!(upstream, accepted, "upstreamNameservers: {value}");
        let accepted = taken(value.parse::<ServerAddr>().is_ok());
        assert_eq!(stub, accepted, "stubDomains: {value}");
    }
}

#[test]
fn config_keys_match_the_table() {
    let page = Page::read("configmap.md");
    let rows = page.rows("Keys", &["key", "value", "what it does"]);
    let documented: Vec<&str> = rows.iter().map(|row| code(&row[0])).collect();
    let known = [
        ConfigKey::StubDomains,
        ConfigKey::UpstreamNameservers,
        ConfigKey::QueryLog,
        ConfigKey::Federations,
        ConfigKey::Hosts,
        ConfigKey::Aliases,
        ConfigKey::FilterTypes,
        ConfigKey::DeniedNames,
        ConfigKey::BogusPriv,
        ConfigKey::RebindProtection,
    ];
    assert_eq!(documented, known.map(ConfigKey::as_str));
    // An unknown key is ignored, even if its value is invalid.
    let other = RawData::from([("stubdomains".to_owned(), b"[".to_vec())]);
    assert_eq!(dnsconfig::parse(&other), Ok(Config::default()));
}

/// All examples in `examples/configmaps` pass `kubedns check config` without a warning.
#[test]
fn examples_pass_check_config() {
    let directory = tests::repository().join("examples/configmaps");
    let files = std::fs::read_dir(directory)
        .unwrap()
        .map(|file| file.unwrap().path());
    let mut files: Vec<_> = files
        .filter(|path| path.extension().is_some_and(|kind| kind == "yaml"))
        .collect();
    files.sort();
    assert!(files.len() >= 4, "{files:?}");
    for file in files {
        let program = testkit::process::binary("kubedns");
        let output = std::process::Command::new(program)
            .args(["check", "config"])
            .arg(&file)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && !said.contains("warning"),
            "{}: {said}",
            file.display()
        );
    }
}
