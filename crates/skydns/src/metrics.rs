//! Metrics of queries and answers: those of SkyDNS under its names, and further ones named
//! `kubedns_...`.
//!
//! Every thread that receives queries over UDP has its own [`Shard`]. No other thread writes to
//! this shard, so counting needs no atomic addition. All async tasks share one further shard. A
//! scrape adds up the shards.

#![allow(clippy::cast_precision_loss, reason = "Prometheus counts in f64")]

mod kinds;
mod zones;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

use parking_lot::Mutex;
use prometheus::core::{Collector, Desc};
use prometheus::proto::{Bucket, Counter, Histogram, LabelPair, Metric, MetricFamily, MetricType};
use wire::{Transport, rcode};

use self::kinds::Kinds;
use self::zones::ZoneCounters;
pub use self::zones::ZoneMetrics;
use crate::engine::{AnswerReason, Reply, System};
use crate::external_rules::RuleKey;

/// Upper bounds of the duration histogram, in seconds.
const DURATIONS: [f64; 13] = [
    0.001, 0.003, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];
/// Upper bounds of the size histogram, in octets.
const SIZES: [f64; 21] = [
    0.0, 512.0, 1024.0, 1500.0, 2048.0, 4096.0, 8192.0, 12288.0, 16384.0, 20480.0, 24576.0,
    28672.0, 32768.0, 36864.0, 40960.0, 45056.0, 49152.0, 53248.0, 57344.0, 61440.0, 65536.0,
];

/// Duration of an answer, from the arrival of the query.
#[derive(Debug, Clone, Copy)]
pub enum Took {
    /// The query was answered without waiting.
    AtOnce(Duration),
    /// The query waited for an upstream, or in the queue of expensive queries.
    Waited(Duration),
}

/// Values of the label `cause`: the reasons why an answer is an error.
const CAUSES: [&str; 6] = [
    "nxdomain",
    "refused",
    "servfail",
    "truncated",
    "formerr",
    "notimp",
];
/// Index of `refused` in [`CAUSES`].
const REFUSED: usize = 1;

/// Index in [`CAUSES`] of the reason why an answer is an error; `None` if the answer is not an
/// error, or if [`CAUSES`] has no cause for its RCODE.
fn error_cause(reply: Reply) -> Option<usize> {
    if reply.truncated {
        return Some(3);
    }
    match reply.rcode {
        rcode::NXDOMAIN => Some(0),
        rcode::REFUSED => Some(REFUSED),
        rcode::SERVFAIL => Some(2),
        rcode::FORMERR | rcode::BADVERS => Some(4),
        rcode::NOTIMP => Some(5),
        _ => None,
    }
}

/// The counters of one thread, or of all async tasks together.
#[derive(Debug, Default)]
pub struct Shard {
    systems: [SystemCounters; 4],
    kinds: Kinds,
    zones: ZoneCounters,
    expensive: ExpensiveCounters,
    /// Number of answers that a rule decided, by [`RuleKey`].
    rules: [AtomicU64; RuleKey::ALL.len()],
    /// Number of walks through a search list, by [`Completion`].
    completions: [AtomicU64; Completion::ALL.len()],
    /// Number of lookups in all walks through search lists.
    search_steps: AtomicU64,
    /// Number of queries over the limit of their client.
    rate_limited: AtomicU64,
    /// Number of TCP connections that were closed because the client's host already had as many as
    /// one host may have.
    rejected_connections: AtomicU64,
    /// Whether several threads write to the shard.
    many_writers: bool,
}

/// The counters of one [`System`], the part of the server that answers.
#[derive(Debug, Default)]
struct SystemCounters {
    requests: AtomicU64,
    errors: [AtomicU64; CAUSES.len()],
    at_once: DurationCounters,
    waited: DurationCounters,
    sizes: [AtomicU64; SIZES.len() + 1],
    size_sum: AtomicU64,
}

#[derive(Debug, Default)]
struct DurationCounters {
    buckets: [AtomicU64; DURATIONS.len() + 1],
    sum_ns: AtomicU64,
}

