//! State that the tasks and the HTTP routes share.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use daemon::metrics::{MetricError, Metrics};
use reports::sidecar::PodPart;
use wire::ServerAddr;

use crate::container_histories::ContainerHistories;
use crate::counters::CounterReader;
use crate::exechealthz::{HealthPlan, HealthzChecks};
use crate::limited_clients::LimitedClients;
use crate::options::Options;
use crate::peers::ReportPeers;
use crate::probe::{Probe, probed_part};
use crate::spec::ProbeSpec;
use crate::traffic::TrafficHistory;
use crate::upstream_history::UpstreamHistories;
use crate::upstreams::{ProbeSettings, UpstreamProbes};
use crate::verdict::Verdicts;

#[derive(Debug)]
pub(crate) struct Parts {
    /// The command line.
    pub(crate) options: Options,
    pub(crate) started: std::time::Instant,
    /// The host name of the pod, usually the name of the pod.
    pub(crate) pod: String,
    /// The node, from the variable `NODE_NAME`; `None` if the variable is unset or empty.
    pub(crate) node: Option<String>,
    /// The probes of `--probe`, then the probes that replace commands of exechealthz.
    pub(crate) probes: Vec<Arc<Probe>>,
    /// The checks of exechealthz, if enabled.
    pub(crate) exechealthz: Option<Arc<HealthzChecks>>,
    /// `None` in a pod without dnsmasq.
    pub(crate) dnsmasq: Option<Dnsmasq>,
    /// The registry of all metrics.
    pub(crate) metrics: Metrics,
    pub(crate) peers: Arc<ReportPeers>,
    pub(crate) containers: ContainerHistories,
    pub(crate) limited_clients: LimitedClients,
    pub(crate) traffic: TrafficHistory,
    pub(crate) upstream_histories: UpstreamHistories,
    pub(crate) verdicts: Verdicts,
}

/// The reader of dnsmasq's counters, and the probes of dnsmasq's upstreams.
#[derive(Debug)]
pub(crate) struct Dnsmasq {
    pub(crate) counters: Arc<CounterReader>,
    pub(crate) upstreams: Arc<UpstreamProbes>,
}

impl Parts {
    /// Builds all parts. Fails if the value of a flag is unusable, or if flags contradict each
    /// other.
    pub(crate) fn new(options: Options) -> anyhow::Result<Self> {
        // No request could ever match a path without a leading slash.
        if !options.prometheus_path.starts_with('/') {
            bail!(
                "--prometheus-path: {:?} does not begin with a slash",
                options.prometheus_path
            );
        }
        let metrics = Metrics::new("sidecar")?;
        // The plan comes first: the commands of exechealthz may add probes.
        let plan = HealthPlan::new(&options)?;
        let probes = new_probes(&options, &plan.specs, &metrics)?;
        // These servers are not upstreams, although dnsmasq may list them.
        let others = servers_of_pod(&options, &probes);
        let exechealthz = plan.into_checks(&options, &probes).map(Arc::new);

        let peers = Arc::new(ReportPeers::new(&options));
        let dnsmasq = match options.dnsmasq() {
            Some(server) => Some(Dnsmasq::new(server, others, &options, &peers, &metrics)?),
            None => None,
        };
        let namespace = options.prometheus_namespace.as_str();
        let verdicts = Verdicts::new(namespace, dnsmasq.is_some(), &metrics)?;

        Ok(Self {
            options,
            started: std::time::Instant::now(),
            pod: read_host_name(),
            node: std::env::var("NODE_NAME")
                .ok()
                .filter(|node| !node.is_empty()),
            probes,
            exechealthz,
            dnsmasq,
            metrics,
            peers,
            containers: ContainerHistories::default(),
            limited_clients: LimitedClients::default(),
            traffic: TrafficHistory::default(),
            upstream_histories: UpstreamHistories::default(),
            verdicts,
        })
    }
}

/// Creates a probe for each of `specs`. Fails if two probes have the same label.
fn new_probes(
    options: &Options,
    specs: &[ProbeSpec],
    metrics: &Metrics,
) -> anyhow::Result<Vec<Arc<Probe>>> {
    let namespace = options.prometheus_namespace.as_str();
    let dnsmasq = options.dnsmasq();
    let mut labels = BTreeSet::new();
    let mut probes = Vec::with_capacity(specs.len());

    for spec in specs {
        // The label is part of the metric names, and of the path of the health check.
        if !labels.insert(spec.label.as_str()) {
            bail!("--probe: the label {} is used twice", spec.label);
        }
        let part = probed_part(spec, dnsmasq.as_ref(), &options.kubedns_addr);
        let probe = Probe::new(spec.clone(), part, options.health, namespace, metrics)?;
        probes.push(Arc::new(probe));
    }
    Ok(probes)
}

/// The host name. It is the name of the pod, unless the pod is on the host network or its manifest
/// sets `hostname`. Empty if the host name cannot be read.
fn read_host_name() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    text.trim().to_owned()
}

impl Dnsmasq {
    /// `others` are servers of the pod itself, which are not upstreams.
    fn new(
        server: ServerAddr,
        others: Vec<ServerAddr>,
        options: &Options,
        peers: &Arc<ReportPeers>,
        metrics: &Metrics,
    ) -> Result<Self, MetricError> {
        let namespace = options.prometheus_namespace.as_str();
        let interval = options.dnsmasq_poll_interval();
        let counters = CounterReader::new(server.clone(), interval, namespace, metrics)?;

        let settings = ProbeSettings {
            interval: Duration::from_millis(options.upstream_probe_interval_ms),
            probe_name: options.upstream_probe_name.clone(),
        };
        let upstreams = UpstreamProbes::new(
            server,
            others,
            Arc::clone(peers),
            settings,
            namespace,
            metrics,
        )?;
        Ok(Self {
            counters: Arc::new(counters),
            upstreams: Arc::new(upstreams),
        })
    }
}

/// The addresses of kubedns and dnsmasq, from the flags and from their probes. Any other probed
/// server may be an upstream of dnsmasq, too.
fn servers_of_pod(options: &Options, probes: &[Arc<Probe>]) -> Vec<ServerAddr> {
    let of_pod = probes.iter().filter(|probe| probe.part() != PodPart::Other);
    of_pod
        .map(|probe| probe.spec().server.clone())
        .chain([options.kubedns_addr.clone()])
        .chain(options.dnsmasq())
        .collect()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use daemon::flags::Style;

    use super::*;

    /// The probe `corp` queries a server that may be an upstream of dnsmasq, too.
    #[test]
    fn servers_of_pod_are_only_kubedns_and_dnsmasq() {
        let words = [
            "--probe=kubedns,127.0.0.2:10053,kubernetes.default",
            "--probe=mine,127.0.0.1:53,kubernetes.default",
            "--probe=corp,192.0.2.1,www.corp.test",
        ];
        let words = words.iter().map(OsString::from);
        let options: Options = daemon::flags::parse("sidecar", Style::Pflag, words).unwrap();
        let metrics = Metrics::new("x").unwrap();
        let probes = new_probes(&options, &options.probe, &metrics).unwrap();

        let servers = servers_of_pod(&options, &probes);
        let servers: Vec<String> = servers.iter().map(ToString::to_string).collect();
        let [of_probe, kubedns, dnsmasq] = ["127.0.0.2:10053", "127.0.0.1:10053", "127.0.0.1:53"];
        assert_eq!(servers, [of_probe, dnsmasq, kubedns, dnsmasq]);
    }
}
