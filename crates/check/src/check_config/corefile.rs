//! `kube-dns check config --corefile`: writes a configuration of `CoreDNS` that replaces the flags
//! and the `ConfigMap` of kube-dns.
//!
//! The text begins with comments. The comments list the flags of kubedns, the keys of the
//! `ConfigMap` and the arguments of dnsmasq for which `CoreDNS` has no counterpart, or only a
//! partial counterpart. They also list points in which `CoreDNS` differs from kube-dns.
//! `docs/coredns.md` describes the probes of the pod, and the differences that no flag or key
//! controls.

mod block;
mod dnsmasq;
mod external;
mod flags;
mod own_names;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use cluster::domains::{ClusterDomains, Domain};
use daemon::flags::{Exit, GoDuration};
use dnsconfig::{Config, RawData};

use super::dnsmasq_args;

use self::block::Block;
use self::external::ExternalServers;
use self::flags::KubednsFlags;

pub(crate) use self::flags::is_known as is_known_flag;

/// The TTL of kubedns' answers if `--ttl` is not given, in seconds.
const DEFAULT_TTL: u64 = 30;
/// The TTL of kubedns' negative answers if neither `--ttl` nor `--negative-ttl` is given, in
/// seconds.
const DEFAULT_NEGATIVE_TTL: u64 = 60;
/// The reverse zones. The plugin `kubernetes` answers PTR queries only in zones that the Corefile
/// lists.
const REVERSE_ZONES: [&str; 2] = ["in-addr.arpa", "ip6.arpa"];

/// Prints the Corefile for kubedns and dnsmasq with these arguments and this data of a `ConfigMap`.
/// The exit status is 1 if a flag, a key or an argument of dnsmasq has no counterpart, or only a
/// partial one.
///
/// The cluster domains are those of `--domain` in the arguments, otherwise `default_domains`. As in
/// kubedns, the data must be valid for these domains.
pub(super) fn report(
    arguments: Vec<String>,
    dnsmasq_arguments: &str,
    data: &RawData,
    default_domains: &ClusterDomains,
) -> Result<Exit, String> {
    let flags = KubednsFlags::read(arguments);
    let domains = match flags.value("domain") {
        Some(text) => text
            .parse()
            .map_err(|error| format!("--domain={text}: {error}"))?,
        None => default_domains.clone(),
    };
    let parse = |data: &RawData| {
        dnsconfig::parse_for(data, &domains.bare()).map_err(|error| error.to_string())
    };
    // The data are checked first: `add_keys` would report an error in them as an error of an
    // argument.
    parse(data)?;

    let mut data = data.clone();
    let options = dnsmasq_args::options_of(dnsmasq_arguments);
    let missing = dnsmasq::add_keys(&options, &mut data, &domains.bare());
    let mut corefile = Corefile::new(&flags, &parse(&data)?, &domains);
    corefile.missing.extend(missing);
    corefile.different.extend(dnsmasq::different(&options));

    Ok(Exit {
        status: u8::from(!corefile.missing.is_empty()),
        stdout: corefile.to_text(),
        stderr: String::new(),
    })
}

/// A configuration of `CoreDNS`.
#[derive(Debug)]
struct Corefile {
    missing: Vec<String>,
    different: Vec<String>,
    blocks: Vec<Block>,
}

impl Corefile {
    fn new(flags: &KubednsFlags, config: &Config, domains: &ClusterDomains) -> Self {
        let domains: Vec<&str> = domains.all().map(Domain::bare).collect();
        let ttl = seconds_of(flags, "ttl").unwrap_or(DEFAULT_TTL);
        let negative_ttl = seconds_of(flags, "negative-ttl")
            .or(seconds_of(flags, "ttl"))
            .unwrap_or(DEFAULT_NEGATIVE_TTL);
        let servers = ExternalServers::new(config, flags, &domains, negative_ttl);

        let port = port_of(flags);
        let mut main = Block::new(&["."], port);
        add_process(&mut main, flags, config);
        own_names::add_aliases(&mut main, config, domains[0]);
        own_names::add_hosts(&mut main, config, ttl);
        add_kubernetes(&mut main, flags, &domains, ttl);
        add_cache(&mut main, flags, &domains);
        servers.add_to_main(&mut main);
        main.add("reload");
        main.add("loadbalance");

        let mut missing = flags.missing();
        missing.extend(missing_beside_others(flags));
        missing.extend(servers.missing());
        missing.extend(missing_keys(config));
        let mut different = flags.different();
        different.extend(servers.different());
        different.extend(own_names::different_hosts_ttl(config, ttl));
        different.extend(different_keys(flags, config));

        let mut blocks = vec![main];
        blocks.extend(etcd_blocks(flags, port));
        blocks.extend(servers.further_blocks(port));
        Self {
            missing,
            different,
            blocks,
        }
    }