/// Counters of expensive queries, see `crate::expensive_queue`.
#[derive(Debug, Default)]
struct ExpensiveCounters {
    answered: AtomicU64,
    refused: AtomicU64,
}

/// Result of a walk through a search list, see `crate::search`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Completion {
    /// A name in our zones, or a host or an alias of the configuration, has records.
    Cluster,
    /// Another name has records.
    External,
    /// A name exists, but the walk has found no records.
    NoData,
    /// None of the names exists.
    Missing,
    /// The lookup of a name failed.
    Failed,
}

impl Completion {
    const ALL: [Self; 5] = [
        Self::Cluster,
        Self::External,
        Self::NoData,
        Self::Missing,
        Self::Failed,
    ];

    fn label(self) -> &'static str {
        match self {
            Self::Cluster => "cluster",
            Self::External => "external",
            Self::NoData => "nodata",
            Self::Missing => "nxdomain",
            Self::Failed => "servfail",
        }
    }
}

impl Shard {
    /// Counts a walk through a search list; `steps` is the number of its lookups.
    pub(crate) fn completed(&self, completion: Completion, steps: u64) {
        if let Some(counter) = self.completions.get(completion as usize) {
            self.add(counter, 1);
        }
        self.add(&self.search_steps, steps);
    }

    /// Counts an expensive query. `answered` is false for a query that was rejected, timed out or
    /// took too much work.
    pub(crate) fn expensive(&self, answered: bool) {
        let counter = if answered {
            &self.expensive.answered
        } else {
            &self.expensive.refused
        };
        self.add(counter, 1);
    }

    /// Counts a TCP connection in [`Self::rejected_connections`].
    pub(crate) fn rejected_connection(&self) {
        self.add(&self.rejected_connections, 1);
    }

    /// Adds to a counter. A single writer needs no atomic addition. The memory ordering is Release:
    /// a thread that loads the new value with Acquire also sees everything that the writer counted
    /// before.
    fn add(&self, counter: &AtomicU64, value: u64) {
        if self.many_writers {
            counter.fetch_add(value, Release);
        } else {
            counter.store(counter.load(Relaxed).wrapping_add(value), Release);
        }
    }

    /// Counts one answered query. The request is counted before the error, see [`SystemSums::of`].
    pub fn record(&self, reply: Reply, transport: Transport, took: Took, size: usize) {
        let Some(counters) = self.systems.get(reply.system as usize) else {
            return;
        };
        self.add(&counters.requests, 1);
        self.add(self.kinds.counter(reply, transport), 1);
        if let Some(number) = reply.zone {
            self.add(self.zones.counter(number, reply.rcode), 1);
        }
        if let Some(error) = error_cause(reply).and_then(|cause| counters.errors.get(cause)) {
            self.add(error, 1);
        }

        if let Some(reason) = reply.reason {
            self.add_reason(reason);
        }

        // The histogram of the engine leaves out queries that waited.
        match took {
            Took::AtOnce(elapsed) => self.add_duration(&counters.at_once, elapsed),
            Took::Waited(elapsed) => self.add_duration(&counters.waited, elapsed),
        }
        self.add(&counters.sizes[bucket_of(&SIZES, size as f64)], 1);
        self.add(&counters.size_sum, size as u64);
    }

    fn add_reason(&self, reason: AnswerReason) {
        let counter = match reason {
            AnswerReason::Rule(key) => self.rules.get(key as usize),
            AnswerReason::ClientRate => Some(&self.rate_limited),
        };
        if let Some(counter) = counter {
            self.add(counter, 1);
        }
    }

    fn add_duration(&self, durations: &DurationCounters, elapsed: Duration) {
        let bucket = bucket_of(&DURATIONS, elapsed.as_secs_f64());
        self.add(&durations.buckets[bucket], 1);

        let nanoseconds = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        self.add(&durations.sum_ns, nanoseconds);
    }
}

/// Index of the bucket of `value`. The bucket after the last bound is for all larger values.
fn bucket_of(bounds: &[f64], value: f64) -> usize {
    bounds
        .iter()
        .position(|bound| value <= *bound)
        .unwrap_or(bounds.len())
}

