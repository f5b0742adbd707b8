//! The soak test's command line.

use clap::Parser;

/// Runs a pod under a mixed load while the cluster keeps changing. The memory, file descriptors and
/// threads of the pod's processes must not grow.
#[derive(Debug, Clone, Parser)]
#[command(name = "soak")]
pub struct Options {
    /// Duration in minutes
    #[arg(long, default_value_t = 30, value_name = "COUNT")]
    pub minutes: u32,
    /// Queries a second
    #[arg(long, default_value_t = 1500, value_name = "COUNT")]
    pub rate: u32,
    /// Changes of Services per second; the Endpoints of a headless Service change equally often
    #[arg(long, default_value_t = 10, value_name = "COUNT")]
    pub changes: u32,
    /// Put kubedns in front of dnsmasq
    #[arg(long)]
    pub direct: bool,
}
