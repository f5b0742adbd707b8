//! A feed of one collection, which is listed, watched, resumed and listed again forever.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use daemon::backoff::jittered;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::Received;
use super::collection::{Collection, Extent};
use super::convert::{Convert, Wrap};
use super::encoding::{ListPart, WatchEvent};
use super::events::EventReader;
use super::exchange::Exchange;
use super::failure::{Failure, Refusal};
use super::failure_log::FailureLog;
use super::history::History;
use super::malformed::Malformed;
use super::metrics::FeedMetrics;
use super::pauses::Pauses;
use super::position::{ListPosition, Position, Watching};
use super::state::{FeedState, Phase};
use super::timing::WatchTiming;
use super::watch_end::WatchEnd;
use crate::connect::Connection;
use crate::objects::{Change, Encoded, FromApi};

/// Duration after which a watch counts as stable. A stable watch resets the pause before the next
/// list.
const LONG: Duration = Duration::from_secs(30);

/// The receiver of the events is gone, which ends a feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closed;

/// The reason why an attempt ended.
enum Stop {
    Failed(Failure),
    Closed,
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// Follows one collection and sends its changes to `sink`, as events of type `E`.
pub struct Feed<E> {
    exchange: Exchange,
    timing: WatchTiming,
    optional: bool,
    /// True while the receiver need not keep the objects. If reading is refused at that time, the
    /// sent objects are removed.
    spare: watch::Receiver<bool>,
    /// Whether objects were sent and not removed since.
    sent: bool,
    metrics: FeedMetrics,
    sink: mpsc::Sender<Received<E>>,
    convert: Arc<dyn Convert<E>>,
    state: watch::Sender<FeedState>,
    failure_log: FailureLog,
    malformed: Malformed,
    pauses: Pauses,
}

impl<E: Send + 'static> Feed<E> {
    /// A feed of `collection` into `sink`; `wrap` converts changes to events.
    pub fn new<T: FromApi>(
        connection: Arc<Connection>,
        collection: Collection,
        timing: WatchTiming,
        metrics: FeedMetrics,
        sink: mpsc::Sender<Received<E>>,
        wrap: fn(Change<T>) -> E,
    ) -> Self {
        Self::with(
            connection,
            collection,
            timing,
            metrics,
            sink,
            Arc::new(Wrap(wrap)),
        )
    }

    /// A feed of `collection` into `sink`; `convert` converts objects to events.
    pub(super) fn with(
        connection: Arc<Connection>,
        collection: Collection,
        timing: WatchTiming,
        metrics: FeedMetrics,
        sink: mpsc::Sender<Received<E>>,
        convert: Arc<dyn Convert<E>>,
    ) -> Self {
        let kind = collection.kind();
        let state = FeedState {
            listed: false,
            phase: Phase::Away,
            since: Instant::now(),
        };
        Self {
            failure_log: FailureLog::new(kind, Arc::clone(&connection)),
            exchange: Exchange {
                connection,
                collection,
                patience: timing.response,
            },
            optional: false,
            spare: watch::channel(false).1,
            sent: false,
            sink,
            convert,
            state: watch::Sender::new(state),
            malformed: Malformed::new(kind, metrics.malformed.clone()),
            pauses: Pauses::new(timing.clone()),
            timing,
            metrics,
        }
    }

    /// Makes the collection optional. If reading is refused from the start, the log level is lower
    /// and the pauses grow longer.
    #[must_use]
    pub fn optional(mut self) -> Self {
        self.optional = true;
        self
    }

    /// Names the feature that requires this collection, for the log when it is refused.
    #[must_use]
    pub fn needed_for(mut self, what: &'static str) -> Self {
        self.failure_log.needed_for = Some(what);
        self
    }

    /// Removes the sent objects with an empty list while the collection is refused and `spare` is
    /// true.
    #[must_use]
    pub fn forgetting(mut self, spare: watch::Receiver<bool>) -> Self {
        self.spare = spare;
        self
    }

    /// The state of the feed and its changes.
    pub fn state(&self) -> watch::Receiver<FeedState> {
        self.state.subscribe()
    }

    /// Follows the collection until `stop`, or until the receiver of the events is gone.
    pub async fn run(mut self, stop: CancellationToken) {
        let _ = stop.run_until_cancelled(self.follow()).await;
        self.metrics.connected(false);
    }

    async fn follow(&mut self) -> Closed {
        let mut position = Position::default();
        loop {
            let stepped = match &mut position {
                Position::Listing(listing) => self.list(listing).await.map(Some),
                Position::Watching(watching) => self.watch(watching).await.map(|()| None),
            };
            match stepped {
                Ok(Some(history)) => position = Position::Watching(Watching::new(history)),
                Ok(None) => {}
                Err(Stop::Closed) => return Closed,
                Err(Stop::Failed(failure)) => {
                    if self.recover(&failure, &mut position).await.is_err() {
                        return Closed;
                    }
                }
            }
        }
    }