    fn to_text(&self) -> String {
        let mut text =
            "# This configuration of CoreDNS 1.14 replaces the flags and the ConfigMap of your kube-dns.\n"
                .to_owned();
        for (title, lines) in [
            (
                "CoreDNS has no counterpart, or only a partial one, for these flags, keys and arguments:",
                &self.missing,
            ),
            (
                "CoreDNS differs from kube-dns in these points:",
                &self.different,
            ),
        ] {
            if !lines.is_empty() {
                let _ = writeln!(text, "# {title}");
            }
            for line in lines {
                let _ = writeln!(text, "#   {line}");
            }
        }
        for block in &self.blocks {
            block.write(&mut text);
        }
        text
    }
}

/// The port that clients query. If dnsmasq is in front, this is the default port of dnsmasq. If
/// dnsmasq has the option `--port`, a comment in the Corefile says where to change the port.
fn port_of(flags: &KubednsFlags) -> &str {
    let kubedns_is_in_front = matches!(flags.value("topology"), Some("direct" | "alone"));
    flags
        .value("dns-port")
        .filter(|_| kubedns_is_in_front)
        .unwrap_or("53")
}

/// A duration in whole seconds.
fn seconds_of(flags: &KubednsFlags, name: &str) -> Option<u64> {
    let duration: GoDuration = flags.value(name)?.parse().ok()?;
    Some(Duration::from(duration).as_secs())
}

/// Adds the directives for the process: its probes, metrics, address and logs.
fn add_process(block: &mut Block, flags: &KubednsFlags, config: &Config) {
    let lameduck = flags.value("lameduck").unwrap_or("5s");
    block.add_with("health", &[format!("lameduck {lameduck}")]);
    block.add("ready");
    block.add("prometheus :9153");

    add_bind(block, flags);
    if let Some(reader) = flags.value("dnstap") {
        block.add(format!("dnstap {reader} full"));
    }
    if config.query_log.is_some() {
        block.add("log");
    }
}

/// Adds the line `bind`, unless kubedns listens on all addresses. In a Corefile, each server block
/// needs a line `bind` of its own.
fn add_bind(block: &mut Block, flags: &KubednsFlags) {
    let address = flags.value("dns-bind-address");
    if let Some(address) = address.filter(|address| !matches!(*address, "0.0.0.0" | "::")) {
        block.add(format!("bind {address}"));
    }
}

/// Adds the plugin `kubernetes`, and the plugins for autopath, zone transfers and external zones,
/// which work only in the same block.
fn add_kubernetes(block: &mut Block, flags: &KubednsFlags, domains: &[&str], ttl: u64) {
    if flags.is_set("autopath") {
        block.add("autopath @kubernetes");
    }

    let cluster_set = flags.list("clusterset-domain");
    let external = flags.list("external-zone");
    let mut zones = domains.to_vec();
    zones.extend(&cluster_set);
    add_transfer(block, flags, &[&zones[..], &external].concat());

    zones.extend(REVERSE_ZONES);
    let mut options = api_server_options(flags);
    options.extend(record_options(flags));
    options.push(format!("ttl {ttl}"));
    if !cluster_set.is_empty() {
        options.push(format!("multicluster {}", cluster_set.join(" ")));
    }
    options.push(fallthrough_line(flags));
    block.add_with(&format!("kubernetes {}", zones.join(" ")), &options);

    if !external.is_empty() {
        let mut options = vec![format!("ttl {ttl}")];
        if flags.is_set("external-headless") {
            options.push("headless".to_owned());
        }
        block.add_with(&format!("k8s_external {}", external.join(" ")), &options);
    }
}

/// The options for the connection to the API server.
fn api_server_options(flags: &KubednsFlags) -> Vec<String> {
    let context = flags.value("kubecfg-context").unwrap_or_default();
    if let Some(file) = flags.value("kubecfg-file") {
        return vec![format!("kubeconfig {file} {context}").trim_end().to_owned()];
    }
    let url = flags.value("kube-master-url");
    url.map(|url| format!("endpoint {url}"))
        .into_iter()
        .collect()
}

