//! A tiny HTTP client, and a server to talk to.

use std::net::SocketAddr;
use std::time::Duration;

use apiserver::{ApiServer, Faults, Options, Store};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// The longest a test waits for anything.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A running server.
pub(crate) struct Server {
    pub(crate) store: Store,
    pub(crate) faults: Faults,
    pub(crate) address: SocketAddr,
    stop: CancellationToken,
    task: JoinSet<()>,
}

/// A response read to its end.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) code: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
    /// Whether the connection closed before the body was complete.
    pub(crate) cut: bool,
}

/// A response that is still being sent.
pub(crate) struct Stream {
    reader: BufReader<TcpStream>,
    pub(crate) code: u16,
    pub(crate) headers: Vec<(String, String)>,
    chunk: Vec<u8>,
    text: Vec<u8>,
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::with(Options::default())
    }

    pub(crate) fn with(options: Options) -> Self {
        let server = ApiServer::bind(([127, 0, 0, 1], 0).into(), options).unwrap();
        let (store, faults, address) = (server.store(), server.faults(), server.local_addr());
        let stop = CancellationToken::new();
        let mut task = JoinSet::new();
        task.spawn(server.run(stop.clone()));
        Self { store, faults, address, stop, task }
    }

    pub(crate) async fn get(&self, path: &str) -> Response {
        self.send("GET", path, &[], "").await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Response {
        self.send("POST", path, &[("Content-Type", "application/json")], &body.to_string()).await
    }

    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Response {
        timeout(PATIENCE, async { self.open(method, path, headers, body).await.finish().await })
            .await
            .expect("an answer in time")
    }

    /// Opens a watch.
    pub(crate) async fn watch(&self, path: &str) -> Stream {
        timeout(PATIENCE, self.open("GET", path, &[], "")).await.expect("an answer in time")
    }

    /// Sends a request without reading anything.
    pub(crate) async fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Stream {
        Stream::request(self.address, method, path, headers, body).await
    }

    async fn open(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Stream {
        let mut stream = self.request(method, path, headers, body).await;
        stream.read_head().await;
        stream
    }

    /// Stops it; everything ends within a bounded time.
    pub(crate) async fn stop(mut self) {
        self.stop.cancel();
        timeout(PATIENCE, self.task.join_next()).await.expect("it stops in time");
    }
}

impl Response {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        header(&self.headers, name)
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let items = self.json()["items"].as_array().cloned().unwrap_or_default();
        items.iter().map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    }
}

impl Stream {
    async fn request(
        address: SocketAddr,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Self {
        let mut tcp = TcpStream::connect(address).await.unwrap();
        let fields: Vec<String> =
            headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let (fields, length) = (fields.concat(), body.len());
        let text = format!(
            "{method} {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\nContent-Length: {length}\r\n{fields}\r\n{body}"
        );
        // A server that is down closes the connection while we write; reading tells.
        tcp.write_all(text.as_bytes()).await.ok();
        Self {
            reader: BufReader::new(tcp),
            code: 0,
            headers: Vec::new(),
            chunk: Vec::new(),
            text: Vec::new(),
        }
    }

    /// Reads the status line and the headers. Code 0: nothing came.
    pub(crate) async fn read_head(&mut self) {
        let mut line = String::new();
        self.reader.read_line(&mut line).await.unwrap_or(0);
        self.code = line.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
        loop {
            let mut line = String::new();
            self.reader.read_line(&mut line).await.unwrap_or(0);
            let Some((name, value)) = line.trim().split_once(": ") else { return };
            self.headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
    }

    /// The next event; `None` when the watch ended properly.
    pub(crate) async fn event(&mut self) -> Option<Value> {
        let line = self.line().await.expect("an event in time, or a proper end");
        line.map(|line| serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}")))
    }

    /// The next line; `None` at the end, an error when the connection closed early or nothing came in time.
    pub(crate) async fn line(&mut self) -> std::io::Result<Option<String>> {
        timeout(PATIENCE, self.read_line()).await.unwrap_or(Err(std::io::ErrorKind::TimedOut.into()))
    }

    async fn read_line(&mut self) -> std::io::Result<Option<String>> {
        loop {
            if let Some(end) = self.chunk.iter().position(|octet| *octet == b'\n') {
                let rest = self.chunk.split_off(end + 1);
                let line = std::mem::replace(&mut self.chunk, rest);
                return Ok(Some(String::from_utf8(line).unwrap().trim_end().to_owned()));
            }
            match self.next_chunk().await? {
                Some(chunk) => self.chunk.extend(chunk),
                None => return Ok(None),
            }
        }
    }

    async fn next_chunk(&mut self) -> std::io::Result<Option<Vec<u8>>> {
        let mut size = String::new();
        if self.reader.read_line(&mut size).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let size = usize::from_str_radix(size.trim(), 16).map_err(|_| std::io::ErrorKind::InvalidData)?;
        let mut chunk = vec![0; size + 2];
        self.reader.read_exact(&mut chunk).await?;
        chunk.truncate(size);
        Ok((size > 0).then_some(chunk))
    }

    pub(crate) async fn finish(mut self) -> Response {
        let cut = if let Some(length) = header(&self.headers, "content-length") {
            let length: usize = length.parse().unwrap();
            self.reader.read_to_end(&mut self.text).await.ok();
            self.text.len() < length
        } else {
            loop {
                match self.next_chunk().await {
                    Ok(Some(chunk)) => self.text.extend(chunk),
                    Ok(None) => break false,
                    Err(_) => break true,
                }
            }
        };
        let body = String::from_utf8(self.text).unwrap();
        Response { code: self.code, headers: self.headers, body, cut }
    }
}

fn header<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
}

/// Waits until something holds.
pub(crate) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let wait = timeout(PATIENCE, async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    assert!(wait.await.is_ok(), "never: {what}");
}
