//! A real etcd on loopback, with one member.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::ports::free_port;
use crate::process::{Process, Program};

/// Timeout of a start and of a request. It is long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running etcd with its own data. etcd is killed when this value is dropped.
#[derive(Debug)]
pub struct Etcd {
    /// The address for clients.
    pub address: SocketAddr,
    program: PathBuf,
    data: tempfile::TempDir,
    arguments: Vec<String>,
    token: Option<String>,
    process: Option<Process>,
}

/// The path of etcd. If no directory of `PATH` has etcd, prints a line with `untested` on standard
/// error. `untested` describes what the skipped test checks.
#[allow(
    clippy::print_stderr,
    reason = "a skipped test must not look like a passed one"
)]
pub fn installed(untested: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .map(|folder| folder.join("etcd"))
        .find(|file| file.is_file());
    if found.is_none() {
        eprintln!("SKIPPED: etcd (package etcd-server) is not installed. NOT tested: {untested}");
    }
    found
}

impl Etcd {
    /// Starts etcd and waits until etcd answers; `None` if etcd is not installed.
    pub async fn start(untested: &str) -> Option<Self> {
        Self::with(untested, &[]).await
    }

    /// Does the same as [`start`](Self::start), with further arguments for etcd.
    pub async fn with(untested: &str, arguments: &[&str]) -> Option<Self> {
        let program = installed(untested)?;
        let mut etcd = Self {
            address: (Ipv4Addr::LOCALHOST, free_port()).into(),
            program,
            data: tempfile::tempdir().expect("a temporary directory must be made"),
            arguments: arguments.iter().map(ToString::to_string).collect(),
            token: None,
            process: None,
        };
        etcd.begin().await;
        Some(etcd)
    }

    /// The URL for clients without TLS.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Starts etcd and waits until etcd answers. After [`Etcd::stop`], the data are the same,
    /// unless [`Etcd::forget`] has deleted them.
    pub async fn begin(&mut self) {
        let peer = format!("http://127.0.0.1:{}", free_port());
        let (url, data) = (self.url(), self.data.path().join("data"));
        let program = Program::tied(&self.program).args([
            "--name=test",
            "--unsafe-no-fsync",
            "--log-level=error",
            &format!("--data-dir={}", data.display()),
            &format!("--listen-client-urls={url}"),
            &format!("--advertise-client-urls={url}"),
            &format!("--listen-peer-urls={peer}"),
            &format!("--initial-advertise-peer-urls={peer}"),
            &format!("--initial-cluster=test={peer}"),
        ]);
        let mut process = program.args(&self.arguments).start();
        let etcd = &*self;
        process
            .until("answered", PATIENCE, || {
                etcd.try_call("/v3/maintenance/status", json!({}))
            })
            .await;
        self.process = Some(process);
    }

    /// Kills etcd, and keeps the data.
    pub fn stop(&mut self) {
        self.process = None;
    }

    /// Deletes the data. etcd must be stopped first.
    pub fn forget(&mut self) {
        std::fs::remove_dir_all(self.data.path().join("data")).expect("the data must be deleted");
    }

    /// Sets a key.
    pub async fn put(&self, key: &str, value: &str) {
        self.put_and_read_response(key, value).await;
    }

    /// Sets a key with a lease, which must exist.
    pub async fn put_with_lease(&self, key: &str, value: &str, lease: &str) {
        let request = json!({ "key": encoded(key), "value": encoded(value), "lease": lease });
        self.call("/v3/kv/put", request).await;
    }

    async fn put_and_read_response(&self, key: &str, value: &str) -> Value {
        let request = json!({ "key": encoded(key), "value": encoded(value) });
        self.call("/v3/kv/put", request).await
    }

    /// A [transaction](Self::transaction) operation that sets a key.
    pub fn put_in_transaction(&self, key: &str, value: &str) -> Value {
        json!({ "request_put": { "key": encoded(key), "value": encoded(value) } })
    }

    /// Runs all operations in one transaction. By default, etcd accepts at most 128 operations.
    pub async fn transaction(&self, operations: Vec<Value>) {
        self.call("/v3/kv/txn", json!({ "success": operations }))
            .await;
    }

    /// Deletes a key.
    pub async fn delete(&self, key: &str) {
        self.call("/v3/kv/deleterange", json!({ "key": encoded(key) }))
            .await;
    }

    /// Compacts the history, so that no watch can resume from an earlier revision. First writes the
    /// key `compactions`, because etcd refuses to compact the same revision twice. The key is not
    /// below `/skydns`, so it is in no DNS zone.
    pub async fn compact(&self) {
        let written = self.put_and_read_response("compactions", "").await;
        let revision = written
            .pointer("/header/revision")
            .cloned()
            .unwrap_or_default();
        self.call(
            "/v3/kv/compaction",
            json!({ "revision": revision, "physical": true }),
        )
        .await;
    }

    /// Enables authentication. The user `root` has the password `root`. The user `user` may read
    /// the keys that start with `prefix`, which must end with a slash.
    pub async fn ask_for_users(&mut self, user: &str, password: &str, prefix: &str) {
        let end = format!("{}0", prefix.trim_end_matches('/'));
        let permission =
            json!({ "permType": "READ", "key": encoded(prefix), "range_end": encoded(&end) });
        for (path, request) in [
            ("user/add", json!({ "name": "root", "password": "root" })),
            ("role/add", json!({ "name": "root" })),
            ("user/grant", json!({ "user": "root", "role": "root" })),
            ("user/add", json!({ "name": user, "password": password })),
            ("role/add", json!({ "name": "reader" })),
            (
                "role/grant",
                json!({ "name": "reader", "perm": permission }),
            ),
            ("user/grant", json!({ "user": user, "role": "reader" })),
            ("enable", json!({})),
        ] {
            self.call(&format!("/v3/auth/{path}"), request).await;
        }
        let response = self
            .call(
                "/v3/auth/authenticate",
                json!({ "name": "root", "password": "root" }),
            )
            .await;
        self.token = response
            .get("token")
            .and_then(Value::as_str)
            .map(str::to_owned);
    }

    /// Posts a request to the JSON gateway. Panics if the request fails.
    pub async fn call(&self, path: &str, request: Value) -> Value {
        let called = self.try_call(path, request).await;
        called.unwrap_or_else(|error| panic!("etcd {path}: {error}"))
    }

    async fn try_call(&self, path: &str, request: Value) -> std::io::Result<Value> {
        let (body, address) = (request.to_string(), self.address);
        let token = self
            .token
            .as_ref()
            .map(|token| format!("Authorization: {token}\r\n"))
            .unwrap_or_default();
        let exchange = async move {
            let mut stream = TcpStream::connect(address).await?;
            let head = format!(
                "POST {path} HTTP/1.0\r\nHost: test\r\n{token}Content-Length: {}\r\n\r\n",
                body.len()
            );
            stream.write_all(format!("{head}{body}").as_bytes()).await?;
            let mut text = String::new();
            stream.read_to_string(&mut text).await?;
            Ok::<_, std::io::Error>(text)
        };
        let text = timeout(PATIENCE, exchange).await??;
        let body = text
            .split_once("\r\n\r\n")
            .map(|(_, body)| body)
            .filter(|_| text.contains(" 200 OK\r\n"));
        let body = body.ok_or_else(|| std::io::Error::other(text.clone()))?;
        Ok(serde_json::from_str(body)?)
    }
}

fn encoded(text: &str) -> String {
    BASE64_STANDARD.encode(text)
}
