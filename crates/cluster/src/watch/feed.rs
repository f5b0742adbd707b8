//! A feed of one collection. The feed lists and watches the collection. When a watch ends, the feed
//! resumes it or lists the collection again, forever.

mod recovery;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use daemon::backoff::jittered;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::encoding::{ListPart, WatchEvent};
use super::failure::{FeedPauses, RequestFailure};
use super::failure_log::{FailureLog, MalformedLog};
use super::metrics::FeedMetrics;
use super::position::{DatabaseHistory, FeedPosition, ListPosition, WatchEnd, WatchPosition};
use super::request::{Collection, CollectionClient, ListExtent};
use super::response::EventReader;
use super::{FeedState, ReceivedEvent, WatchTiming};
use crate::connect::Connection;
use crate::objects::{Change, ChangeWrapper, Encoded, EventConverter, FromApi};

/// Duration after which a watch is stable. A stable watch resets the pause before the next list.
const STABLE_WATCH: Duration = Duration::from_secs(30);

/// The receiver of the events is gone, which ends a feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceiverGone;

/// The reason why an attempt ended.
enum AttemptEnd {
    Failed(RequestFailure),
    ReceiverGone,
}

impl From<RequestFailure> for AttemptEnd {
    fn from(failure: RequestFailure) -> Self {
        Self::Failed(failure)
    }
}

/// Follows one collection and sends its changes to `sink`, as events of type `E`.
pub struct CollectionFeed<E> {
    client: CollectionClient,
    timing: WatchTiming,
    is_optional: bool,
    /// True while the receiver need not keep the objects. If reading is refused at that time, the
    /// sent objects are removed.
    dispensable: watch::Receiver<bool>,
    /// Whether objects were sent and not removed since.
    has_sent_objects: bool,
    metrics: FeedMetrics,
    sink: mpsc::Sender<ReceivedEvent<E>>,
    converter: Arc<dyn EventConverter<E>>,
    state: watch::Sender<FeedState>,
    failure_log: FailureLog,
    malformed_log: MalformedLog,
    pauses: FeedPauses,
}

