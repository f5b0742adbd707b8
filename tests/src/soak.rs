//! The soak test: runs a pod under load while Services, Endpoints and the ConfigMap change. The
//! resources of the processes must not grow.
//!
//! The binaries come from the directory in the variable `KUBE_DNS_RS_BIN_DIR`, or else from the
//! directory of the running program. Use a release build.

mod churn;
mod options;
mod samples;
mod summary;

use std::time::Duration;

use anyhow::Context as _;
use testkit::processes::udp_drops;
use tokio::time::Instant;

use self::churn::Churn;
use self::samples::{Process, watch};
use crate::chaos::{Rig, Topology, names_forwarded_by_kubedns};
use crate::steady::Steady;

pub use self::options::Options;
pub use self::summary::Summary;

/// Interval at which the resources are sampled.
const EVERY: Duration = Duration::from_secs(5);

/// Number of lines of the pod's log that are shown after a failure.
const LAST_WORDS: usize = 40;

/// Runs the soak test for the time in the options.
///
/// # Errors
///
/// If the test cannot be completed, for example because a process of the pod has ended, or because
/// a change does not appear in the answers of kubedns before a timeout.
pub fn run(options: &Options) -> anyhow::Result<Summary> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the async runtime")?;
    runtime.block_on(soak(options))
}

async fn soak(options: &Options) -> anyhow::Result<Summary> {
    let topology = if options.direct {
        Topology::Direct
    } else {
        Topology::DropIn
    };
    let rig = Rig::start(topology, &[]).await;
    let mut processes = processes(&rig).await;
    let churn = Churn::start(&rig).await;
    let mut questions = rig.questions();
    questions.extend(churn.questions());
    // These queries go to kubedns directly, and test its own forwarding.
    questions.extend(names_forwarded_by_kubedns(
        "outside, from kubedns",
        rig.pod.ports.kubedns,
    ));
    let steady = Steady::start(questions, options.rate);

    let begun = Instant::now();
    let length = Duration::from_mins(1) * options.minutes;
    tokio::select! {
        failed = churn.go_on(options.changes) => return Err(failed.context(last_words(&rig))),
        watched = watch(&mut processes, begun, length, EVERY) => watched.with_context(|| last_words(&rig))?,
    }
    let report = steady.stop().await;
    let restarts = rig
        .pod
        .status()
        .containers
        .values()
        .map(|container| container.restarts)
        .sum();
    let drops = udp_drops(rig.pod.ports.dnsmasq);
    Ok(Summary {
        report,
        processes,
        elapsed: begun.elapsed(),
        restarts,
        drops,
        churn: churn.counts(),
    })
}

/// The last lines of the pod's log.
fn last_words(rig: &Rig) -> String {
    let log = rig.pod.process.stderr();
    let end = log
        .get(log.len().saturating_sub(LAST_WORDS)..)
        .unwrap_or_default();
    format!("the pod's log ends with:\n{}\n", end.join("\n"))
}

/// The processes whose resources are sampled. localpod, which runs them, is not one of them.
async fn processes(rig: &Rig) -> Vec<Process> {
    vec![
        Process::new("kubedns", rig.pod.container("kubedns").await),
        Process::new("nanny", rig.pod.container("dnsmasq").await),
        Process::new("dnsmasq", rig.dnsmasq().await),
        Process::new("sidecar", rig.pod.container("sidecar").await),
    ]
}
