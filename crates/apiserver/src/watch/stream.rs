//! The stream of a watch: events and bookmarks until the timeout, an error event or a fault. The
//! stream of a watch without a start version begins with the current objects.

use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::Stream;
use tokio::sync::watch::Receiver;
use tokio::time::{Instant, sleep_until};

use super::Watch;
use crate::encode::{self, EventType, Format};
use crate::faults::Presence;
use crate::object::Objects;
use crate::status::Status;
use crate::store::{Batch, Event};

/// Maximum number of events read from the history at once.
const BATCH: usize = 256;
/// Approximate maximum size of a chunk in octets.
const CHUNK: usize = 64 * 1024;
/// Time between the last bookmark and the end of a watch, as on a real server.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);

/// The body of a watch, in chunks.
pub(crate) fn stream(
    watch: Watch,
) -> impl Stream<Item = Result<Bytes, io::Error>> + Send + Sync + 'static {
    futures::stream::unfold(Session::new(watch), |mut session| async move {
        let chunk = session.next().await?;
        Some((chunk, session))
    })
}

struct Session {
    watch: Watch,
    changed: Receiver<u64>,
    /// The value of `Signals::dropped` when the watch started. The watch ends when
    /// `Signals::dropped` changes.
    generation: u64,
    phase: Phase,
    /// The next events of the watch are those after this version.
    cursor: u64,
    /// The version of the last bookmark. Before the first bookmark, the version of the initial
    /// objects, or the start version if the watch has one.
    bookmarked: u64,
    next_bookmark: Option<Instant>,
    deadline: Instant,
}

enum Phase {
    Opening,
    Initial { objects: Objects, next: usize },
    Live,
    Over,
}

impl Session {
    fn new(watch: Watch) -> Self {
        let now = Instant::now();
        let deadline = now + watch.query.timeout;
        let generation = watch.signals.borrow().dropped;
        let changed = watch.store.subscribe(watch.resource);
        let mut session = Self {
            changed,
            generation,
            phase: Phase::Opening,
            cursor: 0,
            bookmarked: 0,
            next_bookmark: None,
            deadline,
            watch,
        };
        session.schedule_bookmark(now);
        session
    }

    /// The next chunk; `None` after the end of the watch.
    async fn next(&mut self) -> Option<Result<Bytes, io::Error>> {
        loop {
            let signals = *self.watch.signals.borrow_and_update();
            if signals.dropped != self.generation {
                let cut = || {
                    Err(io::Error::new(
                        io::ErrorKind::ConnectionAborted,
                        "the watch was cut",
                    ))
                };
                return if signals.abort && !matches!(self.phase, Phase::Over) {
                    self.phase = Phase::Over;
                    Some(cut())
                } else {
                    None
                };
            }
            let paused = signals.held || signals.presence != Presence::Up;
            if !paused {
                self.changed.borrow_and_update();
                if matches!(self.phase, Phase::Over) {
                    return None;
                }
                if let Some(chunk) = self.step() {
                    return Some(Ok(chunk));
                }
                if Instant::now() >= self.deadline {
                    return None;
                }
            }
            self.wait(paused).await?;
        }
    }

    /// Waits until a signal arrives. Unless `paused`, a change or a due timer also ends the wait.
    /// Returns `None` when the server stops.
    async fn wait(&mut self, paused: bool) -> Option<()> {
        let wake = self
            .next_bookmark
            .map_or(self.deadline, |bookmark| bookmark.min(self.deadline));
        tokio::select! {
            changed = self.watch.signals.changed() => changed.ok()?,
            changed = self.changed.changed(), if !paused => changed.ok()?,
            () = sleep_until(wake), if !paused => {}
        }
        Some(())
    }

    /// The next chunk, if there is one.
    fn step(&mut self) -> Option<Bytes> {
        loop {
            match &mut self.phase {
                Phase::Over => return None,
                Phase::Opening => {
                    if let Err(last) = self.open() {
                        return Some(last);
                    }
                }
                Phase::Initial { .. } => {
                    let chunk = self.initial();
                    if !chunk.is_empty() {
                        return Some(chunk);
                    }
                }
                Phase::Live => return self.live(),
            }
        }
    }

