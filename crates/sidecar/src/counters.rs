//! dnsmasq's own counters.
//!
//! dnsmasq answers CHAOS TXT queries such as `hits.bind` with counts since its start. A restart
//! resets these counts to zero, but a Prometheus counter must not decrease. So each reading is
//! converted into an increase ([`Monotonic`]).

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use daemon::metrics::{MetricError, Metrics};
use dnsclient::{TIMEOUT, chaos, query_server};
use parking_lot::Mutex;
use prometheus::{IntCounter, IntGauge};
use tokio::time::{Instant, interval};
use tokio_util::sync::CancellationToken;
use wire::ServerAddr;
use wire::Transport;

use crate::metric_name::metric_name;
use crate::monotonic::Monotonic;
use crate::time::repeat;

/// The minimum interval between two readings.
const SHORTEST: Duration = Duration::from_millis(100);

/// Failed readings in this time after the sidecar's start are not counted as errors: dnsmasq may
/// still be starting.
const STARTING: Duration = Duration::from_secs(10);

/// Counters of dnsmasq at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Reading {
    /// Answers from the cache.
    pub(crate) hits: u64,
    /// Queries that dnsmasq forwarded.
    pub(crate) misses: u64,
    /// Names evicted from the cache before they expired.
    pub(crate) evictions: u64,
    /// Names inserted into the cache.
    pub(crate) insertions: u64,
    /// Capacity of the cache, in names.
    pub(crate) cache_size: u64,
}

/// The last known counters of dnsmasq.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    /// The last successful reading, and its time.
    pub(crate) reading: Option<(Reading, SystemTime)>,
    /// The error of the last reading, if it failed.
    pub(crate) error: Option<String>,
    complained: bool,
    last: [Monotonic; 4],
}

/// Reads dnsmasq's counters and exports them.
#[derive(Debug)]
pub(crate) struct Counters {
    server: ServerAddr,
    interval: Duration,
    /// Until this time, failed readings are not counted as errors, unless a reading has succeeded
    /// before.
    started_by: Instant,
    metrics: CounterMetrics,
    known: Mutex<Known>,
}

impl Counters {
    pub(crate) fn new(
        server: ServerAddr,
        interval: Duration,
        namespace: &str,
        metrics: &Metrics,
    ) -> Result<Self, MetricError> {
        let metrics = CounterMetrics::new(namespace, metrics)?;
        let (interval, started_by) = (interval.max(SHORTEST), Instant::now() + STARTING);
        Ok(Self {
            server,
            interval,
            started_by,
            metrics,
            known: Mutex::default(),
        })
    }

    pub(crate) fn server(&self) -> &ServerAddr {
        &self.server
    }

    pub(crate) fn known(&self) -> Known {
        self.known.lock().clone()
    }

    pub(crate) async fn run(self: Arc<Self>, stop: CancellationToken) {
        repeat(interval(self.interval), stop, || self.once()).await;
    }

    pub(crate) async fn once(&self) {
        match self.read().await {
            Ok(reading) => self.take(reading),
            Err(error) => {
                self.metrics.up.set(0);
                let mut known = self.known.lock();
                let starting = known.reading.is_none() && Instant::now() < self.started_by;
                if !starting {
                    self.metrics.errors.inc();
                }
                if !starting && !known.complained {
                    let error: &dyn std::error::Error = error.as_ref();
                    tracing::warn!(server = %self.server, error, "cannot read dnsmasq's counters");
                    known.complained = true;
                }
                known.error = Some(format!("{error:#}"));
            }
        }
    }

    async fn read(&self) -> anyhow::Result<Reading> {
        Ok(Reading {
            hits: self.number("hits.bind.").await?,
            misses: self.number("misses.bind.").await?,
            evictions: self.number("evictions.bind.").await?,
            insertions: self.number("insertions.bind.").await?,
            cache_size: self.number("cachesize.bind.").await?,
        })
    }

    async fn number(&self, name: &'static str) -> anyhow::Result<u64> {
        let asked = query_server(
            &self.server,
            Transport::Udp,
            &chaos::txt_query(name),
            TIMEOUT,
        )
        .await;
        let text = chaos::txt_strings(&asked.context(name)?).next();
        let number = text.as_deref().and_then(|text| text.parse().ok());
        number.with_context(|| format!("{name} is answered with {text:?}, expected a number"))
    }

    fn take(&self, reading: Reading) {
        let Reading {
            hits,
            misses,
            evictions,
            insertions,
            cache_size,
        } = reading;
        let counters = [
            (hits, &self.metrics.hits),
            (misses, &self.metrics.misses),
            (evictions, &self.metrics.evictions),
            (insertions, &self.metrics.insertions),
        ];
        let mut known = self.known.lock();
        for (last, (reading, counter)) in known.last.iter_mut().zip(counters) {
            counter.inc_by(last.increase(reading));
        }
        self.metrics
            .max_size
            .set(i64::try_from(cache_size).unwrap_or(i64::MAX));
        self.metrics.up.set(1);
        if known.complained || known.reading.is_none() {
            tracing::info!(server = %self.server, "reading dnsmasq's counters");
        }
        known.reading = Some((reading, SystemTime::now()));
        (known.error, known.complained) = (None, false);
    }
}

#[derive(Debug)]
struct CounterMetrics {
    hits: IntCounter,
    misses: IntCounter,
    evictions: IntCounter,
    insertions: IntCounter,
    errors: IntCounter,
    max_size: IntGauge,
    up: IntGauge,
}

impl CounterMetrics {
    fn new(namespace: &str, metrics: &Metrics) -> Result<Self, MetricError> {
        let name = |what: &str| metric_name(namespace, &format!("dnsmasq_{what}"));
        let counter = |what: &str, help: &str| metrics.int_counter(&name(what), help);
        Ok(Self {
            hits: counter("hits", "Number of DNS cache hits (from start of process)")?,
            misses: counter(
                "misses",
                "Number of DNS cache misses (from start of process)",
            )?,
            evictions: counter(
                "evictions",
                "Counter of DNS cache evictions (from start of process)",
            )?,
            insertions: counter(
                "insertions",
                "Counter of DNS cache insertions (from start of process)",
            )?,
            errors: counter(
                "errors",
                "Number of errors that have occurred getting metrics",
            )?,
            // Differs from kube-dns, where this size is a counter. Queries in dashboards work with
            // both types.
            max_size: metrics.int_gauge(&name("max_size"), "Maximum size of the DNS cache")?,
            up: metrics.int_gauge(&name("up"), "1 while the counters of dnsmasq can be read.")?,
        })
    }
}

#[cfg(test)]
mod tests;
