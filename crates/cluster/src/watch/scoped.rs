//! A feed of one kind of objects, in the whole cluster or in some namespaces. If there are several
//! namespaces, each has a feed of its own. Together, these feeds behave like one feed.
//!
//! A list of one namespace does not contain the objects of other namespaces. So a
//! [`NamespaceAccount`] for each namespace remembers the reported objects, and deletes objects that
//! a later list does not contain. `RelistStarted` and `RelistDone` are sent once, around the first
//! lists of all namespaces.
//!
//! After a restart of kubedns, the receiver may have objects from a snapshot file. At the end of
//! the first list of a namespace, `RelistDoneIn` removes the objects of this namespace that are
//! gone, even if another namespace cannot be listed.

use std::collections::HashSet;
use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use foldhash::quality::RandomState;
use parking_lot::Mutex;
use smol_str::SmolStr;
use tokio::sync::{OnceCell, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::feed::{CollectionFeed, ReceiverGone};
use super::metrics::FeedMetrics;
use super::request::Collection;
use super::{FeedPhase, FeedState, ReceivedEvent, WatchTiming};
use crate::connect::Connection;
use crate::objects::{
    Change, ChangeWrapper, Encoded, EventConverter, FromApi, KeyedEvent, MalformedObject, ObjectKey,
};
use crate::relist::RelistTracker;

/// Maximum number of queued changes of a namespace.
const QUEUE: usize = 64;

/// Follows the collections of a kind and sends their changes as events of type `E`.
pub enum ScopedFeed<E> {
    /// One collection.
    One(Box<CollectionFeed<E>>),
    /// One collection for each namespace.
    Several(NamespaceFeeds<E>),
}

/// Feeds of single namespaces.
pub struct NamespaceFeeds<E> {
    feeds: Vec<NamespaceFeed<E>>,
    sink: mpsc::Sender<ReceivedEvent<E>>,
    converter: Arc<dyn EventConverter<E>>,
    joint: Arc<JointState>,
}

/// A change in one namespace.
type NamedChange<E> = Change<NamedEvent<E>>;

struct NamespaceFeed<E> {
    namespace: SmolStr,
    feed: CollectionFeed<NamedChange<E>>,
    changes: mpsc::Receiver<ReceivedEvent<NamedChange<E>>>,
}

/// The event of an object, and the object's name.
struct NamedEvent<E> {
    name: SmolStr,
    event: E,
}

/// Converts objects to the changes of a [`NamespaceFeed`].
struct NamedConverter<E>(Arc<dyn EventConverter<E>>);

impl<E> EventConverter<NamedChange<E>> for NamedConverter<E> {
    fn convert_object(
        &self,
        object: &Encoded,
    ) -> Result<KeyedEvent<NamedChange<E>>, MalformedObject> {
        let KeyedEvent { key, parsed } = self.0.convert_object(object)?;
        let name = key.name.clone();

        Ok(KeyedEvent {
            key,
            parsed: parsed.map(|event| Change::Apply(NamedEvent { name, event })),
        })
    }

    fn convert_without_object(&self, change: Change<Infallible>) -> NamedChange<E> {
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
        sink: mpsc::Sender<ReceivedEvent<E>>,
        wrap: fn(Change<T>) -> E,
    ) -> Self {
        // A single collection needs no `NamespaceAccount`: its own lists show which objects were
        // deleted.
        if collections.len() == 1
            && let Some(collection) = collections.pop()
        {
            let connection = Arc::clone(connection);
            let timing = timing.clone();
            let feed = CollectionFeed::new(connection, collection, timing, metrics, sink, wrap);
            return Self::One(Box::new(feed));
        }

        let converter: Arc<dyn EventConverter<E>> = Arc::new(ChangeWrapper(wrap));
        let mut feeds = Vec::with_capacity(collections.len());
        for collection in collections {
            let converter = NamedConverter(Arc::clone(&converter));
            let metrics = metrics.without_connection();
            let timing = timing.clone();
            feeds.push(NamespaceFeed::new(
                connection, collection, timing, metrics, converter,
            ));
        }

        let joint = Arc::new(JointState::new(feeds.len(), metrics));
        Self::Several(NamespaceFeeds {
            feeds,
            sink,
            converter,
            joint,
        })
    }

    /// See [`CollectionFeed::optional`].
    #[must_use]
    pub fn optional(self) -> Self {
        self.map_feeds(CollectionFeed::optional, CollectionFeed::optional)
    }

    /// See [`CollectionFeed::needed_for`].
    #[must_use]
    pub fn needed_for(self, feature: &'static str) -> Self {
        self.map_feeds(
            |feed| feed.needed_for(feature),
            |feed| feed.needed_for(feature),
        )
    }

    /// See [`CollectionFeed::dispensable_while`].
    #[must_use]
    pub fn dispensable_while(self, dispensable: &watch::Receiver<bool>) -> Self {
        self.map_feeds(
            |feed| feed.dispensable_while(dispensable.clone()),
            |feed| feed.dispensable_while(dispensable.clone()),
        )
    }

    fn map_feeds(
        self,
        map_one: impl FnOnce(CollectionFeed<E>) -> CollectionFeed<E>,
        map_each: impl Fn(CollectionFeed<NamedChange<E>>) -> CollectionFeed<NamedChange<E>>,
    ) -> Self {
        match self {
            Self::One(feed) => Self::One(Box::new(map_one(*feed))),
            Self::Several(mut several) => {
                let feeds = several.feeds.into_iter();
                several.feeds = feeds
                    .map(|namespace| NamespaceFeed {
                        feed: map_each(namespace.feed),
                        ..namespace
                    })
                    .collect();
                Self::Several(several)
            }
        }
    }

    /// The state of the feed. The state of several feeds together is the worst of their states.
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

impl<E: Send + 'static> NamespaceFeed<E> {
    fn new(
        connection: &Arc<Connection>,
        collection: Collection,
        timing: WatchTiming,
        metrics: FeedMetrics,
        converter: NamedConverter<E>,
    ) -> Self {
        let (sink, changes) = mpsc::channel(QUEUE);
        let namespace = collection.namespace().into();
        let feed = CollectionFeed::with_converter(
            Arc::clone(connection),
            collection,
            timing,
            metrics,
            sink,
            Arc::new(converter),
        );

        Self {
            namespace,
            feed,
            changes,
        }
    }
}

impl<E: Send + 'static> NamespaceFeeds<E> {
    async fn run(self, stop: CancellationToken) {
        let mut tasks = JoinSet::new();
        for (index, namespace) in self.feeds.into_iter().enumerate() {
            let account = NamespaceAccount {
                index,
                namespace: namespace.namespace,
                names: HashSet::default(),
                relist: RelistTracker::default(),
                sink: self.sink.clone(),
                converter: Arc::clone(&self.converter),
                joint: Arc::clone(&self.joint),
            };
            tasks.spawn(account.run(namespace.feed, namespace.changes, stop.clone()));
        }

        while tasks.join_next().await.is_some() {}
        self.joint.metrics.set_connected(false);
    }
}

