//! A minimal HTTP client for tests. Each request uses a new connection.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Timeout of a request. Long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// An HTTP response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// The text after the head.
    pub body: String,
}

impl Response {
    /// The value of a series in a body in Prometheus text format. `series` is the metric name, with
    /// labels as in the body.
    pub fn metric(&self, series: &str) -> Option<f64> {
        self.body
            .lines()
            .find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
    }
}

/// Sends `GET path` and returns the response.
///
/// # Errors
///
/// If no response comes in time, or if the response is not HTTP.
pub async fn get(address: SocketAddr, path: &str) -> io::Result<Response> {
    // In HTTP/1.0 the body of a page without a length is not chunked.
    let text = exchange(address, "HTTP/1.0", "GET", path).await?;
    let status = text
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    let parts = status.zip(text.split_once("\r\n\r\n"));
    let (status, (_, body)) =
        parts.ok_or_else(|| io::Error::other(format!("not HTTP: {text:?}")))?;
    Ok(Response {
        status,
        body: body.to_owned(),
    })
}

/// Sends a request without a body, and returns the whole response as text.
///
/// # Errors
///
/// If no response comes in time, or if the response is not UTF-8.
pub async fn request(address: SocketAddr, method: &str, path: &str) -> io::Result<String> {
    exchange(address, "HTTP/1.1", method, path).await
}

async fn exchange(
    address: SocketAddr,
    version: &str,
    method: &str,
    path: &str,
) -> io::Result<String> {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await?;
        let request =
            format!("{method} {path} {version}\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        Ok(text)
    };
    timeout(PATIENCE, exchange).await?
}
