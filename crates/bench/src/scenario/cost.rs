//! Cost of a query, in CPU time of the server's processes.
//!
//! Each round measures every server for a moment, so that other load on the machine affects all
//! servers alike. The CPU time of each server is divided by the CPU time of a UDP echo server in
//! the same round. The report shows the median of these ratios.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;

use crate::api;
use crate::cluster::Cluster;
use crate::distribution::median;
use crate::kubedns::Kubedns;
use crate::load::{Load, order_of_servers};
use crate::peers::{self, Peer};
use crate::questions::Kind;
use crate::report::{Cost, Price};
use crate::setup::{Bench, say};
use crate::zone::{Server, ZoneFile};

/// Name of the echo server that is the baseline.
const ECHO: &str = "echo";
/// kubedns uses one socket per core, up to this number. The echo servers get the same number of
/// sockets, Knot DNS the same number of threads, and NSD the same number of processes.
const MAX_SOCKETS: usize = 4;

/// Microseconds of CPU time per query, by kind and by index of the server; one value per round.
type Samples = BTreeMap<(Kind, usize), Vec<f64>>;

/// Measures kubedns, the echo server with one and with several datagrams for each system call,
/// hickory-server, and the servers of `BENCH_PEERS`. NSD and Knot DNS are measured if they are
/// installed.
pub(super) async fn measure(bench: &Bench, cluster: &Cluster) -> anyhow::Result<Cost> {
    let api = api::start_on_free_port(cluster)?;
    let kubedns = Kubedns::start(bench, &api, cluster, &[]).await?;
    let servers = servers(bench, cluster, &kubedns).await?;
    let mut files = Vec::new();
    for kind in Kind::ALL {
        files.push((kind, kind.file(cluster, bench.directory())?));
    }
    let mut samples = Samples::new();
    for round in 1..=bench.options.rounds {
        say(&format!("cost: round {round} of {}", bench.options.rounds));
        for (kind, file) in &files {
            for at in order_of_servers(servers.len(), round) {
                let Some(server) = servers.get(at).filter(|server| server.kinds.contains(kind))
                else {
                    continue;
                };
                let cost = ask(bench, server, *kind, file).await?;
                samples.entry((*kind, at)).or_default().push(cost);
            }
        }
    }
    summary(&servers, &samples)
}

async fn servers(bench: &Bench, cluster: &Cluster, kubedns: &Kubedns) -> anyhow::Result<Vec<Peer>> {
    let sockets = std::thread::available_parallelism()?.get().min(MAX_SOCKETS);
    let mut servers = vec![
        Peer::running("kubedns", kubedns.address(), kubedns.pid()),
        Peer::echo(ECHO, sockets, false).await?,
        Peer::echo("echo in batches", sockets, true).await?,
        Peer::hickory(bench.options.services).await?,
    ];
    let zone = ZoneFile::of_cluster(cluster)?;
    for server in Server::ALL {
        servers.extend(Peer::of_zone(server, bench.directory(), &zone, sockets).await?);
    }
    servers.extend(peers::named(
        &std::env::var(peers::VARIABLE).unwrap_or_default(),
    )?);
    Ok(servers)
}

/// Microseconds of CPU time per query in one measurement.
async fn ask(bench: &Bench, server: &Peer, kind: Kind, file: &Path) -> anyhow::Result<f64> {
    let options = &bench.options;
    let load = Load {
        outstanding: options.outstanding,
        span: options.span(),
        rate: None,
    };
    let rcode = server.answers.then(|| kind.rcode());
    let measured = load.measure(server, file, rcode).await?;
    Ok(measured.microseconds)
}

fn summary(servers: &[Peer], samples: &Samples) -> anyhow::Result<Cost> {
    let echo = servers
        .iter()
        .position(|server| server.name == ECHO)
        .context("there is no echo server")?;
    let mut prices = Vec::new();
    for (&(kind, at), costs) in samples {
        let floor = samples
            .get(&(kind, echo))
            .context("the echo server was not measured")?;
        let ratios = costs
            .iter()
            .zip(floor)
            .map(|(cost, floor)| cost / floor)
            .collect();
        prices.push(Price {
            server: servers
                .get(at)
                .map(|server| server.name.clone())
                .unwrap_or_default(),
            kind,
            microseconds: median(costs.clone()).context("no round was measured")?,
            ratio: median(ratios).context("no round was measured")?,
        });
    }
    let servers = servers.iter().map(|server| server.name.clone()).collect();
    Ok(Cost { servers, prices })
}
