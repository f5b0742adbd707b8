//! Follows the keys of one zone: lists them, watches them, and publishes each new state as a whole.
//!
//! A session uses one etcd member and has one watch. The first session lists the keys, and watches
//! for changes after the revision of the list. If a session ends after the list, the next session
//! continues the watch at the last revision. The keys are listed again if etcd has compacted the
//! last revision, if an event cannot be used, or if etcd was set up anew or restored from a backup.
//! If the zone takes too much memory, its keys are listed again after growing pauses. Until the new
//! list is complete, the last state stays published.
//!
//! An open connection does not prove that a watch still works: a proxy may have lost its own
//! connection to etcd. So if a watch is silent, the last known state is compared with the zone in
//! etcd. If the zone has changed without an event, a new watch replaces the silent one. If the new
//! watch misses changes, too, the keys are listed again.

use std::time::Duration;

use daemon::backoff::Backoff;
use daemon::blocking_read::BlockingRead;
use http::Uri;
use thiserror::Error;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::client::{ClientError, EtcdAccess, EtcdClient};
use crate::gateway::{
    self, GatewayError, KeyEvent, KeyEventKind, KeyPage, RevisionHeader, WatchResponse,
};
use crate::key::ZoneKeys;
use crate::metrics::EtcdFeedMetrics;
use crate::tree::MessageTree;

/// Maximum number of keys in one page of a list. Smaller pages are requested if a response is too
/// large.
const PAGE_SIZE: usize = 1000;
/// Maximum memory for the values of one zone (SkyDNS messages), in octets, see
/// [`MessageTree::octets`].
const MAX_OCTETS: usize = 128 << 20;
/// If no frame of the watch arrives within this time, the feed checks the zone in etcd for changes.
/// A new watch must be confirmed within this time.
const SILENCE: Duration = Duration::from_secs(30);
/// The time in which the event of a change may still arrive after a check has found the change.
const LATE_EVENT: Duration = Duration::from_secs(2);
/// If no frame of the watch arrives within this time, a new watch replaces it. By default, etcd
/// reports its revision on a silent watch after ten to eleven minutes.
const LONGEST_SILENCE: Duration = Duration::from_mins(12);
/// Minimum duration of a successful session. The pause after such a session is the shortest pause.
const MIN_SUCCESS: Duration = Duration::from_secs(10);
/// Maximum number of log lines about skipped keys, for each page or frame.
const MAX_LOGGED: usize = 5;
/// The first and the longest pause after a session, unless the zone was too large.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// The first and the longest pause before a zone that was too large is listed again. Such a list
/// transfers about [`MAX_OCTETS`], and most likely fails again.
const FIRST_LARGE_PAUSE: Duration = Duration::from_mins(1);
const LONGEST_LARGE_PAUSE: Duration = Duration::from_mins(10);

/// Receives the results of a feed.
pub trait EtcdSink: Send + Sync {
    /// Publishes a new state of the zone.
    fn publish_tree(&self, tree: &MessageTree);
    /// Reports the failure of a session, or `None` when a session is established.
    fn report_connection(&self, failure: Option<String>);
}

/// Follows the keys of one zone.
pub struct EtcdFeed<S> {
    access: EtcdAccess,
    keys: ZoneKeys,
    sink: S,
    metrics: EtcdFeedMetrics,
    /// Maximum memory for the messages, in octets.
    max_octets: usize,
    member: usize,
    tree: MessageTree,
    /// The state of etcd that `tree` reflects; `None` if the keys must be listed.
    reached: Option<ReachedState>,
    /// Whether a watch has missed a change, and no event has arrived since.
    missed_change: bool,
    /// Whether a session is established; `None` until the first session is established or fails.
    connected: Option<bool>,
    reading: BlockingRead<Result<EtcdClient, ClientError>>,
}

/// The state of etcd that the feed has reached. A list replaces the whole state.
#[derive(Debug, Clone, Copy, Default)]
struct ReachedState {
    /// The etcd cluster, and the revision that the feed has reached.
    header: RevisionHeader,
    /// Number of keys in the zone's range at this revision, including keys that are skipped or
    /// belong to other zones.
    key_count: u64,
    /// The revision of the last list, or of a later check that found no change.
    checked_revision: u64,
}

/// Failure of a session.
#[derive(Debug, Error)]
enum SessionFailure {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("timed out while reading the certificates and the password")]
    Hangs,
    #[error("the history since revision {0} is compacted")]
    Compacted(u64),
    #[error("etcd has another cluster ID or a lower revision than before, as after a restore")]
    OtherHistory,
    #[error("the watch was canceled: {0}")]
    Canceled(String),
    #[error("the watch was not confirmed within {SILENCE:?}")]
    Unconfirmed,
    #[error("the watch is silent although the zone has changed")]
    MissedChange,
    #[error("cannot use an event of the watch: {0}")]
    UnusableEvent(GatewayError),
    #[error("the zone takes more than {0} octets of memory")]
    Large(usize),
}

