//! Measures queries for external names: the CPU time, latency and memory of kubedns and of other
//! forwarders.
//!
//! All forwarders have the same upstream. Each measurement with uncached names has new names. The
//! order of the forwarders alternates between rounds. The CPU time is the median of the rounds;
//! latency and memory are measured once.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use fastrand::Rng;

use crate::cluster::SEED;
use crate::distribution::{Distribution, median};
use crate::forwarders::{self, CACHED_NAMES, WITHOUT_CACHE};
use crate::load::{Load, MeasuredLoad, order_of_servers};
use crate::peers::Peer;
use crate::probe;
use crate::report::{Forwarded, ForwardedLoad, Forwarder};
use crate::setup::{Bench, say};
use crate::zone::OUTSIDE;
use testkit::processes::Usage;

/// Names in a file for uncached queries: more than any server answers in two seconds, the default
/// of `--seconds`.
const NEW_NAMES: usize = 120_000;
/// Names in a file for cached queries. They fit in the smallest cache: dnsmasq caches 1,000 names
/// in the stock manifest.
const REPEATED_NAMES: usize = 900;
/// Duration of the latency measurement.
const PULSE: Duration = Duration::from_secs(3);
/// Number of names in the latency measurement. The measurement takes three seconds, with at most a
/// thousand queries a second. So no name is queried twice.
const PULSE_NAMES: usize = 4000;

/// Microseconds of CPU time per query, by index of the forwarder and load; one value per round.
type Samples = BTreeMap<(usize, ForwardedLoad), Vec<f64>>;

/// Measures the forwarders; `None` if NSD, their upstream, is not installed.
pub(super) async fn measure(bench: &Bench) -> anyhow::Result<Option<Forwarded>> {
    let Some(upstream) = forwarders::start_upstream(bench.directory()).await? else {
        say("forwarded: nothing is measured, because the upstream NSD is not installed");
        return Ok(None);
    };
    let peers = forwarders::start_forwarders(bench, upstream.address).await?;
    let mut names = NewNames::new(bench);

    let mut samples = Samples::new();
    let mut lost = vec![0; peers.len()];
    for round in 1..=bench.options.rounds {
        say(&format!(
            "forwarded: round {round} of {}",
            bench.options.rounds
        ));
        for load in ForwardedLoad::ALL {
            for index in order_of_servers(peers.len(), round) {
                let peer = peers.get(index).context("no such server")?;
                let measured = measure_load(bench, peer, load, &mut names).await?;
                samples
                    .entry((index, load))
                    .or_default()
                    .push(measured.microseconds);
                if let Some(lost) = lost.get_mut(index) {
                    *lost += measured.lost;
                }
            }
        }
    }

    // The next measurement is the memory that a cache takes while it fills. So the forwarders are
    // started again, with empty caches.
    say("forwarded: latency and memory");
    drop(peers);
    let peers = forwarders::start_forwarders(bench, upstream.address).await?;
    let mut memory = BTreeMap::new();
    for peer in &peers {
        let used = memory_of_cached_names(bench, peer, &mut names).await?;
        memory.insert(peer.name.as_str(), used);
    }

    let mut rows = Vec::new();
    for (index, peer) in peers.iter().enumerate() {
        rows.push(Forwarder {
            server: peer.name.clone(),
            microseconds: ForwardedLoad::ALL
                .into_iter()
                .filter_map(|load| median(samples.get(&(index, load))?.clone()))
                .collect(),
            lost: lost.get(index).copied().unwrap_or_default(),
            uncached: latency_of_new_names(peer, &mut names).await?,
            cache_memory: cache_memory(&peer.name, &memory),
        });
    }
    Ok(Some(Forwarded { rows }))
}