/// All shards, and a collector for a registry.
#[derive(Debug, Clone)]
pub struct Metrics {
    shards: Arc<Mutex<Vec<Arc<Shard>>>>,
    unsent: Arc<AtomicU64>,
    prefix: String,
    descs: Vec<Desc>,
}

impl Metrics {
    /// Creates the metrics. Those of SkyDNS are named `<namespace>_<subsystem>_dns_...`; empty
    /// parts are omitted.
    pub fn new(namespace: &str, subsystem: &str) -> Self {
        let prefix = [namespace, subsystem, "dns"]
            .into_iter()
            .filter(|part| !part.is_empty())
            .collect::<Vec<_>>()
            .join("_");
        // The crate `prometheus` rejects invalid names of metrics. The description of such a metric
        // is left out.
        let descs = FAMILIES
            .iter()
            .filter_map(|family| family.describe(&prefix).ok())
            .collect();
        Self {
            shards: Arc::default(),
            unsent: Arc::default(),
            prefix,
            descs,
        }
    }

    /// Adds a shard for one thread. No other thread may write to the shard.
    pub fn shard(&self) -> Arc<Shard> {
        self.add_shard(false)
    }

    /// Adds a shard that any thread may write to.
    pub fn shared_shard(&self) -> Arc<Shard> {
        self.add_shard(true)
    }

    /// Number of UDP answers that could not be sent. Any socket may add to the counter.
    pub(crate) fn unsent(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.unsent)
    }

    fn add_shard(&self, many_writers: bool) -> Arc<Shard> {
        let shard = Arc::new(Shard {
            many_writers,
            ..Shard::default()
        });
        self.shards.lock().push(Arc::clone(&shard));
        shard
    }

    fn shards(&self) -> Vec<Arc<Shard>> {
        self.shards.lock().clone()
    }
}

/// Name, help text, type and labels of a family of metrics.
struct FamilySpec {
    name: &'static str,
    /// Help text. Metrics of SkyDNS keep the text of SkyDNS, word for word.
    help: &'static str,
    kind: MetricType,
    labels: &'static [&'static str],
    /// Whether the prefix from [`Metrics::new`] comes before `name`. Only the metrics of SkyDNS
    /// have this prefix.
    has_prefix: bool,
}

