//! Reading what another part of the pod says: a file or an HTTP URL, bounded in size and time.

use std::time::Duration;

use daemon::http::{GetError, get};
use thiserror::Error;
use tokio::io::AsyncReadExt as _;

/// How long reading may take.
const TIME: Duration = Duration::from_secs(1);
/// How much is read at most.
const SIZE: usize = 2 * 1024 * 1024;

#[derive(Debug, Error)]
pub(crate) enum FetchError {
    #[error("not an http URL: {0}")]
    Url(String),
    #[error("answered {0:?}")]
    Status(String),
    #[error(transparent)]
    Read(#[from] GetError),
}

/// Reads a file, or what an `http://` URL answers.
pub(crate) async fn fetch(source: &str) -> Result<String, FetchError> {
    let reading = async {
        match source.strip_prefix("http://") {
            Some(rest) => http(rest).await,
            None if source.contains("://") => Err(FetchError::Url(source.to_owned())),
            None => Ok(file(source).await?),
        }
    };
    let bytes = tokio::time::timeout(TIME, reading).await.map_err(|_| GetError::Slow(TIME))??;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// A GET of what is behind `http://`.
async fn http(rest: &str) -> Result<Vec<u8>, FetchError> {
    let (authority, path) = match rest.find('/') {
        Some(at) => rest.split_at(at),
        None => (rest, "/"),
    };
    if authority.contains('@') {
        return Err(FetchError::Url(rest.to_owned()));
    }
    let address = if authority.contains(':') { authority.to_owned() } else { format!("{authority}:80") };
    let page = get(&address, path, TIME, SIZE).await?;
    if page.status == 200 { Ok(page.body) } else { Err(FetchError::Status(page.status_line)) }
}

async fn file(path: &str) -> Result<Vec<u8>, GetError> {
    let mut bytes = Vec::new();
    tokio::fs::File::open(path).await?.take(SIZE as u64 + 1).read_to_end(&mut bytes).await?;
    if bytes.len() > SIZE { Err(GetError::Large(SIZE)) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests;
