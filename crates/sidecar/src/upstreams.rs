//! The servers dnsmasq forwards to: do they answer, and how fast?
//!
//! dnsmasq tells whom it asks and how often (CHAOS TXT `servers.bind`), but not what becomes of it: of a server that is
//! dead, silent, or fails every query, dnsmasq 2.90 counts no failure. So each of its servers is asked one small
//! question now and then, from the network dnsmasq is in. A server that is probed anyway, such as kubedns, is not.
//!
//! The question fits what the server is there for, as far as the nanny tells: the SOA of its stub domain, or else the
//! name servers of the root, which every resolver knows. SERVFAIL is a failure. So is REFUSED, but from a server that
//! may be there for other names than the one asked for.

mod listed;
mod metrics;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use daemon::metrics::{MetricError, Metrics};
use hickory_proto::op::{Query, ResponseCode};
use hickory_proto::rr::{Name, RecordType};
use serde::Serialize;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;

use self::listed::{Listed, list};
use self::metrics::{SeriesOf, UpstreamMetrics};
use crate::counters::Monotonic;
use crate::endpoint::Endpoint;
use crate::exchange::{Answer, ExchangeError, TIMEOUT, ask};
use crate::spec::Transport;
use crate::status::{Nanny, told};

/// Servers probed at most; dnsmasq may have any number.
const MAX: usize = 64;
/// Servers are not probed more often than this.
const SHORTEST: Duration = Duration::from_secs(1);
/// The first round waits for dnsmasq to be up.
const FIRST: Duration = Duration::from_secs(2);
/// So many failures in a row make a condition: one lost packet makes none.
const IN_A_ROW: u32 = 2;

/// How an upstream is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Condition {
    /// Not known yet.
    #[default]
    Waiting,
    /// It answers.
    Answers,
    /// It answers SERVFAIL, or REFUSED where it should not.
    Fails,
    /// No answer comes.
    Silent,
}

/// What an upstream is asked, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Purpose {
    /// The stub domains it serves, sorted; `.` stands for all other names. Empty when that is not known.
    domains: Vec<String>,
    question: Query,
}

/// Why a probe of an upstream failed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Trouble {
    cause: Cause,
    text: String,
}

/// The cause in metric labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    Timeout,
    Unreachable,
    Servfail,
    Refused,
}

impl Cause {
    fn label(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Unreachable => "unreachable",
            Self::Servfail => "servfail",
            Self::Refused => "refused",
        }
    }

    fn condition(self) -> Condition {
        match self {
            Self::Timeout | Self::Unreachable => Condition::Silent,
            Self::Servfail | Self::Refused => Condition::Fails,
        }
    }
}

/// What is known of one upstream.
#[derive(Debug)]
struct Upstream {
    purpose: Purpose,
    condition: Condition,
    since: SystemTime,
    failures_in_a_row: u32,
    probes: u64,
    failures: u64,
    latency: Option<Duration>,
    error: String,
    queries: u64,
    asked: Monotonic,
    series: SeriesOf,
}

/// One upstream for `/status` and the page.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UpstreamStatus {
    /// Its address.
    pub address: String,
    /// The stub domains it serves; `.` stands for all other names. Empty when that is not known.
    pub serves: Vec<String>,
    /// How it is doing.
    pub condition: Condition,
    /// Since when, in milliseconds since 1970.
    pub since: u64,
    /// How long its last answer took.
    pub latency_ms: Option<f64>,
    /// Why the last probe failed; empty if it did not.
    pub error: String,
    /// How often it was probed.
    pub probes: u64,
    /// How often in vain.
    pub failures: u64,
    /// How often dnsmasq says to have asked it since it started.
    pub queries: u64,
}

/// Probes the servers of one dnsmasq.
#[derive(Debug)]
pub struct Upstreams {
    dnsmasq: Endpoint,
    /// Probed in another way, or not meant.
    others: Vec<Endpoint>,
    nanny_status: String,
    interval: Duration,
    metrics: UpstreamMetrics,
    known: Mutex<BTreeMap<SocketAddr, Upstream>>,
}