const CACHE_MISSES: FamilySpec = FamilySpec {
    name: "cachemiss_count_total",
    help: "Counter of DNS requests that result in a cache miss.",
    kind: MetricType::COUNTER,
    labels: &["cache"],
    has_prefix: true,
};
const ERRORS: FamilySpec = FamilySpec {
    name: "error_count_total",
    help: "Counter of DNS requests resulting in an error.",
    kind: MetricType::COUNTER,
    labels: &["system", "cause"],
    has_prefix: true,
};
const REQUESTS: FamilySpec = FamilySpec {
    name: "request_count_total",
    help: "Counter of DNS requests made.",
    kind: MetricType::COUNTER,
    labels: &["system"],
    has_prefix: true,
};
const REQUEST_DURATIONS: FamilySpec = FamilySpec {
    name: "request_duration_seconds",
    help: "Histogram of the time (in seconds) each request took to resolve.",
    kind: MetricType::HISTOGRAM,
    labels: &["system"],
    has_prefix: true,
};
const RESPONSE_SIZES: FamilySpec = FamilySpec {
    name: "response_size_bytes",
    help: "Size of the returns response in bytes.",
    kind: MetricType::HISTOGRAM,
    labels: &["system"],
    has_prefix: true,
};
const UNSENT: FamilySpec = FamilySpec {
    name: "kubedns_udp_unsent_total",
    help: "Answers over UDP that could not be sent, usually because the send buffer was full.",
    kind: MetricType::COUNTER,
    labels: &[],
    has_prefix: false,
};
const EXPENSIVE: FamilySpec = FamilySpec {
    name: "kubedns_expensive_queries_total",
    help: "Expensive queries, such as wildcards over many names, by result.",
    kind: MetricType::COUNTER,
    labels: &["result"],
    has_prefix: false,
};
const ENGINE_DURATIONS: FamilySpec = FamilySpec {
    name: "kubedns_engine_duration_seconds",
    help: "Time from the arrival of a query to its answer. \
           Queries that waited for an upstream or in the queue of expensive queries are left out.",
    kind: MetricType::HISTOGRAM,
    labels: &[],
    has_prefix: false,
};
const QUERIES: FamilySpec = FamilySpec {
    name: "kubedns_queries_total",
    help: "Queries answered, by type, protocol and RCODE.",
    kind: MetricType::COUNTER,
    labels: &["type", "protocol", "rcode"],
    has_prefix: false,
};
const COMPLETIONS: FamilySpec = FamilySpec {
    name: "kubedns_search_queries_total",
    help: "Queries completed with the search list, by result.",
    kind: MetricType::COUNTER,
    labels: &["result"],
    has_prefix: false,
};
const SEARCH_STEPS: FamilySpec = FamilySpec {
    name: "kubedns_search_steps_total",
    help: "Lookups of names while completing queries with the search list.",
    kind: MetricType::COUNTER,
    labels: &[],
    has_prefix: false,
};
const RULE_ANSWERS: FamilySpec = FamilySpec {
    name: "kubedns_rule_answers_total",
    help: "Answers that a rule for external names decided, by key of the ConfigMap.",
    kind: MetricType::COUNTER,
    labels: &["key"],
    has_prefix: false,
};
const RATE_LIMITED: FamilySpec = FamilySpec {
    name: "kubedns_client_rate_limited_total",
    help: "Queries over the limit of their client (client-qps), answered with REFUSED.",
    kind: MetricType::COUNTER,
    labels: &[],
    has_prefix: false,
};
const REJECTED_CONNECTIONS: FamilySpec = FamilySpec {
    name: "kubedns_tcp_rejected_connections_total",
    help: "TCP connections that were closed at once, because the client's host already had the maximum number of connections per host.",
    kind: MetricType::COUNTER,
    labels: &[],
    has_prefix: false,
};
const FAMILIES: [&FamilySpec; 14] = [
    &CACHE_MISSES,
    &ERRORS,
    &REQUESTS,
    &REQUEST_DURATIONS,
    &RESPONSE_SIZES,
    &UNSENT,
    &EXPENSIVE,
    &ENGINE_DURATIONS,
    &QUERIES,
    &COMPLETIONS,
    &SEARCH_STEPS,
    &RULE_ANSWERS,
    &RATE_LIMITED,
    &REJECTED_CONNECTIONS,
];

impl FamilySpec {
    fn full_name(&self, prefix: &str) -> String {
        if self.has_prefix {
            format!("{prefix}_{}", self.name)
        } else {
            self.name.to_owned()
        }
    }

    fn describe(&self, prefix: &str) -> prometheus::Result<Desc> {
        let labels = self.labels.iter().map(|&label| label.to_owned());
        Desc::new(
            self.full_name(prefix),
            self.help.to_owned(),
            labels.collect(),
            HashMap::new(),
        )
    }

    fn family(&self, prefix: &str, metrics: Vec<Metric>) -> MetricFamily {
        let mut family = MetricFamily::default();
        family.set_name(self.full_name(prefix));
        family.set_help(self.help.to_owned());
        family.set_field_type(self.kind);
        family.set_metric(metrics);
        family
    }
}

fn labels(pairs: &[(&str, &str)]) -> Vec<LabelPair> {
    pairs
        .iter()
        .map(|(name, value)| {
            let mut pair = LabelPair::default();
            pair.set_name((*name).to_owned());
            pair.set_value((*value).to_owned());
            pair
        })
        .collect()
}

fn counter(pairs: &[(&str, &str)], value: u64) -> Metric {
    let mut counter = Counter::default();
    counter.set_value(value as f64);
    let mut metric = Metric::default();
    metric.set_label(labels(pairs));
    metric.set_counter(counter);
    metric
}

