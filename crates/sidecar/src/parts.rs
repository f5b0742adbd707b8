//! State that the tasks and the routes share.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use daemon::metrics::{MetricError, Metrics};
use wire::ServerAddr;

use crate::counters::Counters;
use crate::exechealthz::{Checks, Plan};
use crate::options::Options;
use crate::peers::Peers;
use crate::probe::{Part, Probe};
use crate::spec::Spec;
use crate::upstreams::Upstreams;
use crate::verdict::Verdicts;

/// State that the tasks and the routes share.
#[derive(Debug)]
pub(crate) struct Parts {
    /// The command line.
    pub(crate) options: Options,
    pub(crate) started: std::time::Instant,
    /// The name of the pod: its host name.
    pub(crate) pod: String,
    /// The node, if the manifest names it.
    pub(crate) node: Option<String>,
    /// The probes of `--probe`, then the probes that replace commands of exechealthz.
    pub(crate) probes: Vec<Arc<Probe>>,
    /// The checks of exechealthz, if enabled.
    pub(crate) exechealthz: Option<Arc<Checks>>,
    /// `None` in a pod without dnsmasq.
    pub(crate) dnsmasq: Option<Dnsmasq>,
    /// The registry of all metrics.
    pub(crate) metrics: Metrics,
    pub(crate) peers: Arc<Peers>,
    pub(crate) verdicts: Verdicts,
}

/// The readers of dnsmasq's counters and servers.
#[derive(Debug)]
pub(crate) struct Dnsmasq {
    pub(crate) counters: Arc<Counters>,
    pub(crate) upstreams: Arc<Upstreams>,
}

impl Parts {
    /// Builds all parts. Fails for flags that contradict each other.
    pub(crate) fn new(options: Options) -> anyhow::Result<Self> {
        if !options.prometheus_path.starts_with('/') {
            bail!(
                "--prometheus-path: {:?} does not begin with a slash",
                options.prometheus_path
            );
        }
        let metrics = Metrics::new("sidecar")?;
        let namespace = options.prometheus_namespace.as_str();
        let dnsmasq = options.dnsmasq();
        let mut labels = BTreeSet::new();
        let plan = Plan::new(&options)?;
        let mut probes = Vec::with_capacity(plan.specs.len());
        for spec in &plan.specs {
            if !labels.insert(spec.label.as_str()) {
                bail!("--probe: the label {} is used twice", spec.label);
            }
            let part = Part::of(spec, dnsmasq.as_ref(), &options.kubedns_addr);
            probes.push(Arc::new(Probe::new(
                spec.clone(),
                part,
                options.health,
                namespace,
                &metrics,
            )?));
        }
        let known = probed_already(&options, &plan.specs);
        let exechealthz = plan.checks(&options, &probes).map(Arc::new);
        let peers = Arc::new(Peers::new(&options));
        let dnsmasq = dnsmasq
            .map(|at| Dnsmasq::new(at, &options, known, &peers, &metrics))
            .transpose()?;
        let verdicts = Verdicts::new(namespace, dnsmasq.is_some(), &metrics)?;
        let started = std::time::Instant::now();
        // If the file cannot be read, the page shows no name.
        let pod = std::fs::read_to_string("/proc/sys/kernel/hostname")
            .unwrap_or_default()
            .trim()
            .to_owned();
        let node = std::env::var("NODE_NAME")
            .ok()
            .filter(|node| !node.is_empty());
        Ok(Self {
            options,
            started,
            pod,
            node,
            probes,
            exechealthz,
            dnsmasq,
            metrics,
            peers,
            verdicts,
        })
    }
}

impl Dnsmasq {
    fn new(
        at: ServerAddr,
        options: &Options,
        known: Vec<ServerAddr>,
        peers: &Arc<Peers>,
        metrics: &Metrics,
    ) -> Result<Self, MetricError> {
        let namespace = options.prometheus_namespace.as_str();
        let interval = options.dnsmasq_poll_interval();
        let counters = Counters::new(at.clone(), interval, namespace, metrics)?;
        let upstreams = Upstreams::new(
            at,
            known,
            Arc::clone(peers),
            Duration::from_millis(options.upstream_probe_interval_ms),
            namespace,
            metrics,
        )?;
        Ok(Self {
            counters: Arc::new(counters),
            upstreams: Arc::new(upstreams),
        })
    }
}

/// Servers that need no probe as upstreams: those of `--probe`, kubedns and dnsmasq.
fn probed_already(options: &Options, specs: &[Spec]) -> Vec<ServerAddr> {
    let probed = specs.iter().map(|spec| spec.server.clone());
    probed
        .chain([options.kubedns_addr.clone()])
        .chain(options.dnsmasq())
        .collect()
}
