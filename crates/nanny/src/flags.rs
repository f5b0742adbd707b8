//! The command line of the nanny.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use daemon::flags::{GoDuration, GoPeriod};
use daemon::klog::LogFlags;

use crate::config::routes::ForwardMode;

/// The first lines of `-help`.
const ABOUT: &str = "Manages the dnsmasq daemon, handles configuration given by the ConfigMap.\n\
                     Any arguments given after \"--\" will be passed directly to dnsmasq itself.";

/// The last lines of `-help`.
const COMMANDS: &str = "\
Commands for the pod:
  dnsmasq-nanny tap                     follow queries to kubedns and their answers live
  dnsmasq-nanny tap --dnsmasq           follow queries to dnsmasq, if dnsmasq logs them
  dnsmasq-nanny top                     rank the busiest clients of kubedns and the most queried names
  dnsmasq-nanny top --dnsmasq           rank clients and names in queries to dnsmasq, if dnsmasq logs them";

/// The flags of the nanny. Those that the nanny of kube-dns has, too, keep their names, meanings and
/// defaults.
#[derive(Debug, clap::Parser)]
#[command(name = "dnsmasq-nanny", about = ABOUT, after_help = COMMANDS)]
pub struct Flags {
    /// location of the dnsmasq executable
    #[arg(
        long = "dnsmasqExec",
        value_name = "string",
        default_value = "/usr/sbin/dnsmasq"
    )]
    pub dnsmasq_exec: PathBuf,
    /// if true, apply changes of the configuration while dnsmasq runs; if false, read the
    /// configuration only once
    #[arg(long = "restartDnsmasq")]
    pub restart_dnsmasq: bool,
    /// location of the configuration
    #[arg(
        long = "configDir",
        value_name = "string",
        default_value = "/etc/k8s/dns/dnsmasq-nanny"
    )]
    pub config_dir: PathBuf,
    /// interval to check for configuration updates (the nanny is also notified of changes)
    #[arg(long = "syncInterval", value_name = "duration", default_value = "10s")]
    pub sync_interval: GoPeriod,
    /// address of kubedns: an IP address or a name, with or without a port (the nanny queries
    /// kubedns for the addresses of stub domain servers whose names are in the cluster domain; with
    /// -forward=kubedns, dnsmasq forwards all queries to kubedns)
    #[arg(
        long = "kubednsServer",
        value_name = "string",
        default_value = "127.0.0.1:10053"
    )]
    pub kubedns_server: String,
    /// cluster domain: stub servers given by a name in this domain are resolved through kubedns
    /// (default: the domain that the arguments of dnsmasq route to -kubednsServer, else
    /// cluster.local)
    #[arg(long = "kubednsDomain", value_name = "string", default_value = "")]
    pub kubedns_domain: String,
    /// forwarder to the upstream servers: dnsmasq, or kubedns (dnsmasq then forwards all queries to
    /// kubedns)
    #[arg(long = "forward", value_name = "string", value_enum, default_value_t)]
    pub forward: ForwardMode,
    /// interval to send SIGUSR1 to dnsmasq which triggers statistics logging (if zero, SIGUSR1 is
    /// not sent)
    #[arg(long = "logInterval", value_name = "duration", default_value = "0s")]
    pub log_interval: GoDuration,
    /// time to keep serving after SIGTERM
    #[arg(long = "lameduck", value_name = "duration", default_value = "5s")]
    pub lameduck: GoDuration,
    /// directory for the servers file and the status file; a small tmpfs will do (default: a new
    /// directory in the first of /run, /tmp and /dev/shm that is writable)
    #[arg(long = "stateDir", value_name = "string", default_value = "")]
    pub state_dir: String,
    /// address of the status and metrics pages; empty for none
    #[arg(
        long = "statusAddr",
        value_name = "string",
        default_value = "127.0.0.1:10056"
    )]
    pub status_addr: String,
    /// The logging flags.
    #[command(flatten)]
    pub log: LogFlags,
    /// The arguments after `--`.
    #[arg(hide = true)]
    pub dnsmasq: Vec<OsString>,
}

impl daemon::Options for Flags {
    fn log(&self) -> &LogFlags {
        &self.log
    }

    fn lameduck(&self) -> Duration {
        self.lameduck.into()
    }
}
