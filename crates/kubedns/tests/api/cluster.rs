//! An embedded API server for a test.

use std::time::Duration;

use apiserver::RunningApiServer;
use testkit::objects::mk_cluster_ip;

/// Timeout of all waits, generous for slow machines.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// An API server with the Service `web.apps`.
pub(crate) fn with_web() -> RunningApiServer {
    let server = RunningApiServer::empty();
    server.set(mk_cluster_ip("apps", "web", &["10.96.0.7"], &["http:80"]));
    server
}
