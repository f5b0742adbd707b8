//! The command line.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::{Args, Parser};

use crate::ports::DEFAULT_BASE;

/// Runs the whole kube-dns pod on loopback: an embedded API server fed from a directory of
/// manifests, kubedns, dnsmasq under the nanny, and the sidecar, connected as in the cluster.
/// Ctrl-C stops everything.
#[derive(Debug, Parser)]
#[command(
    name = "localpod",
    version,
    max_term_width = 100,
    args_override_self = true
)]
pub struct Options {
    /// Directory of YAML manifests that the embedded API server serves; the API server follows
    /// edits of the files
    #[arg(
        long,
        value_name = "DIR",
        default_value = "examples/cluster",
        conflicts_with = "kubecfg_file"
    )]
    pub manifests: PathBuf,

    /// Use the real cluster of this kubeconfig instead of the embedded API server
    #[arg(long, value_name = "FILE")]
    pub kubecfg_file: Option<PathBuf>,

    /// First of the consecutive ports that the pod uses on 127.0.0.1; clients send their queries to
    /// this first port; with 0, localpod looks for free ports
    #[arg(long, value_name = "PORT", default_value_t = DEFAULT_BASE)]
    pub port_base: u16,

    /// The position of dnsmasq.
    #[command(flatten)]
    pub shape: Shape,

    /// Cluster domain
    #[arg(long, value_name = "DOMAIN", default_value = "cluster.local")]
    pub domain: String,

    /// Upstreams for external names (ADDRESS:PORT,...) instead of those in /etc/resolv.conf
    #[arg(
        long,
        value_name = "ADDRS",
        value_delimiter = ',',
        conflicts_with = "offline"
    )]
    pub nameservers: Vec<SocketAddr>,

    /// Forward external names to localpod's own example upstream; no query leaves this machine
    /// unless the ConfigMap names other servers
    #[arg(long)]
    pub offline: bool,

    /// Directory of the kubedns, nanny and sidecar binaries [default: the directory of localpod]
    #[arg(long, value_name = "DIR")]
    pub bin_dir: Option<PathBuf>,

    /// The dnsmasq executable [default: found in PATH or the usual sbin directories]
    #[arg(long, value_name = "PATH")]
    pub dnsmasq: Option<PathBuf>,

    /// Write ports, process ids and restart counts to this JSON file at the start and at each
    /// change
    #[arg(long, value_name = "FILE")]
    pub status_file: Option<PathBuf>,

    /// Seconds after which localpod kills processes that it has asked to stop
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub grace_period: u64,

    /// Seconds between two probes by the sidecar; the first probes are sent within this time
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    pub probe_interval: u32,

    /// Log verbosity of kubedns, the nanny and the sidecar
    #[arg(short, long, value_name = "LEVEL", default_value_t = 2)]
    pub v: u8,

    /// Further arguments of kubedns, the nanny and the sidecar.
    #[command(flatten)]
    pub extra: ExtraArgs,
}

/// The position of dnsmasq: in front of kubedns by default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Args)]
pub struct Shape {
    /// Put kubedns in front: kubedns answers the clients, and dnsmasq behind it forwards queries
    /// for external names and caches the responses
    #[arg(long)]
    pub direct: bool,

    /// Use dnsmasq in front only as a cache: dnsmasq forwards to kubedns each query that its cache
    /// cannot answer, and kubedns forwards queries for external names to the upstreams
    #[arg(long, conflicts_with = "direct")]
    pub cache: bool,

    /// Leave dnsmasq out: kubedns answers the clients, forwards to the upstreams and caches their
    /// responses
    #[arg(long, conflicts_with_all = ["direct", "cache"])]
    pub alone: bool,
}

/// Arguments for kubedns, the nanny and the sidecar, in addition to those that localpod passes
/// anyway.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct ExtraArgs {
    /// A further argument for kubedns, such as --kubedns-arg=--v=4 (repeatable)
    #[arg(id = "kubedns-arg", long, value_name = "ARG")]
    pub kubedns: Vec<String>,

    /// A further argument for the nanny (repeatable)
    #[arg(id = "nanny-arg", long, value_name = "ARG")]
    pub nanny: Vec<String>,

    /// A further argument for dnsmasq itself, such as --dnsmasq-arg=--log-queries (repeatable)
    #[arg(id = "dnsmasq-arg", long, value_name = "ARG")]
    pub dnsmasq: Vec<String>,

    /// A further argument for the sidecar (repeatable)
    #[arg(id = "sidecar-arg", long, value_name = "ARG")]
    pub sidecar: Vec<String>,
}

impl Options {
    /// The cluster domain, without a final dot.
    pub fn domain(&self) -> &str {
        self.domain.trim_end_matches('.')
    }

    /// The directory of the binaries: `--bin-dir`, or the directory of the localpod binary.
    pub fn bin_dir(&self) -> io::Result<PathBuf> {
        if let Some(named) = &self.bin_dir {
            return Ok(named.clone());
        }
        let localpod = std::env::current_exe()?;
        Ok(localpod.parent().map(Path::to_owned).unwrap_or_default())
    }
}

/// Shortens the error of a wrong command line to one line: the first paragraph of clap's message.
pub fn one_line(error: &clap::Error) -> String {
    let explanation = error.to_string();
    let paragraph: Vec<&str> = explanation
        .lines()
        .take_while(|line| !line.is_empty())
        .map(str::trim)
        .collect();
    let text = paragraph.join(" ");
    format!("{} (see --help)", text.trim_start_matches("error: "))
}
