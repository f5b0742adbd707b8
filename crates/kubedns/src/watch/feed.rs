//! One collection, followed for ever: listed, watched, resumed, listed again.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::Received;
use super::backoff::Backoff;
use super::collection::Collection;
use super::complaints::Complaints;
use super::exchange::Exchange;
use super::failure::Failure;
use super::history::History;
use super::lines::Lines;
use super::malformed::Malformed;
use super::pace::{Pace, jittered};
use super::page::{Page, WatchEvent};
use crate::connect::Connection;
use crate::metrics::FeedMetrics;
use crate::objects::{Change, FromApi, key_of, version_of};

/// How many objects are asked for at a time.
const PAGE: u32 = 500;
/// How many pages a list may have.
const MAX_PAGES: usize = 100_000;
/// A watch that ends sooner than this without an event is a failure, lest it be opened again and again.
const BRIEF: Duration = Duration::from_secs(1);
/// A watch that lasted this long had begun well: what comes after it is a new failure.
const LONG: Duration = Duration::from_secs(30);
/// How often a watch may fail in a row and be resumed.
const MAX_RESUMES: u32 = 5;

/// Whoever took the events is gone: the end of a feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closed;

/// How a feed is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeedState {
    /// A list has been sent on in full since the start.
    pub listed: bool,
    /// What it is doing now.
    pub phase: Phase,
}

/// What a feed is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// It is not watching: it has just begun, or the API server does not answer as it should.
    Away,
    /// The watch is open.
    Following,
    /// We may not read this.
    Refused,
}

/// Why an attempt ended.
enum Stop {
    Failed(Failure),
    Closed,
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// Follows one collection and sends what happens to `sink`, as `E`s.
pub struct Feed<T, E> {
    exchange: Exchange,
    pace: Pace,
    optional: bool,
    metrics: FeedMetrics,
    sink: mpsc::Sender<Received<E>>,
    wrap: fn(Change<T>) -> E,
    state: watch::Sender<FeedState>,
    complaints: Complaints,
    malformed: Malformed,
    backoff: Backoff,
    /// The API server has sent a bookmark: its silence means something.
    bookmarks: bool,
}

impl<T: FromApi, E: Send + 'static> Feed<T, E> {
    /// A feed of `collection` into `sink`; `wrap` makes the events of changes.
    pub fn new(
        connection: Arc<Connection>,
        collection: Collection,
        pace: Pace,
        metrics: FeedMetrics,
        sink: mpsc::Sender<Received<E>>,
        wrap: fn(Change<T>) -> E,
    ) -> Self {
        let kind = collection.kind();
        Self {
            exchange: Exchange { connection, collection, patience: pace.response },
            optional: false,
            sink,
            wrap,
            state: watch::Sender::new(FeedState { listed: false, phase: Phase::Away }),
            complaints: Complaints::new(kind, false),
            malformed: Malformed::new(kind, metrics.malformed.clone()),
            backoff: Backoff::new(pace.backoff.clone()),
            bookmarks: false,
            pace,
            metrics,
        }
    }

    /// We can do without this collection: being refused is a remark in the log, and tried again only rarely.
    #[must_use]
    pub fn optional(mut self) -> Self {
        self.optional = true;
        self.complaints = Complaints::new(self.exchange.collection.kind(), true);
        self
    }

    /// How the feed is doing, now and later.
    pub fn state(&self) -> watch::Receiver<FeedState> {
        self.state.subscribe()
    }

    /// Follows the collection until `stop`, or until nobody takes the events any more.
    pub async fn run(mut self, stop: CancellationToken) {
        let _ = stop.run_until_cancelled(self.follow()).await;
        self.metrics.connected.set(0);
    }

    async fn follow(&mut self) -> Closed {
        loop {
            let followed = match self.list().await {
                Ok(history) => self.watch_on(history).await,
                Err(stop) => Err(stop),
            };
            match followed {
                Ok(()) => {}
                Err(Stop::Closed) => return Closed,
                Err(Stop::Failed(failure)) => self.recover(&failure).await,
            }
        }
    }

    /// Lists everything, page by page.
    async fn list(&mut self) -> Result<History, Stop> {
        let mut limit = PAGE;
        let mut continued = None;
        let mut history: Option<History> = None;
        // One buffer for all pages: each takes about as much room as the last, and megabytes.
        let mut body = Vec::new();
        for _ in 0..MAX_PAGES {
            match self.exchange.page(limit, continued.clone(), &mut body).await {
                Err(Failure::TooLarge(_)) if limit > 1 => {
                    limit = (limit / 8).max(1);
                    continue;
                }
                other => other?,
            }
            let at = Instant::now();
            let page = Page::read(&body)?;
            if history.is_none() {
                self.send(Change::RelistStarted, at).await?;
            }
            history.get_or_insert_with(|| History::begin(&page)).advance(&page.version);
            for item in &page.items {
                self.apply(item.get(), at, false).await?;
            }
            continued = page.continued;
            if continued.is_none() {
                self.send(Change::RelistDone, at).await?;
                self.metrics.lists.inc();
                self.state.send_modify(|state| state.listed = true);
                return history.ok_or_else(|| Failure::Garbage("no page".to_owned()).into());
            }
        }
        Err(Failure::Garbage("a list without end".to_owned()).into())
    }

