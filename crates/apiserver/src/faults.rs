//! Faults for tests: what can be made to go wrong, from Rust through [`Faults`].

use std::sync::Arc;

use tokio::sync::watch;

use crate::store::Store;

/// A handle to make things go wrong. Cloning gives another handle to the same server.
#[derive(Debug, Clone)]
pub struct Faults {
    store: Store,
    signals: Arc<watch::Sender<Signals>>,
}

/// What every open watch must heed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Signals {
    /// Watches opened before this changed are to end.
    pub(crate) dropped: u64,
    /// End them in the middle of the response instead of properly.
    pub(crate) abort: bool,
    /// Nothing is delivered.
    pub(crate) held: bool,
    /// Nothing at all happens.
    pub(crate) frozen: bool,
}

impl Faults {
    pub(crate) fn new(store: Store) -> Self {
        Self { store, signals: Arc::new(watch::channel(Signals::default()).0) }
    }

    /// Ends all watches that are open now, as a server does that shuts down: the responses are complete.
    pub fn drop_watches(&self) {
        self.signals.send_modify(|signals| {
            signals.dropped += 1;
            signals.abort = false;
        });
    }

    /// Cuts all watches that are open now: their connections close in the middle of the response.
    pub fn cut_watches(&self) {
        self.signals.send_modify(|signals| {
            signals.dropped += 1;
            signals.abort = true;
        });
    }

    /// Holds back everything watches would deliver. Watches opened meanwhile are accepted and deliver nothing either.
    pub fn hold_watches(&self) {
        self.signals.send_modify(|signals| signals.held = true);
    }

    /// Ends [`Faults::hold_watches`].
    pub fn release_watches(&self) {
        self.signals.send_modify(|signals| signals.held = false);
    }

    /// Makes changes that no watch sees: all are cut, and those opened again from an earlier version get a 410.
    pub fn gap<R>(&self, changes: impl FnOnce(&Store) -> R) -> R {
        self.hold_watches();
        self.drop_watches();
        let result = changes(&self.store);
        self.store.expire();
        self.release_watches();
        result
    }

    pub(crate) fn signals(&self) -> watch::Receiver<Signals> {
        self.signals.subscribe()
    }
}
