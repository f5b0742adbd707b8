//! One probe: sends the same query to one server at an interval, and judges the responses.

use std::sync::Arc;
use std::time::Duration;

use daemon::metrics::{MetricError, Metrics};
use dnsclient::{DnsAnswer, ExchangeError, TIMEOUT, chaos, query_server, rcode_name};
use parking_lot::Mutex;
use prometheus::{Histogram, IntCounter, IntGauge};
use reports::sidecar::{PodPart, ProbeState};
use tokio::time::{Instant, interval_at, sleep_until};
use tokio_util::sync::CancellationToken;
use wire::ServerAddr;

use crate::health::{Health, ProbeFailure, ProbeOutcome};
use crate::metric_name::metric_name;
use crate::options::HealthMode;
use crate::spec::ProbeSpec;
use crate::time::{Now, milliseconds, repeat};

/// The maximum delay of the first probe after the start.
const MAX_FIRST_DELAY: Duration = Duration::from_secs(5);
/// A round of probes ends when a probe gets records for the probed name, or when at least this
/// number of probes in a row got none. The probes of earlier rounds count, too. So after a round
/// without records, the next round has only one probe.
const FAILURES_TO_KNOW: u32 = 3;
/// The longest time between the starts of two successive probes of a round.
const REPETITION: Duration = TIMEOUT;
/// Number of latency buckets. The first bound is 0.25 ms; each further bound is twice the previous
/// bound, up to 8192 ms.
const BUCKETS: usize = 16;

/// The part of the pod that `spec` probes. The labels `kubedns` and `dnsmasq` of the usual
/// manifests decide, whatever the address is. For other labels, the address decides.
pub(crate) fn probed_part(
    spec: &ProbeSpec,
    dnsmasq: Option<&ServerAddr>,
    kubedns: &ServerAddr,
) -> PodPart {
    match spec.label.as_str() {
        "kubedns" => PodPart::Kubedns,
        "dnsmasq" => PodPart::Dnsmasq,
        _ if Some(&spec.server) == dnsmasq => PodPart::Dnsmasq,
        _ if spec.server == *kubedns => PodPart::Kubedns,
        _ => PodPart::Other,
    }
}

/// A probe with its results.
#[derive(Debug)]
pub(crate) struct Probe {
    spec: ProbeSpec,
    part: PodPart,
    mode: HealthMode,
    metrics: ProbeMetrics,
    health: Mutex<Health>,
}

impl Probe {
    pub(crate) fn new(
        spec: ProbeSpec,
        part: PodPart,
        mode: HealthMode,
        namespace: &str,
        metrics: &Metrics,
    ) -> Result<Self, MetricError> {
        let metrics = ProbeMetrics::new(&spec.label, part, namespace, metrics)?;
        let health = Health::waiting(std::time::Instant::now());

        Ok(Self {
            spec,
            part,
            mode,
            metrics,
            health: Mutex::new(health),
        })
    }

    pub(crate) fn spec(&self) -> &ProbeSpec {
        &self.spec
    }

    pub(crate) fn part(&self) -> PodPart {
        self.part
    }

    pub(crate) fn health(&self) -> Health {
        self.health.lock().clone()
    }

    /// Probes in rounds until `stop`. The delay of the first round depends on `index` and `count`,
    /// so that the rounds of different probes are spread out. A round begins only after the
    /// previous round has ended.
    pub(crate) async fn run(self: Arc<Self>, index: usize, count: usize, stop: CancellationToken) {
        let first = Instant::now() + first_delay(self.spec.interval, index, count);
        let ticks = interval_at(first, self.spec.interval);
        repeat(ticks, stop, || self.probe_until_known()).await;
    }

    /// Runs one round of probes; see [`FAILURES_TO_KNOW`].
    async fn probe_until_known(&self) {
        loop {
            let next = Instant::now() + REPETITION.min(self.spec.interval);
            self.probe_once().await;
            if !(1..FAILURES_TO_KNOW).contains(&self.health.lock().failures) {
                return;
            }
            sleep_until(next).await;
        }
    }

    pub(crate) async fn probe_once(&self) {
        let spec = &self.spec;
        // A probe of dnsmasq may send two queries. They are sent at the same time, because each of
        // them takes its whole timeout if dnsmasq is silent.
        let (asked, own_latency) = tokio::join!(
            query_server(&spec.server, spec.transport, &spec.question, TIMEOUT),
            self.own_answer_latency(),
        );
        self.record(self.judge(asked, own_latency));
    }

