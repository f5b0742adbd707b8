//! What stands around the server in a scenario: the resolver behind it, dead addresses, files; and the placeholders
//! that the vectors use for them.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use anyhow::Context as _;
use tempfile::TempDir;
use testkit::ports::free_port;
use testkit::reply::Reply;
use testkit::upstream::{self, Asked, Exchange, Reaction, Replay, Upstream};
use tokio::net::TcpListener;

use crate::conformance::vector::{Files, Scenario};

/// Everything the recorded resolver ever said, for questions that a scenario does not expect.
#[derive(Debug)]
pub(super) struct Memory {
    exchanges: HashMap<(upstream::Transport, String), Exchange>,
}

/// Domains for which the recorded resolver had data; names it does not know there do not exist.
const KNOWN: [&str; 7] =
    ["outside.test.", "example.com.", "example.net.", "example.org.", "fed.example.", "arpa.", "quirk.test."];

impl Memory {
    pub(super) fn of(scenarios: &[Scenario]) -> anyhow::Result<Self> {
        let cases = scenarios.iter().flat_map(|scenario| &scenario.steps).flat_map(|step| &step.queries);
        let mut exchanges = HashMap::new();
        for exchange in cases.flat_map(|case| &case.upstream) {
            let exchange = exchange.to_replay()?;
            let key = (exchange.transport, exchange.question.to_lowercase());
            exchanges.entry(key).or_insert(exchange);
        }
        Ok(Self { exchanges })
    }

    fn react(&self, asked: &Asked) -> Reaction {
        let question = asked.question.as_ref().map(ToString::to_string).unwrap_or_default().to_lowercase();
        let recorded = |transport| self.exchanges.get(&(transport, question.clone()));
        if let Some(exchange) = recorded(asked.transport) {
            return upstream::repeat(exchange, &asked.packet);
        }
        match recorded(upstream::Transport::Udp) {
            // The whole answer is not known: a resolver that does not serve TCP.
            Some(exchange) if exchange.is_truncated() => Reaction::close(),
            Some(exchange) => upstream::repeat(exchange, &asked.packet),
            None => Reply::to(&asked.packet).rcode(rcode_of_unknown(&asked.name())).into(),
        }
    }
}

fn rcode_of_unknown(name: &str) -> &'static str {
    let name = name.to_lowercase();
    let known = KNOWN.iter().any(|domain| name == *domain || name.ends_with(&format!(".{domain}")));
    if known { "NXDOMAIN" } else { "REFUSED" }
}

/// The surroundings of one scenario; dropping them takes everything down.
pub(super) struct Place {
    /// Plays the recorded exchanges.
    pub(super) replay: Replay,
    directory: TempDir,
    values: Vec<(&'static str, String)>,
    generation: u32,
    upstreams: Vec<Upstream>,
    _blackhole: (UdpSocket, TcpListener),
}

impl Place {
    /// Sets everything up except the API server, whose URL is `api_server`.
    pub(super) async fn new(memory: &Arc<Memory>, api_server: &str) -> anyhow::Result<Self> {
        let memory = Arc::clone(memory);
        let replay = Replay::new(move |asked| memory.react(asked));
        let upstream = Upstream::start(replay.handler()).await;
        let directory = tempfile::tempdir().context("a directory for the scenario")?;
        let kubeconfig = directory.path().join("kubeconfig");
        std::fs::write(&kubeconfig, kubeconfig_text(api_server))?;
        let blackhole = blackhole().await?;
        let values = vec![
            ("$KUBECONFIG", kubeconfig.display().to_string()),
            ("$UPSTREAM", upstream.addr().to_string()),
            ("$DEAD", format!("127.0.0.1:{}", free_port())),
            ("$BLACKHOLE", blackhole.1.local_addr()?.to_string()),
            ("$CONFIG_DIR", directory.path().join("config").display().to_string()),
        ];
        Ok(Self {
            replay,
            directory,
            values,
            generation: 0,
            upstreams: vec![upstream],
            _blackhole: blackhole,
        })
    }

    /// Makes the resolver listen on port 53 of an address of its own too, which takes a privilege.
    pub(super) async fn listen_on_port_53(&mut self) -> anyhow::Result<()> {
        static NEXT: AtomicU8 = AtomicU8::new(1);
        let ip =
            Ipv4Addr::new(127, 53, std::process::id().to_be_bytes()[3], NEXT.fetch_add(1, Ordering::Relaxed));
        let address = SocketAddr::from((ip, 53));
        drop(UdpSocket::bind(address).with_context(|| format!("cannot listen on {address}"))?);
        self.upstreams.push(Upstream::start_on(address, self.replay.handler()).await);
        self.values.push(("$RESOLV_IP", ip.to_string()));
        Ok(())
    }

    /// The text with all placeholders filled in.
    pub(super) fn fill(&self, text: &str) -> String {
        self.values
            .iter()
            .fold(text.to_owned(), |text, (placeholder, value)| text.replace(placeholder, value))
    }

    /// Writes `resolv.conf` and returns its path.
    pub(super) fn write_resolv_conf(&self, content: &str) -> anyhow::Result<PathBuf> {
        let path = self.directory.path().join("resolv.conf");
        std::fs::write(&path, self.fill(content))?;
        Ok(path)
    }

    /// Replaces the configuration directory's content at once, as the kubelet does for a mounted ConfigMap: the files
    /// are links through `..data`, which is swapped for a link to a directory with the new ones.
    pub(super) fn write_config_dir(&mut self, files: &Files) -> anyhow::Result<()> {
        let mount = self.directory.path().join("config");
        std::fs::create_dir_all(&mount)?;
        self.generation += 1;
        let name = format!("..generation-{}", self.generation);
        std::fs::create_dir(mount.join(&name))?;
        for (file, content) in files {
            std::fs::write(mount.join(&name).join(file), self.fill(content))?;
        }
        symlink(&name, mount.join("..data_tmp"))?;
        std::fs::rename(mount.join("..data_tmp"), mount.join("..data"))?;
        link_files(&mount, files)
    }
}

fn link_files(mount: &Path, files: &Files) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(mount)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with("..") && !files.contains_key(&name) {
            std::fs::remove_file(entry.path())?;
        }
    }
    for file in files.keys().filter(|file| mount.join(file).symlink_metadata().is_err()) {
        symlink(Path::new("..data").join(file), mount.join(file))?;
    }
    Ok(())
}

/// A port that takes packets and connections and never answers.
async fn blackhole() -> anyhow::Result<(UdpSocket, TcpListener)> {
    let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, free_port())).await?;
    let udp = UdpSocket::bind(tcp.local_addr()?)?;
    Ok((udp, tcp))
}

fn kubeconfig_text(server: &str) -> String {
    serde_json::json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": {"server": server}}],
        "users": [{"name": "test", "user": {}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "current-context": "test",
    })
    .to_string()
}