impl SessionFailure {
    /// The failure of a watch that etcd has confirmed.
    fn of_confirmed_watch(error: ClientError) -> Self {
        match error {
            // Another watch from the same revision would receive the same events.
            ClientError::Gateway(error @ (GatewayError::Large(_) | GatewayError::Foreign(_))) => {
                Self::UnusableEvent(error)
            }
            error => Self::Client(error),
        }
    }
}

/// The pauses between sessions.
#[derive(Debug)]
struct SessionPauses {
    usual: Backoff,
    /// The pauses after sessions in which the zone was too large.
    too_large: Backoff,
}

impl Default for SessionPauses {
    fn default() -> Self {
        Self {
            usual: Backoff::new(FIRST_PAUSE),
            too_large: Backoff::new(FIRST_LARGE_PAUSE),
        }
    }
}

impl SessionPauses {
    /// The pause after a session. `failure` is the reason why the session ended; `None` if the
    /// session did not fail.
    fn next_pause(&mut self, failure: Option<&SessionFailure>) -> Duration {
        match failure {
            Some(SessionFailure::Large(_)) => self.too_large.pause(LONGEST_LARGE_PAUSE),
            _ => self.usual.pause(LONGEST_PAUSE),
        }
    }
}

impl<S: EtcdSink> EtcdFeed<S> {
    /// A feed of `keys` from etcd, reached through `access`.
    pub fn new(access: EtcdAccess, keys: ZoneKeys, sink: S, metrics: EtcdFeedMetrics) -> Self {
        Self {
            access,
            keys,
            sink,
            metrics,
            max_octets: MAX_OCTETS,
            member: 0,
            tree: MessageTree::default(),
            reached: None,
            missed_change: false,
            connected: None,
            reading: BlockingRead::default(),
        }
    }

    /// Sets the maximum memory for the messages, in octets. The default is 128 MiB.
    #[must_use]
    pub fn with_max_octets(mut self, max_octets: usize) -> Self {
        self.max_octets = max_octets;
        self
    }

