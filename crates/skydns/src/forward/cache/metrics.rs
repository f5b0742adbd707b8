//! Metrics of the cache.

use prometheus::{
    IntCounter, IntGauge, Registry, register_int_counter_with_registry,
    register_int_gauge_with_registry,
};

/// The metrics of a [`ReplyCache`](super::ReplyCache). Their names begin with `kubedns_forward_`.
/// Clones share their values.
#[derive(Clone, Debug)]
pub struct CacheMetrics {
    pub(super) hits: IntCounter,
    pub(super) misses: IntCounter,
    pub(super) stale: IntCounter,
    pub(super) evictions: IntCounter,
    pub(super) size: CacheSize,
}

/// The entries of the cache, and their memory.
#[derive(Clone, Debug)]
pub(super) struct CacheSize {
    pub(super) entries: IntGauge,
    pub(super) bytes: IntGauge,
}

impl CacheMetrics {
    /// Registers the metrics with the value zero.
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
                "Queries forwarded because the cache had no reply, or only an expired reply.",
            )?,
            stale: register_counter(
                registry,
                "stale_answers_total",
                "Queries answered from the cache beyond the TTL, because the upstreams failed or too many queries were in flight.",
            )?,
            evictions: register_counter(
                registry,
                "cache_evictions_total",
                "Entries evicted from the cache to make room for others.",
            )?,
            size: CacheSize {
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
            },
        })
    }
}

impl CacheSize {
    /// Counts an entry of `size` octets.
    pub(super) fn add_entry(&self, size: u32) {
        self.entries.inc();
        self.bytes.add(size.into());
    }

    /// Counts the removal of an entry of `size` octets.
    pub(super) fn remove_entry(&self, size: u32) {
        self.entries.dec();
        self.bytes.sub(size.into());
    }
}

fn register_counter(registry: &Registry, name: &str, help: &str) -> prometheus::Result<IntCounter> {
    register_int_counter_with_registry!(format!("kubedns_forward_{name}"), help, registry)
}

fn register_gauge(registry: &Registry, name: &str, help: &str) -> prometheus::Result<IntGauge> {
    register_int_gauge_with_registry!(format!("kubedns_forward_{name}"), help, registry)
}
