//! One probe: sends the same query to one server at an interval, and judges the responses.

use std::sync::Arc;
use std::time::Duration;

use daemon::metrics::{MetricError, Metrics};
use dnsclient::{DnsAnswer, ExchangeError, TIMEOUT, chaos, query_server, rcode_name};
use parking_lot::Mutex;
use prometheus::{Histogram, IntCounter, IntGauge};
use tokio::time::{Instant, interval_at};
use tokio_util::sync::CancellationToken;
use wire::ServerAddr;

use crate::health::{Failure, Health, State, Verdict};
use crate::metric_name::metric_name;
use crate::options::Mode;
use crate::spec::Spec;
use crate::time::{Now, repeat};

/// The maximum delay of a first probe after the start.
const STAGGER: Duration = Duration::from_secs(5);
/// Number of latency buckets. The first bound is 0.25 ms; each further bound is twice the previous
/// bound, up to 8192 ms.
const BUCKETS: usize = 16;

/// The part of the pod that a probe checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The dnsmasq whose counters are exported.
    Dnsmasq,
    Kubedns,
    /// Any other server.
    Other,
}

impl Part {
    /// The part that `spec` probes. The labels `kubedns` and `dnsmasq` of the usual manifests
    /// decide, with any port. For other labels, the address decides.
    pub(crate) fn of(spec: &Spec, dnsmasq: Option<&ServerAddr>, kubedns: &ServerAddr) -> Self {
        match spec.label.as_str() {
            "kubedns" => Self::Kubedns,
            "dnsmasq" => Self::Dnsmasq,
            _ if Some(&spec.server) == dnsmasq => Self::Dnsmasq,
            _ if spec.server == *kubedns => Self::Kubedns,
            _ => Self::Other,
        }
    }
}

/// A probe with its results.
#[derive(Debug)]
pub(crate) struct Probe {
    spec: Spec,
    part: Part,
    mode: Mode,
    metrics: ProbeMetrics,
    health: Mutex<Health>,
}

impl Probe {
    pub(crate) fn new(
        spec: Spec,
        part: Part,
        mode: Mode,
        namespace: &str,
        metrics: &Metrics,
    ) -> Result<Self, MetricError> {
        let metrics = ProbeMetrics::new(&spec.label, part, namespace, metrics)?;
        Ok(Self {
            spec,
            part,
            mode,
            metrics,
            health: Mutex::new(Health::waiting(std::time::Instant::now())),
        })
    }

    pub(crate) fn spec(&self) -> &Spec {
        &self.spec
    }

    pub(crate) fn part(&self) -> Part {
        self.part
    }

    pub(crate) fn health(&self) -> Health {
        self.health.lock().clone()
    }

    /// Probes until `stop`. The first query waits for slot `index` of `count` slots, so that the
    /// probes are spread out. A query begins only after the previous query has ended.
    pub(crate) async fn run(self: Arc<Self>, index: usize, count: usize, stop: CancellationToken) {
        let first = Instant::now() + stagger(self.spec.interval, index, count);
        repeat(interval_at(first, self.spec.interval), stop, || self.once()).await;
    }

    pub(crate) async fn once(&self) {
        let Spec {
            server,
            transport,
            question,
            ..
        } = &self.spec;
        let asked = query_server(server, *transport, question, TIMEOUT).await;
        let verdict = self.judge(asked).await;
        self.record(verdict);
    }

    async fn judge(&self, asked: Result<DnsAnswer, ExchangeError>) -> Verdict {
        let (failure, latency) = match asked {
            Ok(DnsAnswer { message, latency }) if !message.answers.is_empty() => {
                return Verdict {
                    state: State::Ok,
                    latency,
                    failure: Failure::default(),
                };
            }
            Ok(answer) => {
                let name = self.spec.question.name().to_ascii();
                let error = format!("no RRs for domain {}", daemon::flags::quote(&name));
                let rcode = rcode_name(answer.message.metadata.response_code);
                (Failure { error, rcode }, Some(answer.latency))
            }
            Err(error) => (
                Failure {
                    error: error.to_string(),
                    rcode: String::new(),
                },
                None,
            ),
        };
        let latency = match (self.mode, self.part) {
            (Mode::Itself, Part::Dnsmasq) => self.dnsmasq_itself().await,
            (Mode::Itself, Part::Kubedns) => latency,
            _ => None,
        };
        let state = if latency.is_some() {
            State::Itself
        } else {
            State::Failed
        };
        Verdict {
            state,
            latency: latency.unwrap_or_default(),
            failure,
        }
    }

    /// The latency of an answer that dnsmasq gives without its upstreams; `None` without such an
    /// answer.
    async fn dnsmasq_itself(&self) -> Option<Duration> {
        let question = chaos::txt_query("cachesize.bind.");
        let answer = query_server(&self.spec.server, self.spec.transport, &question, TIMEOUT)
            .await
            .ok()?;
        chaos::txt_strings(&answer).next().map(|_| answer.latency)
    }

    fn record(&self, verdict: Verdict) {
        let label = &self.spec.label;
        let Verdict {
            state,
            latency,
            failure: Failure { error, rcode },
        } = verdict.clone();
        tracing::debug!(label, ?state, ?latency, error, rcode, "probed");
        let (changed, failures) = {
            let mut health = self.health.lock();
            self.metrics.count(&verdict);
            (health.record(verdict, Now::read()), health.failures)
        };
        self.metrics.failures_in_a_row.set(failures.into());
        match state {
            _ if !changed => {}
            State::Ok | State::Waiting => tracing::info!(label, "the probed name is answered"),
            State::Itself => {
                tracing::warn!(
                    label,
                    error,
                    rcode,
                    "answers for itself, but not for the probed name"
                );
            }
            State::Failed => tracing::warn!(label, error, rcode, "probe failed"),
        }
    }
}

/// Delay of the first probe.
fn stagger(interval: Duration, index: usize, count: usize) -> Duration {
    let parts = u32::try_from(count.saturating_add(1)).unwrap_or(u32::MAX);
    let index = u32::try_from(index.saturating_add(1)).unwrap_or(u32::MAX);
    (interval.min(STAGGER) / parts).saturating_mul(index)
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
        part: Part,
        namespace: &str,
        metrics: &Metrics,
    ) -> Result<Self, MetricError> {
        let name = |what: &str| metric_name(namespace, &format!("probe_{label}_{what}"));
        let buckets: Vec<f64> = std::iter::successors(Some(0.25), |bound| Some(bound * 2.0))
            .take(BUCKETS)
            .collect();
        let backend_away = match part {
            Part::Other => None,
            Part::Dnsmasq | Part::Kubedns => Some(metrics.int_gauge(
                &name("backend_away"),
                &format!("1 while {label} answers for itself but not for the probed name."),
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
                &format!("Probes of {label} since the last one that was answered."),
            )?,
            backend_away,
        })
    }

    fn count(&self, verdict: &Verdict) {
        if let Some(gauge) = &self.backend_away {
            gauge.set(i64::from(verdict.state == State::Itself));
        }
        match verdict.state {
            State::Ok => self.latency.observe(verdict.latency.as_secs_f64() * 1000.0),
            State::Itself | State::Failed => self.errors.inc(),
            State::Waiting => {}
        }
    }
}

#[cfg(test)]
mod tests;
