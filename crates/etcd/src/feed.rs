//! Follows the keys of one zone: lists them, watches them, and publishes each new state as a whole.
//!
//! The first session lists the keys and watches for changes after the revision of the list. If a
//! session fails, the next session continues the watch at the last revision. The keys are listed
//! again if etcd has compacted the last revision, or if etcd was set up anew or restored from a
//! backup. The keys of a zone that was too large are listed again after growing pauses. Until the
//! new list is complete, the last state stays published.
//!
//! An open connection does not prove that a watch still works: a proxy may have lost its other
//! half. So a silent watch is compared with etcd. If the zone has changed without an event, a new
//! watch replaces the silent one.

use std::time::Duration;

use daemon::backoff::Backoff;
use daemon::blocking_read::BlockingRead;
use thiserror::Error;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::client::{Access, Client, ClientError};
use crate::gateway::{self, Event, EventKind, GatewayError, Header, Page, WatchResponse};
use crate::key::Subtree;
use crate::metrics::FeedMetrics;
use crate::tree::Tree;

/// Maximum number of keys in one page of a list. Smaller pages are requested if a response is too
/// large.
const PAGE: usize = 1000;
/// Maximum memory for the messages of one zone, in octets, see [`Tree::octets`].
const MAX_OCTETS: usize = 128 << 20;
/// The time without a frame of the watch after which etcd is checked. A new watch must be confirmed
/// within this time.
const SILENCE: Duration = Duration::from_secs(30);
/// The time for which the event of a change that a check has found may still be on its way.
const LATE_EVENT: Duration = Duration::from_secs(2);
/// The time without a frame after which a new watch replaces the watch. By default, etcd reports
/// its revision on a silent watch after ten to eleven minutes.
const LONGEST_SILENCE: Duration = Duration::from_mins(12);
/// Minimum duration of a successful session. The pause after such a session is the shortest pause.
const SETTLED: Duration = Duration::from_secs(10);
/// Maximum number of log lines about skipped keys, for each page or frame.
const LOGGED: usize = 5;
/// The first and the longest pause after a failed session.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// The first and the longest pause before a zone that was too large is listed again. Such a list
/// costs etcd and the network [`MAX_OCTETS`], and most likely fails again.
const FIRST_LARGE_PAUSE: Duration = Duration::from_mins(1);
const LONGEST_LARGE_PAUSE: Duration = Duration::from_mins(10);

/// Receives the results of a feed.
pub trait Sink: Send + Sync {
    /// Publishes a new state of the zone.
    fn publish(&self, tree: &Tree);
    /// Reports the failure of a session, or `None` when a session is established.
    fn connected(&self, failure: Option<String>);
}

/// Follows the keys of one zone.
pub struct Feed<S> {
    access: Access,
    keys: Subtree,
    sink: S,
    metrics: FeedMetrics,
    /// Maximum memory for the messages, in octets.
    max_octets: usize,
    member: usize,
    tree: Tree,
    /// The etcd cluster and the revision of `tree`; `None` if the keys must be listed.
    reached: Option<Header>,
    /// Number of the zone's keys at `reached`, including skipped keys.
    key_count: u64,
    /// The last revision that a check has found to have the same keys as `reached`.
    checked_revision: u64,
    /// Whether a watch has missed a change, and no event has arrived since.
    missed_change: bool,
    /// Whether a session is established; `None` until the first session is established or fails.
    connected: Option<bool>,
    reading: BlockingRead<Result<Client, ClientError>>,
}

/// Failure of a session.
#[derive(Debug, Error)]
enum Failure {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("reading the certificates and the password times out")]
    Hangs,
    #[error("the history since revision {0} is compacted")]
    Compacted(u64),
    #[error("etcd has another history: it was set up anew, or restored")]
    OtherHistory,
    #[error("the watch was canceled: {0}")]
    Canceled(String),
    #[error("the watch is not confirmed within {SILENCE:?}")]
    Unconfirmed,
    #[error("the watch is silent although the zone has changed")]
    MissedChange,
    #[error("the zone takes more than {0} octets")]
    Large(usize),
}

/// The pauses between sessions.
#[derive(Debug)]
struct Pauses {
    usual: Backoff,
    /// The pauses after lists of a zone that was too large.
    large: Backoff,
}

impl Default for Pauses {
    fn default() -> Self {
        Self {
            usual: Backoff::new(FIRST_PAUSE),
            large: Backoff::new(FIRST_LARGE_PAUSE),
        }
    }
}

impl Pauses {
    /// The pause after a session that ended with `failure`, or without one.
    fn next(&mut self, failure: Option<&Failure>) -> Duration {
        match failure {
            Some(Failure::Large(_)) => self.large.pause(LONGEST_LARGE_PAUSE),
            _ => self.usual.pause(LONGEST_PAUSE),
        }
    }
}

