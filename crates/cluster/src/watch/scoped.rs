//! A feed of a kind in the whole cluster, or in several namespaces. Each namespace has its own
//! feed; together they behave like one feed.
//!
//! A list of one namespace does not contain the objects of other namespaces. So an `Account` for
//! each namespace remembers the reported objects, and deletes objects that a later list does not
//! contain. `RelistStarted` and `RelistDone` are sent once, around the first lists of all
//! namespaces.

use std::collections::HashSet;
use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use foldhash::quality::RandomState;
use parking_lot::Mutex;
use smol_str::SmolStr;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Received;
use super::collection::Collection;
use super::convert::{Convert, Wrap};
use super::feed::{Closed, Feed};
use super::metrics::FeedMetrics;
use super::state::{FeedState, Phase};
use super::timing::WatchTiming;
use crate::connect::Connection;
use crate::objects::{Change, Encoded, FromApi, MalformedObject, ObjectKey, Parsed};
use crate::relist::RelistTracker;

/// Bound of the queued changes of a namespace.
const QUEUE: usize = 64;

/// Follows the collections of a kind and sends their changes to `sink`, as events of type `E`.
pub enum ScopedFeed<E> {
    /// One collection.
    One(Box<Feed<E>>),
    /// One collection for each namespace.
    Several(Several<E>),
}

/// Feeds of single namespaces.
pub struct Several<E> {
    parts: Vec<NamespaceFeed<E>>,
    sink: mpsc::Sender<Received<E>>,
    convert: Arc<dyn Convert<E>>,
    joint: Arc<Joint>,
}

struct NamespaceFeed<E> {
    namespace: SmolStr,
    feed: Feed<Change<Named<E>>>,
    changes: mpsc::Receiver<Received<Change<Named<E>>>>,
}

/// The event of an object, and the object's name.
struct Named<E> {
    name: SmolStr,
    event: E,
}

/// Converts objects to the changes of a [`NamespaceFeed`].
struct NamedBy<E>(Arc<dyn Convert<E>>);

impl<E> Convert<Change<Named<E>>> for NamedBy<E> {
    fn apply(
        &self,
        object: &Encoded,
    ) -> Result<(ObjectKey, Parsed<Change<Named<E>>>), MalformedObject> {
        let (key, parsed) = self.0.apply(object)?;
        let name = key.name.clone();
        Ok((
            key,
            parsed.map(|event| Change::Apply(Named { name, event })),
        ))
    }

    fn other(&self, change: Change<Infallible>) -> Change<Named<E>> {
        change.map(|never| match never {})
    }
}

impl<E: Send + 'static> ScopedFeed<E> {
    /// A feed of `collections` into `sink`; `wrap` converts changes to events.
    pub fn new<T: FromApi>(
        connection: &Arc<Connection>,
        mut collections: Vec<Collection>,
        timing: &WatchTiming,
        metrics: FeedMetrics,
        sink: mpsc::Sender<Received<E>>,
        wrap: fn(Change<T>) -> E,
    ) -> Self {
        if collections.len() == 1
            && let Some(collection) = collections.pop()
        {
            let connection = Arc::clone(connection);
            let feed = Feed::new(connection, collection, timing.clone(), metrics, sink, wrap);
            return Self::One(Box::new(feed));
        }
        let convert: Arc<dyn Convert<E>> = Arc::new(Wrap(wrap));
        let part = |collection: Collection| {
            let (sender, changes) = mpsc::channel(QUEUE);
            let namespace = collection.namespace().into();
            let (connection, metrics) = (Arc::clone(connection), metrics.of_part());
            let named = Arc::new(NamedBy(Arc::clone(&convert)));
            let feed = Feed::with(
                connection,
                collection,
                timing.clone(),
                metrics,
                sender,
                named,
            );
            NamespaceFeed {
                namespace,
                feed,
                changes,
            }
        };
        let parts: Vec<_> = collections.into_iter().map(part).collect();
        let joint = Arc::new(Joint::new(parts.len(), metrics));
        Self::Several(Several {
            parts,
            sink,
            convert,
            joint,
        })
    }

    /// See [`Feed::optional`].
    #[must_use]
    pub fn optional(self) -> Self {
        self.each(Feed::optional, Feed::optional)
    }

    /// See [`Feed::needed_for`].
    #[must_use]
    pub fn needed_for(self, what: &'static str) -> Self {
        self.each(|feed| feed.needed_for(what), |feed| feed.needed_for(what))
    }

    /// See [`Feed::forgetting`].
    #[must_use]
    pub fn forgetting(self, spare: &watch::Receiver<bool>) -> Self {
        self.each(
            |feed| feed.forgetting(spare.clone()),
            |feed| feed.forgetting(spare.clone()),
        )
    }

    fn each(
        self,
        one: impl FnOnce(Feed<E>) -> Feed<E>,
        part: impl Fn(Feed<Change<Named<E>>>) -> Feed<Change<Named<E>>>,
    ) -> Self {
        match self {
            Self::One(feed) => Self::One(Box::new(one(*feed))),
            Self::Several(mut several) => {
                let changed = |this: NamespaceFeed<E>| NamespaceFeed {
                    feed: part(this.feed),
                    ..this
                };
                several.parts = several.parts.into_iter().map(changed).collect();
                Self::Several(several)
            }
        }
    }

    /// The state of the feed. Several feeds have the worst of their states.
    pub fn state(&self) -> watch::Receiver<FeedState> {
        match self {
            Self::One(feed) => feed.state(),
            Self::Several(several) => several.joint.state.subscribe(),
        }
    }

    /// Follows the collections until `stop`, or until the receiver of the events is gone.
    pub async fn run(self, stop: CancellationToken) {
        match self {
            Self::One(feed) => feed.run(stop).await,
            Self::Several(several) => several.run(stop).await,
        }
    }
}