/// Builds a histogram from the counts of its buckets. The last count is for values above all
/// bounds.
fn histogram(pairs: &[(&str, &str)], bounds: &[f64], counts: &[u64], sum: f64) -> Metric {
    let mut total = 0;
    let mut buckets = Vec::with_capacity(bounds.len());
    // Prometheus wants cumulative buckets, but a shard counts each bucket separately.
    for (bound, count) in bounds.iter().zip(counts) {
        total += count;
        let mut bucket = Bucket::default();
        bucket.set_upper_bound(*bound);
        bucket.set_cumulative_count(total);
        buckets.push(bucket);
    }
    let mut histogram = Histogram::default();
    histogram.set_bucket(buckets);
    histogram.set_sample_count(counts.iter().sum());
    histogram.set_sample_sum(sum);
    let mut metric = Metric::default();
    metric.set_label(labels(pairs));
    metric.set_histogram(histogram);
    metric
}

impl Collector for Metrics {
    fn desc(&self) -> Vec<&Desc> {
        self.descs.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let shards = self.shards();
        let sums = System::ALL.map(|system| SystemSums::of(&shards, system));
        let misses = sums.iter().map(SystemSums::misses).sum();
        let unsent = self.unsent.load(Relaxed);

        // As in kube-dns, a system has series only after its first query.
        let mut seen = Vec::new();
        for sums in &sums {
            if sums.requests > 0 {
                seen.push(sums);
            }
        }

        let families = [
            (
                CACHE_MISSES,
                vec![counter(&[("cache", "response")], misses)],
            ),
            (ERRORS, seen.iter().flat_map(|sums| sums.errors()).collect()),
            (REQUESTS, seen.iter().map(|sums| sums.requests()).collect()),
            (
                REQUEST_DURATIONS,
                seen.iter().map(|sums| sums.durations()).collect(),
            ),
            (
                RESPONSE_SIZES,
                seen.iter().map(|sums| sums.sizes()).collect(),
            ),
            (UNSENT, vec![counter(&[], unsent)]),
            (EXPENSIVE, expensive_queries(&shards)),
            (ENGINE_DURATIONS, vec![engine_durations(&sums)]),
            (QUERIES, kinds::metrics(&shards)),
            (COMPLETIONS, completions(&shards)),
            (
                SEARCH_STEPS,
                vec![counter(
                    &[],
                    sum_of_shards(&shards, |shard| &shard.search_steps),
                )],
            ),
            (RULE_ANSWERS, rule_answers(&shards)),
            (
                RATE_LIMITED,
                vec![counter(
                    &[],
                    sum_of_shards(&shards, |shard| &shard.rate_limited),
                )],
            ),
            (
                REJECTED_CONNECTIONS,
                vec![counter(
                    &[],
                    sum_of_shards(&shards, |shard| &shard.rejected_connections),
                )],
            ),
        ];
        // As in Prometheus's library for Go, a family without series is left out.
        families
            .into_iter()
            .filter(|(_, metrics)| !metrics.is_empty())
            .map(|(spec, metrics)| spec.family(&self.prefix, metrics))
            .collect()
    }
}

fn expensive_queries(shards: &[Arc<Shard>]) -> Vec<Metric> {
    let answered = sum_of_shards(shards, |shard| &shard.expensive.answered);
    let refused = sum_of_shards(shards, |shard| &shard.expensive.refused);
    vec![
        counter(&[("result", "answered")], answered),
        counter(&[("result", "refused")], refused),
    ]
}

fn completions(shards: &[Arc<Shard>]) -> Vec<Metric> {
    let mut metrics = Vec::new();
    for completion in Completion::ALL {
        let count = sum_of_shards(shards, |shard| &shard.completions[completion as usize]);
        metrics.push(counter(&[("result", completion.label())], count));
    }
    metrics
}

fn rule_answers(shards: &[Arc<Shard>]) -> Vec<Metric> {
    let mut metrics = Vec::new();
    for key in RuleKey::ALL {
        let count = sum_of_shards(shards, |shard| &shard.rules[key as usize]);
        metrics.push(counter(&[("key", key.as_str())], count));
    }
    metrics
}