    /// Watches from `history` on, as long as watches can be resumed. Ends with what makes a new list necessary.
    async fn watch_on(&mut self, mut history: History) -> Result<(), Stop> {
        let mut failures = 0;
        loop {
            let begun = Instant::now();
            match self.watch(&mut history).await {
                Ok(watched) => {
                    self.metrics.restarted("timeout");
                    self.backoff.reset();
                    failures = 0;
                    if watched != Watched::AsAgreed {
                        self.same_history(&history).await?;
                    }
                }
                Err(Stop::Failed(failure)) if failure.leaves_history_intact() && failures < MAX_RESUMES => {
                    failures += 1;
                    if begun.elapsed() > LONG {
                        self.backoff.reset();
                        failures = 1;
                    }
                    self.recover(&failure).await;
                    if self.complaints.lasting() > self.pace.outage {
                        return Ok(());
                    }
                    self.same_history(&history).await?;
                }
                Err(stop) => return Err(stop),
            }
        }
    }

    /// One watch, from its request to its end.
    async fn watch(&mut self, history: &mut History) -> Result<Watched, Stop> {
        let asked = jittered(if self.bookmarks { &self.pace.watch } else { &self.pace.mute_watch });
        let seconds = u32::try_from(asked.as_secs()).unwrap_or(u32::MAX).max(1);
        let pieces = self.exchange.watch(&history.version, seconds).await?;
        self.follows();
        let begun = Instant::now();
        let end = begun + Duration::from_secs(seconds.into()) + self.pace.grace;
        let mut lines = Lines::new(pieces);
        let mut mute = true;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let patience = if self.bookmarks { left.min(self.pace.silence) } else { left };
            let Some(line) = lines.next(patience).await? else {
                return Watched::judge(begun.elapsed(), asked, mute).map_err(Stop::Failed);
            };
            mute = false;
            let at = Instant::now();
            let event = WatchEvent::read(&line)?;
            self.take(&event, history, at).await?;
        }
    }

    async fn take(&mut self, event: &WatchEvent<'_>, history: &mut History, at: Instant) -> Result<(), Stop> {
        let object = event.object.get();
        match event.r#type.as_str() {
            "ADDED" | "MODIFIED" => {
                let version = self.apply(object, at, true).await?;
                history.advance(&version);
            }
            "DELETED" => {
                match key_of(object) {
                    Some(key) => self.send(Change::Deleted(key), at).await?,
                    None => self.malformed.object(None, &"it is deleted and has no name"),
                }
                history.advance(&version_of(object));
            }
            "BOOKMARK" => {
                self.bookmarks = true;
                self.metrics.bookmarks.inc();
                history.advance(&version_of(object));
            }
            "ERROR" => return Err(Failure::of_event(object).into()),
            // A type of a later API: what it is about cannot be known, so it is not acted upon.
            other => self.malformed.object(None, &format!("a watch event of type {other:?}")),
        }
        // A long stream of events is no outage, whatever came before it.
        self.backoff.reset();
        Ok(())
    }

    /// Sends an object on. One that makes no sense is left out; if it replaces one that did, that one is gone.
    async fn apply(&mut self, object: &str, at: Instant, replaces: bool) -> Result<smol_str::SmolStr, Stop> {
        match T::from_api(object) {
            Ok(parsed) => {
                for note in &parsed.notes {
                    self.malformed.part(parsed.object.key(), note);
                }
                self.send(Change::Apply(parsed.object), at).await?;
                Ok(parsed.version)
            }
            Err(problem) => {
                let key = key_of(object);
                self.malformed.object(key.as_ref(), &problem);
                if let Some(key) = key.filter(|_| replaces) {
                    self.send(Change::Deleted(key), at).await?;
                }
                Ok(version_of(object))
            }
        }
    }

    async fn send(&self, change: Change<T>, at: Instant) -> Result<(), Stop> {
        let event = (self.wrap)(change);
        self.metrics.event();
        self.sink.send(Received { event, at: at.into_std() }).await.map_err(|_| Stop::Closed)
    }

    /// Asks for one object to see whether the API server still has the history we know.
    async fn same_history(&self, history: &History) -> Result<(), Failure> {
        let mut body = Vec::new();
        self.exchange.page(1, None, &mut body).await?;
        history.check(&Page::read(&body)?)
    }

    fn enter(&self, phase: Phase) {
        self.state.send_if_modified(|state| std::mem::replace(&mut state.phase, phase) != phase);
    }

    /// A watch is open.
    fn follows(&mut self) {
        self.enter(Phase::Following);
        self.metrics.connected.set(1);
        self.complaints.ended();
    }

    /// Counts and logs a failure and waits before the next attempt.
    async fn recover(&mut self, failure: &Failure) {
        self.metrics.restarted(failure.reason());
        self.metrics.connected.set(0);
        let refused = matches!(failure, Failure::Refused(_));
        self.enter(if refused { Phase::Refused } else { Phase::Away });
        let pause = match failure {
            // Nothing is wrong, and a new list is wanted at once.
            Failure::Expired(_) | Failure::OtherHistory(_) => {
                self.backoff.pause().min(*self.pace.backoff.start())
            }
            Failure::Refused(_) if self.optional => jittered(&self.pace.refused),
            _ => self.backoff.pause(),
        };
        self.complaints.failed(failure, pause);
        sleep(pause).await;
        if failure.concerns_credentials() {
            self.exchange.connection.renew().await;
        }
    }
}

/// How a watch ended whose response was complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Watched {
    /// When it was to end, after events or bookmarks.
    AsAgreed,
    /// Before its time: the API server is being stopped, and may come back with another history.
    Early,
    /// Without a single event or bookmark: a watch from a version of another history looks like this.
    Mute,
}

impl Watched {
    fn judge(lasted: Duration, asked: Duration, mute: bool) -> Result<Self, Failure> {
        match mute {
            true if lasted < BRIEF => Err(Failure::Brief(lasted)),
            true => Ok(Self::Mute),
            // API servers cut the time in whole seconds.
            false if lasted + Duration::from_secs(2) < asked => Ok(Self::Early),
            false => Ok(Self::AsAgreed),
        }
    }
}
