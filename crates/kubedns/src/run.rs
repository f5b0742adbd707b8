//! Runs the process: binds the sockets, starts the tasks, and shuts down.
//!
//! Sockets are bound first, so that queries during the start wait in the sockets. Until the first
//! lists are complete, queries for cluster names are answered with the records of the snapshot
//! file. If no snapshot file is restored, these queries get REFUSED. Until a zone of etcd is
//! loaded, queries for its names get SERVFAIL. Work that may take long, such as requests to the API
//! server, happens in tasks.
//!
//! This module selects the source of the records: [`kubernetes`] and [`etcd_alone`] each make a
//! backend, the task that changes it, and the pages of the status port. [`server`] has the parts
//! that both use.

mod dns_server;
mod etcd_alone;
mod explainer;
mod http;
mod kubernetes;
mod server;
mod watches;

use std::time::Duration;

use anyhow::Context as _;
use daemon::one_thread::SingleThread;
use daemon::shutdown::Shutdown;

use crate::options::{Options, RecordSource};

/// Timeout of the tasks at shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs kubedns until `shutdown` is requested.
///
/// # Errors
///
/// When kubedns cannot start, when a task ends early, or when tasks do not end in time at the
/// shutdown.
pub async fn run(options: Options, shutdown: Shutdown) -> anyhow::Result<()> {
    tracing::info!(version = daemon::version::VERSION, domain = %options.domain, "kube-dns is starting");
    // The original kube-dns has the flag `--profiling`. Manifests may set the flag, so it is
    // accepted, but has no effect.
    if options.profiling {
        tracing::warn!(
            "--profiling has no effect: there is no profiling over HTTP; use perf on the process instead"
        );
    }

    // If kubedns is behind dnsmasq, all queries come from dnsmasq in this pod. --client-qps does
    // not apply to the containers of this pod: a limit on dnsmasq would limit all clients together.
    if options.client_rate.rate().is_some() && options.topology.is_behind_dnsmasq() {
        tracing::warn!(
            "--client-qps does not limit queries that come through dnsmasq in this pod; the flag needs --topology=direct or --topology=alone"
        );
    }

    match options.record_source(service_host().as_deref())? {
        RecordSource::ApiServer => {
            let kubedns = kubernetes::BoundKubedns::bind(options, &shutdown).await?;
            // The watchers and the task that changes the records share one thread, so an event does
            // not wake a second thread.
            let thread = SingleThread::start("records").context("cannot start a thread")?;
            let tasks = kubedns.start(&thread, &shutdown)?;
            tasks
                .join(SHUTDOWN_TIMEOUT)
                .await
                .context("kubedns failed")?;
        }
        RecordSource::EtcdAlone => {
            let tasks = etcd_alone::start(options, &shutdown).await?;
            tasks
                .join(SHUTDOWN_TIMEOUT)
                .await
                .context("kubedns failed")?;
        }
    }
    tracing::info!("stopped");
    Ok(())
}

/// The address of the API server, from the variable that Kubernetes sets in every pod.
fn service_host() -> Option<String> {
    let host = std::env::var("KUBERNETES_SERVICE_HOST").ok();
    host.filter(|host| !host.is_empty())
}
