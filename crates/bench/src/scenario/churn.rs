//! Many changes: their cost, and their effect on queries.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde_json::Value;
use tokio::time::{MissedTickBehavior, interval};

use crate::api;
use crate::cluster::{Cluster, Pod, Service};
use crate::kubedns::Kubedns;
use crate::probe;
use crate::questions::Kind;
use crate::report::Churn;
use crate::setup::{Bench, say};
use apiserver::RunningApiServer;

/// Duration of each kind of churn.
const SPAN: Duration = Duration::from_secs(10);
/// Number of pods of the large Service.
const LARGE: u32 = 5000;
/// Number of endpoints in a slice: the default maximum of the control plane.
const SLICE: u32 = 100;
/// The first address of the pods of the large Service.
const LARGE_IPS: u32 = u32::from_be_bytes([10, 240, 0, 1]);
/// The addresses of replacement pods are above this address.
const NEW_IPS: u32 = u32::from_be_bytes([10, 250, 0, 1]);
/// Number of Deployments that are updated concurrently.
const ROLLING: usize = 1000;
/// Number of slice changes for the update of a Deployment: its three pods are removed and replaced
/// one by one.
const STEPS: u32 = 6;
/// Number of names that are queried during the changes.
const NAMES: usize = 1000;

/// Measures a quiet period, a large Service that changes every second, and rolling updates of a
/// thousand Deployments.
pub(super) async fn measure(bench: &Bench, cluster: &Cluster) -> anyhow::Result<Vec<Churn>> {
    let api = api::start_on_free_port(cluster)?;
    let large = large();
    api.store
        .set(large.object())
        .context("cannot create a Service")?;
    for slice in slices(&large) {
        api.store.set(slice).context("cannot create a slice")?;
    }
    let kubedns = Kubedns::start(bench, &api, cluster, &[]).await?;
    let names = Kind::A.names(cluster, NAMES);
    let mut rows = Vec::new();
    let quiet = async {
        tokio::time::sleep(SPAN).await;
        Ok(())
    };
    rows.push(during("quiet", &kubedns, &names, quiet).await?);
    let (one, every) = (
        large_changes(&api, large.clone(), 1),
        large_changes(&api, large, LARGE / SLICE),
    );
    rows.push(
        during(
            "one of 5,000 endpoints changes each second",
            &kubedns,
            &names,
            one,
        )
        .await?,
    );
    rows.push(
        during(
            "50 of 5,000 endpoints change each second, one in each slice",
            &kubedns,
            &names,
            every,
        )
        .await?,
    );
    let rolling = roll(&api, cluster);
    rows.push(during("1,000 Deployments roll out", &kubedns, &names, rolling).await?);
    Ok(rows)
}

/// Sends queries while `churn` runs.
async fn during(
    title: &str,
    kubedns: &Kubedns,
    names: &[String],
    churn: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<Churn> {
    say(&format!("churn: {title}"));
    let (begun, before) = (Instant::now(), kubedns.usage()?.cpu);
    let (changed, pulse) = tokio::join!(churn, probe::pulse(kubedns.address(), names, SPAN));
    let (span, used) = (begun.elapsed(), kubedns.usage()?.cpu.saturating_sub(before));
    changed?;
    let pulse = pulse?;
    Ok(Churn {
        title: title.to_owned(),
        cpu_share: used.as_secs_f64() / span.as_secs_f64(),
        latency: pulse.answered.context("no query was answered")?,
        lost: pulse.lost,
        resident: kubedns.usage()?.resident,
    })
}

fn large() -> Service {
    let pods = (0..LARGE).map(|number| Pod {
        ip: Ipv4Addr::from(LARGE_IPS + number),
        hostname: Some(format!("member-{number}")),
    });
    Service {
        namespace: "team-0".to_owned(),
        name: "large".to_owned(),
        cluster_ip: None,
        pods: pods.collect(),
    }
}

fn slices(service: &Service) -> Vec<Value> {
    let numbered = (0..).zip(service.pods.chunks(SLICE as usize));
    numbered
        .map(|(number, pods)| service.slice(number, pods))
        .collect()
}

/// Every second, replaces one pod in each of the first `slices` slices.
async fn large_changes(
    api: &RunningApiServer,
    mut service: Service,
    slices: u32,
) -> anyhow::Result<()> {
    let mut pods = std::mem::take(&mut service.pods);
    let mut tick = interval(Duration::from_secs(1));
    let end = Instant::now() + SPAN;
    let mut ips = NEW_IPS + slices * 1000..;
    while Instant::now() < end {
        tick.tick().await;
        for (number, pods) in (0..slices).zip(pods.chunks_mut(SLICE as usize)) {
            for (pod, ip) in pods.iter_mut().take(1).zip(&mut ips) {
                pod.ip = ip.into();
            }
            api.store
                .set(service.slice(number, pods))
                .context("cannot change a slice")?;
        }
    }
    Ok(())
}

/// Replaces the pods of the first [`ROLLING`] Services one by one, as updates of their Deployments
/// would. The changes are spread evenly over [`SPAN`].
async fn roll(api: &RunningApiServer, cluster: &Cluster) -> anyhow::Result<()> {
    let mut services: Vec<Service> = cluster.services.iter().take(ROLLING).cloned().collect();
    let changes = u32::try_from(services.len())? * STEPS;
    let mut tick = interval(SPAN / changes.max(1));
    tick.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut ips = (NEW_IPS + 100_000..).map(Ipv4Addr::from);
    for step in 0..STEPS {
        for service in &mut services {
            tick.tick().await;
            if step % 2 == 0 {
                service.pods.remove(0);
            } else {
                let hostname = service.cluster_ip.is_none().then(|| format!("new-{step}"));
                service
                    .pods
                    .extend(ips.next().map(|ip| Pod { ip, hostname }));
            }
            api.store
                .set(service.slice(0, &service.pods))
                .context("cannot change a slice")?;
        }
    }
    Ok(())
}