    /// Follows the zone until `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut pauses = SessionPauses::default();
        loop {
            let begun = Instant::now();
            let ended = tokio::select! {
                ended = self.run_session() => ended,
                () = stop.cancelled() => return,
            };

            // Only an established session that lasts longer than `MIN_SUCCESS` resets the pauses.
            if self.connected == Some(true) && begun.elapsed() > MIN_SUCCESS {
                pauses = SessionPauses::default();
            }
            let pause = pauses.next_pause(ended.as_ref().err());
            if let Err(failure) = ended {
                self.report_failure(&failure);
            }

            tokio::select! {
                () = sleep(pause) => {}
                () = stop.cancelled() => return,
            }
        }
    }

    fn report_failure(&mut self, failure: &SessionFailure) {
        self.metrics.failures.inc();
        let is_listed = self.reached.is_some();
        let must_list = match failure {
            SessionFailure::Compacted(_)
            | SessionFailure::OtherHistory
            | SessionFailure::UnusableEvent(_)
            | SessionFailure::Large(_) => true,
            // If a second watch misses changes as well, only a list shows them.
            SessionFailure::MissedChange => std::mem::replace(&mut self.missed_change, true),
            _ => false,
        };
        if must_list {
            self.reached = None;
        }
        let member = self.current_member();
        // The next session uses the next member.
        self.member += 1;

        // Only the first failure of an outage is logged as a warning.
        let error = daemon::error_chain::brief(failure);
        let keys = &self.keys;
        match self.connected.replace(false) {
            Some(false) => tracing::debug!(%keys, %member, error, "etcd still not connected"),
            // The first session may have listed the zone before it failed.
            Some(true) | None if is_listed => {
                let records = self.tree.len();
                tracing::warn!(%keys, %member, records, error, "etcd connection lost, keeping the last records");
            }
            _ => {
                tracing::warn!(%keys, %member, error, "the keys cannot be read from etcd, so their records are not served");
            }
        }
        self.metrics.set_connected(false);
        self.sink.report_connection(Some(error));
    }

    fn report_success(&mut self) {
        if self.connected.replace(true) != Some(true) {
            tracing::info!(keys = %self.keys, records = self.tree.len(), "etcd connected");
        }
        self.metrics.set_connected(true);
        self.sink.report_connection(None);
    }

    /// Runs one session until it fails, or until its watch has been silent for too long.
    async fn run_session(&mut self) -> Result<(), SessionFailure> {
        let mut client = self.open_client().await?;
        let reached = match self.reached {
            Some(reached) => reached,
            None => self.list_keys(&mut client).await?,
        };
        let request = gateway::watch_request(&self.keys.range(), reached.header.revision + 1);
        let mut watch = client.open_watch(&request).await?;

        let mut is_confirmed = false;
        let mut last_frame = Instant::now();
        while last_frame.elapsed() < LONGEST_SILENCE {
            let received = match timeout(SILENCE, watch.next_frame()).await {
                Ok(received) => received,
                Err(_) if !is_confirmed => return Err(SessionFailure::Unconfirmed),
                // The zone has changed. The event may still be on its way.
                Err(_) if self.has_changed(&mut client).await? => {
                    timeout(LATE_EVENT, watch.next_frame())
                        .await
                        .map_err(|_| SessionFailure::MissedChange)?
                }
                Err(_) => continue,
            };

            let frame = match received {
                Ok(frame) => frame,
                Err(error) if is_confirmed => {
                    return Err(SessionFailure::of_confirmed_watch(error));
                }
                Err(error) => return Err(error.into()),
            };
            last_frame = Instant::now();
            is_confirmed |= frame.created;
            self.apply_frame(frame)?;
        }
        Ok(())
    }

    /// The member that the session uses.
    fn current_member(&self) -> Uri {
        let members = &self.access.members;
        members
            .get(self.member % members.len().max(1))
            .cloned()
            .unwrap_or_default()
    }

    async fn open_client(&self) -> Result<EtcdClient, SessionFailure> {
        let member = self.current_member();
        let access = self.access.clone();
        let client = self
            .reading
            .run(move || EtcdClient::new(&access, &member))
            .await
            .ok_or(SessionFailure::Hangs)?;
        Ok(client?)
    }

    /// Reads all keys in pages, each at the revision of the first page, and publishes them.
    async fn list_keys(&mut self, client: &mut EtcdClient) -> Result<ReachedState, SessionFailure> {
        let mut range = self.keys.range();
        let mut limit = PAGE_SIZE;
        let mut tree = MessageTree::default();
        let mut first_header = None;
        let mut key_count = 0;

        loop {
            let revision = first_header.map_or(0, |header: RevisionHeader| header.revision);
            let request = gateway::range_request(&range, limit, revision);
            let page = match client.post_json::<KeyPage>("/v3/kv/range", &request).await {
                Err(ClientError::Gateway(GatewayError::Large(_))) if limit > 1 => {
                    limit = smaller_page(limit);
                    continue;
                }
                page => page?,
            };

            // Later pages count only the keys that are left.
            if first_header.is_none() {
                key_count = page.count;
            }
            let header = *first_header.get_or_insert(page.header);
            let is_last = !page.more || page.kvs.is_empty();
            if let Some(last) = page.kvs.last() {
                // The next possible key is the last key with a zero octet appended.
                range.start = [&last.key[..], b"\0"].concat();
            }
            let changes = page.kvs.into_iter().map(|kv| KeyEvent {
                kind: KeyEventKind::Put,
                kv,
            });
            self.apply_changes(&mut tree, changes)?;

            if is_last {
                let reached = ReachedState {
                    header,
                    key_count,
                    checked_revision: header.revision,
                };
                self.tree = tree;
                self.reached = Some(reached);
                self.metrics.lists.inc();
                self.publish_tree();
                return Ok(reached);
            }
        }
    }

    /// Applies a frame of the watch.
    fn apply_frame(&mut self, response: WatchResponse) -> Result<(), SessionFailure> {
        let reached = self.reached.unwrap_or_default();
        if response.compact_revision != 0 {
            return Err(SessionFailure::Compacted(reached.header.revision));
        }
        if response.canceled {
            return Err(SessionFailure::Canceled(response.cancel_reason));
        }
        // A restored etcd may have an older revision. etcd does not reject a watch from a future
        // revision, but sends no events.
        if !response.header.continues(reached.header) {
            return Err(SessionFailure::OtherHistory);
        }
        if response.created {
            self.report_success();
            return Ok(());
        }

        // While a watch catches up, the revision in the header is later than that of the events.
        let last = response.events.last().map(|event| event.kv.mod_revision);
        let header = RevisionHeader {
            revision: last.unwrap_or(response.header.revision),
            ..response.header
        };
        let mut key_count = reached.key_count;
        for event in &response.events {
            if event.is_creation() {
                key_count += 1;
            } else if event.kind == KeyEventKind::Delete {
                key_count = key_count.saturating_sub(1);
            }
        }

        // The changes go to a clone, so that a frame that fails in the middle leaves the tree as it
        // was.
        let mut tree = self.tree.clone();
        self.apply_changes(&mut tree, response.events.into_iter())?;
        self.tree = tree;
        self.reached = Some(ReachedState {
            header,
            key_count,
            ..reached
        });
        if last.is_some() {
            self.missed_change = false;
            self.publish_tree();
        }
        Ok(())
    }

    /// Compares the zone in etcd with the last known state. Returns whether the zone has changed
    /// since. Fails if etcd does not answer, or if etcd was set up anew or restored.
    async fn has_changed(&mut self, client: &mut EtcdClient) -> Result<bool, SessionFailure> {
        let range = self.keys.range();
        let mut reached = self.reached.unwrap_or_default();

        let request = gateway::range_request(&range, 1, 0);
        let page: KeyPage = client.post_json("/v3/kv/range", &request).await?;
        let current = page.header;
        if !current.continues(reached.header) {
            return Err(SessionFailure::OtherHistory);
        }
        // A request for changed keys does not find deleted keys. A deletion shows only in the
        // number of keys.
        if page.count != reached.key_count {
            return Ok(true);
        }

        // etcd reads the whole zone for the next request. So the request is sent only if a key has
        // changed, in this zone or elsewhere.
        if current.revision > reached.checked_revision.max(reached.header.revision) {
            let request = gateway::changed_keys_request(&range, reached.header.revision);
            let changed: KeyPage = client.post_json("/v3/kv/range", &request).await?;
            if !changed.kvs.is_empty() {
                return Ok(true);
            }
            reached.checked_revision = current.revision;
            self.reached = Some(reached);
        }
        Ok(false)
    }

    /// Applies changes to `tree`.
    fn apply_changes(
        &self,
        tree: &mut MessageTree,
        changes: impl Iterator<Item = KeyEvent>,
    ) -> Result<(), SessionFailure> {
        let mut skipped = 0;
        for event in changes {
            if let Err(error) = tree.apply(&self.keys, &event) {
                skipped += 1;
                if skipped <= MAX_LOGGED {
                    let key = String::from_utf8_lossy(&event.kv.key);
                    tracing::warn!(%key, %error, "etcd key skipped");
                }
            }
            if tree.octets() > self.max_octets {
                return Err(SessionFailure::Large(self.max_octets));
            }
        }

        self.metrics.skipped.inc_by(skipped as u64);
        let more = skipped.saturating_sub(MAX_LOGGED);
        if more > 0 {
            tracing::warn!(more, "further etcd keys skipped");
        }
        Ok(())
    }

    fn publish_tree(&self) {
        self.metrics.set_records(self.tree.len());
        self.sink.publish_tree(&self.tree);
    }
}

