//! The index task, the only task that changes records. The task receives events of the watchers,
//! the content of zones from etcd, and the settings in force. It publishes records in batches,
//! reports progress, serves the records of the snapshot file at the start, and writes this file.

mod object_gauges;
mod snapshot_read;
mod snapshot_writer;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use skydns::{FurtherZone, Zone};
use tokio::sync::{mpsc, watch};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::config::{InForce, log_servers};
use crate::metrics::Metrics;
use crate::status::Status;
use cluster::index::{Index, SyncProgress};
use cluster::objects::{Change, EndpointsSource, Event};
use cluster::watch::ReceivedEvent;
use snapshot_read::SnapshotContent;
pub use snapshot_read::SnapshotRead;
pub use snapshot_writer::SnapshotWriter;

/// Maximum number of events in one publication.
const BATCH: usize = 1024;
/// A batch is complete when the other tasks of the thread have run this number of times without a
/// further event. An event passes through two of these tasks: one reads from the connection, the
/// other decodes.
const IDLE_ROUNDS: u32 = 2;
/// Longest time for which a batch waits for further events.
const GATHERING: Duration = Duration::from_millis(20);
/// Interval of the periodic work, such as gauges and the snapshot file.
const TICK: Duration = Duration::from_secs(1);
/// Pause between two counts of all objects, in multiples of the duration of a count. In a large
/// cluster objects change constantly, and a count visits millions of entries.
const COUNTING_SHARE: u32 = 1000;
/// The time for which readiness waits for the configuration once nothing else is missing. An
/// unreadable ConfigMap must not make cluster names unavailable.
const CONFIG_TIMEOUT: Duration = Duration::from_secs(10);
/// The log line that is written when readiness has waited too long for the configuration, and no
/// longer waits for it.
pub const READY_WITHOUT_CONFIG: &str =
    "ConfigMap not read yet: kubedns is ready without it, and uses the defaults until it is read";
/// Interval of the log lines about incomplete first lists.
const REMINDER: Duration = Duration::from_mins(1);

/// The index task. The fields are its inputs and outputs.
pub struct IndexTask {
    /// The records.
    pub index: Index,
    /// Events of the watchers.
    pub events: mpsc::Receiver<ReceivedEvent<Event>>,
    /// New content of further zones (etcd).
    pub further: mpsc::Receiver<FurtherZone>,
    /// The settings in force, which are computed from the configuration.
    pub in_force: watch::Receiver<Arc<InForce>>,
    /// The part of the zone that comes from the flags.
    pub zone: Zone,
    /// The state that the status port reports.
    pub status: Status,
    /// The metrics.
    pub metrics: Arc<Metrics>,
    /// The endpoints source of the index; `None` before its selection.
    pub source: Option<EndpointsSource>,
    /// The writer of the snapshot file; `None` without `--snapshot-dir`.
    pub snapshot_writer: Option<SnapshotWriter>,
    /// The read of the snapshot file; `None` without `--snapshot-dir`, and once the read has ended.
    pub snapshot_read: Option<SnapshotRead>,
    /// Whether the index has received events about kinds of objects that the snapshot file
    /// contains. If so, the file is ignored, because its objects are older.
    pub has_objects: bool,
    /// `--initial-sync-timeout`.
    pub timeout: Duration,
    /// Cancelled when no other server answers at the DNS Service while this server serves a
    /// snapshot file.
    pub sole_server: CancellationToken,
}

/// Unexpected end of the index task.
#[derive(Debug, thiserror::Error)]
#[error("all watchers have ended")]
pub struct WatchersEnded;

impl IndexTask {
    /// Runs until `stop` is cancelled.
    ///
    /// # Errors
    ///
    /// [`WatchersEnded`] when all watchers have ended.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), WatchersEnded> {
        let begun = Instant::now();
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let first_overdue = tokio::time::Instant::now() + self.timeout;
        let mut overdue = first_overdue;
        let mut batch = Vec::with_capacity(BATCH);
        let mut counting = CountSchedule::new(begun);
        let mut ready_but_for_config = None;