impl<E: Send + 'static> Several<E> {
    async fn run(self, stop: CancellationToken) {
        let Self {
            parts,
            sink,
            convert,
            joint,
        } = self;
        let begun = Received {
            event: convert.other(Change::RelistStarted),
            at: Instant::now().into_std(),
        };
        if sink.send(begun).await.is_err() {
            return;
        }
        let mut tasks = JoinSet::new();
        for (
            at,
            NamespaceFeed {
                namespace,
                feed,
                changes,
            },
        ) in parts.into_iter().enumerate()
        {
            let account = Account {
                at,
                namespace,
                names: HashSet::default(),
                listing: RelistTracker::default(),
                sink: sink.clone(),
                convert: Arc::clone(&convert),
                joint: Arc::clone(&joint),
            };
            tasks.spawn(account.run(feed, changes, stop.clone()));
        }
        while tasks.join_next().await.is_some() {}
        joint.metrics.connected(false);
    }
}

/// The common state of the feeds of all namespaces.
struct Joint {
    states: Mutex<Vec<FeedState>>,
    state: watch::Sender<FeedState>,
    /// Number of namespaces whose first list is not complete yet.
    unlisted: AtomicUsize,
    metrics: FeedMetrics,
}

impl Joint {
    fn new(feeds: usize, metrics: FeedMetrics) -> Self {
        let state = FeedState {
            listed: false,
            phase: Phase::Away,
            since: Instant::now(),
        };
        Self {
            states: Mutex::new(vec![state; feeds]),
            state: watch::Sender::new(state),
            unlisted: AtomicUsize::new(feeds),
            metrics,
        }
    }

    /// Notes the state of one feed.
    fn note(&self, at: usize, state: FeedState) {
        let mut states = self.states.lock();
        if let Some(known) = states.get_mut(at) {
            *known = state;
        }
        let listed = states.iter().all(|state| state.listed);
        let is_any = |phase| states.iter().any(|state| state.phase == phase);
        let phases = [Phase::Refused, Phase::Away];
        let phase = phases
            .into_iter()
            .find(|phase| is_any(*phase))
            .unwrap_or(Phase::Following);
        self.metrics.connected(phase == Phase::Following);
        self.state.send_if_modified(|joint| {
            let changed = (joint.listed, joint.phase) != (listed, phase);
            if changed {
                *joint = FeedState {
                    listed,
                    phase,
                    since: Instant::now(),
                };
            }
            changed
        });
    }

    /// Notes that the first list of a namespace is complete. Returns true for the last namespace.
    fn note_listed(&self) -> bool {
        self.unlisted.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

/// The reported objects of a namespace.
struct Account<E> {
    /// The index of the namespace's feed.
    at: usize,
    namespace: SmolStr,
    names: HashSet<SmolStr, RandomState>,
    listing: RelistTracker<SmolStr>,
    sink: mpsc::Sender<Received<E>>,
    convert: Arc<dyn Convert<E>>,
    joint: Arc<Joint>,
}

impl<E: Send + 'static> Account<E> {
    async fn run(
        mut self,
        feed: Feed<Change<Named<E>>>,
        mut changes: mpsc::Receiver<Received<Change<Named<E>>>>,
        stop: CancellationToken,
    ) {
        let mut state = feed.state();
        let mut running = pin!(feed.run(stop));
        loop {
            // Queued changes come first: a list counts as complete only after all its changes have
            // been forwarded.
            tokio::select! {
                biased;
                Some(received) = changes.recv() => {
                    if self.take(received).await.is_err() {
                        return;
                    }
                }
                Ok(()) = state.changed() => {
                    let now = *state.borrow_and_update();
                    self.joint.note(self.at, now);
                }
                () = &mut running => return,
            }
        }
    }

    async fn take(
        &mut self,
        Received { event, at }: Received<Change<Named<E>>>,
    ) -> Result<(), Closed> {
        match event {
            Change::RelistStarted => self.listing.begin(self.names.iter().cloned()),
            Change::RelistDone => return self.finish(at).await,
            Change::Apply(Named { name, event }) => {
                self.listing.settle(&name);
                self.names.insert(name);
                return self.send(event, at).await;
            }
            Change::Deleted(key) => {
                self.listing.settle(&key.name);
                self.names.remove(&key.name);
                return self
                    .send(self.convert.other(Change::Deleted(key)), at)
                    .await;
            }
        }
        Ok(())
    }

    /// Ends a list and deletes the objects that the list did not contain.
    async fn finish(&mut self, at: std::time::Instant) -> Result<(), Closed> {
        let first = !self.listing.is_complete();
        for name in self.listing.finish() {
            self.names.remove(&name);
            let key = ObjectKey {
                namespace: self.namespace.clone(),
                name,
            };
            self.send(self.convert.other(Change::Deleted(key)), at)
                .await?;
        }
        if first && self.joint.note_listed() {
            self.send(self.convert.other(Change::RelistDone), at)
                .await?;
        }
        Ok(())
    }

    async fn send(&self, event: E, at: std::time::Instant) -> Result<(), Closed> {
        self.sink
            .send(Received { event, at })
            .await
            .map_err(|_| Closed)
    }
}