/// The number of keys in the next attempt after a page of `limit` keys was too large. The result is
/// at least 1, because etcd takes 0 as no limit.
fn smaller_page(limit: usize) -> usize {
    (limit / 4).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_shrink_to_one_key() {
        let mut limits = vec![PAGE_SIZE];
        while let Some(&limit @ 2..) = limits.last() {
            limits.push(smaller_page(limit));
        }
        assert_eq!(limits, [1000, 250, 62, 15, 3, 1]);
    }

    #[test]
    fn only_unreadable_frame_counts_as_unusable_event() {
        let foreign = serde_json::from_str::<u8>("x").unwrap_err();
        for (error, is_unusable) in [
            (GatewayError::Large(1), true),
            (GatewayError::Foreign(foreign), true),
            (GatewayError::Reported("no leader".to_owned()), false),
        ] {
            let text = error.to_string();
            let failure = SessionFailure::of_confirmed_watch(error.into());
            let found = matches!(failure, SessionFailure::UnusableEvent(_));
            assert_eq!(found, is_unusable, "{text}");
        }
    }

    #[test]
    fn pauses_are_long_only_after_too_large_zone() {
        let mut pauses = SessionPauses::default();
        let too_large = SessionFailure::Large(MAX_OCTETS);
        for seconds in [60_f64, 120.0, 240.0, 480.0, 600.0, 600.0] {
            let pause = pauses.next_pause(Some(&too_large)).as_secs_f64();
            assert!(
                (seconds / 2.0..=seconds).contains(&pause),
                "the pause of {pause} s is not between half of {seconds} s and {seconds} s"
            );
        }

        let unconfirmed = SessionFailure::Unconfirmed;
        assert!(pauses.next_pause(Some(&unconfirmed)) <= FIRST_PAUSE);
        assert!(pauses.next_pause(None) <= 2 * FIRST_PAUSE);
    }
}