        loop {
            // Listed and restored objects must not mix, so events wait for the snapshot file, but
            // only for a limited time.
            let events_wait = self
                .snapshot_read
                .as_ref()
                .is_some_and(SnapshotRead::delays_events);
            tokio::select! {
                content = snapshot_read::content(&mut self.snapshot_read) => {
                    self.restore_snapshot(content);
                    // If the lists are already overdue, `report_overdue` runs at once, so readiness
                    // no longer waits for them.
                    if self.is_waiting_with_snapshot() {
                        overdue = first_overdue;
                    }
                }
                received = self.events.recv_many(&mut batch, BATCH), if !events_wait => {
                    // All senders are gone.
                    if received == 0 && !stop.is_cancelled() {
                        return Err(WatchersEnded);
                    }
                    // Until the index has a snapshot file or complete lists, changes of Services
                    // and endpoints are not published (see `Index::publish`). A larger batch would
                    // then only take memory.
                    if self.index.has_synced() {
                        self.gather_events(&mut batch).await;
                    }
                    let completes_lists = self.apply_batch(&mut batch, begun);
                    counting.note_batch(completes_lists, self.index.take_objects_changed());
                }
                Ok(()) = self.in_force.changed() => self.put_in_force(),
                Some(zone) = self.further.recv() => self.publish_further_zone(zone),
                _ = tick.tick() => {
                    self.count_objects(&mut counting);
                    self.snapshot_read.iter_mut().for_each(SnapshotRead::report_hanging);
                    self.write_snapshot_if_due().await;
                    self.end_wait_for_config(&mut ready_but_for_config);
                }
                () = tokio::time::sleep_until(overdue), if !self.index.has_listed() => {
                    self.report_overdue(begun.elapsed());
                    overdue = tokio::time::Instant::now() + REMINDER;
                }
                () = self.sole_server.cancelled(), if self.is_waiting_with_snapshot() => {
                    self.report_sole_server(begun.elapsed());
                }
                () = stop.cancelled() => break,
            }
        }
        // The next start serves these records until its first lists are complete.
        self.write_last_snapshot().await;
        Ok(())
    }

    /// Waits up to `timeout` for the snapshot file, so that the first queries are not REFUSED.
    pub async fn load_snapshot(&mut self, timeout: Duration) {
        if let Some(content) = snapshot_read::content_within(timeout, &mut self.snapshot_read).await
        {
            self.restore_snapshot(content);
        }
    }

    /// Ends the read of the snapshot file. If the file is usable and no objects from the API server
    /// have arrived, the records of the file are served until the first lists are complete.
    fn restore_snapshot(&mut self, content: SnapshotContent) {
        // From now on, events no longer wait.
        let Some(read) = self.snapshot_read.take() else {
            return;
        };
        let directory = read.directory().display();

        match content {
            Ok(None) => tracing::info!(%directory, "no snapshot file yet"),
            // The objects from the API server are newer, and must not mix with those of the file.
            Ok(Some(_)) if self.has_objects => {
                tracing::info!(%directory, "snapshot file ignored, because objects from the API server arrived before it was read");
            }
            Ok(Some(saved)) => {
                tracing::warn!(
                    age = ?saved.age(),
                    objects = saved.object_count(),
                    "serving the records of a snapshot file until the first lists from the API server are complete"
                );
                self.source = Some(saved.source());
                saved.serve_from(&mut self.index);
                self.index.publish();
                self.status.set_progress(SyncProgress::Stale);
                self.metrics.stale.set(1);
            }
            Err(error) => {
                let error = daemon::error_chain::brief(&error);
                tracing::error!(%directory, error, "the snapshot file is not used");
            }
        }
    }

    /// Adds the events that have already reached this process to `batch`, so that objects that
    /// change together are published together. For example, the records of a Service with many
    /// EndpointSlices are then made once. This task yields, because the tasks that read the events
    /// run on the same thread.
    async fn gather_events(&mut self, batch: &mut Vec<ReceivedEvent<Event>>) {
        let begun = Instant::now();
        let mut idle_rounds = 0;
        // Without these bounds, a stream of events would delay the publication of its first event.
        while idle_rounds < IDLE_ROUNDS && batch.len() < BATCH && begun.elapsed() < GATHERING {
            tokio::task::yield_now().await;

            let before = batch.len();
            while batch.len() < BATCH
                && let Ok(received) = self.events.try_recv()
            {
                batch.push(received);
            }
            idle_rounds = if batch.len() == before {
                idle_rounds + 1
            } else {
                0
            };
        }
    }

    /// Applies events and publishes. Returns whether the events complete the first lists.
    fn apply_batch(&mut self, batch: &mut Vec<ReceivedEvent<Event>>, begun: Instant) -> bool {
        let oldest = batch.first().map(|received| received.at);
        let was_listed = self.index.has_listed();

        let mut causes = Vec::new();
        for ReceivedEvent { event, .. } in batch.drain(..) {
            tracing::debug!(?event, "event received from the API server");
            // The objects of the first lists may have changed long ago, so the time since their
            // changes is not measured.
            if was_listed {
                causes.extend(self.change_time(&event));
            }
            self.has_objects |= is_of_snapshot_file(&event);
            self.index.apply(event);
        }
        self.log_source();

        if self.index.publish() {
            self.metrics.publications.inc();
            if let Some(oldest) = oldest {
                self.metrics.observe_publication(oldest.elapsed(), &causes);
            }
            if let Some(writer) = &mut self.snapshot_writer {
                writer.note_change();
            }
        }

        let completes_lists = !was_listed && self.index.has_listed();
        if completes_lists {
            self.report_synced(begun.elapsed());
        }
        completes_lists
    }

    /// Publishes new content of a further zone.
    fn publish_further_zone(&mut self, zone: FurtherZone) {
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
    fn change_time(&self, event: &Event) -> Option<SystemTime> {
        let store = self.index.store();
        let (time, known) = match event {
            Event::Endpoints(Change::Apply(new)) => {
                let old = store.endpoints_of(&new.key);
                (new.last_change, old.and_then(|old| old.last_change))
            }
            Event::EndpointSlice(Change::Apply(new)) => {
                let old = store.slice(&new.key);
                (new.last_change, old.and_then(|old| old.last_change))
            }
            _ => return None,
        };
        // If the time is the same, the change has already been measured.
        time.filter(|_| time != known)
    }

    /// Publishes the settings in force. If the configuration is known, readiness no longer waits
    /// for it. Must be called once before the first query; [`run`](Self::run) repeats the call
    /// after each change.
    pub fn put_in_force(&mut self) {
        let in_force = Arc::clone(&self.in_force.borrow_and_update());
        self.publish_settings(&in_force);

        // `set_configured` may make the server ready, and a ready server must use the settings. So
        // the settings are published first.
        if in_force.zone.is_known {
            self.status.set_configured();
        }
    }

    fn publish_settings(&mut self, in_force: &InForce) {
        let zone = in_force.zone.apply_to(&self.zone);
        // The servers are logged before the publication, because `log_servers` compares the new
        // upstreams with the published ones.
        log_servers(in_force, &zone, &self.status.published().get().zone);

        self.index.set_zone(zone);
        self.index
            .set_federations(BTreeMap::clone(&in_force.federations));
        self.index.publish();
    }

    /// If the configuration is overdue, readiness no longer waits for it. `since` is the time when
    /// everything else was ready.
    fn end_wait_for_config(&self, since: &mut Option<Instant>) {
        if is_config_overdue(&self.status, since, Instant::now()) {
            tracing::warn!(waited = ?CONFIG_TIMEOUT, "{READY_WITHOUT_CONFIG}");
            self.status.set_configured();
        }
    }

    fn report_synced(&self, after: Duration) {
        let counts = self.index.counts();
        tracing::info!(
            ?after,
            services = counts.services,
            endpoints = counts.endpoints,
            slices = counts.slices,
            addresses = counts.endpoints_addresses + counts.slices_addresses,
            "the first lists from the API server are complete"
        );

        // The lists have replaced the records of a snapshot file.
        self.status.set_progress(SyncProgress::Synced);
        self.metrics.synced.set(1);
        self.metrics.stale.set(0);
        self.metrics.sync_overdue.set(0);
    }

    fn report_overdue(&self, waited: Duration) {
        self.metrics.sync_overdue.set(1);
        // Old records are better than none. With them, readiness no longer waits for the lists.
        let serving = if self.status.progress() == SyncProgress::Waiting {
            "cluster names are refused, other names are answered"
        } else {
            self.status.set_progress(SyncProgress::StaleOverdue);
            "the records of an earlier run are served"
        };
        tracing::error!(
            ?waited,
            serving,
            "the first lists from the API server have not arrived yet, waiting for them"
        );
    }

    /// Whether old records are served, and readiness still waits for the first lists.
    fn is_waiting_with_snapshot(&self) -> bool {
        self.status.progress() == SyncProgress::Stale
    }

    fn report_sole_server(&self, waited: Duration) {
        tracing::warn!(
            ?waited,
            "no other server answers at the DNS Service, so readiness no longer waits for the first lists; the records of an earlier run are served"
        );
        self.status.set_progress(SyncProgress::StaleOverdue);
    }

    fn count_objects(&self, counting: &mut CountSchedule) {
        let begun = Instant::now();
        if counting.is_due(begun) {
            object_gauges::set(&self.index, &self.status, &self.metrics);
            counting.note_count(begun, begun.elapsed());
        }
    }

    async fn write_snapshot_if_due(&mut self) {
        // Before the first lists are complete, the file may contain more objects than the index.
        if let (Some(writer), Some(source)) = (&mut self.snapshot_writer, self.source)
            && self.index.has_listed()
        {
            writer.write_if_due(&self.index, source).await;
        }
    }

    async fn write_last_snapshot(&mut self) {
        if let (Some(writer), Some(source)) = (&mut self.snapshot_writer, self.source)
            && self.index.has_listed()
        {
            writer.write_last(&self.index, source).await;
        }
    }
}

