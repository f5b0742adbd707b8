//! dnsmasq's own counters.
//!
//! dnsmasq answers CHAOS TXT queries such as `hits.bind` with counts since its start. A restart of
//! dnsmasq resets these counts to zero, and a restart of the sidecar resets the exported counters.
//! If dnsmasq or the sidecar restarts alone, Prometheus must not count the same queries twice. So
//! each reading is converted into an increase ([`CounterReadings`]).

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use daemon::metrics::{MetricError, Metrics};
use dnsclient::{TIMEOUT, chaos, query_server, rcode_name};
use parking_lot::Mutex;
use prometheus::{IntCounter, IntGauge};
use reports::sidecar::DnsmasqCounters;
use tokio::time::{Instant, interval};
use tokio_util::sync::CancellationToken;
use wire::ServerAddr;
use wire::Transport;

use crate::counter_readings::CounterReadings;
use crate::metric_name::metric_name;
use crate::time::repeat;

/// The minimum interval between two readings.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

/// Time after the sidecar's start in which dnsmasq may still be starting. In this time, failed
/// readings are not counted as errors, unless a reading has succeeded before.
const START_TIME: Duration = Duration::from_secs(10);

/// The last known counters of dnsmasq.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastReading {
    /// The last successful reading, and its time.
    pub(crate) reading: Option<(DnsmasqCounters, SystemTime)>,
    /// The error of the last reading, if it failed.
    pub(crate) error: Option<String>,
    is_failure_logged: bool,
    totals: CounterTotals,
}

/// Reads dnsmasq's counters and exports them.
#[derive(Debug)]
pub(crate) struct CounterReader {
    server: ServerAddr,
    interval: Duration,
    /// Until this time, failed readings are not counted as errors, unless a reading has succeeded
    /// before.
    started_by: Instant,
    metrics: CounterMetrics,
    known: Mutex<LastReading>,
}

impl CounterReader {
    pub(crate) fn new(
        server: ServerAddr,
        interval: Duration,
        namespace: &str,
        metrics: &Metrics,
    ) -> Result<Self, MetricError> {
        Ok(Self {
            server,
            interval: interval.max(MIN_INTERVAL),
            started_by: Instant::now() + START_TIME,
            metrics: CounterMetrics::new(namespace, metrics)?,
            known: Mutex::default(),
        })
    }

    pub(crate) fn server(&self) -> &ServerAddr {
        &self.server
    }

    pub(crate) fn known(&self) -> LastReading {
        self.known.lock().clone()
    }

    pub(crate) async fn run(self: Arc<Self>, stop: CancellationToken) {
        repeat(interval(self.interval), stop, || self.read_once()).await;
    }

    pub(crate) async fn read_once(&self) {
        match self.read_all().await {
            Ok(counters) => self.record_success(counters),
            Err(error) => self.record_failure(&error),
        }
    }

    async fn read_all(&self) -> anyhow::Result<DnsmasqCounters> {
        Ok(DnsmasqCounters {
            hits: self.read_number("hits.bind.").await?,
            misses: self.read_number("misses.bind.").await?,
            evictions: self.read_number("evictions.bind.").await?,
            insertions: self.read_number("insertions.bind.").await?,
            cache_size: self.read_number("cachesize.bind.").await?,
        })
    }

    async fn read_number(&self, name: &'static str) -> anyhow::Result<u64> {
        let question = chaos::txt_query(name);
        let asked = query_server(&self.server, Transport::Udp, &question, TIMEOUT).await;
        let answer = asked.context(name)?;
        let text = chaos::txt_strings(&answer).next();

        // dnsmasq answers with a number as text, but another server may answer with anything.
        let number = text.as_deref().and_then(|text| text.parse().ok());
        number.with_context(|| {
            if let Some(text) = &text {
                return format!("{name} is answered with {text:?}, expected a number");
            }
            let rcode = rcode_name(answer.message.metadata.response_code);
            format!("{name} is answered with {rcode} and no text, expected a number")
        })
    }

    fn record_success(&self, counters: DnsmasqCounters) {
        let mut known = self.known.lock();
        self.metrics.export(counters, &mut known.totals);

        // Only the first success, and the first success after a logged failure, are logged.
        if known.is_failure_logged || known.reading.is_none() {
            tracing::info!(server = %self.server, "dnsmasq's counters can be read");
        }
        known.reading = Some((counters, SystemTime::now()));
        known.error = None;
        known.is_failure_logged = false;
    }

    fn record_failure(&self, error: &anyhow::Error) {
        self.metrics.up.set(0);
        let mut known = self.known.lock();

        // dnsmasq may start after the sidecar.
        let is_starting = known.reading.is_none() && Instant::now() < self.started_by;
        if !is_starting {
            self.metrics.errors.inc();
        }
        if !is_starting && !known.is_failure_logged {
            let error: &dyn std::error::Error = error.as_ref();
            tracing::warn!(server = %self.server, error, "cannot read dnsmasq's counters");
            known.is_failure_logged = true;
        }
        known.error = Some(format!("{error:#}"));
    }
}

/// The last reading of each counter, from which the next increase is calculated.
#[derive(Clone, Debug, Default)]
struct CounterTotals {
    hits: CounterReadings,
    misses: CounterReadings,
    evictions: CounterReadings,
    insertions: CounterReadings,
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
        Ok(Self {
            hits: metrics.int_counter(
                &name("hits"),
                "Number of DNS cache hits (from start of process)",
            )?,
            misses: metrics.int_counter(
                &name("misses"),
                "Number of DNS cache misses (from start of process)",
            )?,
            evictions: metrics.int_counter(
                &name("evictions"),
                "Counter of DNS cache evictions (from start of process)",
            )?,
            insertions: metrics.int_counter(
                &name("insertions"),
                "Counter of DNS cache insertions (from start of process)",
            )?,
            errors: metrics.int_counter(
                &name("errors"),
                "Number of errors that have occurred getting metrics",
            )?,
            // Differs from kube-dns, where this size is a counter. Queries in dashboards work with
            // both types.
            max_size: metrics.int_gauge(&name("max_size"), "Maximum size of the DNS cache")?,
            up: metrics.int_gauge(&name("up"), "1 while the counters of dnsmasq can be read.")?,
        })
    }

    /// Exports a reading, and the increases since the last one.
    fn export(&self, counters: DnsmasqCounters, totals: &mut CounterTotals) {
        self.hits.inc_by(totals.hits.increase(counters.hits));
        self.misses.inc_by(totals.misses.increase(counters.misses));
        self.evictions
            .inc_by(totals.evictions.increase(counters.evictions));
        self.insertions
            .inc_by(totals.insertions.increase(counters.insertions));

        let cache_size = i64::try_from(counters.cache_size).unwrap_or(i64::MAX);
        self.max_size.set(cache_size);
        self.up.set(1);
    }
}

#[cfg(test)]
mod tests;
