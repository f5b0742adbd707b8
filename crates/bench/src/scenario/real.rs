//! The load that kubedns puts on a real API server, and the CPU time, memory and start times of
//! kubedns.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures::future::try_join_all;
use tokio::time::sleep;

use super::change::moved;
use crate::cluster::{Cluster, Service};
use crate::distribution::median;
use crate::kubedns::Kubedns;
use crate::real::{Real, VARIABLE};
use crate::report;
use crate::setup::{Bench, say};

/// The values of `--endpoints-source` to measure.
const SOURCES: [&str; 2] = ["endpoints", "endpointslices"];
/// Number of starts for each source.
const STARTS: usize = 5;
/// Pause after a start of kubedns, in which the API server finishes its work. The CPU time of the
/// API server and of kubedns at rest is measured over periods of the same length.
const SETTLING: Duration = Duration::from_secs(2);
/// Number of changes. Each change is a new address in the slice and the Endpoints of one Service.
const CHANGES: u32 = 10_000;
/// The new address in the first change. Each further change takes the next address.
const NEW_IPS: u32 = u32::from_be_bytes([10, 112, 0, 1]);
/// Number of instances that start at once.
const STORM: usize = 50;

/// Measures with the API server of `BENCH_KUBECONFIG`; `None` if the variable is not set.
pub(super) async fn measure(
    bench: &Bench,
    cluster: &Cluster,
) -> anyhow::Result<Option<report::Real>> {
    let Some(path) = std::env::var_os(VARIABLE) else {
        return Ok(None);
    };
    let real = Real::open(path.as_ref(), bench.directory()).await?;
    real.load(cluster).await?;
    // kubedns answers for a headless Service only after it has read the list of Services and the
    // list of endpoints.
    let probe = cluster
        .headless()
        .last()
        .context("the cluster has no headless Service")?;
    let stage = Stage {
        bench,
        real: &real,
        cluster,
        probe,
    };
    let mut found = report::Real {
        version: real.version().await?,
        services: cluster.services.len(),
        addresses: cluster.addresses(),
        rows: Vec::new(),
    };
    for source in SOURCES {
        found.rows.push(stage.row(source).await?);
    }
    Ok(Some(found))
}

struct Stage<'a> {
    bench: &'a Bench,
    real: &'a Real,
    cluster: &'a Cluster,
    probe: &'a Service,
}

impl Stage<'_> {
    async fn row(&self, source: &str) -> anyhow::Result<report::RealRow> {
        say(&format!(
            "real: kubedns starts {STARTS} times and reads {source}"
        ));
        // Sets the addresses of the probe Service. An earlier run with another number of Services
        // had another probe Service, so it may have changed the addresses of this one. `Real::load`
        // does not replace objects that exist already.
        self.real.change(self.probe).await?;
        let mut starts = Vec::new();
        for _ in 0..STARTS {
            starts.push(self.one_start(source).await?);
        }
        let middle =
            |of: fn(&Start) -> f64| median(starts.iter().map(of).collect()).context("no start");
        let (first_answer, own_cpu) = (
            middle(|start| start.first_answer)?,
            middle(|start| start.own_cpu)?,
        );
        let (api_cpu, octets) = (
            middle(|start| start.api_cpu)?,
            middle(|start| start.octets)?,
        );
        let (octets_each, cpu_each, resident) = self.changes(source).await?;
        let storm = self.storm(source).await?;
        let source = source.to_owned();
        Ok(report::RealRow {
            source,
            first_answer,
            own_cpu,
            api_cpu,
            octets,
            octets_each,
            cpu_each,
            resident,
            storm,
        })
    }

    async fn start(&self, source: &str) -> anyhow::Result<Kubedns> {
        let access = [
            self.real.kubeconfig_argument(),
            format!("--endpoints-source={source}"),
        ];
        let (name, addresses) = (self.probe.domain_name(), self.probe.addresses());
        Kubedns::start_with(self.bench, &access, &name, &addresses, &[]).await
    }

    async fn one_start(&self, source: &str) -> anyhow::Result<Start> {
        let before = self.real.cpu().await?;
        sleep(SETTLING).await;
        let (at_rest, sent, begun) = (self.real.cpu().await?, self.real.sent(), Instant::now());
        let kubedns = self.start(source).await?;
        sleep(SETTLING).await;
        let (used, took) = (
            self.real.cpu().await?.saturating_sub(at_rest),
            begun.elapsed(),
        );
        let rest = at_rest.saturating_sub(before).as_secs_f64() / SETTLING.as_secs_f64();
        Ok(Start {
            first_answer: kubedns.first_answer.as_secs_f64(),
            own_cpu: kubedns.usage()?.cpu.as_secs_f64(),
            api_cpu: (used.as_secs_f64() - rest * took.as_secs_f64()).max(0.0),
            octets: number(self.real.sent() - sent),
        })
    }

    /// Measures, per change, the octets that the API server sends and the microseconds of CPU time
    /// that kubedns uses. The third value is the resident memory of kubedns before the first
    /// change, in KiB.
    async fn changes(&self, source: &str) -> anyhow::Result<(f64, f64, u32)> {
        say(&format!(
            "real: kubedns reads {CHANGES} changes of {source}"
        ));
        let kubedns = self.start(source).await?;
        let resident = kubedns.settled_usage().await?.resident;
        let quiet = kubedns.usage()?.cpu;
        sleep(SETTLING).await;
        let (cpu, sent, begun) = (kubedns.usage()?.cpu, self.real.sent(), Instant::now());
        let idle = cpu.saturating_sub(quiet).as_secs_f64() / SETTLING.as_secs_f64();
        // The probe Service is not changed, because the next start waits until kubedns answers with
        // the addresses of this Service.
        let others: Vec<&Service> = self
            .cluster
            .headless()
            .filter(|service| *service != self.probe)
            .collect();
        for (service, ip) in others.into_iter().cycle().zip(NEW_IPS..NEW_IPS + CHANGES) {
            self.real.change(&moved(service, ip.into())).await?;
        }
        sleep(Duration::from_millis(500)).await;
        let used = kubedns.usage()?.cpu.saturating_sub(cpu).as_secs_f64()
            - idle * begun.elapsed().as_secs_f64();
        let each = |sum: f64| sum / f64::from(CHANGES);
        Ok((
            each(number(self.real.sent() - sent)),
            each(1e6 * used),
            resident,
        ))
    }

    /// Starts [`STORM`] instances at once. Returns the seconds until all of them have answered.
    async fn storm(&self, source: &str) -> anyhow::Result<f64> {
        say(&format!(
            "real: {STORM} instances of kubedns start at once and read {source}"
        ));
        let begun = Instant::now();
        let all = try_join_all((0..STORM).map(|_| self.start(source))).await?;
        let took = begun.elapsed().as_secs_f64();
        drop(all);
        Ok(took)
    }
}

/// The results of one start.
struct Start {
    first_answer: f64,
    own_cpu: f64,
    api_cpu: f64,
    octets: f64,
}

#[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
fn number(count: u64) -> f64 {
    count as f64
}
