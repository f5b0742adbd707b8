//! The pieces put together.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use daemon::http::{BindError, Server};
use daemon::metrics::{MetricError, Metrics};
use daemon::shutdown::Shutdown;
use daemon::tasks::{TaskError, Tasks};
use thiserror::Error;
use tokio_util::sync::CancellationToken;

use crate::counters::Counters;
use crate::endpoint::Endpoint;
use crate::options::Options;
use crate::probe::{Part, Probe};
use crate::routes;
use crate::status::Sources;
use crate::upstreams::Upstreams;

/// How long tasks may take to end.
const ENDING: Duration = Duration::from_secs(5);

/// Why a sidecar does not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// Two probes of one label.
    #[error("--probe: the label {0} is used twice")]
    Label(String),
    /// A metrics path that is none.
    #[error("--prometheus-path: {0:?} does not begin with a slash")]
    Path(String),
    /// A metric's name is invalid or taken.
    #[error(transparent)]
    Metric(#[from] MetricError),
    /// The port is taken.
    #[error(transparent)]
    Bind(#[from] BindError),
}

/// A sidecar that listens and does not probe yet.
#[derive(Debug)]
pub struct App {
    server: Server,
    parts: Arc<Parts>,
}

/// What the tasks and the routes share.
#[derive(Debug)]
pub struct Parts {
    /// What it was told.
    pub options: Options,
    /// When it started.
    pub started: std::time::Instant,
    /// The probes, in the order of the flags.
    pub probes: Vec<Arc<Probe>>,
    /// dnsmasq's counters.
    pub counters: Arc<Counters>,
    /// The servers dnsmasq forwards to.
    pub upstreams: Arc<Upstreams>,
    /// Everything exported.
    pub metrics: Metrics,
    /// What other parts of the pod tell about themselves.
    pub sources: Sources,
}

impl App {
    /// Takes the port and prepares everything.
    ///
    /// # Errors
    ///
    /// [`StartError`].
    pub async fn bind(options: Options) -> Result<Self, StartError> {
        let parts = Parts::new(options)?;
        let Options { prometheus_addr, prometheus_port, .. } = &parts.options;
        let server = Server::bind(prometheus_addr, *prometheus_port).await?;
        Ok(Self { server, parts: Arc::new(parts) })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.server.local_addr()
    }

    /// Probes and answers until `stop`.
    ///
    /// # Errors
    ///
    /// [`TaskError`] when something ended that should not have.
    pub async fn run(self, stop: CancellationToken) -> Result<(), TaskError> {
        let mut tasks = Tasks::new(stop.clone());
        let count = self.parts.probes.len();
        for (index, probe) in self.parts.probes.iter().enumerate() {
            let task = Arc::clone(probe).run(index, count, stop.clone());
            tasks.lasting("a probe", task);
        }
        tasks.lasting("reading dnsmasq's counters", Arc::clone(&self.parts.counters).run(stop.clone()));
        let upstreams = Arc::clone(&self.parts.upstreams).run(stop.clone());
        tasks.lasting("probing dnsmasq's upstreams", upstreams);
        tasks.lasting("the HTTP server", self.server.run(routes::routes(self.parts), stop));
        tasks.join(ENDING).await
    }
}

impl Parts {
    /// Builds everything but the listener.
    ///
    /// # Errors
    ///
    /// [`StartError`].
    pub fn new(options: Options) -> Result<Self, StartError> {
        if !options.prometheus_path.starts_with('/') {
            return Err(StartError::Path(options.prometheus_path));
        }
        let metrics = Metrics::new("sidecar")?;
        let namespace = options.prometheus_namespace.as_str();
        let dnsmasq = options.dnsmasq();
        let mut labels = BTreeSet::new();
        let mut probes = Vec::with_capacity(options.probe.len());
        for spec in &options.probe {
            if !labels.insert(spec.label.as_str()) {
                return Err(StartError::Label(spec.label.clone()));
            }
            let part = Part::of(spec, &dnsmasq, &options.kubedns_addr);
            probes.push(Arc::new(Probe::new(spec.clone(), part, options.health, namespace, &metrics)?));
        }
        let every = Duration::from_millis(options.dnsmasq_poll_interval_ms);
        let counters = Arc::new(Counters::new(dnsmasq.clone(), every, namespace, &metrics)?);
        let upstreams = Arc::new(Upstreams::new(
            dnsmasq,
            probed_already(&options),
            &options.nanny_status,
            Duration::from_millis(options.upstream_probe_interval_ms),
            namespace,
            &metrics,
        )?);
        let sources = Sources::new(&options);
        let started = std::time::Instant::now();
        Ok(Self { options, started, probes, counters, upstreams, metrics, sources })
    }
}

/// The servers whose state is known without another probe.
fn probed_already(options: &Options) -> Vec<Endpoint> {
    let probed = options.probe.iter().map(|spec| spec.server.clone());
    probed.chain([options.kubedns_addr.clone(), options.dnsmasq()]).collect()
}

/// What `main` runs.
///
/// # Errors
///
/// [`StartError`] and [`TaskError`].
pub async fn run(options: Options, shutdown: Shutdown) -> anyhow::Result<()> {
    let app = App::bind(options).await?;
    tracing::info!(version = daemon::version::VERSION, address = %app.local_addr(), "sidecar is ready");
    app.run(shutdown.stop).await?;
    Ok(())
}
