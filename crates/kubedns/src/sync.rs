//! The index task, which alone changes records. The task receives events of the watchers, and the
//! settings. It publishes records in batches, reports progress, and writes the snapshot file.

mod gauges;
mod loading;
mod saving;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use skydns::{FurtherZone, Zone};
use tokio::sync::{mpsc, watch};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use wire::Name;
use wire::Upstream;

use crate::config::Settings;
use crate::loops::{self, ForwardingRoute, Loops};
use crate::metrics::Metrics;
use crate::options::Topology;
use crate::status::Status;
use cluster::index::{Index, Progress};
use cluster::objects::{Change, EndpointsSource, Event};
use cluster::watch::Received;
use loading::Loaded;
pub use loading::Loading;
pub use saving::Saving;

/// Bound of the events in one publication.
const BATCH: usize = 1024;
/// Number of times that the other tasks of the thread run without a further event before a batch is
/// complete. One task reads from the connection, another decodes.
const IDLE_ROUNDS: u32 = 2;
/// Longest time for which a batch waits for further events.
const GATHERING: Duration = Duration::from_millis(20);
/// Interval of the periodic work, such as gauges and the snapshot file.
const TICK: Duration = Duration::from_secs(1);
/// Pause between two counts of all objects, in multiples of the duration of a count. In a large
/// cluster objects change constantly, and a count visits millions of entries.
const COUNTING_SHARE: u32 = 1000;
/// The time for which readiness waits for the configuration after the first lists. An unreadable
/// ConfigMap must not make cluster names unavailable.
const CONFIG_PATIENCE: Duration = Duration::from_secs(10);
/// Log line when readiness no longer waits for the configuration.
pub const READY_WITHOUT_CONFIG: &str =
    "ConfigMap not read yet, ready without it: the defaults hold until then";
/// Interval of the log lines about incomplete first lists.
const REMINDER: Duration = Duration::from_mins(1);

/// The part of the zone that comes from the flags, and the addresses that its upstreams must not
/// have.
#[derive(Debug, Clone)]
pub struct ZoneTemplate {
    /// The zone according to the flags.
    pub zone: Zone,
    /// `--topology`.
    pub topology: Topology,
    /// The addresses of this server, which must not be upstreams.
    pub listening: Vec<SocketAddr>,
}

impl ZoneTemplate {
    /// Makes the zone from `settings`, without the upstreams in `loops`. If an upstream forwards
    /// missing cluster names back to this server, these names are not forwarded.
    pub fn with(&self, settings: &Settings, loops: &Loops) -> Zone {
        let usable =
            |servers: &[Upstream]| skydns::forward::usable_upstreams(servers, &self.listening);
        let without = |servers: Vec<Upstream>, domain: Option<&str>| -> Arc<[Upstream]> {
            let leads_back = |upstream: &Upstream| {
                loops.contains(&ForwardingRoute::new(domain, upstream.clone()))
            };
            servers
                .into_iter()
                .filter(|upstream| !leads_back(upstream))
                .collect()
        };
        let stub_domains = settings
            .stub_domains
            .iter()
            .filter_map(|(domain, servers)| {
                // A stub domain without usable servers remains, because its names must not reach
                // other upstreams.
                Some((
                    Name::parse(domain).ok()?,
                    without(usable(servers), Some(domain)),
                ))
            });
        let loops_back = self
            .zone
            .fallthrough
            .iter()
            .any(|zone| loops::loops_back(zone, settings, loops));
        Zone {
            routes: settings.routes(self.topology),
            upstreams: without(usable(&settings.upstreams), None),
            fallthrough: if loops_back {
                Arc::new([])
            } else {
                Arc::clone(&self.zone.fallthrough)
            },
            search: settings.search.clone().map(Arc::new),
            own_names: settings.own.names(&self.zone.domain),
            ..self.zone.clone().with_stub_domains(stub_domains)
        }
    }
}