/// The options for objects and their names.
fn record_options(flags: &KubednsFlags) -> Vec<String> {
    let mut options = Vec::new();
    let namespaces = flags.list("namespaces");
    if !namespaces.is_empty() {
        options.push(format!("namespaces {}", namespaces.join(" ")));
    }
    for (flag, option) in [
        ("namespace-selector", "namespace_labels"),
        ("selector", "labels"),
    ] {
        if let Some(selector) = flags.value(flag) {
            options.push(format!("{option} {selector}"));
        }
    }

    let pods = match flags.value("pods") {
        // `autopath` needs `verified`, because it finds a client's pod by the client's address.
        _ if flags.is_set("autopath") => "verified",
        Some(mode @ ("disabled" | "verified")) => mode,
        _ => "insecure",
    };
    options.push(format!("pods {pods}"));
    if flags.value("endpoint-names") == Some("pod") {
        options.push("endpoint_pod_names".to_owned());
    }
    if flags.is_set("zonal-names") {
        options.push("zonal".to_owned());
    }
    if flags.is_set("ignore-empty-services") {
        options.push("ignore empty_service".to_owned());
    }
    options
}

/// The line `fallthrough`. Reverse names that the cluster does not have are always forwarded.
fn fallthrough_line(flags: &KubednsFlags) -> String {
    // `list` would leave out the root, which is a dot.
    let all_names = flags.value("fallthrough").unwrap_or_default().split(',');
    if all_names.into_iter().any(|zone| zone.trim() == ".") {
        return "fallthrough".to_owned();
    }
    let mut zones = REVERSE_ZONES.to_vec();
    zones.extend(flags.list("fallthrough"));
    format!("fallthrough {}", zones.join(" "))
}

/// Adds transfers of these zones. `--transfer-to` may contain networks, but the plugin `transfer`
/// accepts only addresses. If there are networks, the plugin `acl` limits transfers to the
/// addresses and networks of the flag.
fn add_transfer(block: &mut Block, flags: &KubednsFlags, zones: &[&str]) {
    let peers = flags.list("transfer-to");
    if peers.is_empty() {
        return;
    }
    let (networks, servers): (Vec<&str>, Vec<&str>) =
        peers.iter().partition(|peer| peer.contains('/'));

    let mut options = Vec::new();
    if !networks.is_empty() {
        options.push("to *".to_owned());
        let mut rules = Vec::new();
        for rtype in ["AXFR", "IXFR"] {
            let allowed = servers.iter().copied().map(address_of_peer);
            let nets: Vec<&str> = networks.iter().copied().chain(allowed).collect();
            rules.push(format!("allow type {rtype} net {}", nets.join(" ")));
            rules.push(format!("block type {rtype}"));
        }
        block.add_with("acl", &rules);
    }
    if !servers.is_empty() {
        options.push(format!("to {}", servers.join(" ")));
    }
    block.add_with(&format!("transfer {}", zones.join(" ")), &options);

    if let Some(file) = flags.value("transfer-key") {
        let options = [format!("secrets {file}"), "require AXFR IXFR".to_owned()];
        block.add_with("tsig", &options);
    }
}

/// The address of a peer, without the port that the peer may have.
fn address_of_peer(peer: &str) -> &str {
    if let Some(rest) = peer.strip_prefix('[') {
        return rest.split(']').next().unwrap_or(rest);
    }
    match peer.split_once(':') {
        Some((address, port)) if !port.contains(':') => address,
        _ => peer,
    }
}

/// Adds the plugin `cache`, which replaces the cache of kubedns or dnsmasq. With
/// `--topology=alone`, adds the plugin only if `--cache-size`, `--serve-stale` or `--autopath`
/// turns on the cache of kubedns. Like the cache of kubedns, the plugin does not cache names of the
/// cluster.
fn add_cache(block: &mut Block, flags: &KubednsFlags, domains: &[&str]) {
    let size = flags.value("cache-size").filter(|size| *size != "0");
    let stale = flags.value("serve-stale").filter(|time| *time != "0s");
    let has_cache = size.is_some() || stale.is_some() || flags.is_set("autopath");
    if flags.value("topology") == Some("alone") && !has_cache {
        return;
    }

    let mut options = Vec::new();
    if let Some(size) = size {
        options.push(format!("success {size}"));
        options.push(format!("denial {size}"));
    }
    if let Some(time) = stale {
        options.push(format!("serve_stale {time} verify"));
    }
    let zones = domains.join(" ");
    options.push(format!("disable success {zones}"));
    options.push(format!("disable denial {zones}"));
    block.add_with("cache", &options);
}

