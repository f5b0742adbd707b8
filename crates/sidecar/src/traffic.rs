//! Remembers the rates of queries over the last twenty minutes.
//!
//! The rates come from counters that the sidecar reads every few seconds anyway. So the rates cost
//! no further requests, and the status page also shows the minutes before it was opened.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use reports::kubedns::KubednsReport;
use reports::sidecar::{DnsmasqReport, TrafficSample};

use crate::recent::Recent;
use crate::time::{Now, PLOT_INTERVAL};

/// The number of remembered samples, which span about twenty minutes.
const MAX_SAMPLES: usize = 120;

/// The last [`MAX_SAMPLES`] samples.
#[derive(Debug, Default)]
pub(crate) struct TrafficHistory {
    known: Mutex<KnownTraffic>,
}

#[derive(Debug, Default)]
struct KnownTraffic {
    last: Option<TrafficReading>,
    samples: Recent<(Instant, TrafficSample), MAX_SAMPLES>,
}

/// The counters at one time; `None` for counters that were not reported.
#[derive(Clone, Copy, Debug)]
struct TrafficReading {
    at: Instant,
    cluster: Option<f64>,
    external: Option<f64>,
    /// Seconds that the answers to cluster names took.
    cluster_seconds: Option<f64>,
    cache: Option<CacheReading>,
}

#[derive(Clone, Copy, Debug)]
struct CacheReading {
    /// The time of the reading, in milliseconds since 1970.
    at: u64,
    hits: f64,
    misses: f64,
}

impl TrafficHistory {
    /// Reads the counters from the reports, unless the last reading is less than [`PLOT_INTERVAL`]
    /// old. Returns all samples, oldest first.
    pub(crate) fn update(
        &self,
        kubedns: Option<&KubednsReport>,
        dnsmasq: Option<&DnsmasqReport>,
        now: Now,
    ) -> Vec<TrafficSample> {
        let mut known = self.known.lock();
        let is_due = known
            .last
            .is_none_or(|last| now.age(last.at) >= PLOT_INTERVAL);
        if is_due {
            known.add_reading(TrafficReading::of_reports(kubedns, dnsmasq, now));
        }

        let samples = known.samples.iter();
        samples
            .map(|(at, sample)| TrafficSample {
                at: now.millis_of(*at),
                ..*sample
            })
            .collect()
    }
}

impl KnownTraffic {
    fn add_reading(&mut self, reading: TrafficReading) {
        let Some(before) = self.last.replace(reading) else {
            return;
        };

        self.samples
            .push((reading.at, reading.rates_since(&before)));
    }
}

impl TrafficReading {
    fn of_reports(
        kubedns: Option<&KubednsReport>,
        dnsmasq: Option<&DnsmasqReport>,
        now: Now,
    ) -> Self {
        // In a pod with dnsmasq, the plot shows the cache of dnsmasq, even if clients query
        // kubedns.
        let cache = match dnsmasq {
            Some(dnsmasq) => CacheReading::of_dnsmasq(dnsmasq),
            None => kubedns.and_then(|kubedns| CacheReading::of_kubedns(kubedns, now)),
        };
        Self {
            at: now.clock,
            cluster: kubedns.and_then(|kubedns| kubedns.cluster_queries),
            external: kubedns.and_then(|kubedns| kubedns.external_queries),
            cluster_seconds: kubedns.and_then(|kubedns| kubedns.cluster_seconds),
            cache,
        }
    }

    fn rates_since(&self, before: &Self) -> TrafficSample {
        let seconds = self.at.saturating_duration_since(before.at).as_secs_f64();
        let answers = rise(before.cluster, self.cluster);
        let answer_seconds = rise(before.cluster_seconds, self.cluster_seconds);
        let latency_ms = match (answer_seconds, answers) {
            (Some(seconds), Some(answers)) if answers > 0.0 => Some(seconds / answers * 1000.0),
            _ => None,
        };
        let cache = self.cache.zip(before.cache);
        let cache_rates = cache.and_then(|(cache, before)| cache.rates_since(before));

        TrafficSample {
            at: 0,
            cluster: answers.map(|answers| answers / seconds),
            external: rise(before.external, self.external).map(|queries| queries / seconds),
            latency_ms,
            hits: cache_rates.map(|rates| rates.hits),
            misses: cache_rates.map(|rates| rates.misses),
        }
    }
}