    /// Lists the remaining pages of `listing`.
    async fn list(&mut self, listing: &mut ListPosition) -> Result<History, Stop> {
        while !listing.is_endless() {
            match self.page(listing).await {
                Err(Stop::Failed(Failure::TooLarge(_))) if listing.shrink() => {}
                Err(stop) => return Err(stop),
                Ok(None) => self.pauses.progress(),
                Ok(Some(history)) => {
                    self.pauses.progress();
                    self.send(Change::RelistDone, Instant::now()).await?;
                    self.metrics.lists.inc();
                    self.state.send_modify(|state| state.listed = true);
                    return Ok(history);
                }
            }
        }
        Err(Failure::Garbage("a list without end".to_owned()).into())
    }

    /// Lists a page or the whole collection. After the last page, returns the history.
    async fn page(&mut self, listing: &mut ListPosition) -> Result<Option<History>, Stop> {
        let mut page = self.exchange.list(&listing.extent).await?;
        let (mut history, mut begun) = (listing.history(), !listing.is_new());
        loop {
            let part = page.next().await?;
            let at = Instant::now();
            if !std::mem::replace(&mut begun, true) {
                self.send(Change::RelistStarted, at).await?;
                self.sent = true;
            }
            match part {
                ListPart::Object(object) => self.apply(&object, &mut history, true, at).await?,
                ListPart::End(meta) => return Ok(listing.advance(meta, history)),
            }
        }
    }

    /// Runs one watch, from its request to its end.
    async fn watch(&mut self, watching: &mut Watching) -> Result<(), Stop> {
        if std::mem::replace(&mut watching.doubtful, true) {
            self.same_history(&mut watching.history).await?;
        }
        if std::mem::take(&mut watching.was_silent) {
            // There was no event, but the API server has answered since: nothing had changed.
            self.failure_log.log_recovery();
        }
        let asked = jittered(&self.timing.watch);
        let seconds = u32::try_from(asked.as_secs()).unwrap_or(u32::MAX).max(1);
        let events = self
            .exchange
            .watch(&watching.history.version, seconds)
            .await?;
        self.follows();
        let begun = Instant::now();
        let ended = self.take_events(watching, events, asked).await;
        if begun.elapsed() > LONG {
            self.pauses.settled();
        }
        match ended {
            Ok(watched) => {
                watching.doubtful = watched != WatchEnd::OnTime;
                self.metrics.restarted("timeout");
                self.pauses.progress();
                watching.was_silent = watched == WatchEnd::Silent;
                Ok(())
            }
            Err(stop) => {
                if matches!(&stop, Stop::Failed(failure) if failure.is_unreadable()) {
                    watching.unreadable += 1;
                }
                Err(stop)
            }
        }
    }