/// The common state of the feeds of all namespaces.
struct JointState {
    states: Mutex<Vec<FeedState>>,
    state: watch::Sender<FeedState>,
    /// Set once `RelistStarted` has been sent.
    begun: OnceCell<()>,
    /// Number of namespaces whose first list is not complete yet.
    unlisted: AtomicUsize,
    metrics: FeedMetrics,
}

impl JointState {
    fn new(feeds: usize, metrics: FeedMetrics) -> Self {
        let state = FeedState::started();
        Self {
            states: Mutex::new(vec![state; feeds]),
            state: watch::Sender::new(state),
            begun: OnceCell::new(),
            unlisted: AtomicUsize::new(feeds),
            metrics,
        }
    }

    /// Notes the state of the feed at `index`.
    fn note_state(&self, index: usize, state: FeedState) {
        let mut states = self.states.lock();
        if let Some(known) = states.get_mut(index) {
            *known = state;
        }

        let listed = states.iter().all(|state| state.listed);
        let phase = worst_phase(&states);
        self.metrics.set_connected(phase == FeedPhase::Following);
        self.state.send_if_modified(|joint| {
            // If the state is the same, its `since` stays: how a refusal is handled depends on how
            // long it has lasted.
            if joint.listed == listed && joint.phase == phase {
                return false;
            }
            *joint = FeedState {
                listed,
                phase,
                since: Instant::now(),
            };
            true
        });
    }

