//! Reading what another part of the pod says: a file or an HTTP URL, bounded in size and time.

use std::io;
use std::time::Duration;

use daemon::http::{GetError, get};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// How long reading may take.
const TIME: Duration = Duration::from_secs(1);
/// How much is read at most.
const SIZE: usize = 2 * 1024 * 1024;

/// Why there is nothing to show.
#[derive(Debug, Error)]
pub(crate) enum FetchError {
    /// Not a URL this understands.
    #[error("not an http URL: {0}")]
    Url(String),
    /// The file or the connection failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It took too long.
    #[error("no answer within {TIME:?}")]
    Slow,
    /// It was too much.
    #[error("more than {SIZE} bytes")]
    Large,
    /// Not status 200.
    #[error("answered {0:?}")]
    Status(String),
    /// No page.
    #[error(transparent)]
    Http(#[from] GetError),
}

/// Reads a file, or what an `http://` URL answers.
pub(crate) async fn fetch(source: &str) -> Result<String, FetchError> {
    let reading = async {
        match source.strip_prefix("http://") {
            Some(rest) => http(rest).await,
            None if source.contains("://") => Err(FetchError::Url(source.to_owned())),
            None => bounded(tokio::fs::File::open(source).await?).await,
        }
    };
    let bytes = tokio::time::timeout(TIME, reading).await.map_err(|_| FetchError::Slow)??;
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

async fn bounded(from: impl AsyncRead + Unpin) -> Result<Vec<u8>, FetchError> {
    let mut bytes = Vec::new();
    from.take(SIZE as u64 + 1).read_to_end(&mut bytes).await?;
    if bytes.len() > SIZE { Err(FetchError::Large) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests;