async fn measure_load(
    bench: &Bench,
    peer: &Peer,
    load: ForwardedLoad,
    names: &mut NewNames,
) -> anyhow::Result<MeasuredLoad> {
    let options = &bench.options;
    let mut dnsperf = Load {
        outstanding: options.outstanding,
        span: options.span(),
        rate: load.rate(),
    };
    let file = if load.is_cached() {
        let file = names.write_file(REPEATED_NAMES)?;
        // The first queries fill the cache.
        dnsperf.span = Duration::from_secs(1);
        dnsperf.run(peer.address, &file).await?;
        dnsperf.span = options.span();
        file
    } else {
        names.write_file(NEW_NAMES)?
    };

    dnsperf.measure(peer, &file, Some("NOERROR")).await
}

async fn latency_of_new_names(peer: &Peer, names: &mut NewNames) -> anyhow::Result<Distribution> {
    let names = names.make(PULSE_NAMES);
    let pulse = probe::pulse(peer.address, &names, PULSE).await?;
    pulse
        .answered
        .with_context(|| format!("{} answers nothing", peer.name))
}

/// Resident memory in KiB after queries for [`CACHED_NAMES`] names.
#[derive(Debug, Clone, Copy)]
struct NamesMemory {
    resident: u32,
    /// Growth of the resident memory during these queries.
    grown: u32,
}

/// Queries [`CACHED_NAMES`] names, and measures the memory.
async fn memory_of_cached_names(
    bench: &Bench,
    peer: &Peer,
    names: &mut NewNames,
) -> anyhow::Result<NamesMemory> {
    // The first queries make the server allocate buffers, which are not part of the cache.
    probe::pulse(peer.address, &names.make(200), Duration::from_millis(200)).await?;
    let before = resident_memory(peer)?;

    let file = names.write_file(CACHED_NAMES)?;
    let load = Load {
        outstanding: bench.options.outstanding,
        // Enough to query each name at least once.
        span: Duration::from_secs(3),
        rate: Some(5000),
    };
    load.run(peer.address, &file).await?;

    let resident = resident_memory(peer)?;
    Ok(NamesMemory {
        resident,
        grown: resident.saturating_sub(before),
    })
}

/// Memory in KiB that the cache of `server` takes. If the same program also runs without a cache,
/// the result is the difference in memory between the two processes. For other programs, the result
/// is the growth of the process in [`memory_of_cached_names`].
fn cache_memory(server: &str, memory: &BTreeMap<&str, NamesMemory>) -> u32 {
    let Some(used) = memory.get(server) else {
        return 0;
    };
    let program = server.split(' ').next().unwrap_or(server);
    let without = format!("{program}{WITHOUT_CACHE}");
    // dnsmasq allocates its whole cache at the start, so its growth does not show the memory of the
    // cache.
    match memory.get(without.as_str()) {
        Some(without) => used.resident.saturating_sub(without.resident),
        None => used.grown,
    }
}

/// Resident memory in KiB.
fn resident_memory(peer: &Peer) -> anyhow::Result<u32> {
    let usage = Usage::of(peer.pid).with_context(|| format!("{} has ended", peer.name))?;
    Ok(usage.resident)
}

/// Makes external names that have not been queried before.
struct NewNames {
    rng: Rng,
    directory: PathBuf,
}

impl NewNames {
    fn new(bench: &Bench) -> Self {
        Self {
            rng: Rng::with_seed(SEED),
            directory: Path::to_owned(bench.directory()),
        }
    }

    fn make(&mut self, count: usize) -> Vec<String> {
        let prefix = self.rng.u64(..);
        (0..count)
            .map(|number| format!("n{prefix:x}-{number}.{OUTSIDE}."))
            .collect()
    }

    /// Writes a file of queries for dnsperf.
    fn write_file(&mut self, count: usize) -> anyhow::Result<PathBuf> {
        let mut lines = String::new();
        for name in self.make(count) {
            writeln!(lines, "{name} A")?;
        }
        let path = self.directory.join("forwarded.queries");
        std::fs::write(&path, lines).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }
}
