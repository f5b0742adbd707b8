//! The server under test: our binary, or any other with the flags of kube-dns.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use testkit::http::get;
use testkit::ports::free_port;
use testkit::process::{self, Process, Program};
use testkit::query::Query;
use testkit::{Settled, client};

const START: Duration = Duration::from_secs(30);

/// The flag that makes our binary read `EndpointSlices`.
pub const READ_SLICES: &str = "--endpoints-source=endpointslices";

/// The server under test.
#[derive(Clone, Debug)]
pub enum Target {
    /// Our `kubedns`, with further flags.
    Ours(Vec<String>),
    /// Another binary with the flags of kube-dns.
    Foreign(PathBuf),
}

impl Target {
    /// Returns whether the server is our `kubedns`, with flags and guarantees that kube-dns does
    /// not have.
    pub fn is_ours(&self) -> bool {
        matches!(self, Self::Ours(_))
    }

    /// Returns whether the server gets the flag [`READ_SLICES`].
    pub(crate) fn reads_slices(&self) -> bool {
        matches!(self, Self::Ours(flags) if flags.iter().any(|flag| flag == READ_SLICES))
    }

    fn program(&self) -> Program {
        match self {
            Self::Ours(flags) => Program::at(&process::binary("kubedns")).args(flags),
            Self::Foreign(path) => Program::at(path),
        }
    }
}

/// A running server.
pub(crate) struct Server {
    /// The process of the server.
    pub(crate) process: Process,
    flags: Vec<String>,
    env: Vec<(&'static str, String)>,
    /// The address of the DNS port.
    pub(crate) dns: SocketAddr,
    /// The address of the HTTP port, which serves `/readiness`.
    pub(crate) http: SocketAddr,
}

impl Server {
    /// Starts a server on free ports with these flags and environment variables.
    pub(crate) fn start(
        target: &Target,
        mut flags: Vec<String>,
        env: Vec<(&'static str, String)>,
    ) -> Self {
        let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let (dns, http) = (at(free_port()), at(free_port()));
        flags.extend([
            format!("--dns-bind-address={}", dns.ip()),
            format!("--dns-port={}", dns.port()),
            format!("--healthz-port={}", http.port()),
        ]);
        let process = Self::spawn(target, &flags, &env);
        Self {
            process,
            flags,
            env,
            dns,
            http,
        }
    }

    fn spawn(target: &Target, flags: &[String], env: &[(&'static str, String)]) -> Process {
        let program = target.program().args(flags);
        env.iter()
            .fold(program, |program, (name, value)| program.env(name, value))
            .start()
    }

    /// Starts the server again if its process has ended. Returns whether the process had ended.
    pub(crate) fn revive(&mut self, target: &Target) -> bool {
        let ended = self.process.exited().is_some();
        if ended {
            self.process = Self::spawn(target, &self.flags, &self.env);
        }
        ended
    }

    /// Waits until `/readiness` returns 200.
    pub(crate) async fn ready(&mut self) -> anyhow::Result<()> {
        let http = self.http;
        self.until("was ready", START, async || {
            get(http, "/readiness")
                .await
                .is_ok_and(|page| page.status == 200)
        })
        .await
    }

    /// Waits until the server answers a DNS query, with any RCODE.
    pub(crate) async fn answers(&mut self) -> anyhow::Result<()> {
        let (dns, question) = (self.dns, Query::new("cluster.local.", "SOA").wire());
        let answer = || client::udp(dns, &question, Duration::from_millis(200));
        self.until("answered", START, answer).await
    }

    /// Waits until `probe` succeeds. Returns an error with the log of the server if the process
    /// ends, or after `patience`.
    pub(crate) async fn until<F: Future<Output: Settled>>(
        &mut self,
        what: &str,
        patience: Duration,
        probe: impl FnMut() -> F,
    ) -> anyhow::Result<()> {
        self.process
            .try_until(what, patience, probe)
            .await
            .map_err(anyhow::Error::msg)?;
        Ok(())
    }
}
