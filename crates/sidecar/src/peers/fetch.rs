//! Fetches a report of another part of the pod, from a file or an HTTP URL. The size of the report
//! and the duration of the fetch are limited.

use std::fs::File;
use std::io::Read as _;
use std::time::Duration;

use anyhow::{bail, ensure};
use daemon::blocking_read::BlockingRead;
use daemon::http::{GetError, Page, get};

/// Timeout of a fetch.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Limit of a report, in bytes.
const MAX_SIZE: usize = 2 * 1024 * 1024;

/// Runs the reads of a file, one at a time.
pub(crate) type FileReads = BlockingRead<Result<Vec<u8>, GetError>>;

/// Reads a file, or gets an `http://` URL. A response with a status other than 200 is an error.
pub(crate) async fn fetch_text(source: &str, files: &FileReads) -> anyhow::Result<String> {
    let bytes = tokio::time::timeout(TIMEOUT, fetch_bytes(source, files))
        .await
        .map_err(|_| GetError::Slow(TIMEOUT))??;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

async fn fetch_bytes(source: &str, files: &FileReads) -> anyhow::Result<Vec<u8>> {
    if source.contains("://") {
        let page = fetch_page(source).await?;
        ensure!(
            page.status == 200,
            "the server answered {:?}",
            page.status_line
        );
        return Ok(page.body);
    }

    // A read of a file on a dead mount hangs. Until the read ends, no second read is started.
    let path = source.to_owned();
    let bytes = files
        .run(move || read_file(&path))
        .await
        .ok_or(GetError::Slow(TIMEOUT))??;
    Ok(bytes)
}

/// Sends a GET to an `http://` URL. Returns the page, whatever its status.
pub(crate) async fn fetch_page(url: &str) -> anyhow::Result<Page> {
    let Some(rest) = url.strip_prefix("http://") else {
        bail!("not an http URL: {url}")
    };
    let (authority, path) = match rest.find('/') {
        Some(at) => rest.split_at(at),
        None => (rest, "/"),
    };
    if authority.contains('@') {
        bail!("an http URL must not contain a user name");
    }

    Ok(get(&with_port(authority), path, TIMEOUT, MAX_SIZE).await?)
}

/// The host and port of a URL. The default port is 80.
fn with_port(authority: &str) -> String {
    let with_port = daemon::http::authority(authority);
    with_port.map_or_else(|| format!("{authority}:80"), str::to_owned)
}

fn read_file(path: &str) -> Result<Vec<u8>, GetError> {
    // One octet more than the limit is read, to tell a file that is too large from one that just
    // fits.
    let mut bytes = Vec::new();
    File::open(path)?
        .take(MAX_SIZE as u64 + 1)
        .read_to_end(&mut bytes)?;

    if bytes.len() > MAX_SIZE {
        Err(GetError::Large(MAX_SIZE))
    } else {
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests;