/// Queries a second.
#[derive(Clone, Copy, Debug)]
struct CacheRates {
    hits: f64,
    misses: f64,
}

impl CacheReading {
    #[allow(clippy::cast_precision_loss, reason = "rates for people to look at")]
    fn of_dnsmasq(dnsmasq: &DnsmasqReport) -> Option<Self> {
        let counters = dnsmasq.counters?;
        Some(Self {
            at: dnsmasq.read_at?,
            hits: counters.hits as f64,
            misses: counters.misses as f64,
        })
    }

    fn of_kubedns(kubedns: &KubednsReport, now: Now) -> Option<Self> {
        Some(Self {
            at: now.millis_of(now.clock),
            hits: kubedns.cache_hits?,
            misses: kubedns.cache_misses?,
        })
    }

    /// The rates; `None` if nothing was read since `before`, or if a counter is lower than before.
    fn rates_since(self, before: Self) -> Option<CacheRates> {
        let millis = self
            .at
            .checked_sub(before.at)
            .filter(|millis| *millis > 0)?;
        let seconds = Duration::from_millis(millis).as_secs_f64();
        Some(CacheRates {
            hits: rise(Some(before.hits), Some(self.hits))? / seconds,
            misses: rise(Some(before.misses), Some(self.misses))? / seconds,
        })
    }
}

/// The rise of a counter; `None` if a reading is missing, or if the counter is lower than before.
fn rise(before: Option<f64>, after: Option<f64>) -> Option<f64> {
    let rise = after? - before?;
    (rise >= 0.0).then_some(rise)
}

#[cfg(test)]
mod tests {
    use reports::sidecar::DnsmasqCounters;

    use super::*;

    fn kubedns(queries: f64) -> KubednsReport {
        KubednsReport {
            cluster_queries: Some(queries),
            external_queries: Some(queries / 2.0),
            cluster_seconds: Some(queries / 1000.0),
            cache_hits: Some(queries / 4.0),
            cache_misses: Some(queries / 4.0),
            ..KubednsReport::default()
        }
    }

    fn at(start: Now, seconds: u64) -> Now {
        let since = Duration::from_secs(seconds);
        Now {
            clock: start.clock + since,
            time_of_day: start.time_of_day + since,
        }
    }

    #[test]
    fn rates_follow_counters() {
        let start = Now::read();
        let traffic = TrafficHistory::default();
        let rates = |seconds, report: Option<KubednsReport>| {
            let samples = traffic.update(report.as_ref(), None, at(start, seconds));
            let last = samples.last().copied().unwrap_or_default();
            (
                samples.len(),
                last.cluster,
                last.external,
                last.hits,
                last.latency_ms,
            )
        };

        assert_eq!(rates(0, Some(kubedns(100.0))), (0, None, None, None, None));
        let steady = (1, Some(20.0), Some(10.0), Some(5.0), Some(1.0));
        assert_eq!(rates(10, Some(kubedns(300.0))), steady);
        // A reading two seconds after the last one adds no sample.
        assert_eq!(rates(12, Some(kubedns(340.0))), steady);
        assert_eq!(rates(20, None), (2, None, None, None, None));
        assert_eq!(
            rates(30, Some(kubedns(7.0))).1,
            None,
            "a reading that follows one without counters must give no rate"
        );
        assert_eq!(
            rates(40, Some(kubedns(7.0))),
            (4, Some(0.0), Some(0.0), Some(0.0), None)
        );
    }

    #[test]
    fn cache_of_dnsmasq_is_preferred() {
        let start = Now::read();
        let traffic = TrafficHistory::default();
        let hits = |seconds, read_at, hits| {
            let dnsmasq = DnsmasqReport {
                counters: Some(DnsmasqCounters {
                    hits,
                    ..DnsmasqCounters::default()
                }),
                read_at: Some(read_at),
                ..DnsmasqReport::default()
            };
            let report = kubedns(400.0);
            let samples = traffic.update(Some(&report), Some(&dnsmasq), at(start, seconds));
            samples.last().and_then(|sample| sample.hits)
        };

        assert_eq!(hits(0, 1_000, 50), None);
        assert_eq!(hits(10, 6_000, 60), Some(2.0), "ten hits in five seconds");
        assert_eq!(
            hits(20, 6_000, 60),
            None,
            "the same reading of dnsmasq must give no rate"
        );
    }
}
