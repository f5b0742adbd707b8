//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};

/// Measures kubedns on a generated cluster, beside a bare UDP echo.
///
/// Other servers are measured beside it when `BENCH_PEERS` names them, as in
/// `BENCH_PEERS="kube-dns=127.0.0.1:10053:4711,coredns=127.0.0.1:1053:4712"`: name, address, process ID. They have to
/// serve the same cluster; `bench serve` offers it to them.
///
/// The cost for a real API server is measured when `BENCH_KUBECONFIG` leads to one. It is filled with the cluster, so
/// it has to be one for measuring: a kube-apiserver with etcd, without controllers.
#[derive(Debug, Parser)]
#[command(name = "bench", args_conflicts_with_subcommands = true)]
pub struct Options {
    /// What to do instead of measuring
    #[command(subcommand)]
    pub command: Option<Command>,
    /// How to measure
    #[command(flatten)]
    pub measuring: Measuring,
}

/// How to measure.
#[derive(Debug, Clone, clap::Args)]
pub struct Measuring {
    /// The kubedns binary; by default that of the variable `BENCH_KUBEDNS`, or the one beside this one
    #[arg(long, value_name = "FILE")]
    pub kubedns: Option<PathBuf>,
    /// The dnsperf binary
    #[arg(long, default_value = "dnsperf", value_name = "FILE")]
    pub dnsperf: PathBuf,
    /// Services of the cluster, three endpoints each, every tenth headless with hostnames
    #[arg(long, default_value_t = 10_000, value_name = "COUNT")]
    pub services: u32,
    /// Services of the large cluster
    #[arg(long, default_value_t = 100_000, value_name = "COUNT")]
    pub large: u32,
    /// Seed of everything that is random
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    pub seed: u64,
    /// What to measure; everything by default
    #[arg(long, value_delimiter = ',', value_enum, value_name = "SCENARIO")]
    pub only: Vec<Scenario>,
    /// How often every server is asked every kind of question
    #[arg(long, default_value_t = 5, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// Seconds of each of these
    #[arg(long, default_value_t = 2, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=60))]
    pub seconds: u32,
    /// Queries that dnsperf keeps outstanding
    #[arg(long, default_value_t = 64, value_name = "COUNT")]
    pub outstanding: u32,
    /// Address that kubedns binds; all of them by default, as in the stock manifest
    #[arg(long, default_value = "0.0.0.0", value_name = "IP")]
    pub bind: std::net::IpAddr,
    /// Further arguments for kubedns
    #[arg(long, value_name = "ARGUMENT", allow_hyphen_values = true)]
    pub kubedns_arg: Vec<String>,
    /// Directory with performance.md and performance.json to write the results to
    #[arg(long, value_name = "DIR")]
    pub write: Option<PathBuf>,
}

/// A scenario to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Scenario {
    /// First answer and memory: after the first lists, during relists, under load
    Start,
    /// CPU time per query, beside an echo and other servers
    Cost,
    /// From a change at the API server to the answer
    Change,
    /// A large headless Service that changes, and many that roll
    Churn,
    /// Cluster names while outside names hang
    Outside,
    /// First answer and memory of the large cluster
    Large,
    /// What it costs the API server of `BENCH_KUBECONFIG`, where that is given
    Real,
}

/// The other commands of the binary.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Sends every datagram back: the floor
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
    /// Answers the address records of the cluster with hickory-server
    Hickory {
        /// Address to bind
        #[arg(long, value_name = "ADDRESS")]
        listen: SocketAddr,
        /// Services of the cluster
        #[arg(long, default_value_t = 10_000, value_name = "COUNT")]
        services: u32,
        /// Seed of the cluster
        #[arg(long, default_value_t = 1, value_name = "NUMBER")]
        seed: u64,
    },
    /// Serves the cluster's objects over the API, for other DNS servers to be measured
    Serve {
        /// Address to bind
        #[arg(long, default_value = "127.0.0.1:8001", value_name = "ADDRESS")]
        listen: SocketAddr,
        /// Services of the cluster
        #[arg(long, default_value_t = 10_000, value_name = "COUNT")]
        services: u32,
        /// Seed of the cluster
        #[arg(long, default_value_t = 1, value_name = "NUMBER")]
        seed: u64,
    },
}

impl Measuring {
    /// The time dnsperf asks one server one kind of question.
    pub fn span(&self) -> Duration {
        Duration::from_secs(self.seconds.into())
    }

    /// Whether a scenario is wanted.
    pub fn wants(&self, scenario: Scenario) -> bool {
        self.only.is_empty() || self.only.contains(&scenario)
    }
}