    fn open(&mut self) -> Result<(), Bytes> {
        let resource = self.watch.resource;
        match self.watch.query.start {
            None => {
                let listing = self.watch.store.list(resource);
                self.cursor = listing.version;
                self.bookmarked = listing.version;
                self.phase = Phase::Initial {
                    objects: listing.objects,
                    next: 0,
                };
            }
            Some(version) => {
                if let Err(current) = self.watch.store.can_watch(resource, version) {
                    return Err(self.too_old(version, current));
                }
                self.cursor = version;
                self.bookmarked = version;
                self.phase = Phase::Live;
            }
        }
        Ok(())
    }

    /// A chunk of the initial objects. After the last object, the phase becomes [`Phase::Live`].
    fn initial(&mut self) -> Bytes {
        let mut chunk = BytesMut::new();
        if let Phase::Initial { objects, next } = &mut self.phase {
            while let Some(object) = objects.get(*next) {
                if chunk.len() > CHUNK {
                    return chunk.freeze();
                }
                if self.watch.selection.matches(object) {
                    let line = encode::event(self.watch.format, EventType::Added, object);
                    chunk.extend_from_slice(&line);
                }
                *next += 1;
            }
        }
        self.phase = Phase::Live;
        chunk.freeze()
    }

    /// The next events, a due bookmark, or the error event if the next events were evicted.
    fn live(&mut self) -> Option<Bytes> {
        loop {
            match self
                .watch
                .store
                .after(self.watch.resource, self.cursor, BATCH)
            {
                Batch::Lagged => {
                    return Some(self.too_old(self.cursor, self.watch.store.version()));
                }
                Batch::UpToDate(version) => return self.bookmark(version),
                Batch::Events(events) => {
                    let mut chunk = BytesMut::new();
                    for event in events {
                        if chunk.len() > CHUNK {
                            break;
                        }
                        self.cursor = event.object.version();
                        if let Some(line) = self.line(&event) {
                            chunk.extend_from_slice(&line);
                        }
                    }
                    if !chunk.is_empty() {
                        return Some(chunk.freeze());
                    }
                }
            }
        }
    }

    /// The event as sent to this watch; `None` if the object is outside the selection before and
    /// after the change. An object that enters the selection is sent as added, and an object that
    /// leaves the selection is sent as deleted.
    fn line(&self, event: &Event) -> Option<Bytes> {
        let selection = &self.watch.selection;
        let before = event
            .previous
            .as_deref()
            .is_some_and(|previous| selection.matches(previous));
        let after = event.change != EventType::Deleted && selection.matches(&event.object);
        let event_type = match (before, after) {
            (false, false) => return None,
            (false, true) => EventType::Added,
            (true, true) => EventType::Modified,
            (true, false) => EventType::Deleted,
        };
        if event_type == event.change && self.watch.format == Format::Json {
            return Some(event.json());
        }
        Some(encode::event(self.watch.format, event_type, &event.object))
    }

    /// The error event that ends a watch whose version has expired or whose next events were
    /// evicted.
    fn too_old(&mut self, version: u64, current: u64) -> Bytes {
        self.phase = Phase::Over;
        let status = Status::expired(format!("too old resource version: {version} ({current})"));
        encode::error(self.watch.format, &status)
    }

    fn bookmark(&mut self, version: u64) -> Option<Bytes> {
        let now = Instant::now();
        if self.next_bookmark.is_none_or(|due| due > now) {
            return None;
        }
        self.schedule_bookmark(now);
        // As in kube-apiserver, a bookmark is sent only if the resource has changed since the
        // version in `bookmarked`.
        if version <= self.bookmarked {
            return None;
        }
        self.bookmarked = version;
        Some(encode::bookmark(
            self.watch.format,
            self.watch.resource,
            version,
        ))
    }

    /// Schedules the next bookmark after the period, but at the latest [`LAST_BOOKMARK`] before the
    /// end of the watch.
    fn schedule_bookmark(&mut self, now: Instant) {
        let last = self
            .deadline
            .checked_sub(LAST_BOOKMARK)
            .filter(|last| *last > now);
        self.next_bookmark = last
            .filter(|_| self.watch.query.bookmarks)
            .map(|last| last.min(now + self.watch.bookmark_period));
    }
}
