//! Metrics of the cache.

use prometheus::{
    IntCounter, IntGauge, Registry, register_int_counter_with_registry,
    register_int_gauge_with_registry,
};

/// The metrics of a [`ReplyCache`](super::ReplyCache), all under `kubedns_forward_`. Clones share
/// their values.
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
        Ok(Self {
            hits: register_counter(
                registry,
                "cache_hits_total",
                "Queries answered from the cache within the TTL.",
            )?,
            misses: register_counter(
                registry,
                "cache_misses_total",
                "Queries without a fresh answer in the cache.",
            )?,
            stale: register_counter(
                registry,
                "stale_answers_total",
                "Queries answered from the cache beyond the TTL, because the upstreams failed.",
            )?,
            evictions: register_counter(
                registry,
                "cache_evictions_total",
                "Entries evicted from the cache to make room for others.",
            )?,
            entries: register_gauge(
                registry,
                "cache_entries",
                "Entries in the cache, including expired entries.",
            )?,
            bytes: register_gauge(
                registry,
                "cache_bytes",
                "Memory used by cache entries, in octets.",
            )?,
        })
    }

    /// Counts an entry of `size` octets until the returned guard is dropped.
    pub(super) fn count_entry(&self, size: u32) -> EntryGauge {
        self.entries.inc();
        self.bytes.add(size.into());
        EntryGauge {
            entries: self.entries.clone(),
            bytes: self.bytes.clone(),
            size,
        }
    }
}

fn register_counter(registry: &Registry, name: &str, help: &str) -> prometheus::Result<IntCounter> {
    register_int_counter_with_registry!(format!("kubedns_forward_{name}"), help, registry)
}

fn register_gauge(registry: &Registry, name: &str, help: &str) -> prometheus::Result<IntGauge> {
    register_int_gauge_with_registry!(format!("kubedns_forward_{name}"), help, registry)
}

/// Counts an entry until it is dropped.
#[derive(Debug)]
pub(super) struct EntryGauge {
    entries: IntGauge,
    bytes: IntGauge,
    size: u32,
}

impl EntryGauge {
    /// Size of the entry, in octets.
    pub(super) fn size(&self) -> u32 {
        self.size
    }
}

impl Drop for EntryGauge {
    fn drop(&mut self) {
        self.entries.dec();
        self.bytes.sub(self.size.into());
    }
}