impl Upstreams {
    /// Nothing is known yet. `others` are not probed; an `interval` of zero means that nobody is.
    ///
    /// # Errors
    ///
    /// [`MetricError`] when the namespace does not make valid names.
    pub fn new(
        dnsmasq: Endpoint,
        others: Vec<Endpoint>,
        nanny_status: &str,
        interval: Duration,
        namespace: &str,
        metrics: &Metrics,
    ) -> Result<Self, MetricError> {
        let metrics = UpstreamMetrics::new(namespace, metrics)?;
        let nanny_status = nanny_status.to_owned();
        Ok(Self { dnsmasq, others, nanny_status, interval, metrics, known: Mutex::default() })
    }

    /// What is known now, by address.
    pub fn status(&self) -> Vec<UpstreamStatus> {
        self.known().iter().map(|(address, upstream)| upstream.status(*address)).collect()
    }

    /// Probes until `stop`.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        if self.interval.is_zero() {
            return stop.cancelled().await;
        }
        let mut ticks = interval_at(Instant::now() + FIRST, self.interval.max(SHORTEST));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let rounds = async {
            loop {
                ticks.tick().await;
                Arc::clone(&self).round().await;
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = rounds => {}
        }
    }

    /// Learns whom dnsmasq asks, and asks each of them once. Without an answer of dnsmasq, those it asked before.
    async fn round(self: Arc<Self>) {
        match list(&self.dnsmasq).await {
            Ok(listed) => {
                let nanny = told(&self.nanny_status, Nanny::read).await.known.unwrap_or_default();
                self.follow(&listed, &nanny);
            }
            Err(error) => tracing::debug!(server = %self.dnsmasq, error, "dnsmasq does not tell its servers"),
        }
        let mut probes = JoinSet::new();
        for (address, question) in self.questions() {
            let this = Arc::clone(&self);
            probes.spawn(async move {
                let asked = ask(&Endpoint::Address(address), Transport::Udp, &question, TIMEOUT).await;
                this.record(address, asked);
            });
        }
        probes.join_all().await;
    }

    fn questions(&self) -> Vec<(SocketAddr, Query)> {
        let known = self.known();
        known.iter().map(|(address, upstream)| (*address, upstream.purpose.question.clone())).collect()
    }

    /// Takes over the list: new servers come, old ones go, with all that was known of them.
    fn follow(&self, listed: &[Listed], nanny: &Nanny) {
        let excluded = |address: SocketAddr| {
            let nowhere =
                nanny.routes.nowhere.as_ref().is_some_and(|nowhere| *nowhere == address.to_string());
            nowhere || self.others.contains(&Endpoint::Address(address))
        };
        let wanted: BTreeMap<SocketAddr, u64> = listed
            .iter()
            .filter(|server| !excluded(server.address))
            .take(MAX)
            .map(|server| (server.address, server.queries))
            .collect();
        let mut known = self.known();
        let before: BTreeSet<SocketAddr> = known.keys().copied().collect();
        known.retain(|address, _| wanted.contains_key(address));
        for gone in before.difference(&known.keys().copied().collect()) {
            self.metrics.forget(*gone);
        }
        for (address, queries) in &wanted {
            let upstream = known
                .entry(*address)
                .or_insert_with(|| Upstream::new(Purpose::unknown(), self.metrics.series_of(*address)));
            upstream.purpose = Purpose::of(*address, nanny);
            upstream.queries = *queries;
            upstream.series.asked(upstream.asked.increase(*queries));
        }
        if before != known.keys().copied().collect() {
            let upstreams: Vec<String> = known.keys().map(ToString::to_string).collect();
            tracing::info!(upstreams = upstreams.join(" "), "probing the servers dnsmasq asks");
        }
    }

    fn record(&self, address: SocketAddr, asked: Result<Answer, ExchangeError>) {
        if let Some(upstream) = self.known().get_mut(&address) {
            let outcome = upstream.purpose.judge(asked);
            upstream.record(address, outcome, SystemTime::now());
        }
    }

    /// No code that holds the lock can panic half way through a change.
    fn known(&self) -> MutexGuard<'_, BTreeMap<SocketAddr, Upstream>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Purpose {
    fn unknown() -> Self {
        Self { domains: Vec::new(), question: Query::query(Name::root(), RecordType::NS) }
    }

    /// What the nanny has this server for. Servers of dnsmasq's command line are unknown to it.
    fn of(address: SocketAddr, nanny: &Nanny) -> Self {
        let (text, routes) = (address.to_string(), &nanny.routes);
        let mut this = Self::unknown();
        for (domain, servers) in &routes.stub_domains {
            if !servers.contains(&text) {
                continue;
            }
            if let (true, Ok(name)) = (this.domains.is_empty(), Name::from_ascii(format!("{domain}."))) {
                this.question = Query::query(name, RecordType::SOA);
            }
            this.domains.push(domain.clone());
        }
        if routes.upstreams.contains(&text) {
            this.question = Self::unknown().question;
            this.domains.push(".".to_owned());
        }
        this
    }

    fn judge(&self, asked: Result<Answer, ExchangeError>) -> Result<Duration, Trouble> {
        let trouble = |cause, text: String| Err(Trouble { cause, text });
        match asked {
            Ok(answer) => match answer.message.metadata.response_code {
                ResponseCode::ServFail => trouble(Cause::Servfail, self.answered("SERVFAIL")),
                ResponseCode::Refused if !self.domains.is_empty() => {
                    trouble(Cause::Refused, self.answered("REFUSED"))
                }
                _ => Ok(answer.latency),
            },
            Err(error) if error.is_timeout() => trouble(Cause::Timeout, error.to_string()),
            Err(error) => trouble(Cause::Unreachable, error.to_string()),
        }
    }

    fn answered(&self, rcode: &str) -> String {
        format!("{rcode} for {} {}", self.question.name(), self.question.query_type())
    }
}

