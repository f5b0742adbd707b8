//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};

/// Measures kubedns on a generated cluster, and other DNS servers for comparison.
///
/// The scenario `cost` compares kubedns with a plain UDP echo server, with hickory-server, and with
/// NSD and Knot DNS if they are installed. It also measures the servers that `BENCH_PEERS` names,
/// as in `BENCH_PEERS="kube-dns=127.0.0.1:10053:4711,coredns=127.0.0.1:1053:4712"`. Each entry has
/// a name, an IP address with a port, and a process ID. These servers must serve the same cluster,
/// which they can read from `bench serve`.
///
/// The load that kubedns puts on a real API server is measured if `BENCH_KUBECONFIG` names a
/// kubeconfig of that server. The measurement creates the cluster's objects on that server, so use
/// a separate kube-apiserver, with etcd and without controllers.
#[derive(Debug, Parser)]
#[command(name = "bench", args_conflicts_with_subcommands = true)]
pub struct Options {
    /// A command to run instead of the measurement
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Settings of the measurement
    #[command(flatten)]
    pub measuring: Measuring,
}

/// Settings of the measurement.
#[derive(Debug, Clone, clap::Args)]
pub struct Measuring {
    /// The kubedns binary; by default the file kubedns in the directory of this binary
    #[arg(long, value_name = "FILE")]
    pub kubedns: Option<PathBuf>,
    /// Number of Services of the cluster; each has three endpoints, and every tenth is headless
    /// with hostnames
    #[arg(long, default_value_t = 10_000, value_name = "COUNT")]
    pub services: u32,
    /// Number of Services of the large cluster
    #[arg(long, default_value_t = 100_000, value_name = "COUNT")]
    pub large: u32,
    /// Scenarios to measure; all by default
    #[arg(long, value_delimiter = ',', value_enum, value_name = "SCENARIO")]
    pub only: Vec<Scenario>,
    /// Number of rounds of the scenarios `cost` and `forwarded`; each round measures every server
    #[arg(long, default_value_t = 5, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// Seconds of each measurement in a round
    #[arg(long, default_value_t = 2, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=60))]
    pub seconds: u32,
    /// Queries that dnsperf keeps outstanding
    #[arg(long, default_value_t = 64, value_name = "COUNT")]
    pub outstanding: u32,
    /// Numbers of kubedns instances in the scenario `fleet`
    #[arg(long, value_delimiter = ',', default_values_t = [1, 10, 50, 200], value_name = "COUNT")]
    pub instances: Vec<u32>,
    /// Further argument for kubedns; may be given several times
    #[arg(long, value_name = "ARGUMENT", allow_hyphen_values = true)]
    pub kubedns_arg: Vec<String>,
    /// Writes the results to performance.json and performance.md in this directory
    #[arg(long, value_name = "DIR")]
    pub write: Option<PathBuf>,
}

/// A scenario to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Scenario {
    /// Time to the first answer, and memory after the first lists, during relists and under load
    Start,
    /// CPU time per query, compared with a UDP echo server and other servers
    Cost,
    /// Time from a change at the API server to the first answer that shows the change
    Change,
    /// CPU time and latency while a large headless Service changes, and while many Deployments are
    /// updated
    Churn,
    /// Latency of cluster names during queries for external names that the upstream never answers
    Outside,
    /// CPU time per query for an external name, compared with dnsmasq, Unbound and CoreDNS; needs
    /// NSD as the upstream
    Forwarded,
    /// Time from a change to the first answer that shows the change, and latency of forwarded
    /// queries, while clients read /explain and /cache
    Pages,
    /// Time to the first answer, and memory, with the large cluster
    Large,
    /// Load that kubedns puts on the API server of `BENCH_KUBECONFIG`, if given
    Real,
    /// Load that many kubedns instances put on the API server of `BENCH_KUBECONFIG`, if given, and
    /// the time from a change until the answers of the instances show the change
    Fleet,
}

/// The other commands of the binary.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Echoes every datagram, as the baseline of the measurements
    Echo {
        /// Address to bind
        #[arg(long, value_name = "ADDRESS")]
        listen: SocketAddr,
        /// Sockets, each with a thread of its own
        #[arg(long, default_value_t = 1, value_name = "COUNT")]
        sockets: u32,
        /// Receive and send in batches
        #[arg(long)]
        batched: bool,
    },
    /// Serves the address records of the cluster with hickory-server
    Hickory {
        /// Address to bind
        #[arg(long, value_name = "ADDRESS")]
        listen: SocketAddr,
        /// Services of the cluster
        #[arg(long, default_value_t = 10_000, value_name = "COUNT")]
        services: u32,
    },
    /// Serves the cluster's objects as an API server, for the DNS servers that `BENCH_PEERS` names
    Serve {
        /// Address to bind
        #[arg(long, default_value = "127.0.0.1:8001", value_name = "ADDRESS")]
        listen: SocketAddr,
        /// Services of the cluster
        #[arg(long, default_value_t = 10_000, value_name = "COUNT")]
        services: u32,
    },
}

impl Measuring {
    /// The duration of one measurement with dnsperf.
    pub fn span(&self) -> Duration {
        Duration::from_secs(self.seconds.into())
    }

    /// Returns whether a scenario is selected.
    pub fn wants(&self, scenario: Scenario) -> bool {
        self.only.is_empty() || self.only.contains(&scenario)
    }
}
