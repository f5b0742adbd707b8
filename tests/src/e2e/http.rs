//! HTTP of the pod's containers.

use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

pub use testkit::http::Response;
use tokio::time::timeout;

/// Longer than any answer may take, so that a frozen process shows as an error.
const PATIENCE: Duration = Duration::from_secs(5);

/// `GET path` from a port of 127.0.0.1.
pub async fn get(port: u16, path: &str) -> io::Result<Response> {
    timeout(PATIENCE, testkit::http::get((Ipv4Addr::LOCALHOST, port).into(), path)).await?
}
