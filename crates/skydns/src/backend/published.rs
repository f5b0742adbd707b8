//! The current view of a [`Backend`] whose views are replaced as a whole: one writer replaces the
//! view, and readers load it without a lock.

use std::ops::Deref;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::watch;

use super::{Backend, View};

/// The current view. Readers load it atomically, without a lock.
#[derive(Debug)]
pub struct PublishedView<V> {
    current: ArcSwap<V>,
    /// Signals each new view.
    changes: watch::Sender<()>,
}

impl<V> PublishedView<V> {
    /// Publishes the first view.
    pub fn new(view: V) -> Self {
        Self {
            current: ArcSwap::from_pointee(view),
            changes: watch::Sender::new(()),
        }
    }

    /// Replaces the view.
    pub fn set(&self, view: V) {
        self.current.store(Arc::new(view));
        self.changes.send_replace(());
    }

    /// Subscribes to replacements of the view.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// The current view.
    pub fn get(&self) -> Arc<V> {
        self.current.load_full()
    }
}

impl<V: View + 'static> Backend for PublishedView<V> {
    type View = V;
    type Guard = ViewGuard<V>;

    fn view(&self) -> Self::Guard {
        ViewGuard(self.current.load())
    }

    fn keep(guard: Self::Guard) -> Arc<V> {
        arc_swap::Guard::into_inner(guard.0)
    }
}

/// Holds the view that a query reads.
#[derive(Debug)]
pub struct ViewGuard<V>(arc_swap::Guard<Arc<V>>);

impl<V> Deref for ViewGuard<V> {
    type Target = V;

    fn deref(&self) -> &V {
        &self.0
    }
}
