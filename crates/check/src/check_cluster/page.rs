//! Requests for the status pages of the containers.

use std::time::Duration;

use daemon::http::{Page, authority};

/// Timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Reads the page `target` of a server, given as `http://HOST:PORT`.
pub(super) async fn read_page(server: &str, target: &str, size: usize) -> Result<Page, String> {
    let authority = authority(server).unwrap_or(server);
    daemon::http::get(authority, target, TIMEOUT, size)
        .await
        .map_err(|error| error.to_string())
}