/// The index task. The fields are its inputs and outputs.
pub struct Sync {
    /// The records.
    pub index: Index,
    /// Events of the watchers.
    pub events: mpsc::Receiver<Received<Event>>,
    /// New content of further zones (etcd).
    pub further: mpsc::Receiver<FurtherZone>,
    /// The configuration.
    pub settings: watch::Receiver<Arc<Settings>>,
    /// Whether the settings are those of the configuration. Before that they are defaults.
    pub settled: watch::Receiver<bool>,
    /// Routes whose upstreams forward back to this server.
    pub loops: watch::Receiver<Arc<Loops>>,
    /// The part of the zone that comes from the flags.
    pub zone: ZoneTemplate,
    /// The state that the status port reports.
    pub status: Status,
    /// The metrics.
    pub metrics: Arc<Metrics>,
    /// The endpoints source of the index; `None` before its selection.
    pub source: Option<EndpointsSource>,
    /// The writer of the snapshot file; `None` without `--snapshot-dir`.
    pub saving: Option<Saving>,
    /// The snapshot file; `None` once it has been read.
    pub loading: Option<Loading>,
    /// Whether the index has received objects. A snapshot file, which is older, is then ignored.
    pub has_objects: bool,
    /// `--initial-sync-timeout`.
    pub timeout: Duration,
}

/// Unexpected end of the index task.
#[derive(Debug, thiserror::Error)]
#[error("all watchers have ended")]
pub struct WatchersEnded;