    /// Judges the response for the probed name. `own_latency` is the latency of an answer that
    /// dnsmasq gives without its upstreams.
    fn judge(
        &self,
        asked: Result<DnsAnswer, ExchangeError>,
        own_latency: Option<Duration>,
    ) -> ProbeOutcome {
        let (failure, latency) = match asked {
            Ok(DnsAnswer { message, latency }) if !message.answers.is_empty() => {
                return ProbeOutcome {
                    state: ProbeState::Ok,
                    latency,
                    failure: ProbeFailure::default(),
                };
            }
            Ok(answer) => (self.missing_records(&answer), Some(answer.latency)),
            Err(error) => (ProbeFailure::of_error(&error), None),
        };

        // The probe got no records for the probed name. The mode and the part decide what still
        // counts as healthy.
        let healthy_latency = match (self.mode, self.part) {
            (HealthMode::SelfOnly, PodPart::Dnsmasq) => own_latency,
            (HealthMode::SelfOnly, PodPart::Kubedns) => latency,
            (HealthMode::SelfOnly, PodPart::Other) | (HealthMode::Through, _) => None,
        };
        let state = if healthy_latency.is_some() {
            ProbeState::SelfOnly
        } else {
            ProbeState::Failed
        };
        ProbeOutcome {
            state,
            latency: healthy_latency.unwrap_or_default(),
            failure,
        }
    }

    /// The failure of a response without records.
    fn missing_records(&self, answer: &DnsAnswer) -> ProbeFailure {
        let name = self.spec.question.name().to_ascii();
        ProbeFailure {
            error: format!("no RRs for domain {}", daemon::flags::quote(&name)),
            rcode: rcode_name(answer.message.metadata.response_code),
        }
    }

    /// The latency of an answer that dnsmasq gives without its upstreams. `None` if there is no
    /// such answer, if the server is not dnsmasq, or if only answers for the probed name count as
    /// healthy.
    async fn own_answer_latency(&self) -> Option<Duration> {
        if (self.mode, self.part) != (HealthMode::SelfOnly, PodPart::Dnsmasq) {
            return None;
        }
        let question = chaos::txt_query("cachesize.bind.");
        let answer = query_server(&self.spec.server, self.spec.transport, &question, TIMEOUT)
            .await
            .ok()?;
        chaos::txt_strings(&answer).next().map(|_| answer.latency)
    }

    fn record(&self, outcome: ProbeOutcome) {
        let label = &self.spec.label;
        let ProbeOutcome {
            state,
            latency,
            failure: ProbeFailure { error, rcode },
        } = outcome.clone();
        tracing::debug!(label, ?state, ?latency, error, rcode, "probed");

        let mut health = self.health.lock();
        self.metrics.count(&outcome);
        let has_changed = health.record(outcome, Now::read());
        let failures = health.failures;
        drop(health);
        self.metrics.failures_in_a_row.set(failures.into());

        // One line for each change: a lasting failure must not fill the log.
        match state {
            _ if !has_changed => {}
            ProbeState::Ok | ProbeState::Waiting => {
                tracing::info!(label, "the probed name is answered");
            }
            ProbeState::SelfOnly => {
                tracing::warn!(
                    label,
                    error,
                    rcode,
                    "the server responds, but does not resolve the probed name"
                );
            }
            ProbeState::Failed => tracing::warn!(label, error, rcode, "probe failed"),
        }
    }
}

/// Delay of the first probe.
fn first_delay(interval: Duration, index: usize, count: usize) -> Duration {
    let slots = u32::try_from(count.saturating_add(1)).unwrap_or(u32::MAX);
    let slot = u32::try_from(index.saturating_add(1)).unwrap_or(u32::MAX);
    (interval.min(MAX_FIRST_DELAY) / slots).saturating_mul(slot)
}

#[derive(Debug)]
struct ProbeMetrics {
    latency: Histogram,
    errors: IntCounter,
    failures_in_a_row: IntGauge,
    backend_away: Option<IntGauge>,
}

impl ProbeMetrics {
    fn new(
        label: &str,
        part: PodPart,
        namespace: &str,
        metrics: &Metrics,
    ) -> Result<Self, MetricError> {
        let name = |what: &str| metric_name(namespace, &format!("probe_{label}_{what}"));
        let bounds = std::iter::successors(Some(0.25), |bound| Some(bound * 2.0));
        let buckets: Vec<f64> = bounds.take(BUCKETS).collect();

        // Only dnsmasq and kubedns can be healthy without an answer for the probed name.
        let backend_away = match part {
            PodPart::Other => None,
            PodPart::Dnsmasq | PodPart::Kubedns => Some(metrics.int_gauge(
                &name("backend_away"),
                &format!("1 while {label} is healthy, but does not resolve the probed name. Always 0 if only an answer for the probed name counts as healthy."),
            )?),
        };

        Ok(Self {
            latency: metrics.histogram(
                &name("latency_ms"),
                &format!("Latency of the DNS probe request {label}"),
                &buckets,
            )?,
            errors: metrics.int_counter(
                &name("errors"),
                &format!("Count of errors in name resolution of {label}"),
            )?,
            failures_in_a_row: metrics.int_gauge(
                &name("failures_in_a_row"),
                &format!("Probes of {label} in a row without an answer for the probed name."),
            )?,
            backend_away,
        })
    }

    fn count(&self, outcome: &ProbeOutcome) {
        if let Some(gauge) = &self.backend_away {
            gauge.set(i64::from(outcome.state == ProbeState::SelfOnly));
        }

        match outcome.state {
            ProbeState::Ok => self.latency.observe(milliseconds(outcome.latency)),
            ProbeState::SelfOnly | ProbeState::Failed => self.errors.inc(),
            ProbeState::Waiting => {}
        }
    }
}

#[cfg(test)]
mod tests;
