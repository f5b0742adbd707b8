//! What can be chosen about the cluster this server plays.

use std::time::Duration;

/// Choices for [`crate::ApiServer::bind`]. `Options::default()` is a small dual-stack cluster.
#[derive(Debug, Clone)]
pub struct Options {
    /// Whether the namespaces, the `kubernetes` Service and its Endpoints that every cluster has exist from the start.
    pub bootstrap: bool,
    /// Whether Endpoints are mirrored into `EndpointSlices`, as controllers do in a real cluster.
    pub mirror_endpoints: bool,
    /// Events kept per resource; watches from before the oldest get 410.
    pub history: usize,
    /// Time between bookmarks on watches that allow them. None is sent while the resource does not change.
    pub bookmark_period: Duration,
    /// Requests under way at a time, watches included; more get 429.
    pub max_requests: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            bootstrap: true,
            mirror_endpoints: false,
            history: crate::store::DEFAULT_HISTORY,
            bookmark_period: Duration::from_mins(1),
            max_requests: 1024,
        }
    }
}
