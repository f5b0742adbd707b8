//! The servers that kubedns is measured beside.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use testkit::client;
use testkit::query::Query;

use crate::process::{Process, free_address};
use crate::questions::Kind;
use crate::usage::Usage;

/// Where further servers are named.
pub const VARIABLE: &str = "BENCH_PEERS";
/// How long one of ours may take to start.
const PATIENCE: Duration = Duration::from_mins(1);
const ANSWER: Duration = Duration::from_millis(50);

/// A server that can be asked.
#[derive(Debug)]
pub struct Peer {
    /// What it is called in the results.
    pub name: String,
    /// Where it answers.
    pub address: SocketAddr,
    /// What it uses.
    pub usage: Usage,
    /// Whether its answers are answers; those of an echo are not.
    pub answers: bool,
    /// What it can be asked.
    pub kinds: Vec<Kind>,
    /// The process, if it is ours.
    _process: Option<Process>,
}

impl Peer {
    /// A server that runs already.
    pub fn running(name: &str, address: SocketAddr, usage: Usage) -> Self {
        let kinds = Kind::ALL.to_vec();
        Self { name: name.to_owned(), address, usage, answers: true, kinds, _process: None }
    }

    /// An echo with a thread for each of `sockets` sockets.
    pub async fn echo(name: &str, sockets: usize, batched: bool, directory: &Path) -> anyhow::Result<Self> {
        let mut args = vec!["echo".to_owned(), format!("--sockets={sockets}")];
        args.extend(batched.then(|| "--batched".to_owned()));
        let peer = Self::start(name, args, directory).await?;
        Ok(Self { answers: false, ..peer })
    }

    /// hickory-server with the addresses of the cluster that `services` and `seed` generate.
    pub async fn hickory(services: u32, seed: u64, directory: &Path) -> anyhow::Result<Self> {
        let args = vec!["hickory".to_owned(), format!("--services={services}"), format!("--seed={seed}")];
        let peer = Self::start("hickory-server", args, directory).await?;
        let kinds = vec![Kind::A, Kind::HeadlessA, Kind::Nxdomain, Kind::Nodata];
        Ok(Self { kinds, ..peer })
    }

    async fn start(name: &str, mut args: Vec<String>, directory: &Path) -> anyhow::Result<Self> {
        let address = free_address(Ipv4Addr::LOCALHOST.into())?;
        args.push(format!("--listen={address}"));
        let mut process = Process::start(name, &std::env::current_exe()?, args, directory)?;
        let begun = Instant::now();
        let query = Query::new("cluster.local.", "SOA").wire();
        while client::udp(address, &query, ANSWER).await.is_err() {
            process.check()?;
            if begun.elapsed() > PATIENCE {
                bail!("{name} does not answer within {PATIENCE:?}");
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let usage = process.usage().clone();
        Ok(Self { _process: Some(process), ..Self::running(name, address, usage) })
    }
}

/// The servers named by `BENCH_PEERS`: `name=address:pid`, separated by commas.
pub fn named(variable: &str) -> anyhow::Result<Vec<Peer>> {
    let parts = variable.split(',').map(str::trim).filter(|part| !part.is_empty());
    parts
        .map(|part| {
            let (name, address, process) =
                split(part).with_context(|| format!("{VARIABLE}: {part:?} is not name=address:pid"))?;
            Ok(Peer::running(name, address, Usage::of(process)?))
        })
        .collect()
}

fn split(part: &str) -> Option<(&str, SocketAddr, u32)> {
    let (name, rest) = part.split_once('=')?;
    let (address, process) = rest.rsplit_once(':')?;
    Some((name, address.parse().ok()?, process.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_by_name() {
        assert_eq!(split("a=127.0.0.1:53:7"), Some(("a", SocketAddr::from(([127, 0, 0, 1], 53)), 7)));
        assert_eq!(split("b=[::1]:53:7").map(|(_, address, _)| address.is_ipv6()), Some(true));
        for odd in ["a", "a=127.0.0.1:53", "a=53:7", "a=127.0.0.1:53:x"] {
            assert_eq!(split(odd), None, "{odd}");
        }
        let us = format!("a=127.0.0.1:53:{0}, b=127.0.0.1:54:{0},", std::process::id());
        assert_eq!(named(&us).unwrap().len(), 2);
        assert!(named("a").is_err());
    }
}