/// Time of the next count of all objects.
struct CountSchedule {
    /// Whether the gauges have the numbers of the current objects.
    is_current: bool,
    next: Instant,
}

impl CountSchedule {
    fn new(begun: Instant) -> Self {
        Self {
            is_current: false,
            next: begun,
        }
    }

    fn is_due(&self, now: Instant) -> bool {
        !self.is_current && now >= self.next
    }

    fn note_count(&mut self, begun: Instant, took: Duration) {
        self.is_current = true;
        self.next = begun + took * COUNTING_SHARE;
    }

    /// Notes the effect of a batch of events.
    fn note_batch(&mut self, completes_lists: bool, changes_objects: bool) {
        self.is_current &= !changes_objects;
        if completes_lists {
            // The objects of the first lists are counted at the next tick.
            self.next = Instant::now();
        }
    }
}

/// Whether the event is about objects of a kind that the snapshot file contains.
fn is_of_snapshot_file(event: &Event) -> bool {
    use Event::{ImportedSlice, Node, OwnNode, ServiceImport};
    !matches!(
        event,
        Node(_) | OwnNode(_) | ServiceImport(_) | ImportedSlice(_)
    )
}

/// Whether `CONFIG_TIMEOUT` has passed without a configuration. `since` holds the time when
/// everything else was ready.
fn is_config_overdue(status: &Status, since: &mut Option<Instant>, now: Instant) -> bool {
    let is_else_ready = matches!(
        status.progress(),
        SyncProgress::Synced | SyncProgress::StaleOverdue
    );
    if status.is_configured() || !is_else_ready {
        return false;
    }
    now.duration_since(*since.get_or_insert(now)) >= CONFIG_TIMEOUT
}

#[cfg(test)]
mod tests;
