//! What can be chosen about the cluster this server plays.

use std::time::Duration;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// Choices for [`crate::ApiServer::bind`]. `Options::default()` is a small dual-stack cluster.
#[derive(Debug, Clone)]
pub struct Options {
    /// Ranges that cluster IPs are taken from, the first one being of the default family. One or two, of different families.
    pub service_ranges: Vec<IpNet>,
    /// Whether the namespaces, the `kubernetes` Service and its Endpoints that every cluster has exist from the start.
    pub bootstrap: bool,
    /// Whether Endpoints are mirrored into `EndpointSlices`, as controllers do in a real cluster.
    pub mirror_endpoints: bool,
    /// Events kept per resource; watches from before the oldest get 410.
    pub history: usize,
    /// Time between bookmarks on watches that allow them. None is sent while the resource does not change.
    pub bookmark_period: Duration,
    /// How long a watch lasts that does not say `timeoutSeconds`; up to twice that, at random.
    pub watch_timeout: Duration,
    /// Connections at a time; more wait to be accepted.
    pub max_connections: usize,
    /// Requests under way at a time, watches included; more get 429.
    pub max_requests: usize,
    /// Largest request body in octets.
    pub max_body: usize,
    /// The bearer token that every request must carry, if any.
    pub token: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            service_ranges: vec![
                Ipv4Net::new_assert([10, 96, 0, 0].into(), 16).into(),
                Ipv6Net::new_assert([0xfd00, 0x10, 0x96, 0, 0, 0, 0, 0].into(), 112).into(),
            ],
            bootstrap: true,
            mirror_endpoints: false,
            history: crate::store::DEFAULT_HISTORY,
            bookmark_period: Duration::from_mins(1),
            watch_timeout: Duration::from_mins(30),
            max_connections: 1024,
            max_requests: 1024,
            max_body: 3 * 1024 * 1024,
            token: None,
        }
    }
}