impl<S: Sink> Feed<S> {
    /// A feed of `keys` from etcd, reached through `access`.
    pub fn new(access: Access, keys: Subtree, sink: S, metrics: FeedMetrics) -> Self {
        Self {
            access,
            keys,
            sink,
            metrics,
            max_octets: MAX_OCTETS,
            member: 0,
            tree: Tree::default(),
            reached: None,
            key_count: 0,
            checked_revision: 0,
            missed_change: false,
            connected: None,
            reading: BlockingRead::default(),
        }
    }

    /// Sets the maximum memory for the messages, in octets. The default is 128 MiB.
    #[must_use]
    pub fn limited_to(mut self, max_octets: usize) -> Self {
        self.max_octets = max_octets;
        self
    }

    /// Follows the zone until `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut pauses = Pauses::default();
        loop {
            let begun = Instant::now();
            let ended = tokio::select! {
                ended = self.session() => ended,
                () = stop.cancelled() => return,
            };

            if self.connected == Some(true) && begun.elapsed() > SETTLED {
                pauses = Pauses::default();
            }
            let pause = pauses.next(ended.as_ref().err());
            if let Err(failure) = ended {
                self.failed(&failure);
            }

            tokio::select! {
                () = sleep(pause) => {}
                () = stop.cancelled() => return,
            }
        }
    }

    fn failed(&mut self, failure: &Failure) {
        self.metrics.failures.inc();
        let is_lost = match failure {
            Failure::Compacted(_) | Failure::OtherHistory | Failure::Large(_) => true,
            // A second watch that misses changes is as silent as the first: only a list shows them.
            Failure::MissedChange => std::mem::replace(&mut self.missed_change, true),
            _ => false,
        };
        if is_lost {
            self.reached = None;
        }
        self.member += 1;
        let error = daemon::error_chain::brief(failure);
        let (keys, records) = (&self.keys, self.tree.len());
        match self.connected.replace(false) {
            Some(false) => tracing::debug!(%keys, error, "etcd still not connected"),
            Some(true) => {
                tracing::warn!(%keys, records, error, "etcd connection lost, keeping the last records");
            }
            None => {
                tracing::warn!(%keys, error, "etcd cannot be reached, the names of the zone are SERVFAIL");
            }
        }
        self.metrics.connected.set(0);
        self.sink.connected(Some(error));
    }

    fn succeeded(&mut self) {
        if self.connected.replace(true) != Some(true) {
            tracing::info!(keys = %self.keys, records = self.tree.len(), "etcd connected");
        }
        self.metrics.connected.set(1);
        self.sink.connected(None);
    }

    /// Runs one session until it fails, or until its watch has been silent for too long.
    async fn session(&mut self) -> Result<(), Failure> {
        let mut client = self.client().await?;
        let reached = match self.reached {
            Some(reached) => reached,
            None => self.list(&mut client).await?,
        };
        let request = gateway::watch(&self.keys.range(), reached.revision + 1);
        let mut watch = client.watch(&request).await?;

        let mut is_confirmed = false;
        let mut last_frame = Instant::now();
        while last_frame.elapsed() < LONGEST_SILENCE {
            let frame = match timeout(SILENCE, watch.next()).await {
                Ok(frame) => frame?,
                Err(_) if !is_confirmed => return Err(Failure::Unconfirmed),
                Err(_) if self.has_changed(&mut client).await? => timeout(LATE_EVENT, watch.next())
                    .await
                    .map_err(|_| Failure::MissedChange)??,
                Err(_) => continue,
            };
            last_frame = Instant::now();
            is_confirmed |= frame.created;
            self.take(frame)?;
        }
        Ok(())
    }

    async fn client(&self) -> Result<Client, Failure> {
        let (access, count) = (self.access.clone(), self.access.members.len().max(1));
        let member = self
            .access
            .members
            .get(self.member % count)
            .cloned()
            .unwrap_or_default();
        Ok(self
            .reading
            .run(move || Client::new(&access, &member))
            .await
            .ok_or(Failure::Hangs)??)
    }

    /// Reads all keys in pages, each at the revision of the first page, and publishes them.
    async fn list(&mut self, client: &mut Client) -> Result<Header, Failure> {
        let (mut keys, mut tree) = (self.keys.range(), Tree::default());
        let (mut limit, mut header) = (PAGE, None::<Header>);
        let mut key_count = 0;
        loop {
            let revision = header.map_or(0, |header| header.revision);
            let page = client
                .post::<Page>("/v3/kv/range", &gateway::range(&keys, limit, revision))
                .await;
            let page = match page {
                Err(ClientError::Gateway(GatewayError::Large(_))) if limit > 1 => {
                    limit /= 4;
                    continue;
                }
                page => page?,
            };
            if header.is_none() {
                key_count = page.count;
            }
            let first = *header.get_or_insert(page.header);
            if let Some(last) = page.kvs.last().filter(|_| page.more) {
                keys.start = [&last.key[..], b"\0"].concat();
            }
            let more = page.more && !page.kvs.is_empty();
            self.set(
                &mut tree,
                page.kvs.into_iter().map(|kv| Event {
                    kind: EventKind::Put,
                    kv,
                }),
            )?;
            if !more {
                (self.tree, self.reached) = (tree, Some(first));
                self.key_count = key_count;
                self.metrics.lists.inc();
                self.publish();
                return Ok(first);
            }
        }
    }

    /// Applies a frame of the watch.
    fn take(&mut self, response: WatchResponse) -> Result<(), Failure> {
        let reached = self.reached.unwrap_or_default();
        if response.compact_revision != 0 {
            return Err(Failure::Compacted(reached.revision));
        }
        if response.canceled {
            return Err(Failure::Canceled(response.cancel_reason));
        }
        // A restored etcd may have an older revision. etcd does not reject a watch from a future
        // revision, but sends no events.
        if !response.header.continues(reached) {
            return Err(Failure::OtherHistory);
        }
        if response.created {
            self.succeeded();
            return Ok(());
        }
        // While a watch catches up, the revision in the header is later than that of the events.
        let last = response.events.last().map(|event| event.kv.mod_revision);
        let revision = last.unwrap_or(response.header.revision);
        let created = response
            .events
            .iter()
            .filter(|event| event.is_creation())
            .count() as u64;
        let deleted = response
            .events
            .iter()
            .filter(|event| event.kind == EventKind::Delete)
            .count() as u64;

        let mut tree = self.tree.clone();
        self.set(&mut tree, response.events.into_iter())?;
        (self.tree, self.reached) = (
            tree,
            Some(Header {
                revision,
                ..response.header
            }),
        );
        self.key_count = (self.key_count + created).saturating_sub(deleted);
        if last.is_some() {
            self.missed_change = false;
            self.publish();
        }
        Ok(())
    }

    /// Compares the zone in etcd with the last known state. Returns whether the zone has changed
    /// since. Fails if etcd does not answer, or if it is another etcd or a restored one.
    async fn has_changed(&mut self, client: &mut Client) -> Result<bool, Failure> {
        let keys = self.keys.range();
        let reached = self.reached.unwrap_or_default();
        let page: Page = client
            .post("/v3/kv/range", &gateway::range(&keys, 1, 0))
            .await?;
        let current = page.header;
        if !current.continues(reached) {
            return Err(Failure::OtherHistory);
        }
        if page.count != self.key_count {
            return Ok(true);
        }

        // etcd is read in full only if a key has changed at all, in this zone or elsewhere.
        if current.revision > self.checked_revision.max(reached.revision) {
            let set: Page = client
                .post("/v3/kv/range", &gateway::set_after(&keys, reached.revision))
                .await?;
            if !set.kvs.is_empty() {
                return Ok(true);
            }
            self.checked_revision = current.revision;
        }
        Ok(false)
    }

    /// Applies changes to `tree`.
    fn set(&self, tree: &mut Tree, changes: impl Iterator<Item = Event>) -> Result<(), Failure> {
        let mut skipped = 0;
        for event in changes {
            if let Err(error) = tree.apply(&self.keys, &event) {
                skipped += 1;
                if skipped <= LOGGED {
                    let key = String::from_utf8_lossy(&event.kv.key);
                    tracing::warn!(%key, %error, "etcd key skipped");
                }
            }
            if tree.octets() > self.max_octets {
                return Err(Failure::Large(self.max_octets));
            }
        }
        self.metrics.skipped.inc_by(skipped as u64);
        if let Some(more) = skipped.checked_sub(LOGGED + 1) {
            tracing::warn!(more = more + 1, "further etcd keys skipped");
        }
        Ok(())
    }

    fn publish(&self) {
        self.metrics
            .records
            .set(daemon::metrics::gauge_value(self.tree.len()));
        self.sink.publish(&self.tree);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_zone_is_listed_rarely() {
        let mut pauses = Pauses::default();
        let mut listed = |seconds: u64| {
            let failure = Failure::Large(MAX_OCTETS);
            let pause = pauses.next(Some(&failure)).as_secs_f64();
            let longest = Duration::from_secs(seconds).as_secs_f64();
            assert!(
                (longest / 2.0..=longest).contains(&pause),
                "{pause} of {longest}"
            );
        };
        for seconds in [60, 120, 240, 480, 600, 600] {
            listed(seconds);
        }
        assert!(pauses.next(Some(&Failure::Unconfirmed)) <= FIRST_PAUSE);
        assert!(pauses.next(None) <= 2 * FIRST_PAUSE);
    }
}
