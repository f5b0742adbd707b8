//! Metrics of the cache.

use prometheus::{
    IntCounter, IntGauge, Registry, register_int_counter_with_registry, register_int_gauge_with_registry,
};

/// The metrics of a [`Cache`](super::Cache), all under `kubedns_forward_`. Clones count together.
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
    /// Registers metrics that start at zero.
    pub fn new(registry: &Registry) -> prometheus::Result<Self> {
        let counter = |name: &str, help: &str| {
            register_int_counter_with_registry!(format!("kubedns_forward_{name}"), help, registry)
        };
        let gauge = |name: &str, help: &str| {
            register_int_gauge_with_registry!(format!("kubedns_forward_{name}"), help, registry)
        };
        Ok(Self {
            hits: counter("cache_hits_total", "Questions answered from the cache within the TTL.")?,
            misses: counter("cache_misses_total", "Questions that the cache has no fresh answer to.")?,
            stale: counter(
                "stale_answers_total",
                "Questions answered from the cache beyond the TTL, because the upstreams failed.",
            )?,
            evictions: counter("cache_evictions_total", "Entries that had to leave the cache for others.")?,
            entries: gauge("cache_entries", "Entries of the cache, expired ones too.")?,
            bytes: gauge("cache_bytes", "Memory of the entries of the cache.")?,
        })
    }

    /// Counts an entry of `size` octets for as long as it is held.
    pub(super) fn hold(&self, size: u32) -> Held {
        self.entries.inc();
        self.bytes.add(size.into());
        Held { entries: self.entries.clone(), bytes: self.bytes.clone(), size }
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
    /// Octets that it was counted with.
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
