//! The health checks of exechealthz, which ran in the container `healthz` of kube-dns up to
//! Kubernetes 1.5. This module chooses the probes of each path, and reports their results.
//! [`crate::nslookup`] parses the commands of exechealthz.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::bail;
use daemon::http;
use hickory_proto::op::Query;
use hickory_proto::rr::RecordType;
use warp::Filter;
use warp::http::StatusCode;
use warp::reply::Response;
use wire::Transport;

use crate::nslookup::NslookupQuery;
use crate::options::Options;
use crate::probe::Probe;
use crate::spec::{DEFAULT_INTERVAL, ProbeSpec};

/// The path of a command without `--url`. Without a command, this path reports all probes.
const DEFAULT_PATH: &str = "/healthz";
/// The default port of exechealthz.
const DEFAULT_PORT: u16 = 8080;
/// A result is too old if its age exceeds the interval of the probe by more than this time.
const MAX_DELAY: Duration = Duration::from_secs(30);

/// All probes, and the probes that each path reports.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HealthPlan {
    /// The probes of `--probe`, then the probes that replace commands.
    pub(crate) specs: Vec<ProbeSpec>,
    /// Each path, with the indices of its probes in `specs`. Empty if neither a command nor
    /// `--exechealthz-port` is given.
    paths: Vec<(String, Vec<usize>)>,
}

impl HealthPlan {
    /// Builds the plan. Fails if the numbers of paths and commands differ, if a path does not begin
    /// with a slash, or if there are no probes for `--exechealthz-port`.
    pub(crate) fn new(options: &Options) -> anyhow::Result<Self> {
        let specs = options.probe.clone();
        if options.cmd.is_empty() && options.url.is_empty() {
            return Self::of_probes(specs, options.exechealthz_port != 0);
        }

        // exechealthz paired commands and paths by their order.
        let mut urls = options.url.clone();
        if urls.is_empty() {
            urls.push(DEFAULT_PATH.to_owned());
        }
        if urls.len() != options.cmd.len() {
            bail!(
                "the number of commands (--cmd) is {}, but the number of paths (--url, {DEFAULT_PATH} by default) is {}",
                options.cmd.len(),
                urls.len()
            );
        }

        let mut plan = Self {
            specs,
            paths: Vec::new(),
        };
        for (url, command) in urls.into_iter().zip(&options.cmd) {
            if !url.starts_with('/') {
                bail!("--url: {url:?} does not begin with a slash");
            }
            let lookups = command.0.iter();
            let probes = lookups.map(|lookup| plan.probe_index(lookup, options));
            let probes = probes.collect();
            plan.paths.push((url, probes));
        }
        Ok(plan)
    }

    /// Builds the plan without commands. If `--exechealthz-port` is set (`is_wanted`), each probe
    /// has a path of its own, and one further path reports all probes.
    fn of_probes(specs: Vec<ProbeSpec>, is_wanted: bool) -> anyhow::Result<Self> {
        let mut paths = Vec::new();
        if !is_wanted {
            return Ok(Self { specs, paths });
        }
        // A check without probes would always succeed.
        if specs.is_empty() {
            bail!("--exechealthz-port: there is nothing to check without a --probe or a --cmd");
        }

        for (index, spec) in specs.iter().enumerate() {
            paths.push((format!("/healthz-{}", spec.label), vec![index]));
        }
        paths.push((DEFAULT_PATH.to_owned(), (0..specs.len()).collect()));
        Ok(Self { specs, paths })
    }

    /// The index of the probe that replaces this `nslookup`: an existing probe, or a new one.
    fn probe_index(&mut self, lookup: &NslookupQuery, options: &Options) -> usize {
        // An existing probe for the same name at the same server replaces the lookup.
        let existing = self
            .specs
            .iter()
            .position(|spec| spec.server == lookup.server && *spec.question.name() == lookup.name);
        if let Some(index) = existing {
            return index;
        }

        self.specs.push(ProbeSpec {
            label: self.new_label(lookup, options),
            server: lookup.server.clone(),
            question: Query::query(lookup.name.clone(), RecordType::A),
            transport: Transport::Udp,
            interval: DEFAULT_INTERVAL,
        });
        self.specs.len() - 1
    }

    /// Returns the label for the probe of this server. dnsmasq and kubedns get the label that they
    /// usually have in manifests. Other servers get a numbered label, and so do dnsmasq and kubedns
    /// if their usual label is taken.
    fn new_label(&self, lookup: &NslookupQuery, options: &Options) -> String {
        let usual = match &lookup.server {
            server if Some(server) == options.dnsmasq().as_ref() => Some("dnsmasq"),
            server if *server == options.kubedns_addr => Some("kubedns"),
            _ => None,
        };

        match usual {
            Some(label) if !self.specs.iter().any(|spec| spec.label == label) => label.to_owned(),
            _ => format!("healthz_{}", self.specs.len() + 1),
        }
    }

    /// The checks with their probes; `None` if the plan has no paths.
    pub(crate) fn into_checks(
        self,
        options: &Options,
        probes: &[Arc<Probe>],
    ) -> Option<HealthzChecks> {
        if self.paths.is_empty() {
            return None;
        }
        let port = match options.exechealthz_port {
            0 => DEFAULT_PORT,
            port => port,
        };

        // The probes have the order of the plan.
        let mut paths = Vec::with_capacity(self.paths.len());
        for (path, indices) in self.paths {
            let checked = indices.iter().filter_map(|index| probes.get(*index));
            paths.push((path, checked.cloned().collect()));
        }
        Some(HealthzChecks { port, paths })
    }
}

/// The checks of each path on the port of exechealthz.
#[derive(Debug)]
pub(crate) struct HealthzChecks {
    pub(crate) port: u16,
    paths: Vec<(String, Vec<Arc<Probe>>)>,
}

impl HealthzChecks {
    /// Returns 404 for an unknown path, 503 if a probe of the path fails its health check or has
    /// no recent result, else 200. exechealthz returned 200 if its command exited with 0.
    fn reply_at(&self, path: &str) -> Response {
        let Some((_, probes)) = self.paths.iter().find(|(known, _)| known == path) else {
            // Differs from exechealthz, which answers unknown paths with a page, and exits on
            // `/quit`.
            return http::not_found();
        };

        let now = Instant::now();
        match probes.iter().find_map(|probe| probe_error(probe, now)) {
            None => http::text(StatusCode::OK, "ok"),
            Some(error) => http::plain_error(
                StatusCode::SERVICE_UNAVAILABLE,
                format!("Healthz probe on {path} error: {error}\n"),
            ),
        }
    }
}

/// Returns why a probe fails. As with exechealthz, a probe without a result succeeds until the
/// result is overdue.
fn probe_error(probe: &Probe, now: Instant) -> Option<String> {
    let health = probe.health();
    let label = &probe.spec().label;
    if health.age(now) > probe.spec().interval + MAX_DELAY {
        return Some(format!("{label}: latest result too old to be useful"));
    }

    let last = health.last;
    last.state
        .is_failed()
        .then(|| format!("{label}: {}", last.failure.error))
}

/// The routes of the port of exechealthz.
pub(crate) fn routes(
    checks: Arc<HealthzChecks>,
) -> impl Filter<Extract = (Response,), Error = warp::Rejection> + Clone + Send + Sync + 'static {
    warp::path::full()
        .map(move |path: warp::path::FullPath| checks.reply_at(path.as_str()))
        .boxed()
}

#[cfg(test)]
mod tests;
