//! Servers that forward queries for external names: kubedns, dnsmasq, Unbound and CoreDNS. Their
//! common upstream is a name server that answers every name of one zone.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use anyhow::Context as _;
use testkit::ports::free_port;
use testkit::process::Program;

use crate::kubedns;
use crate::peers::Peer;
use crate::setup::{Bench, say};
use crate::zone::{OUTSIDE, Server, ZoneFile, find_program};

/// Number of names that fit in the cache of kubedns, and in the large cache of dnsmasq.
pub(crate) const CACHED_NAMES: usize = 10_000;

/// The name in the first query. A forwarder has started when it answers this query.
const FIRST_NAME: &str = "first";

/// Starts the upstream; `None` if NSD is not installed.
pub(crate) async fn start_upstream(directory: &Path) -> anyhow::Result<Option<Peer>> {
    Peer::of_zone(Server::Nsd, directory, &ZoneFile::of_outside(), 1).await
}

/// Size of the cache of dnsmasq in the stock manifest, in names. With a larger cache, dnsmasq takes
/// more CPU time for a name that is not cached.
const STOCK_CACHE: usize = 1000;

/// Suffix of the name of a forwarder that runs without a cache.
pub(crate) const WITHOUT_CACHE: &str = " without a cache";
/// Suffix of the name of a dnsmasq whose cache is as large as the cache of kubedns, and thus larger
/// than in the stock manifest.
pub(crate) const LARGE_CACHE: &str = " with 10,000 names";

/// Starts kubedns with and without a cache, and the other forwarders that are installed. All have
/// the upstream `upstream`.
pub(crate) async fn start_forwarders(
    bench: &Bench,
    upstream: SocketAddr,
) -> anyhow::Result<Vec<Peer>> {
    let mut forwarders = Vec::new();
    let sizes = [
        ("kubedns".to_owned(), CACHED_NAMES),
        (format!("kubedns{WITHOUT_CACHE}"), 0),
    ];
    for (name, cache) in sizes {
        let address = free_address();
        // Nothing listens at the URL of the API server: kubedns forwards external names even
        // without an API server. kubedns listens on one address, as the other forwarders do.
        let program = kubedns::program(bench, address, free_address(), &[upstream])
            .args([
                format!("--dns-bind-address={}", address.ip()),
                format!("--cache-size={cache}"),
                format!("--kube-master-url=http://{}", free_address()),
            ])
            .args(&bench.options.kubedns_arg);
        forwarders.push(start(&name, address, program).await?);
    }

    if let Some(dnsmasq) = find_program("dnsmasq") {
        let sizes = [
            ("dnsmasq".to_owned(), STOCK_CACHE),
            (format!("dnsmasq{LARGE_CACHE}"), CACHED_NAMES),
            (format!("dnsmasq{WITHOUT_CACHE}"), 0),
        ];
        for (name, cache) in sizes {
            let address = free_address();
            let program = Program::tied(&dnsmasq).args(dnsmasq_arguments(address, upstream, cache));
            forwarders.push(start(&name, address, program).await?);
        }
    } else {
        say("dnsmasq is not measured, because it is not installed");
    }

    for (name, file) in [("Unbound", "unbound"), ("CoreDNS", "coredns")] {
        let Some(program) = find_program(file) else {
            say(&format!(
                "{name} is not measured, because it is not installed"
            ));
            continue;
        };
        let address = free_address();
        let args = match file {
            "unbound" => unbound_arguments(bench.directory(), address, upstream)?,
            _ => coredns_arguments(bench.directory(), address, upstream)?,
        };
        let program = Program::tied(&program).args(args);
        forwarders.push(start(name, address, program).await?);
    }
    Ok(forwarders)
}

async fn start(name: &str, address: SocketAddr, program: Program) -> anyhow::Result<Peer> {
    let first = format!("{FIRST_NAME}.{OUTSIDE}.");
    Peer::answering(name, address, &first, program.start())
        .await
        .with_context(|| format!("cannot start {name}"))
}

fn free_address() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, free_port()).into()
}

/// The arguments of a dnsmasq that caches up to `cache` names.
fn dnsmasq_arguments(address: SocketAddr, upstream: SocketAddr, cache: usize) -> Vec<String> {
    let mut args: Vec<String> = [
        "--keep-in-foreground",
        "--conf-file=/dev/null",
        "--no-resolv",
        "--no-hosts",
        "--bind-interfaces",
        "--pid-file",
        "--user=",
    ]
    .map(str::to_owned)
    .to_vec();
    args.extend([
        format!("--listen-address={}", address.ip()),
        format!("--port={}", address.port()),
        format!("--server={}#{}", upstream.ip(), upstream.port()),
        format!("--cache-size={cache}"),
    ]);
    args
}

/// Writes the configuration of an Unbound with one thread and without DNSSEC validation. Returns
/// the arguments of this Unbound.
fn unbound_arguments(
    directory: &Path,
    address: SocketAddr,
    upstream: SocketAddr,
) -> anyhow::Result<Vec<String>> {
    let text = format!(
        "server:\n interface: {}\n port: {}\n do-daemonize: no\n chroot: \"\"\n username: \"\"\n \
         pidfile: \"\"\n use-syslog: no\n num-threads: 1\n module-config: \"iterator\"\n \
         do-not-query-localhost: no\n local-zone: \"test.\" nodefault\n\
         remote-control:\n control-enable: no\n\
         forward-zone:\n name: \".\"\n forward-addr: {}@{}\n",
        address.ip(),
        address.port(),
        upstream.ip(),
        upstream.port()
    );
    let file = write_configuration(directory, "unbound.conf", &text)?;
    Ok(vec!["-d".to_owned(), "-c".to_owned(), file])
}

fn coredns_arguments(
    directory: &Path,
    address: SocketAddr,
    upstream: SocketAddr,
) -> anyhow::Result<Vec<String>> {
    let text = format!(
        ".:{} {{\n bind {}\n forward . {upstream}\n cache 3600\n}}\n",
        address.port(),
        address.ip()
    );
    let file = write_configuration(directory, "Corefile", &text)?;
    Ok(vec!["-conf".to_owned(), file])
}

/// Writes a configuration file into `directory`, and returns its path.
fn write_configuration(directory: &Path, name: &str, text: &str) -> anyhow::Result<String> {
    let file = directory.join(name);
    std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(file.display().to_string())
}
