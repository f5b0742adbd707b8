//! The environment of the server in a scenario: the resolver, silent and closed ports, and files.
//! A scenario has placeholders for their addresses and paths.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use anyhow::Context as _;
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::config_map::replace;
use testkit::objects::mk_kubeconfig;
use testkit::ports::free_port;
use testkit::reply::Reply;
use testkit::upstream::{self, Asked, Reaction, Replay, Upstream};

use crate::conformance::memory::{Memory, Recalled, has_opt};
use crate::conformance::vector::Files;

/// The environment of one scenario. Dropping the environment stops its servers and removes its
/// files.
pub(crate) struct Place {
    /// The handler of the resolver, which replays recorded exchanges.
    pub(crate) replay: Replay,
    directory: TempDir,
    values: Vec<(&'static str, String)>,
    upstreams: Vec<Upstream>,
}

impl Place {
    /// Starts the resolver and writes a kubeconfig for the API server at the URL `api_server`.
    pub(crate) async fn new(memory: &Arc<Memory>, api_server: &str) -> anyhow::Result<Self> {
        let memory = Arc::clone(memory);
        let replay = Replay::new(move |asked| react(&memory, asked));
        let upstream = Upstream::start(replay.handler()).await;
        let directory = tempfile::tempdir().context("cannot make a directory for the scenario")?;
        let kubeconfig = write_kubeconfig(directory.path(), api_server, &json!({}))?;
        let blackhole = Upstream::start(|_: &Asked| Reaction::silence()).await;
        let values = vec![
            ("$KUBECONFIG", kubeconfig.display().to_string()),
            ("$UPSTREAM", upstream.addr().to_string()),
            ("$DEAD", format!("127.0.0.1:{}", free_port())),
            ("$BLACKHOLE", blackhole.addr().to_string()),
            (
                "$CONFIG_DIR",
                directory.path().join("config").display().to_string(),
            ),
        ];
        let upstreams = vec![upstream, blackhole];
        Ok(Self {
            replay,
            directory,
            values,
            upstreams,
        })
    }

    /// Makes the resolver also listen on port 53 of another address. A port below 1024 needs a
    /// privilege.
    pub(crate) async fn listen_on_port_53(&mut self) -> anyhow::Result<()> {
        static NEXT: AtomicU8 = AtomicU8::new(1);
        let ip = Ipv4Addr::new(
            127,
            53,
            std::process::id().to_be_bytes()[3],
            NEXT.fetch_add(1, Ordering::Relaxed),
        );
        let address = SocketAddr::from((ip, 53));
        drop(UdpSocket::bind(address).with_context(|| format!("cannot listen on {address}"))?);
        self.upstreams
            .push(Upstream::start_on(address, self.replay.handler()).await);
        self.values.push(("$RESOLV_IP", ip.to_string()));
        Ok(())
    }

    /// The text with all placeholders replaced.
    pub(crate) fn fill(&self, text: &str) -> String {
        self.values
            .iter()
            .fold(text.to_owned(), |text, (placeholder, value)| {
                text.replace(placeholder, value)
            })
    }

    /// Writes `resolv.conf` and returns its path.
    pub(crate) fn write_resolv_conf(&self, content: &str) -> anyhow::Result<PathBuf> {
        let path = self.directory.path().join("resolv.conf");
        std::fs::write(&path, self.fill(content))?;
        Ok(path)
    }

    /// Replaces the files of the configuration directory atomically, as the kubelet does for a
    /// mounted ConfigMap.
    pub(crate) fn write_config_dir(&self, files: &Files) -> anyhow::Result<()> {
        let files: Vec<(&String, String)> = files
            .iter()
            .map(|(file, text)| (file, self.fill(text)))
            .collect();
        Ok(replace(&self.directory.path().join("config"), &files)?)
    }
}

/// The resolver's reaction to a query that the replayed recording does not contain. If another
/// recording contains the query, the resolver repeats the recorded reply.
fn react(memory: &Memory, asked: &Asked) -> Reaction {
    let question = asked
        .question
        .as_ref()
        .map(ToString::to_string)
        .unwrap_or_default();
    match memory.recall(&question, asked.transport, has_opt(&asked.packet)) {
        Recalled::Exchange(exchange) => upstream::repeat(exchange, &asked.packet),
        // No recording has the whole answer, so the resolver closes the connection.
        Recalled::OnlyTruncated => Reaction::close(),
        Recalled::Unknown(rcode) => Reply::to(&asked.packet).rcode(rcode).into(),
    }
}

/// Writes a kubeconfig for an API server at this URL; `user` holds the credentials.
pub fn write_kubeconfig(directory: &Path, server: &str, user: &Value) -> std::io::Result<PathBuf> {
    let content = mk_kubeconfig(&json!({"server": server}), user);
    let path = directory.join("kubeconfig");
    std::fs::write(&path, content.to_string())?;
    Ok(path)
}
