//! The health checks of exechealthz, the container `healthz` of Kubernetes up to 1.5: the probes of
//! each path, and the responses. [`crate::nslookup`] parses the commands of exechealthz.

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

use crate::nslookup::Lookup;
use crate::options::Options;
use crate::probe::Probe;
use crate::spec::{SECONDS, Spec};

/// The path of a command without `--url`.
const DEFAULT_PATH: &str = "/healthz";
/// The port of exechealthz by default.
const DEFAULT_PORT: u16 = 8080;
/// A result is too old if its age exceeds the interval of the probe by more than this time.
const LATENCY: Duration = Duration::from_secs(30);

/// All probes, and the probes that each path reports.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The probes of `--probe`, then the probes that replace commands.
    pub(crate) specs: Vec<Spec>,
    /// Paths with indices of `specs`; empty without exechealthz.
    paths: Vec<(String, Vec<usize>)>,
}

impl Plan {
    /// Builds the plan. Fails if the numbers of paths and commands differ, if a path does not begin
    /// with a slash, or if there are no probes for `--exechealthz-port`.
    pub(crate) fn new(options: &Options) -> anyhow::Result<Self> {
        let specs = options.probe.clone();
        if options.cmd.is_empty() && options.url.is_empty() {
            return Self::of_probes(specs, options.exechealthz_port != 0);
        }
        let mut urls = options.url.clone();
        if urls.is_empty() {
            urls.push(DEFAULT_PATH.to_owned());
        }
        if urls.len() != options.cmd.len() {
            bail!(
                "--cmd, --url: {} commands for {} paths",
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
            let probes = command
                .0
                .iter()
                .map(|lookup| plan.probe(lookup, options))
                .collect();
            plan.paths.push((url, probes));
        }
        Ok(plan)
    }

    /// Builds the plan without commands: one path per probe, and one path for all probes.
    fn of_probes(specs: Vec<Spec>, wanted: bool) -> anyhow::Result<Self> {
        if !wanted {
            return Ok(Self {
                specs,
                paths: Vec::new(),
            });
        }
        if specs.is_empty() {
            bail!("--exechealthz-port: there is nothing to check without a --probe or a --cmd");
        }
        let each = specs
            .iter()
            .enumerate()
            .map(|(i, spec)| (format!("/healthz-{}", spec.label), vec![i]));
        let paths = each
            .chain([(DEFAULT_PATH.to_owned(), (0..specs.len()).collect())])
            .collect();
        Ok(Self { specs, paths })
    }

    /// The index of the probe that replaces this `nslookup`: an existing probe, or a new one.
    fn probe(&mut self, lookup: &Lookup, options: &Options) -> usize {
        let same =
            |spec: &Spec| spec.server == lookup.server && *spec.question.name() == lookup.name;
        self.specs.iter().position(same).unwrap_or_else(|| {
            self.specs.push(Spec {
                label: self.label(lookup, options),
                server: lookup.server.clone(),
                question: Query::query(lookup.name.clone(), RecordType::A),
                transport: Transport::Udp,
                interval: SECONDS,
            });
            self.specs.len() - 1
        })
    }

    /// The usual label in manifests for this server, or a numbered label if the usual label is
    /// taken or unknown.
    fn label(&self, lookup: &Lookup, options: &Options) -> String {
        let usual = match &lookup.server {
            server if Some(server) == options.dnsmasq().as_ref() => Some("dnsmasq"),
            server if *server == options.kubedns_addr => Some("kubedns"),
            _ => None,
        };
        let taken = |label: &str| self.specs.iter().any(|spec| spec.label == label);
        match usual {
            Some(label) if !taken(label) => label.to_owned(),
            _ => format!("healthz_{}", self.specs.len() + 1),
        }
    }

    /// The checks with their probes; `None` without exechealthz.
    pub(crate) fn checks(self, options: &Options, probes: &[Arc<Probe>]) -> Option<Checks> {
        let port = match options.exechealthz_port {
            0 => DEFAULT_PORT,
            port => port,
        };
        let of = |indices: Vec<usize>| {
            indices
                .iter()
                .filter_map(|i| probes.get(*i).cloned())
                .collect()
        };
        let paths: Vec<_> = self
            .paths
            .into_iter()
            .map(|(path, indices)| (path, of(indices)))
            .collect();
        (!paths.is_empty()).then_some(Checks { port, paths })
    }
}

/// The checks of each path on the port of exechealthz.
#[derive(Debug)]
pub(crate) struct Checks {
    pub(crate) port: u16,
    paths: Vec<(String, Vec<Arc<Probe>>)>,
}

impl Checks {
    /// Returns 200 if all probes of the path succeed, else 503. exechealthz returned 200 if its
    /// command exited with 0.
    fn reply(&self, path: &str) -> Response {
        let Some((_, probes)) = self.paths.iter().find(|(known, _)| known == path) else {
            // Differs from exechealthz, which answers every path with a page, and exits on `/quit`.
            return http::not_found();
        };
        let now = Instant::now();
        match probes.iter().find_map(|probe| complaint(probe, now)) {
            None => http::text(StatusCode::OK, "ok"),
            Some(what) => http::plain_error(
                StatusCode::SERVICE_UNAVAILABLE,
                format!("Healthz probe on {path} error: {what}\n"),
            ),
        }
    }
}

/// Returns why a probe fails. As with exechealthz, a probe without a result succeeds until the
/// result is overdue.
fn complaint(probe: &Probe, now: Instant) -> Option<String> {
    let (health, label) = (probe.health(), &probe.spec().label);
    if health.age(now) > probe.spec().interval + LATENCY {
        return Some(format!("{label}: latest result too old to be useful"));
    }
    health
        .last
        .state
        .is_failed()
        .then(|| format!("{label}: {}", health.last.failure.error))
}

/// The routes of the port of exechealthz.
pub(crate) fn routes(
    checks: Arc<Checks>,
) -> impl Filter<Extract = (Response,), Error = warp::Rejection> + Clone + Send + Sync + 'static {
    warp::path::full()
        .map(move |path: warp::path::FullPath| checks.reply(path.as_str()))
        .boxed()
}

#[cfg(test)]
mod tests;
