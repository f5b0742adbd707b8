//! Reading what another part of the pod says: a file or an HTTP URL, bounded in size and time.

use std::io;
use std::time::Duration;

use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// How long reading may take.
const TIME: Duration = Duration::from_secs(1);
/// How much is read at most.
const SIZE: u64 = 2 * 1024 * 1024;

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
    /// Something else than HTTP, or not 200.
    #[error("answered {0:?}")]
    Status(String),
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

/// A GET of HTTP/1.0: one answer, not chunked, then the end of the connection.
async fn http(rest: &str) -> Result<Vec<u8>, FetchError> {
    let (authority, path) = match rest.find('/') {
        Some(at) => rest.split_at(at),
        None => (rest, "/"),
    };
    if authority.contains('@')
        || !path.is_ascii()
        || path.contains(|c: char| c.is_ascii_control() || c == ' ')
    {
        return Err(FetchError::Url(rest.to_owned()));
    }
    let address = if authority.contains(':') { authority.to_owned() } else { format!("{authority}:80") };
    let mut stream = TcpStream::connect(&address).await?;
    let request = format!("GET {path} HTTP/1.0\r\nHost: {authority}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let reply = bounded(stream).await?;
    let status = || {
        let line = reply.split(|byte| *byte == b'\r').next().unwrap_or_default();
        FetchError::Status(
            String::from_utf8_lossy(line.get(..80.min(line.len())).unwrap_or_default()).into_owned(),
        )
    };
    let head = reply.windows(4).position(|window| window == b"\r\n\r\n").ok_or_else(status)?;
    let ok = reply.starts_with(b"HTTP/1.") && reply.get(8..12) == Some(b" 200");
    if !ok {
        return Err(status());
    }
    Ok(reply.get(head + 4..).unwrap_or_default().to_vec())
}

async fn bounded(from: impl AsyncRead + Unpin) -> Result<Vec<u8>, FetchError> {
    let mut bytes = Vec::new();
    from.take(SIZE + 1).read_to_end(&mut bytes).await?;
    if bytes.len() as u64 > SIZE { Err(FetchError::Large) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests;
