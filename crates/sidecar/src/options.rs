//! The command line.

use std::time::Duration;

use daemon::flags::{int, whole_number};
use daemon::klog::LogFlags;
use daemon::metrics::NamePrefix;
use hickory_proto::rr::Name;
use wire::ServerAddr;

use crate::nslookup::NslookupCommand;
use crate::spec::{ProbeSpec, fully_qualified};

/// The help text of `--probe`: the text of kube-dns, with additions.
const PROBE: &str = "probe the given DNS server with the DNS name and export probe metrics and healthcheck URI. Specified as <label>,<server>,<dns name>[,<interval_seconds>][,<type>]. Healthcheck url will be exported under /healthcheck/<label>. interval_seconds is optional. This option may be specified multiple times to check multiple servers. <type> is one of ANY, A, AAAA, SRV, optionally followed by /tcp to probe over TCP. Example: 'mydns,127.0.0.1:53,example.com,10,A'.";

/// The last lines of `--help`.
const COMMANDS: &str = "\
Commands for the kubedns in the pod:
  sidecar tap                           follow queries and their answers live
  sidecar top                           rank the busiest clients and the most queried names";

/// The rule for the health checks of dnsmasq and kubedns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum HealthMode {
    /// kubedns must respond, and dnsmasq must answer a query that it need not forward. The probed
    /// name need not be answered.
    #[default]
    #[value(name = "self")]
    SelfOnly,
    /// The probed name must be answered, as in kube-dns.
    Through,
}

/// The command line of the sidecar.
#[derive(Clone, Debug, clap::Parser)]
#[command(after_help = COMMANDS)]
pub struct Options {
    /// address that the dnsmasq server is listening on
    #[arg(long, value_name = "string", default_value = "127.0.0.1")]
    pub dnsmasq_addr: String,
    /// port that the dnsmasq server is listening on
    #[arg(long, value_name = "int", default_value = "53", value_parser = int::<i64>)]
    pub dnsmasq_port: i64,
    /// interval with which to poll dnsmasq for stats
    #[arg(long, value_name = "int", default_value = "5000", value_parser = int::<i64>)]
    pub dnsmasq_poll_interval_ms: i64,
    /// The probes; repeatable.
    #[arg(long, value_name = "string", help = PROBE)]
    pub probe: Vec<ProbeSpec>,
    /// interval with which to probe the servers that dnsmasq forwards to; 0 for never
    #[arg(long, value_name = "int", default_value = "5000", value_parser = whole_number::<u64>)]
    pub upstream_probe_interval_ms: u64,
    /// external name with which an upstream of dnsmasq is probed if it answers SERVFAIL or REFUSED
    /// to the query for the name servers of the root
    #[arg(long, value_name = "string", default_value = "example.com", value_parser = fully_qualified)]
    pub upstream_probe_name: Name,
    /// health checks of dnsmasq and kubedns: self (the server itself answers) or through (the
    /// probed name is answered)
    #[arg(long, value_name = "string", value_enum, default_value_t)]
    pub health: HealthMode,
    /// address of kubedns; a --probe of this address counts as a probe of kubedns
    #[arg(long, value_name = "string", default_value = "127.0.0.1:10053", value_parser = ServerAddr::from_flag)]
    pub kubedns_addr: ServerAddr,
    /// URL of the metrics of kubedns, for the status page and its verdict on the pod; empty for
    /// none
    #[arg(
        long,
        value_name = "string",
        default_value = "http://127.0.0.1:10055/metrics"
    )]
    pub kubedns_metrics: String,
    /// URL of /explain of kubedns for the status page; empty for none
    #[arg(
        long,
        value_name = "string",
        default_value = "http://127.0.0.1:8081/explain"
    )]
    pub kubedns_explain: String,
    /// URL of /top of kubedns for the status page; empty for none
    #[arg(
        long,
        value_name = "string",
        default_value = "http://127.0.0.1:8081/top"
    )]
    pub kubedns_top: String,
    /// file path or http URL of the nanny's status, for the status page and the probes of dnsmasq's
    /// upstreams; empty for none
    #[arg(
        long,
        value_name = "string",
        default_value = "http://127.0.0.1:10056/status"
    )]
    pub nanny_status: String,
    /// URL of /top of the nanny for the status page; empty for none
    #[arg(
        long,
        value_name = "string",
        default_value = "http://127.0.0.1:10056/top"
    )]
    pub nanny_top: String,
    /// http address to bind metrics server to
    #[arg(long, value_name = "string", default_value = "0.0.0.0")]
    pub prometheus_addr: String,
    /// prometheus metric namespace
    #[arg(long, value_name = "string", default_value = "kubedns")]
    pub prometheus_namespace: NamePrefix,
    /// http path used to export metrics
    #[arg(long, value_name = "string", default_value = "/metrics")]
    pub prometheus_path: String,
    /// http port to use to export prometheus metrics
    #[arg(long, value_name = "int", default_value = "10054", value_parser = int::<u16>)]
    pub prometheus_port: u16,
    /// http port on which /healthz and /healthz-<label> answer as exechealthz did; 0 means none, or
    /// 8080 with --cmd
    #[expect(
        rustdoc::invalid_html_tags,
        reason = "the text is the help of the flag"
    )]
    #[arg(long, alias = "port", value_name = "int", default_value = "0", value_parser = whole_number::<u16>)]
    pub exechealthz_port: u16,
    /// The commands that were given to exechealthz; repeatable.
    #[arg(long, hide = true)]
    pub cmd: Vec<NslookupCommand>,
    /// The HTTP paths of the commands in `cmd`, in the same order; repeatable.
    #[arg(long, hide = true)]
    pub url: Vec<String>,
    /// A flag of exechealthz that is accepted, but has no effect.
    #[arg(long, hide = true)]
    pub quiet: bool,
    /// Logging.
    #[command(flatten)]
    pub log: LogFlags,
}

impl Options {
    /// The address of dnsmasq; `None` if `--dnsmasq-addr` is empty, for a pod without dnsmasq. If
    /// `--dnsmasq-port` is not a port number, the port is 0, where nothing answers. As in kube-dns,
    /// the sidecar then counts errors, but does not exit.
    pub fn dnsmasq(&self) -> Option<ServerAddr> {
        let port = u16::try_from(self.dnsmasq_port).unwrap_or_default();
        (!self.dnsmasq_addr.is_empty()).then(|| ServerAddr::new(&self.dnsmasq_addr, port))
    }

    /// The interval between two readings of dnsmasq's counters. A negative value becomes zero.
    /// `crate::counters` raises a short interval to its minimum.
    pub fn dnsmasq_poll_interval(&self) -> Duration {
        Duration::from_millis(u64::try_from(self.dnsmasq_poll_interval_ms).unwrap_or_default())
    }

    /// Logs a `--dnsmasq-port` that is not a port number, unless `--dnsmasq-addr` is empty. Logs a
    /// `--prometheus-namespace` that is not a valid prefix of metric names.
    pub fn log_mistakes(&self) {
        let port = self.dnsmasq_port;
        if !self.dnsmasq_addr.is_empty() && !(1..=i64::from(u16::MAX)).contains(&port) {
            tracing::error!(
                port,
                "--dnsmasq-port is not a port number from 1 to 65535: the counters and upstreams of dnsmasq cannot be read"
            );
        }
        self.prometheus_namespace
            .log_changes("--prometheus-namespace");
    }
}

impl daemon::Options for Options {
    fn log(&self) -> &LogFlags {
        &self.log
    }
}

#[cfg(test)]
mod tests;
