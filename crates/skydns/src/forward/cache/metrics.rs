//! Metrics of the cache.

use prometheus::{
    IntCounter, IntGauge, Registry, register_int_counter_with_registry,
    register_int_gauge_with_registry,
};

/// The metrics of a [`Cache`](super::Cache), all under `kubedns_forward_`. Clones share their
/// values.
#[derive(Clone, Debug)]
pub struct CacheMetrics {
    pub(super) hits: IntCounter,
    pub(super) misses: IntCounter,
    pub(super) stale: IntCounter,
    pub(super) evictions: IntCounter,
    pub(super) entries: IntGauge,
    pub(super) bytes: IntGauge,
}

impl CacheMetrics {
    /// Registers the metrics, all zero.
    pub fn new(registry: &Registry) -> prometheus::Result<Self> {
        let counter = |name: &str, help: &str| {
            register_int_counter_with_registry!(format!("kubedns_forward_{name}"), help, registry)
        };
        let gauge = |name: &str, help: &str| {
            register_int_gauge_with_registry!(format!("kubedns_forward_{name}"), help, registry)
        };
        Ok(Self {
            hits: counter(
                "cache_hits_total",
                "Queries answered from the cache within the TTL.",
            )?,
            misses: counter(
                "cache_misses_total",
                "Queries without a fresh answer in the cache.",
            )?,
            stale: counter(
                "stale_answers_total",
                "Queries answered from the cache beyond the TTL, because the upstreams failed.",
            )?,
            evictions: counter(
                "cache_evictions_total",
                "Entries evicted from the cache to make room for others.",
            )?,
            entries: gauge(
                "cache_entries",
                "Entries in the cache, including expired entries.",
            )?,
            bytes: gauge("cache_bytes", "Memory used by cache entries, in octets.")?,
        })
    }

    /// Counts an entry of `size` octets until the returned guard is dropped.
    pub(super) fn hold(&self, size: u32) -> Held {
        self.entries.inc();
        self.bytes.add(size.into());
        Held {
            entries: self.entries.clone(),
            bytes: self.bytes.clone(),
            size,
        }
    }
}

/// Counts an entry until it is dropped.
#[derive(Debug)]
pub(super) struct Held {
    entries: IntGauge,
    bytes: IntGauge,
    size: u32,
}

impl Held {
    /// Size of the entry, in octets.
    pub(super) fn size(&self) -> u32 {
        self.size
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.entries.dec();
        self.bytes.sub(self.size.into());
    }
}