/// Adds up one counter of all shards.
fn sum_of_shards(shards: &[Arc<Shard>], select: impl Fn(&Shard) -> &AtomicU64) -> u64 {
    shards.iter().map(|shard| select(shard).load(Relaxed)).sum()
}

/// Durations by bucket, and their sum.
#[derive(Clone, Copy, Default)]
struct DurationSums {
    buckets: [u64; DURATIONS.len() + 1],
    sum: Duration,
}

impl std::ops::Add for DurationSums {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        for (bucket, more) in self.buckets.iter_mut().zip(other.buckets) {
            *bucket += more;
        }
        self.sum = self.sum.saturating_add(other.sum);
        self
    }
}

impl DurationSums {
    fn of(
        counters: &[&SystemCounters],
        select: impl Fn(&SystemCounters) -> &DurationCounters,
    ) -> Self {
        let buckets =
            std::array::from_fn(|bucket| sum_of(counters, |c| &select(c).buckets[bucket]));
        let nanoseconds = sum_of(counters, |c| &select(c).sum_ns);
        Self {
            buckets,
            sum: Duration::from_nanos(nanoseconds),
        }
    }

    fn histogram(&self, pairs: &[(&str, &str)]) -> Metric {
        histogram(pairs, &DURATIONS, &self.buckets, self.sum.as_secs_f64())
    }
}

/// Adds up one counter of a system over all shards.
fn sum_of(counters: &[&SystemCounters], select: impl Fn(&SystemCounters) -> &AtomicU64) -> u64 {
    counters.iter().map(|c| select(c).load(Acquire)).sum()
}

/// Durations of the answers to queries that did not wait, for all systems together.
fn engine_durations(sums: &[SystemSums]) -> Metric {
    sums.iter()
        .map(|sums| sums.at_once)
        .fold(DurationSums::default(), std::ops::Add::add)
        .histogram(&[])
}

/// Sums over all shards for one system.
struct SystemSums {
    system: System,
    requests: u64,
    errors: [u64; CAUSES.len()],
    at_once: DurationSums,
    waited: DurationSums,
    sizes: [u64; SIZES.len() + 1],
    size_sum: u64,
}

impl SystemSums {
    /// Adds up the shards while other threads continue to count.
    fn of(shards: &[Arc<Shard>], system: System) -> Self {
        let mut counters = Vec::with_capacity(shards.len());
        for shard in shards {
            counters.extend(shard.systems.get(system as usize));
        }

        // Errors are read before requests, because threads count in the opposite order. So for
        // every error in the sums, the request is in the sums, too.
        let errors = std::array::from_fn(|cause| sum_of(&counters, |c| &c.errors[cause]));
        Self {
            system,
            errors,
            requests: sum_of(&counters, |c| &c.requests),
            at_once: DurationSums::of(&counters, |c| &c.at_once),
            waited: DurationSums::of(&counters, |c| &c.waited),
            sizes: std::array::from_fn(|bucket| sum_of(&counters, |c| &c.sizes[bucket])),
            size_sum: sum_of(&counters, |c| &c.size_sum),
        }
    }

    fn requests(&self) -> Metric {
        counter(&[("system", self.system.label())], self.requests)
    }

    /// Cache misses as SkyDNS counts them. The response cache of kube-dns is always empty, so every
    /// query of [`System::Auth`] that is not refused is a miss.
    fn misses(&self) -> u64 {
        if self.system == System::Auth {
            self.requests.saturating_sub(self.errors[REFUSED])
        } else {
            0
        }
    }

    fn errors(&self) -> impl Iterator<Item = Metric> {
        let system = self.system.label();
        let counts = CAUSES
            .into_iter()
            .zip(self.errors)
            .filter(|(_, count)| *count > 0);
        counts.map(move |(cause, count)| counter(&[("system", system), ("cause", cause)], count))
    }

    fn durations(&self) -> Metric {
        (self.at_once + self.waited).histogram(&[("system", self.system.label())])
    }

    fn sizes(&self) -> Metric {
        histogram(
            &[("system", self.system.label())],
            &SIZES,
            &self.sizes,
            self.size_sum as f64,
        )
    }
}

#[cfg(test)]
mod tests;