    /// Notes that the first list of a namespace is complete. Returns true for the last namespace.
    fn note_first_list(&self) -> bool {
        self.unlisted.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

fn worst_phase(states: &[FeedState]) -> FeedPhase {
    for phase in [FeedPhase::Refused, FeedPhase::Failing, FeedPhase::Away] {
        if states.iter().any(|state| state.phase == phase) {
            return phase;
        }
    }
    FeedPhase::Following
}

/// The reported objects of a namespace.
struct NamespaceAccount<E> {
    /// The index of the namespace's feed.
    index: usize,
    namespace: SmolStr,
    names: HashSet<SmolStr, RandomState>,
    relist: RelistTracker,
    sink: mpsc::Sender<ReceivedEvent<E>>,
    converter: Arc<dyn EventConverter<E>>,
    joint: Arc<JointState>,
}

impl<E: Send + 'static> NamespaceAccount<E> {
    async fn run(
        mut self,
        feed: CollectionFeed<NamedChange<E>>,
        mut changes: mpsc::Receiver<ReceivedEvent<NamedChange<E>>>,
        stop: CancellationToken,
    ) {
        let mut state = feed.state();
        let mut running = pin!(feed.run(stop));

        loop {
            // Queued changes come first: `listed` may become true only after all changes of the
            // list have been forwarded.
            tokio::select! {
                biased;
                Some(received) = changes.recv() => {
                    if self.forward_change(received).await.is_err() {
                        return;
                    }
                }
                Ok(()) = state.changed() => {
                    let now = *state.borrow_and_update();
                    self.joint.note_state(self.index, now);
                }
                () = &mut running => return,
            }
        }
    }

    async fn forward_change(
        &mut self,
        received: ReceivedEvent<NamedChange<E>>,
    ) -> Result<(), ReceiverGone> {
        let at = received.at;
        match received.event {
            Change::RelistStarted => self.begin_list(at).await,
            // The feed of a single namespace never sends this change.
            Change::RelistDoneIn(_) => Ok(()),
            Change::RelistDone => self.finish_list(at).await,
            Change::Apply(NamedEvent { name, event }) => {
                self.relist.note_seen(&name);
                self.names.insert(name);
                self.send_event(event, at).await
            }
            Change::Deleted(key) => {
                self.relist.note_seen(&key.name);
                self.names.remove(&key.name);
                self.send_change(Change::Deleted(key), at).await
            }
        }
    }

    /// Begins a list. `RelistStarted` is sent only once for all namespaces. A second one before
    /// `RelistDone` would make the receiver delete the objects that the feeds of other namespaces
    /// have already sent.
    async fn begin_list(&mut self, at: std::time::Instant) -> Result<(), ReceiverGone> {
        self.relist.begin(&self.names);

        // If another namespace is sending `RelistStarted`, this namespace waits: no object may be
        // sent before `RelistStarted`.
        let send_once = || self.send_change(Change::RelistStarted, at);
        self.joint.begun.get_or_try_init(send_once).await?;
        Ok(())
    }

    /// Ends a list and deletes the objects that the list did not contain.
    async fn finish_list(&mut self, at: std::time::Instant) -> Result<(), ReceiverGone> {
        let is_first = !self.relist.is_complete();
        for name in self.relist.finish(self.names.iter().cloned()) {
            self.names.remove(&name);
            let key = ObjectKey {
                namespace: self.namespace.clone(),
                name,
            };
            self.send_change(Change::Deleted(key), at).await?;
        }

        // Later lists end without an event, because their deletions were sent one by one.
        if !is_first {
            return Ok(());
        }
        let namespace = self.namespace.clone();
        self.send_change(Change::RelistDoneIn(namespace), at)
            .await?;
        if self.joint.note_first_list() {
            self.send_change(Change::RelistDone, at).await?;
        }
        Ok(())
    }

    async fn send_change(
        &self,
        change: Change<Infallible>,
        at: std::time::Instant,
    ) -> Result<(), ReceiverGone> {
        let event = self.converter.convert_without_object(change);
        self.send_event(event, at).await
    }

    async fn send_event(&self, event: E, at: std::time::Instant) -> Result<(), ReceiverGone> {
        let sent = self.sink.send(ReceivedEvent { event, at }).await;
        sent.map_err(|_| ReceiverGone)
    }
}
