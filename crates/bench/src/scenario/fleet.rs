//! The cost of many kubedns instances to a real API server, and the time from a change until the
//! answers of the queried instances show the change.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures::future::try_join_all;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::change::{moved, shown};
use crate::cluster::{Cluster, Service};
use crate::distribution::Distribution;
use crate::kubedns::Kubedns;
use crate::real::{Real, VARIABLE};
use crate::report;
use crate::setup::{Bench, say};

/// The length of the pauses before and after the start of the fleet. In the first pause, the API
/// server is measured without the fleet. In the second pause, the API server finishes the work that
/// the start has caused.
const SETTLING: Duration = Duration::from_secs(5);
/// The time without changes, in which the load of the idle fleet is measured.
const IDLE: Duration = Duration::from_secs(20);
/// The time between two changes: ten changes a second.
const PERIOD: Duration = Duration::from_millis(100);
/// Number of changes in each measurement. Each change modifies one EndpointSlice.
const CHANGES: u32 = 300;
/// The first of the addresses that the changes give to pods.
const NEW_IPS: u32 = u32::from_be_bytes([10, 112, 0, 1]);
/// Maximum number of instances that are queried after each change. More queries would take the CPU
/// time that the other instances need.
const ASKED: usize = 50;
/// A query to an instance is repeated after a pause of at least this time multiplied by the number
/// of queried instances. Each change has its own queries, and so has the start. So the start, and
/// also each change, causes at most ten thousand queries a second.
const SPACING: Duration = Duration::from_micros(100);
/// The shortest pause before a query to an instance is repeated.
const PAUSE: Duration = Duration::from_millis(1);

/// Measures with the API server of `BENCH_KUBECONFIG`; `None` if the variable is not set.
pub(super) async fn measure(
    bench: &Bench,
    cluster: &Cluster,
) -> anyhow::Result<Option<report::Fleet>> {
    let Some(path) = std::env::var_os(VARIABLE) else {
        return Ok(None);
    };
    let real = Real::open(path.as_ref(), bench.directory()).await?;
    real.load(cluster).await?;

    let mut found = report::Fleet {
        version: real.version().await?,
        services: cluster.services.len(),
        addresses: cluster.addresses(),
        rows: Vec::new(),
    };
    // kubedns answers for a headless Service only after it has read both the list of Services and
    // the list of endpoints. Each start of a fleet waits for the addresses of the Service `probe`,
    // so the changes below leave that Service out. Its slice is written once, in case an earlier
    // run has changed the slice.
    let headless: Vec<&Service> = cluster.headless().collect();
    let (probe, others) = headless.split_first().context("no headless Service")?;
    real.change_slice(probe).await?;
    let mut moves = others.iter().copied().cycle().zip(NEW_IPS..);
    // The first row, without kubedns, shows what the changes alone cost the API server.
    for instances in [0].into_iter().chain(bench.options.instances.clone()) {
        say(&format!("fleet: {instances} kubedns"));
        let next = moves.by_ref().take(CHANGES as usize);
        let altered = next.map(|(service, ip)| moved(service, ip.into()));
        let row = measure_fleet(bench, &real, instances, probe, altered).await?;
        say(&format!("{row:?}"));
        found.rows.push(row);
    }
    Ok(Some(found))
}

