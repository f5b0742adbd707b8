//! Time from a change at the API server to the first answer that shows the change.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use crate::api;
use crate::cluster::{Cluster, Service};
use crate::distribution::Distribution;
use crate::kubedns::Kubedns;
use crate::probe;
use crate::report::Change;
use crate::setup::{Bench, say};
use apiserver::RunningApiServer;

/// The pause between two changes: 100 a second.
const PERIOD: Duration = Duration::from_millis(10);
/// Maximum number of changes. A small cluster has fewer Services to change.
const CHANGES: u32 = 1000;
/// The first of the addresses that Services get when they are changed.
const NEW_IPS: u32 = u32::from_be_bytes([10, 112, 0, 1]);
/// Maximum time from a change to the first answer that shows the change.
const PATIENCE: Duration = Duration::from_secs(10);
const ANSWER: Duration = Duration::from_millis(200);
/// The pause between two queries for the same name.
const PAUSE: Duration = Duration::from_millis(1);

/// Changes Services and EndpointSlices in turn, 100 a second. Measures the latency of the changes
/// and the CPU use of kubedns.
pub(super) async fn measure(bench: &Bench, cluster: &Cluster) -> anyhow::Result<Change> {
    say("change: 100 changes a second");
    let api = api::start_on_free_port(cluster)?;
    let kubedns = Kubedns::start(bench, &api, cluster, &[]).await?;
    let (begun, before) = (Instant::now(), kubedns.usage()?.cpu);
    let latency = latency(
        &api,
        &kubedns,
        services(cluster).zip(NEW_IPS..NEW_IPS + CHANGES),
    )
    .await?;
    let (span, used) = (begun.elapsed(), kubedns.usage()?.cpu.saturating_sub(before));
    Ok(Change {
        latency,
        cpu_share: used.as_secs_f64() / span.as_secs_f64(),
    })
}

/// Services with and without cluster IPs, in turn.
pub(super) fn services(cluster: &Cluster) -> impl Iterator<Item = &Service> {
    cluster
        .with_cluster_ip()
        .zip(cluster.headless())
        .flat_map(|(one, other)| [one, other])
}

/// Gives each Service a new address, at a rate of 100 Services a second. Measures the time to the
/// first answer with that address. `changes` must not have a Service twice: after a second change,
/// `shown` could wait in vain for the address of the first change.
pub(super) async fn latency(
    api: &RunningApiServer,
    kubedns: &Kubedns,
    changes: impl Iterator<Item = (&Service, u32)>,
) -> anyhow::Result<Distribution> {
    let mut tick = interval(PERIOD);
    tick.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut waiting = JoinSet::new();
    for (service, ip) in changes {
        tick.tick().await;
        let altered = moved(service, ip.into());
        let object = if altered.cluster_ip.is_some() {
            altered.object()
        } else {
            altered.slice(0, &altered.pods)
        };
        let at = Instant::now();
        api.store.set(object).context("cannot change an object")?;
        waiting.spawn(shown(kubedns.address(), altered, at, PAUSE));
    }
    let took: anyhow::Result<Vec<Duration>> = waiting.join_all().await.into_iter().collect();
    Distribution::of(took?).context("no Service is left to change: raise --services")
}

/// The Service with `ip` as its cluster IP, or as the address of its first pod if headless.
pub(super) fn moved(service: &Service, ip: Ipv4Addr) -> Service {
    let mut changed = service.clone();
    if changed.cluster_ip.is_some() {
        changed.cluster_ip = Some(ip);
    } else if let Some(pod) = changed.pods.first_mut() {
        pod.ip = ip;
    }
    changed
}

/// Sends queries, with `pause` between them, until the server answers with the addresses of
/// `changed`. Returns the time from `since` to that answer.
pub(super) async fn shown(
    server: SocketAddr,
    changed: Service,
    since: Instant,
    pause: Duration,
) -> anyhow::Result<Duration> {
    let (name, addresses) = (changed.domain_name(), changed.addresses());
    while !probe::leads_to(server, &name, &addresses, ANSWER).await {
        if since.elapsed() > PATIENCE {
            bail!("the change of {name} did not show within {PATIENCE:?}");
        }
        tokio::time::sleep(pause).await;
    }
    Ok(since.elapsed())
}