impl Sync {
    /// Runs until `stop`.
    ///
    /// # Errors
    ///
    /// [`WatchersEnded`] when all watchers have ended.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), WatchersEnded> {
        let begun = Instant::now();
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut overdue = tokio::time::Instant::now() + self.timeout;
        let mut batch = Vec::with_capacity(BATCH);
        let (mut counted, mut next_count) = (false, begun);
        let mut ready_but_for_config = None;
        self.settle();
        loop {
            let hold = self.loading.as_ref().is_some_and(Loading::holds);
            tokio::select! {
                loaded = loading::loaded(&mut self.loading) => self.restore(loaded),
                received = self.events.recv_many(&mut batch, BATCH), if !hold => {
                    if received == 0 && !stop.is_cancelled() {
                        return Err(WatchersEnded);
                    }
                    self.gather(&mut batch).await;
                    if self.apply_batch(&mut batch, begun) {
                        // The lists are complete: count the objects at the next tick.
                        next_count = Instant::now();
                    }
                    counted &= !self.index.take_objects_changed();
                }
                Ok(()) = self.settings.changed() => self.configure(),
                Ok(()) = self.loops.changed() => self.configure(),
                Ok(()) = self.settled.changed() => self.settle(),
                Some(zone) = self.further.recv() => self.publish_zone(zone),
                _ = tick.tick() => {
                    let now = Instant::now();
                    if !counted && now >= next_count {
                        gauges::count(&self.index, &self.status, &self.metrics);
                        counted = true;
                        next_count = now + now.elapsed() * COUNTING_SHARE;
                    }
                    self.loading.iter_mut().for_each(Loading::notice_hanging);
                    self.save().await;
                    self.wait_for_configuration(&mut ready_but_for_config);
                }
                () = tokio::time::sleep_until(overdue), if !self.index.has_listed() => {
                    self.report_overdue(begun.elapsed());
                    overdue = tokio::time::Instant::now() + REMINDER;
                }
                () = stop.cancelled() => break,
            }
        }
        self.save_last().await;
        Ok(())
    }

    /// Waits up to `patience` for the snapshot file, so that the first queries are not REFUSED.
    pub async fn load(&mut self, patience: Duration) {
        if let Some(loaded) = loading::within(&mut self.loading, patience).await {
            self.restore(loaded);
        }
    }

    /// Serves the records of the snapshot file until the first lists are complete.
    fn restore(&mut self, loaded: Loaded) {
        let Some(loading) = self.loading.take() else {
            return;
        };
        let directory = loading.directory().display();
        match loaded {
            Ok(None) => tracing::info!(%directory, "no snapshot file yet"),
            Ok(Some(_)) if self.has_objects => {
                tracing::info!(%directory, "snapshot file ignored, the first lists came before it was read");
            }
            Ok(Some(saved)) => {
                tracing::warn!(
                    age = ?saved.age(),
                    objects = saved.objects(),
                    "serving the records of a snapshot file until the first lists are in"
                );
                self.source = Some(saved.source());
                saved.replay(&mut self.index);
                self.index.publish();
                self.status.set(Progress::Stale);
                self.metrics.stale.set(1);
            }
            Err(error) => {
                let error = daemon::error_chain::brief(&error);
                tracing::error!(%directory, error, "the snapshot file is not used");
            }
        }
    }

    /// Adds the events that have already reached this process. The tasks that read them run on this
    /// thread, and only while this task yields. Objects that change together are then published
    /// together: a large Service is rebuilt once.
    async fn gather(&mut self, batch: &mut Vec<Received<Event>>) {
        let begun = Instant::now();
        let mut idle = 0;
        while idle < IDLE_ROUNDS && batch.len() < BATCH && begun.elapsed() < GATHERING {
            tokio::task::yield_now().await;
            let before = batch.len();
            batch.extend(std::iter::from_fn(|| self.events.try_recv().ok()).take(BATCH - before));
            idle = if batch.len() == before { idle + 1 } else { 0 };
        }
    }

    /// Applies events and publishes. Returns whether the events complete the first lists.
    fn apply_batch(&mut self, batch: &mut Vec<Received<Event>>, begun: Instant) -> bool {
        let oldest = batch.first().map(|received| received.at);
        let was_listed = self.index.has_listed();
        let mut causes = Vec::new();
        for Received { event, .. } in batch.drain(..) {
            tracing::debug!(?event, "event received from the API server");
            if was_listed {
                causes.extend(self.cause(&event));
            }
            self.has_objects |= is_of_snapshot_file(&event);
            self.index.apply(event);
        }
        self.log_source();
        if self.index.publish() {
            self.metrics.publications.inc();
            if let Some(oldest) = oldest {
                self.metrics.published(oldest.elapsed(), &causes);
            }
            if let Some(saving) = &mut self.saving {
                saving.changed();
            }
        }
        let in_sync = !was_listed && self.index.has_listed();
        if in_sync {
            self.in_sync(begun.elapsed());
        }
        in_sync
    }

    /// Publishes new content of a further zone.
    fn publish_zone(&mut self, zone: FurtherZone) {
        self.index.set_further_zone(zone);
        if self.index.publish() {
            self.metrics.publications.inc();
        }
    }

    /// Logs a change of the endpoints source.
    fn log_source(&mut self) {
        let Some(source) = *self.index.source().borrow() else {
            return;
        };
        match self.source.replace(source) {
            None => tracing::info!(?source, "endpoints source selected"),
            Some(before) if before != source => {
                tracing::warn!(?source, ?before, "endpoints source switched");
            }
            Some(_) => {}
        }
    }

    /// Time of the pod or Service change that caused `event`, as the control plane noted it. `None`
    /// without a time, or if the object in the index has the same time.
    fn cause(&self, event: &Event) -> Option<SystemTime> {
        let store = self.index.store();
        let (cause, known) = match event {
            Event::Endpoints(Change::Apply(new)) => (
                new.last_change,
                store.endpoints_of(&new.key).and_then(|old| old.last_change),
            ),
            Event::EndpointSlice(Change::Apply(new)) => (
                new.last_change,
                store.slice(&new.key).and_then(|old| old.last_change),
            ),
            _ => (None, None),
        };
        cause.filter(|_| cause != known)
    }

    /// Publishes the zone with the current settings. Must be called once before the first query;
    /// [`run`](Self::run) repeats the call after each change.
    pub fn configure(&mut self) {
        let settings = Arc::clone(&self.settings.borrow_and_update());
        let loops = Arc::clone(&self.loops.borrow_and_update());
        let zone = self.zone.with(&settings, &loops);
        if zone.upstreams.is_empty() {
            tracing::warn!("no upstream servers: external names cannot be resolved");
        } else if zone.upstreams != self.status.published().get().zone.upstreams {
            let upstreams: Vec<String> = zone.upstreams.iter().map(ToString::to_string).collect();
            let upstreams = format!("[{}]", upstreams.join(", "));
            let stub_domains = zone.stub_domains().len();
            tracing::info!(upstreams, stub_domains, "forwarding external names");
        }
        self.index.set_zone(zone);
        self.index
            .set_federations(BTreeMap::clone(&settings.federations));
        self.index.publish();
        self.metrics.forward_loops.set(loops::upstreams(&loops));
    }

    /// Reports the configuration as known, if the settings come from the configuration.
    fn settle(&mut self) {
        if !*self.settled.borrow_and_update() {
            return;
        }
        // A ready server must use these settings.
        if self.settings.has_changed().unwrap_or_default() {
            self.configure();
        }
        self.status.set_configured();
    }

    /// Ends the wait of readiness for an overdue configuration. `since` is the time when all else
    /// was ready.
    fn wait_for_configuration(&self, since: &mut Option<Instant>) {
        if config_is_overdue(&self.status, since, Instant::now()) {
            tracing::warn!(
                waited = ?CONFIG_PATIENCE,
                "{READY_WITHOUT_CONFIG}"
            );
            self.status.set_configured();
        }
    }

    fn in_sync(&self, after: Duration) {
        let counts = self.index.counts();
        tracing::info!(
            ?after,
            services = counts.services,
            endpoints = counts.endpoints,
            slices = counts.slices,
            addresses = counts.endpoints_addresses + counts.slices_addresses,
            "the first lists are in"
        );
        self.status.set(Progress::Synced);
        self.metrics.synced.set(1);
        self.metrics.stale.set(0);
        self.metrics.sync_overdue.set(0);
    }

    fn report_overdue(&self, waited: Duration) {
        self.metrics.sync_overdue.set(1);
        let serving = if self.status.progress() == Progress::Waiting {
            "cluster names are refused, other names are answered"
        } else {
            self.status.set(Progress::StaleOverdue);
            "the records of an earlier run are served"
        };
        tracing::error!(
            ?waited,
            serving,
            "the first lists have not come from the API server, waiting for them"
        );
    }

    async fn save(&mut self) {
        if let (Some(saving), Some(source)) = (&mut self.saving, self.source)
            && self.index.has_listed()
        {
            saving.tick(&self.index, source).await;
        }
    }

    async fn save_last(&mut self) {
        if let (Some(saving), Some(source)) = (&mut self.saving, self.source)
            && self.index.has_listed()
        {
            saving.write_last(&self.index, source).await;
        }
    }
}

/// Whether the event is about a kind of objects in the snapshot file.
fn is_of_snapshot_file(event: &Event) -> bool {
    use Event::{ImportedSlice, Node, OwnNode, ServiceImport};
    !matches!(
        event,
        Node(_) | OwnNode(_) | ServiceImport(_) | ImportedSlice(_)
    )
}

/// Whether `CONFIG_PATIENCE` has passed without a configuration. `since` holds the time when all
/// else was ready.
fn config_is_overdue(status: &Status, since: &mut Option<Instant>, now: Instant) -> bool {
    let else_ready = matches!(status.progress(), Progress::Synced | Progress::StaleOverdue);
    if status.is_configured() || !else_ready {
        return false;
    }
    now.duration_since(*since.get_or_insert(now)) >= CONFIG_PATIENCE
}

#[cfg(test)]
mod tests;