    /// Takes the events of a watch with the requested duration `asked`.
    async fn take_events(
        &mut self,
        watching: &mut Watching,
        mut events: EventReader,
        asked: Duration,
    ) -> Result<WatchEnd, Stop> {
        let begun = Instant::now();
        let end = begun + asked + self.timing.overrun;
        let mut mute = true;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let event = match events.next(left.min(self.timing.silence)).await {
                Ok(Some(event)) => event,
                Ok(None) => {
                    return WatchEnd::assess(begun.elapsed(), asked, mute).map_err(Stop::Failed);
                }
                // Either there were no events, or the connection is dead. The next request shows
                // which.
                Err(Failure::Silent(_)) => return Ok(WatchEnd::Silent),
                Err(failure) => return Err(failure.into()),
            };
            mute = false;
            let at = Instant::now();
            self.take(&event, &mut watching.history, at).await?;
            watching.unreadable = 0;
        }
    }

    async fn take(
        &mut self,
        event: &WatchEvent,
        history: &mut History,
        at: Instant,
    ) -> Result<(), Stop> {
        let object = &event.object;
        match event.r#type.as_str() {
            "ADDED" | "MODIFIED" => self.apply(object, history, false, at).await?,
            "DELETED" => {
                match object.key() {
                    Some(key) => {
                        history.note_deleted(&key);
                        self.send(Change::Deleted(key), at).await?;
                    }
                    None => self
                        .malformed
                        .object(None, &"it is deleted and has no name"),
                }
                history.advance(&object.version());
            }
            "BOOKMARK" => {
                self.metrics.bookmarks.inc();
                history.advance(&object.version());
            }
            "ERROR" => return Err(Failure::of_event(object).into()),
            // An event type of a later API is unknown, so the event is ignored.
            other => self
                .malformed
                .object(None, &format!("a watch event of type {other:?}")),
        }
        // An event proves that the API server responds again.
        self.pauses.progress();
        self.failure_log.log_recovery();
        Ok(())
    }

    /// Forwards an object of a list or of a watch. A malformed object is ignored. In a watch, the
    /// previous version of a malformed object is deleted.
    async fn apply(
        &mut self,
        object: &Encoded,
        history: &mut History,
        listed: bool,
        at: Instant,
    ) -> Result<(), Stop> {
        match self.convert.apply(object) {
            Ok((key, parsed)) => {
                for note in &parsed.notes {
                    self.malformed.part(&key, note);
                }
                if listed {
                    history.note_listed(&key, &parsed.uid);
                } else {
                    history.note_changed(&key, &parsed.uid);
                    history.advance(&parsed.version);
                }
                self.send_event(parsed.object, at).await
            }
            Err(problem) => {
                let key = object.key();
                self.malformed.object(key.as_ref(), &problem);
                if listed {
                    return Ok(());
                }
                history.advance(&object.version());
                match key {
                    Some(key) => {
                        history.note_deleted(&key);
                        self.send(Change::Deleted(key), at).await
                    }
                    None => Ok(()),
                }
            }
        }
    }

    async fn send(&self, change: Change<Infallible>, at: Instant) -> Result<(), Stop> {
        self.send_event(self.convert.other(change), at).await
    }

    async fn send_event(&self, event: E, at: Instant) -> Result<(), Stop> {
        self.metrics.event();
        self.sink
            .send(Received {
                event,
                at: at.into_std(),
            })
            .await
            .map_err(|_| Stop::Closed)
    }

    /// Lists one object to check that the API server's database was not wiped or restored.
    async fn same_history(&self, history: &mut History) -> Result<(), Failure> {
        let mut page = self
            .exchange
            .list(&Extent::Page {
                limit: 1,
                token: None,
            })
            .await?;
        let mut first = None;
        loop {
            match page.next().await? {
                ListPart::Object(object) => first = first.or_else(|| object.identity()),
                ListPart::End(meta) => return history.check(&meta.resource_version, first),
            }
        }
    }

    fn enter(&self, phase: Phase) {
        self.state.send_if_modified(|state| {
            let changed = state.phase != phase;
            if changed {
                (state.phase, state.since) = (phase, Instant::now());
            }
            changed
        });
    }

    /// Notes that the watch is open.
    fn follows(&mut self) {
        self.enter(Phase::Following);
        self.metrics.connected(true);
        self.pauses.opened();
        self.failure_log.note_opened();
    }

    /// Counts and logs a failure and waits before the next attempt.
    async fn recover(&mut self, failure: &Failure, position: &mut Position) -> Result<(), Stop> {
        self.metrics.restarted(failure.reason());
        self.metrics.connected(false);
        let refused = matches!(failure, Failure::Refused(_));
        self.enter(if refused { Phase::Refused } else { Phase::Away });
        let refusal = self.refusal();
        let mut pause = self.pauses.next(failure, refusal);
        if position.fail(failure) && !failure.ends_history() {
            pause = pause.max(self.pauses.relist());
        }
        self.failure_log.log_failure(failure, pause, refusal);
        let end = Instant::now() + pause;
        if refused && self.sent && self.becomes_spare(end).await {
            self.forget().await?;
            *position = Position::default();
        }
        sleep_until(end).await;
        if failure.concerns_credentials() {
            self.exchange.connection.renew().await;
        }
        Ok(())
    }

    /// The properties of a refusal, from the current state of the feed.
    fn refusal(&self) -> Refusal {
        let state = *self.state.borrow();
        Refusal {
            lasting: state.phase == Phase::Refused
                && state.since.elapsed() >= self.timing.refusal_lasts,
            dispensable: self.optional && (!state.listed || *self.spare.borrow()),
            known: state.listed,
        }
    }

    /// Waits until the sent objects need not be kept, at most until `end`. Returns whether that was
    /// the case.
    async fn becomes_spare(&mut self, end: Instant) -> bool {
        tokio::select! {
            () = sleep_until(end) => false,
            spare = self.spare.wait_for(|spare| *spare) => spare.is_ok(),
        }
    }

    /// Removes all sent objects by means of an empty list.
    async fn forget(&mut self) -> Result<(), Stop> {
        let now = Instant::now();
        self.send(Change::RelistStarted, now).await?;
        self.send(Change::RelistDone, now).await?;
        self.sent = false;
        self.state.send_modify(|state| state.listed = false);
        Ok(())
    }
}
