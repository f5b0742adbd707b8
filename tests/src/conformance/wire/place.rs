//! What stands around the server in a scenario: the resolver behind it, dead addresses, files; and the placeholders
//! that the vectors use for them.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use anyhow::Context as _;
use tempfile::TempDir;
use testkit::ports::free_port;
use testkit::reply::Reply;
use testkit::upstream::{self, Asked, Reaction, Replay, Upstream};
use tokio::net::TcpListener;

use crate::conformance::memory::{Memory, Recalled, has_opt};
use crate::conformance::vector::Files;

/// The surroundings of one scenario; dropping them takes everything down.
pub(crate) struct Place {
    /// Plays the recorded exchanges.
    pub(crate) replay: Replay,
    directory: TempDir,
    values: Vec<(&'static str, String)>,
    generation: u32,
    upstreams: Vec<Upstream>,
    _blackhole: (UdpSocket, TcpListener),
}

impl Place {
    /// Sets everything up except the API server, whose URL is `api_server`.
    pub(crate) async fn new(memory: &Arc<Memory>, api_server: &str) -> anyhow::Result<Self> {
        let memory = Arc::clone(memory);
        let replay = Replay::new(move |asked| react(&memory, asked));
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
    pub(crate) async fn listen_on_port_53(&mut self) -> anyhow::Result<()> {
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
    pub(crate) fn fill(&self, text: &str) -> String {
        self.values
            .iter()
            .fold(text.to_owned(), |text, (placeholder, value)| text.replace(placeholder, value))
    }

    /// Writes `resolv.conf` and returns its path.
    pub(crate) fn write_resolv_conf(&self, content: &str) -> anyhow::Result<PathBuf> {
        let path = self.directory.path().join("resolv.conf");
        std::fs::write(&path, self.fill(content))?;
        Ok(path)
    }

    /// Replaces the configuration directory's content at once, as the kubelet does for a mounted ConfigMap: the files
    /// are links through `..data`, which is swapped for a link to a directory with the new ones.
    pub(crate) fn write_config_dir(&mut self, files: &Files) -> anyhow::Result<()> {
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

/// What the resolver does about a question that the vector at hand does not expect.
fn react(memory: &Memory, asked: &Asked) -> Reaction {
    let question = asked.question.as_ref().map(ToString::to_string).unwrap_or_default();
    match memory.recall(&question, asked.transport, has_opt(&asked.packet)) {
        Recalled::Exchange(exchange) => upstream::repeat(exchange, &asked.packet),
        // The whole answer is not known: a resolver that does not serve TCP.
        Recalled::OnlyTruncated => Reaction::close(),
        Recalled::Unknown(rcode) => Reply::to(&asked.packet).rcode(rcode).into(),
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

/// A kubeconfig for an API server at this URL.
pub fn kubeconfig_text(server: &str) -> String {
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
