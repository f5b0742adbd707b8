//! The least HTTP that the tests need.

use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Longer than any answer may take, so that a frozen process shows as an error.
const PATIENCE: Duration = Duration::from_secs(5);

/// What came back.
#[derive(Debug)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// Everything after the head.
    pub body: String,
}

/// `GET path` from a port of 127.0.0.1.
pub async fn get(port: u16, path: &str) -> io::Result<Response> {
    timeout(PATIENCE, exchange(port, path)).await?
}

async fn exchange(port: u16, path: &str) -> io::Result<Response> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    let request = format!("GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| io::Error::other(format!("no status line: {text:?}")))?;
    let body = text.split_once("\r\n\r\n").map_or_else(String::new, |(_, body)| body.to_owned());
    Ok(Response { status, body })
}