impl<E: Send + 'static> CollectionFeed<E> {
    /// A feed of `collection` into `sink`; `wrap` converts changes to events.
    pub fn new<T: FromApi>(
        connection: Arc<Connection>,
        collection: Collection,
        timing: WatchTiming,
        metrics: FeedMetrics,
        sink: mpsc::Sender<ReceivedEvent<E>>,
        wrap: fn(Change<T>) -> E,
    ) -> Self {
        let converter = Arc::new(ChangeWrapper(wrap));
        Self::with_converter(connection, collection, timing, metrics, sink, converter)
    }

    /// A feed of `collection` into `sink`; `converter` converts objects to events.
    pub(super) fn with_converter(
        connection: Arc<Connection>,
        collection: Collection,
        timing: WatchTiming,
        metrics: FeedMetrics,
        sink: mpsc::Sender<ReceivedEvent<E>>,
        converter: Arc<dyn EventConverter<E>>,
    ) -> Self {
        let kind = collection.kind();
        Self {
            failure_log: FailureLog::new(kind, Arc::clone(&connection)),
            client: CollectionClient {
                connection,
                collection,
                timeout: timing.response,
            },
            is_optional: false,
            dispensable: watch::channel(false).1,
            has_sent_objects: false,
            sink,
            converter,
            state: watch::Sender::new(FeedState::started()),
            malformed_log: MalformedLog::new(kind, metrics.malformed.clone()),
            pauses: FeedPauses::new(timing.clone()),
            timing,
            metrics,
        }
    }

    /// Makes the collection optional. If reading is refused while no objects have to be kept, the
    /// log level is lower and the pauses grow longer.
    #[must_use]
    pub fn optional(mut self) -> Self {
        self.is_optional = true;
        self
    }

    /// Names the feature that requires this collection, for log lines about a refusal.
    #[must_use]
    pub fn needed_for(mut self, feature: &'static str) -> Self {
        self.failure_log.needed_for = Some(feature);
        self
    }

    /// Lets the feed remove the sent objects if reading is refused while `dispensable` is true.
    #[must_use]
    pub fn dispensable_while(mut self, dispensable: watch::Receiver<bool>) -> Self {
        self.dispensable = dispensable;
        self
    }

    /// The state of the feed and its changes.
    pub fn state(&self) -> watch::Receiver<FeedState> {
        self.state.subscribe()
    }

    /// Follows the collection until `stop`, or until the receiver of the events is gone.
    pub async fn run(mut self, stop: CancellationToken) {
        self.follow_until(&stop).await;
    }

    /// Like [`run`](Self::run), but removes the sent objects at the end.
    pub(super) async fn run_while_needed(mut self, stop: CancellationToken) {
        self.follow_until(&stop).await;
        // If the receiver is gone, nobody has the objects.
        let _ = self.remove_sent_objects().await;
    }

    async fn follow_until(&mut self, stop: &CancellationToken) {
        let _ = stop.run_until_cancelled(self.follow_collection()).await;
        self.metrics.set_connected(false);
    }

    async fn follow_collection(&mut self) -> ReceiverGone {
        let mut position = FeedPosition::default();
        loop {
            let end = match self.run_step(&mut position).await {
                Ok(()) => continue,
                Err(end) => end,
            };

            let AttemptEnd::Failed(failure) = end else {
                return ReceiverGone;
            };
            if self.recover_from(&failure, &mut position).await.is_err() {
                return ReceiverGone;
            }
        }
    }

    /// Runs a list or a watch to its end. If it ends without a failure, a watch follows.
    async fn run_step(&mut self, position: &mut FeedPosition) -> Result<(), AttemptEnd> {
        match position {
            FeedPosition::Listing(listing) => {
                let history = self.run_list(listing).await?;
                *position = FeedPosition::Watching(WatchPosition::new(history));
                Ok(())
            }
            FeedPosition::Watching(watching) => self.run_watch(watching).await,
        }
    }

    /// Lists the remaining pages of `listing`.
    async fn run_list(
        &mut self,
        listing: &mut ListPosition,
    ) -> Result<DatabaseHistory, AttemptEnd> {
        while !listing.is_endless() {
            let history = match self.receive_page(listing).await {
                Ok(history) => history,
                // A list that is too large is not a failure of the API server. It is requested in
                // smaller pages.
                Err(AttemptEnd::Failed(RequestFailure::TooLarge(_))) if listing.shrink_page() => {
                    continue;
                }
                Err(end) => return Err(end),
            };

            self.pauses.note_progress();
            if let Some(history) = history {
                self.send_change(Change::RelistDone, Instant::now()).await?;
                self.metrics.lists.inc();
                self.state.send_modify(|state| state.listed = true);
                return Ok(history);
            }
        }

        let problem = "a list with too many pages";
        Err(RequestFailure::Garbage(problem.to_owned()).into())
    }

    /// Lists a page or the whole collection. Returns the [`DatabaseHistory`] of the list after the
    /// last page, and `None` after any other page.
    async fn receive_page(
        &mut self,
        listing: &mut ListPosition,
    ) -> Result<Option<DatabaseHistory>, AttemptEnd> {
        let mut page = self.client.request_list(&listing.extent).await?;
        let mut history = listing.history();
        let mut has_begun = !listing.is_new();

        loop {
            let part = page.next_part().await?;
            let at = Instant::now();
            // `RelistStarted` is sent only after the first part of the list has arrived.
            if !std::mem::replace(&mut has_begun, true) {
                self.send_change(Change::RelistStarted, at).await?;
                self.has_sent_objects = true;
            }

            match part {
                ListPart::Object(object) => {
                    self.forward_listed(&object, &mut history, at).await?;
                }
                ListPart::End(meta) => return Ok(listing.finish_page(meta, history)),
            }
        }
    }

    /// Runs one watch, from its request to its end.
    async fn run_watch(&mut self, watching: &mut WatchPosition) -> Result<(), AttemptEnd> {
        // `check_history` runs before each watch, unless the watch directly follows a list, or
        // another watch that ended on time.
        if std::mem::replace(&mut watching.must_check_history, true) {
            self.check_history(&mut watching.history).await?;
        }
        if std::mem::take(&mut watching.was_silent) {
            // The response to `check_history` shows that the API server works. `handle_event` may
            // not have logged the end of an earlier failure, because a silent watch may have no
            // event.
            self.failure_log.log_recovery();
        }

        let duration = jittered(&self.timing.watch);
        let seconds = u32::try_from(duration.as_secs()).unwrap_or(u32::MAX).max(1);
        let version = &watching.history.version;
        let events = self.client.request_watch(version, seconds).await?;
        self.note_watch_opened();

        let begun = Instant::now();
        let received = self.receive_events(watching, events, duration).await;
        if begun.elapsed() > STABLE_WATCH {
            self.pauses.note_stable_watch();
        }

        match received {
            Ok(end) => {
                watching.must_check_history = end != WatchEnd::OnTime;
                watching.was_silent = end == WatchEnd::Silent;
                self.metrics.count_restart("timeout");
                self.pauses.note_progress();
                Ok(())
            }
            Err(end) => {
                // An unreadable event may come again each time the watch is resumed. So a new list
                // replaces the watch after several failures.
                if matches!(&end, AttemptEnd::Failed(failure) if failure.is_unreadable()) {
                    watching.unreadable += 1;
                }
                Err(end)
            }
        }
    }

    /// Receives the events of a watch with the requested duration `requested`.
    async fn receive_events(
        &mut self,
        watching: &mut WatchPosition,
        mut events: EventReader,
        requested: Duration,
    ) -> Result<WatchEnd, AttemptEnd> {
        let begun = Instant::now();
        let latest_end = begun + requested + self.timing.overrun;
        let mut is_silent = true;

        loop {
            // The watch must neither run much longer than requested, nor wait for long on a dead
            // connection.
            let left = latest_end.saturating_duration_since(Instant::now());
            let event = match events.next_event(left.min(self.timing.silence)).await {
                Ok(Some(event)) => event,
                Ok(None) => return Ok(WatchEnd::assess(begun.elapsed(), requested, is_silent)?),
                // No event arrived for too long, or the watch did not end in time. The next request
                // shows whether the connection is dead.
                Err(RequestFailure::Silent(_)) => return Ok(WatchEnd::Silent),
                Err(failure) => return Err(failure.into()),
            };

            is_silent = false;
            let at = Instant::now();
            self.handle_event(&event, &mut watching.history, at).await?;
            watching.unreadable = 0;
        }
    }

    async fn handle_event(
        &mut self,
        event: &WatchEvent,
        history: &mut DatabaseHistory,
        at: Instant,
    ) -> Result<(), AttemptEnd> {
        let object = &event.object;
        match event.r#type.as_str() {
            "ADDED" | "MODIFIED" => self.forward_changed(object, history, at).await?,
            "DELETED" => {
                // Only the key matters, so the rest of a deleted object may be malformed.
                if let Some(key) = object.key() {
                    history.note_deleted(&key);
                    self.send_change(Change::Deleted(key), at).await?;
                } else {
                    let problem = "the object of a DELETED event has no name";
                    self.malformed_log.log_object(None, &problem);
                }
                history.advance(&object.version());
            }
            "BOOKMARK" => {
                // Without bookmarks, the resource version of a quiet kind would expire.
                self.metrics.bookmarks.inc();
                history.advance(&object.version());
            }
            "ERROR" => return Err(RequestFailure::of_event(object).into()),
            // An event of a type that a later version of the API adds is ignored.
            other => {
                let problem = format!("the watch event has the unknown type {other:?}");
                self.malformed_log.log_object(None, &problem);
            }
        }

        // An event proves that the API server responds again.
        self.pauses.note_progress();
        self.failure_log.log_recovery();
        Ok(())
    }

    /// Forwards an object of a list. A malformed object is ignored.
    async fn forward_listed(
        &mut self,
        object: &Encoded,
        history: &mut DatabaseHistory,
        at: Instant,
    ) -> Result<(), AttemptEnd> {
        let read = match self.converter.convert_object(object) {
            Ok(read) => read,
            Err(problem) => {
                // The end of the list removes the previous version of this object.
                let key = object.key();
                self.malformed_log.log_object(key.as_ref(), &problem);
                return Ok(());
            }
        };

        for note in &read.parsed.notes {
            self.malformed_log.log_part(&read.key, note);
        }
        history.note_listed(&read.key, &read.parsed.uid);
        self.metrics.count_event();
        self.send_event(read.parsed.object, at).await
    }

    /// Forwards an object of a watch. A malformed object is ignored, and its previous version is
    /// deleted.
    async fn forward_changed(
        &mut self,
        object: &Encoded,
        history: &mut DatabaseHistory,
        at: Instant,
    ) -> Result<(), AttemptEnd> {
        let read = match self.converter.convert_object(object) {
            Ok(read) => read,
            Err(problem) => {
                let key = object.key();
                self.malformed_log.log_object(key.as_ref(), &problem);
                // The resource version advances, because a resumed watch would otherwise begin with
                // this object again.
                history.advance(&object.version());

                let Some(key) = key else {
                    return Ok(());
                };
                history.note_deleted(&key);
                return self.send_change(Change::Deleted(key), at).await;
            }
        };

        for note in &read.parsed.notes {
            self.malformed_log.log_part(&read.key, note);
        }
        history.note_changed(&read.key, &read.parsed.uid);
        history.advance(&read.parsed.version);
        self.metrics.count_event();
        self.send_event(read.parsed.object, at).await
    }

    async fn send_change(&self, change: Change<Infallible>, at: Instant) -> Result<(), AttemptEnd> {
        // The beginning and the end of a list are not counted as changes.
        if matches!(change, Change::Deleted(_)) {
            self.metrics.count_event();
        }
        let event = self.converter.convert_without_object(change);
        self.send_event(event, at).await
    }

    async fn send_event(&self, event: E, at: Instant) -> Result<(), AttemptEnd> {
        let at = at.into_std();
        let sent = self.sink.send(ReceivedEvent { event, at }).await;

        sent.map_err(|_| AttemptEnd::ReceiverGone)
    }

    /// Lists one object to check that the API server's database was not wiped or restored.
    async fn check_history(&self, history: &mut DatabaseHistory) -> Result<(), RequestFailure> {
        // This list is at the most recent resource version. Otherwise, an API server whose watch
        // cache lags behind could give an old resource version.
        let mut page = self.client.request_list(&ListExtent::first_page(1)).await?;

        let mut first = None;
        loop {
            match page.next_part().await? {
                ListPart::Object(object) => first = first.or_else(|| object.identity()),
                ListPart::End(meta) => {
                    return history.check_continues(&meta.resource_version, first);
                }
            }
        }
    }
}
