//! Time to the first answer, and memory.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use apiserver::{Resource, RunningApiServer, Verb};
use testkit::processes::forget_peak;

use crate::api;
use crate::cluster::Cluster;
use crate::distribution::median;
use crate::kubedns::Kubedns;
use crate::load::Load;
use crate::questions::Kind;
use crate::report::Start;
use crate::setup::{Bench, say};

/// Number of measured starts.
const STARTS: usize = 5;
/// Number of relists, one after the other.
const RELISTS: usize = 3;
/// Timeout of a relist.
const PATIENCE: Duration = Duration::from_mins(1);
/// Duration of the load.
const LOAD: Duration = Duration::from_secs(3);

/// Measures the time to the first answer over several starts of kubedns on `cluster`, and the
/// memory of the last process.
pub(super) async fn measure(bench: &Bench, cluster: &Cluster) -> anyhow::Result<Start> {
    let services = cluster.services.len();
    say(&format!("start: {services} services"));
    let api = api::start_on_free_port(cluster)?;
    let mut took = Vec::new();
    for _ in 1..STARTS {
        took.push(
            Kubedns::start(bench, &api, cluster, &[])
                .await?
                .first_answer
                .as_secs_f64(),
        );
    }
    let kubedns = Kubedns::start(bench, &api, cluster, &[]).await?;
    took.push(kubedns.first_answer.as_secs_f64());
    let synced = kubedns.settled_usage().await?;
    forget_peak(kubedns.pid())?;
    for _ in 0..RELISTS {
        relist(&api).await?;
    }
    let relisted = kubedns.settled_usage().await?;
    forget_peak(kubedns.pid())?;
    let file = Kind::A.file(cluster, bench.directory())?;
    let load = Load {
        outstanding: bench.options.outstanding,
        span: LOAD,
        rate: None,
    };
    load.run(kubedns.address(), &file).await?;
    let loaded = kubedns.usage()?;
    Ok(Start {
        services,
        addresses: cluster.addresses(),
        first_answer: median(took).context("no start was measured")?,
        resident: synced.resident,
        peak_first_lists: synced.peak,
        resident_after_relists: relisted.resident,
        peak_relists: relisted.peak,
        peak_load: loaded.peak,
    })
}

/// Makes kubedns list everything again. Waits until kubedns has requested the lists, and until its
/// watches are open.
async fn relist(api: &RunningApiServer) -> anyhow::Result<()> {
    let watched = [Resource::Services, Resource::EndpointSlices];
    api.faults.clear_requests();
    api.faults.expire();
    api.faults.cut_watches();
    let begun = Instant::now();
    loop {
        let requests = api.faults.requests();
        let listed = watched.iter().all(|resource| {
            let lists = |request: &&apiserver::RequestRecord| {
                request.verb == Verb::List && request.resource == *resource
            };
            requests.iter().any(|request| lists(&request)) && api.faults.open_watches(*resource) > 0
        });
        if listed {
            return Ok(());
        }
        if begun.elapsed() > PATIENCE {
            bail!("kubedns did not list everything again within {PATIENCE:?}");
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
