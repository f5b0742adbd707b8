//! A minimal HTTP client for tests, and a server with one reply to all requests. Each request uses
//! a new connection.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Timeout of a request. It is long enough for a busy machine.
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
    /// The value of a series in the Prometheus text format; `None` if the body lacks the series.
    /// `series` is the metric name, with labels as in the body.
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
/// Fails if no response comes in time, or if the response is not HTTP.
pub async fn get(address: SocketAddr, path: &str) -> io::Result<Response> {
    // This client cannot decode a chunked body. A server must not send one to an HTTP/1.0 client.
    let text = exchange(address, "HTTP/1.0", "GET", path).await?;
    let status = text
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    let parts = status.zip(text.split_once("\r\n\r\n"));
    let (status, (_, body)) =
        parts.ok_or_else(|| io::Error::other(format!("the response is not HTTP: {text:?}")))?;
    Ok(Response {
        status,
        body: body.to_owned(),
    })
}

/// Sends a request without a body, and returns the whole response as text.
///
/// # Errors
///
/// Fails if no response comes in time, or if the response is not UTF-8.
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

/// A server that sends the same octets, which need not be HTTP, in reply to each request. Dropping
/// this value stops the server.
pub struct ScriptedHttp {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
    _task: JoinSet<()>,
}

impl ScriptedHttp {
    /// Starts a server that sends `reply` to each client, and then closes the connection.
    pub async fn start(reply: impl Into<Vec<u8>>) -> Self {
        Self::run(reply.into(), false).await
    }

    /// Starts a server that sends `reply` to each client, and leaves the connection open.
    pub async fn hanging(reply: impl Into<Vec<u8>>) -> Self {
        Self::run(reply.into(), true).await
    }

    async fn run(reply: Vec<u8>, hangs: bool) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .expect("a port must be free");
        let address = listener
            .local_addr()
            .expect("a bound socket must have an address");
        let requests = Arc::<Mutex<Vec<String>>>::default();
        let heads = Arc::clone(&requests);
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut open = Vec::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                let head = read_head(&mut stream).await;
                heads.lock().push(head);
                // The client may have closed the connection.
                let _ = stream.write_all(&reply).await;
                if hangs {
                    open.push(stream);
                }
            }
        });
        Self {
            address,
            requests,
            _task: task,
        }
    }

    /// The URL of a path.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The first line of each request.
    pub fn requests(&self) -> Vec<String> {
        let heads = self.requests.lock();
        let lines = heads.iter().map(|head| head.lines().next());
        lines
            .map(|line| line.unwrap_or_default().to_owned())
            .collect()
    }
}

/// Reads a request without a body, up to the empty line or the end of the stream.
async fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if !stream
            .read_buf(&mut head)
            .await
            .is_ok_and(|count| count > 0)
        {
            break;
        }
    }
    String::from_utf8_lossy(&head).into_owned()
}