/// The blocks of the zones from etcd. A zone has a URL for each member of the etcd cluster. kubedns
/// requires the same path in all URLs of a zone, so the path of the last URL is used.
fn etcd_blocks(flags: &KubednsFlags, port: &str) -> Vec<Block> {
    let mut zones: BTreeMap<&str, (Vec<&str>, &str)> = BTreeMap::new();
    for value in flags.values("etcd-zone") {
        let Some((zone, url)) = value.split_once('=') else {
            continue;
        };
        // The path begins at the first slash after the two slashes of the scheme.
        let host_at = url.find("://").map_or(0, |at| at + 3);
        let host_end = url[host_at..]
            .find('/')
            .map_or(url.len(), |at| host_at + at);
        let (member, path) = url.split_at(host_end);
        let path = path.trim_end_matches('/');
        let zone = zones.entry(zone.trim_end_matches('.')).or_default();
        zone.0.push(member);
        zone.1 = if path.is_empty() { "/skydns" } else { path };
    }

    let blocks = zones.iter().map(|(zone, (members, path))| {
        let mut options = vec![
            format!("path {path}"),
            format!("endpoint {}", members.join(" ")),
        ];
        options.extend(etcd_credentials(flags));
        let mut block = Block::new(&[zone], port);
        add_bind(&mut block, flags);
        block.add_with("etcd", &options);
        block.add("cache");
        block
    });
    blocks.collect()
}

fn etcd_credentials(flags: &KubednsFlags) -> Vec<String> {
    let mut options = Vec::new();
    let files = ["etcd-cert-file", "etcd-key-file", "etcd-ca-file"];
    let files: Vec<&str> = files.iter().filter_map(|name| flags.value(name)).collect();
    if !files.is_empty() {
        options.push(format!("tls {}", files.join(" ")));
    }
    if let Some(user) = flags.value("etcd-user") {
        options.push(format!("credentials {user} PASSWORD"));
    }
    options
}

/// The flags whose counterpart is missing only because another flag is set, too. Each line is about
/// one flag.
fn missing_beside_others(flags: &KubednsFlags) -> Vec<String> {
    let mut lines = Vec::new();
    if flags.value("kube-master-url").is_some() && flags.value("kubecfg-file").is_some() {
        lines.push(
            "--kube-master-url: CoreDNS takes the URL from the kubeconfig, so write this URL into the file"
                .to_owned(),
        );
    }
    if !flags.list("transfer-to").is_empty() && flags.values("etcd-zone").next().is_some() {
        lines.push(
            "--transfer-to: the zones of --etcd-zone are not transferred, because the plugin etcd has no transfers"
                .to_owned(),
        );
    }
    lines
}

/// The keys without a counterpart, or with only a partial one, except for the keys in
/// [`ExternalServers::missing`].
fn missing_keys(config: &Config) -> Vec<String> {
    let mut lines = Vec::new();
    if !config.federations.is_empty() {
        lines.push("federations: Kubernetes no longer has them".to_owned());
    }
    if config.query_log.is_some() {
        lines.push(
            "queryLog: its filters, rate limit and end time are lost, because the plugin log writes all queries"
                .to_owned(),
        );
    }
    lines
}

/// Lists the differences between `CoreDNS` and kube-dns that depend on `--strict-dns`, on
/// `--endpoint-names` and on the keys `hosts` and `aliases`. Also lists the difference in the ports.
fn different_keys(flags: &KubednsFlags, config: &Config) -> Vec<String> {
    let mut lines = Vec::new();
    if !flags.is_set("strict-dns") {
        lines.push(
            "answers: CoreDNS answers as kubedns does with --strict-dns (docs/coredns.md)"
                .to_owned(),
        );
    }
    if matches!(flags.value("endpoint-names"), None | Some("hash")) {
        lines.push(
            "endpoints without a hostname: their names contain the address, such as 10-0-0-1, instead of a hash"
                .to_owned(),
        );
    }
    if !config.hosts.addresses().is_empty() {
        lines.push(
            "hosts: NODATA answers of the plugin hosts have no SOA record, so clients do not cache them".to_owned(),
        );
    }
    let mut targets = config.aliases.values();
    if targets.any(|target| matches!(target, dnsconfig::AliasTarget::Name(_))) {
        lines.push(
            "aliases: if the target is not a Service, the answer has no CNAME record".to_owned(),
        );
    }
    lines.push(
        "ports: CoreDNS has /ready on port 8181, /health on port 8080 and the metrics on port 9153"
            .to_owned(),
    );
    lines
}

#[cfg(test)]
mod tests;
