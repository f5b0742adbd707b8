//! A running API server, and a client that sends each request on a separate connection.

use std::error::Error;
use std::ops::Deref;
use std::time::Duration;

use apiserver::{Options, RunningApiServer};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::{HeaderMap, Request};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Timeout of each wait that has to succeed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A running API server. At the start, it has the objects that every cluster has, such as the
/// Service `default/kubernetes`.
pub(crate) struct Server(RunningApiServer);

impl Deref for Server {
    type Target = RunningApiServer;

    fn deref(&self) -> &RunningApiServer {
        &self.0
    }
}

/// A complete response.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) code: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

/// A streaming response.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) code: u16,
    headers: HeaderMap,
    body: Incoming,
    received: Vec<u8>,
    _connection: JoinSet<hyper::Result<()>>,
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::with(Options::default())
    }

    pub(crate) fn with(options: Options) -> Self {
        Self(RunningApiServer::start(options))
    }

    pub(crate) async fn get(&self, path: &str) -> Response {
        self.send("GET", path, &[], "").await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Response {
        self.send(
            "POST",
            path,
            &[("Content-Type", "application/json")],
            &body.to_string(),
        )
        .await
    }

    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Response {
        let response = async {
            self.open(method, path, headers, body)
                .await
                .unwrap()
                .finish()
                .await
        };
        timeout(PATIENCE, response)
            .await
            .expect("an answer must arrive in time")
    }

    /// Opens a watch.
    pub(crate) async fn watch(&self, path: &str) -> Stream {
        timeout(PATIENCE, self.open("GET", path, &[], ""))
            .await
            .expect("an answer must arrive in time")
            .unwrap()
    }

    /// Sends a request and reads the head of the response.
    pub(crate) async fn open(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Result<Stream, Box<dyn Error>> {
        let tcp = TcpStream::connect(self.address).await?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(tcp)).await?;
        let mut task = JoinSet::new();
        task.spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("Host", "test");
        let request = headers.iter().fold(request, |request, (name, value)| {
            request.header(*name, *value)
        });
        let body = Full::new(Bytes::copy_from_slice(body.as_bytes()));
        let (head, body) = sender.send_request(request.body(body)?).await?.into_parts();
        let (code, headers) = (head.status.as_u16(), head.headers);
        Ok(Stream {
            code,
            headers,
            body,
            received: Vec::new(),
            _connection: task,
        })
    }
}

impl Response {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

impl Stream {
    /// The next event; `None` at the end of a complete response.
    pub(crate) async fn event(&mut self) -> Option<Value> {
        let line = self
            .line()
            .await
            .expect("an event, or the end of a complete response, must arrive in time");
        line.map(|line| {
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
        })
    }

    /// The next line; `None` at the end. Returns an error if the connection closes early or the
    /// timeout expires.
    pub(crate) async fn line(&mut self) -> Result<Option<String>, Box<dyn Error>> {
        timeout(PATIENCE, self.read_line()).await?
    }

    async fn read_line(&mut self) -> Result<Option<String>, Box<dyn Error>> {
        loop {
            if let Some(end) = self.received.iter().position(|octet| *octet == b'\n') {
                let rest = self.received.split_off(end + 1);
                let line = std::mem::replace(&mut self.received, rest);
                return Ok(Some(String::from_utf8(line)?.trim_end().to_owned()));
            }
            if !self.receive().await? {
                return Ok(None);
            }
        }
    }

    /// Receives the next piece of the body. Returns `false` at the end of the body.
    async fn receive(&mut self) -> Result<bool, hyper::Error> {
        let Some(frame) = self.body.frame().await else {
            return Ok(false);
        };
        self.received
            .extend(frame?.data_ref().into_iter().flatten());
        Ok(true)
    }

    /// The complete response.
    async fn finish(mut self) -> Response {
        while self.receive().await.unwrap() {}
        Response {
            code: self.code,
            headers: self.headers,
            body: String::from_utf8(self.received).unwrap(),
        }
    }
}