async fn measure_fleet(
    bench: &Bench,
    real: &Real,
    instances: u32,
    probe: &Service,
    changes: impl Iterator<Item = Service>,
) -> anyhow::Result<report::FleetRow> {
    let at_rest = Reading::of(real).await?;
    sleep(SETTLING).await;
    let before = Reading::of(real).await?;
    let fleet = start(bench, real, instances, probe).await?;
    sleep(SETTLING).await;
    let started = Reading::of(real).await?;
    sleep(IDLE).await;
    let idle = Reading::of(real).await?;
    let (accepted, answered) = change(real, &fleet, changes).await?;
    let busy = Reading::of(real).await?;

    let own_work = at_rest.cpu_share(&before) * before.seconds(&started);
    let answers = fleet.iter().map(|kubedns| kubedns.first_answer);
    Ok(report::FleetRow {
        instances,
        last_answer: answers.max().unwrap_or_default().as_secs_f64(),
        start_cpu: (before.cpu_share(&started) * before.seconds(&started) - own_work).max(0.0),
        start_octets: before.octets(&started),
        idle_cpu_share: started.cpu_share(&idle),
        idle_octets: started.octets(&idle) / started.seconds(&idle),
        busy_cpu_share: idle.cpu_share(&busy),
        octets_each: idle.octets(&busy) / f64::from(CHANGES),
        accepted: Distribution::of(accepted)
            .context("the cluster has only one headless Service: raise --services")?,
        answered: Distribution::of(answered),
        load: report::load_average(),
    })
}

/// Starts all instances at once, and waits until each instance answers with the addresses of
/// `probe`.
async fn start(
    bench: &Bench,
    real: &Real,
    instances: u32,
    probe: &Service,
) -> anyhow::Result<Vec<Kubedns>> {
    let (name, addresses) = (probe.domain_name(), probe.addresses());
    let pause = PAUSE.max(SPACING * instances);
    let access = [real.kubeconfig_argument()];
    let each = (0..instances).map(|_| async {
        let mut kubedns = Kubedns::launch(bench, &access, &[]);
        kubedns.wait_for(&name, &addresses, pause).await?;
        Ok(kubedns)
    });
    try_join_all(each).await
}

/// Makes the `changes`. After each change, queries up to [`ASKED`] instances, which are spread
/// evenly over the fleet. Returns two lists. The first list has, for each change, the time until
/// the API server accepted the change. The second list has, for each change and each queried
/// instance, the time from the acceptance until an answer showed the change.
async fn change(
    real: &Real,
    fleet: &[Kubedns],
    changes: impl Iterator<Item = Service>,
) -> anyhow::Result<(Vec<Duration>, Vec<Duration>)> {
    let asked: Vec<_> = fleet
        .iter()
        .step_by(fleet.len().div_ceil(ASKED).max(1))
        .map(Kubedns::address)
        .collect();
    let pause = PAUSE.max(SPACING * u32::try_from(asked.len())?);
    let (mut accepted, mut waiting) = (Vec::new(), JoinSet::new());
    let mut tick = interval(PERIOD);
    tick.set_missed_tick_behavior(MissedTickBehavior::Burst);

    for altered in changes {
        tick.tick().await;
        let requested = Instant::now();
        real.change_slice(&altered).await?;
        let at = Instant::now();
        accepted.push(at.duration_since(requested));
        // Until an instance shows the change, it gets another query after each `pause`. The first
        // queries to the instances are `SPACING` apart, so that the instances are not all queried
        // at the same time.
        for (place, &server) in (0..).zip(&asked) {
            let altered = altered.clone();
            waiting.spawn(async move {
                sleep(SPACING * place).await;
                shown(server, altered, at, pause).await
            });
        }
    }

    let answered: anyhow::Result<Vec<Duration>> = waiting.join_all().await.into_iter().collect();
    Ok((accepted, answered?))
}

/// The CPU time that the API server has used, and the number of octets that the API server has sent
/// to kubedns, until `at`.
struct Reading {
    at: Instant,
    cpu: Duration,
    sent: u64,
}

impl Reading {
    async fn of(real: &Real) -> anyhow::Result<Self> {
        Ok(Self {
            cpu: real.cpu().await?,
            sent: real.sent(),
            at: Instant::now(),
        })
    }

    fn seconds(&self, later: &Self) -> f64 {
        later.at.duration_since(self.at).as_secs_f64()
    }

    /// The CPU time between the readings as a fraction of one core.
    fn cpu_share(&self, later: &Self) -> f64 {
        later.cpu.saturating_sub(self.cpu).as_secs_f64() / self.seconds(later)
    }

    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    fn octets(&self, later: &Self) -> f64 {
        (later.sent - self.sent) as f64
    }
}