impl Upstream {
    fn new(purpose: Purpose, series: SeriesOf) -> Self {
        Self {
            purpose,
            condition: Condition::Waiting,
            since: SystemTime::now(),
            failures_in_a_row: 0,
            probes: 0,
            failures: 0,
            latency: None,
            error: String::new(),
            queries: 0,
            asked: Monotonic::default(),
            series,
        }
    }

    fn record(&mut self, address: SocketAddr, outcome: Result<Duration, Trouble>, now: SystemTime) {
        self.probes += 1;
        self.series.probed(&outcome);
        let condition = match outcome {
            Ok(latency) => {
                (self.failures_in_a_row, self.latency) = (0, Some(latency));
                self.error.clear();
                Condition::Answers
            }
            Err(Trouble { cause, text }) => {
                self.failures += 1;
                self.failures_in_a_row += 1;
                self.error = text;
                if self.failures_in_a_row < IN_A_ROW {
                    return;
                }
                cause.condition()
            }
        };
        let before = std::mem::replace(&mut self.condition, condition);
        if before != condition {
            self.tell(address, before, now);
            self.since = now;
        }
    }

    /// One line a change. That an upstream answers at the start is no news.
    fn tell(&self, address: SocketAddr, before: Condition, now: SystemTime) {
        let (upstream, serves) = (address, self.purpose.domains.join(" "));
        match self.condition {
            Condition::Answers if before != Condition::Waiting => {
                let lasted = now.duration_since(self.since).unwrap_or_default();
                tracing::info!(%upstream, serves, ?lasted, "a server dnsmasq asks answers again");
            }
            Condition::Fails => {
                tracing::warn!(%upstream, serves, error = self.error, "a server dnsmasq asks fails");
            }
            Condition::Silent => {
                tracing::warn!(%upstream, serves, error = self.error, "a server dnsmasq asks does not answer");
            }
            Condition::Answers | Condition::Waiting => {}
        }
    }

    fn status(&self, address: SocketAddr) -> UpstreamStatus {
        let since = self.since.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        UpstreamStatus {
            address: address.to_string(),
            serves: self.purpose.domains.clone(),
            condition: self.condition,
            since: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
            latency_ms: self.latency.map(|latency| latency.as_secs_f64() * 1000.0),
            error: self.error.clone(),
            probes: self.probes,
            failures: self.failures,
            queries: self.queries,
        }
    }
}

#[cfg(test)]
mod tests;
