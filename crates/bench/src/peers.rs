//! The DNS servers that are measured: kubedns, and the servers that it is compared with.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Error};
use testkit::client;
use testkit::ports::free_port;
use testkit::process::{Process, Program};
use testkit::processes::{Pid, cpu_time, descendants};
use testkit::query::Query;

use crate::cluster::DOMAIN;
use crate::questions::Kind;
use crate::setup::say;
use crate::zone::{Server, ZoneFile};

/// The environment variable that names further servers.
pub const VARIABLE: &str = "BENCH_PEERS";
/// Timeout of the first answer of a server that the benchmark starts.
const PATIENCE: Duration = Duration::from_mins(1);
const ANSWER: Duration = Duration::from_millis(50);

/// A server to be measured.
#[derive(Debug)]
pub struct Peer {
    /// Name of the server in the results.
    pub name: String,
    /// The address that the server listens on.
    pub address: SocketAddr,
    /// The process ID.
    pub pid: Pid,
    /// Whether the server sends real answers. An echo server does not.
    pub answers: bool,
    /// The kinds of queries to send to the server.
    pub kinds: Vec<Kind>,
    /// The process, which is killed when the peer is dropped. `None` for a server that was already
    /// running.
    _process: Option<Process>,
}

impl Peer {
    /// A server that is already running.
    pub fn running(name: &str, address: SocketAddr, pid: Pid) -> Self {
        let kinds = Kind::ALL.to_vec();
        Self {
            name: name.to_owned(),
            address,
            pid,
            answers: true,
            kinds,
            _process: None,
        }
    }

    /// An echo server with a thread for each of `sockets` sockets.
    pub async fn echo(name: &str, sockets: usize, batched: bool) -> anyhow::Result<Self> {
        let mut args = vec!["echo".to_owned(), format!("--sockets={sockets}")];
        args.extend(batched.then(|| "--batched".to_owned()));
        Ok(Self {
            answers: false,
            ..Self::start(name, args).await?
        })
    }

    /// hickory-server with the addresses of a cluster that has `services` Services.
    pub async fn hickory(services: u32) -> anyhow::Result<Self> {
        let args = vec!["hickory".to_owned(), format!("--services={services}")];
        let kinds = vec![Kind::A, Kind::HeadlessA, Kind::Nxdomain, Kind::Nodata];
        Ok(Self {
            kinds,
            ..Self::start("hickory-server", args).await?
        })
    }

    /// A name server that answers from a zone file. `threads` is the number of its UDP threads
    /// (Knot DNS) or server processes (NSD). Returns `None` if this server is not installed.
    pub(crate) async fn of_zone(
        server: Server,
        directory: &Path,
        zone: &ZoneFile,
        threads: usize,
    ) -> anyhow::Result<Option<Self>> {
        let Some(program) = server.program() else {
            say(&format!(
                "{} is not used, because it is not installed",
                server.name()
            ));
            return Ok(None);
        };
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let args = server.configure(directory, zone, address, threads)?;
        Self::answering(
            server.name(),
            address,
            &zone.origin,
            Program::tied(&program).args(args).start(),
        )
        .await
        .map(Some)
    }

    async fn start(name: &str, args: Vec<String>) -> anyhow::Result<Self> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let program = Program::tied(&std::env::current_exe()?).args(args);
        Self::answering(
            name,
            address,
            &format!("{DOMAIN}."),
            program.args([format!("--listen={address}")]).start(),
        )
        .await
    }

    /// Waits until the server of `process` answers an SOA query for the name `first`.
    pub(crate) async fn answering(
        name: &str,
        address: SocketAddr,
        first: &str,
        mut process: Process,
    ) -> anyhow::Result<Self> {
        let query = Query::new(first, "SOA").wire();
        let answer = || client::udp(address, &query, ANSWER);
        process
            .try_until("answered", PATIENCE, answer)
            .await
            .map_err(Error::msg)?;
        let peer = Self::running(name, address, process.id());
        Ok(Self {
            _process: Some(process),
            ..peer
        })
    }

    /// CPU time of the process and its descendants so far.
    pub fn cpu(&self) -> anyhow::Result<Duration> {
        let own = cpu_time(self.pid)
            .with_context(|| format!("the process {} of {} is not running", self.pid, self.name))?;
        Ok(own
            + descendants(self.pid)
                .into_iter()
                .skip(1)
                .filter_map(cpu_time)
                .sum::<Duration>())
    }
}

/// The servers in the value of `BENCH_PEERS`, each as `name=IP:port:pid`, separated by commas.
pub fn named(variable: &str) -> anyhow::Result<Vec<Peer>> {
    let parts = variable
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty());
    parts
        .map(|part| {
            let (name, address, pid) = split(part)
                .with_context(|| format!("{VARIABLE}: {part:?} is not name=IP:port:pid"))?;
            let peer = Peer::running(name, address, pid);
            peer.cpu()?;
            Ok(peer)
        })
        .collect()
}

fn split(part: &str) -> Option<(&str, SocketAddr, Pid)> {
    let (name, rest) = part.split_once('=')?;
    let (address, process) = rest.rsplit_once(':')?;
    Some((name, address.parse().ok()?, process.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_peers_are_parsed_and_others_rejected() {
        assert_eq!(
            split("a=127.0.0.1:53:7"),
            Some(("a", SocketAddr::from(([127, 0, 0, 1], 53)), 7))
        );
        let is_v6 = split("b=[::1]:53:7").map(|(_, address, _)| address.is_ipv6());
        assert_eq!(is_v6, Some(true));
        for odd in ["a", "a=127.0.0.1:53", "a=53:7", "a=127.0.0.1:53:x"] {
            assert_eq!(split(odd), None, "{odd}");
        }
        let us = format!(
            "a=127.0.0.1:53:{0}, b=127.0.0.1:54:{0},",
            std::process::id()
        );
        assert_eq!(named(&us).unwrap().len(), 2);
        assert!(named("a").is_err());
    }
}
