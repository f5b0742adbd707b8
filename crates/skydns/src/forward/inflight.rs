//! Questions under way: identical ones are asked once, and their number is bounded, for each client too.
//!
//! The first asker's question is put to the upstreams by a task of its own, so that those who joined it do not lose
//! their reply when the first asker goes away.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dnsconfig::Upstream;
use prometheus::IntGauge;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::{ForwardError, ForwardMetrics, Limits, Query, Reply};
use crate::shares::{Share, Shares};

/// Result for the askers of one question.
pub(super) type Outcome = Result<Arc<Reply>, ForwardError>;

/// Questions are the same if the bytes sent and the upstreams asked would be.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) query: Query,
    pub(super) upstreams: Arc<[Upstream]>,
}

/// The questions under way.
#[derive(Debug)]
pub(super) struct InFlight {
    table: Arc<Mutex<Table>>,
    all: Arc<Shares>,
    joiners: Arc<Semaphore>,
    max_per_route: usize,
    metrics: ForwardMetrics,
}

#[derive(Debug, Default)]
struct Table {
    questions: HashMap<Arc<Key>, watch::Receiver<Option<Outcome>>>,
    /// The places of each list of upstreams.
    routes: HashMap<Arc<[Upstream]>, Arc<Shares>>,
}

/// The part an asker is given.
pub(super) enum Join {
    /// Nobody has asked this yet: ask, and hand the outcome to the leader; the waiter gets it too.
    Leader(Leader, Waiter),
    /// Somebody has.
    Waiter(Waiter),
    /// There are too many already.
    Overloaded,
}

impl InFlight {
    /// With the bounds of `limits`.
    pub(super) fn new(limits: &Limits, metrics: ForwardMetrics) -> Self {
        Self {
            table: Arc::default(),
            all: Shares::new(limits.max_in_flight, limits.max_in_flight),
            joiners: Arc::new(Semaphore::new(limits.max_joined.min(Semaphore::MAX_PERMITS))),
            max_per_route: limits.max_in_flight_per_route,
            metrics,
        }
    }

    /// Takes part in the question `key` on behalf of `client`.
    pub(super) fn join(&self, key: &Arc<Key>, client: IpAddr) -> Join {
        let mut table = lock(&self.table);
        if let Some(outcome) = table.questions.get(key) {
            let Ok(seat) = Arc::clone(&self.joiners).try_acquire_owned() else { return Join::Overloaded };
            self.metrics.joined.inc();
            return Join::Waiter(Waiter { outcome: outcome.clone(), _seat: Some(seat) });
        }
        let route = table.routes.get(&key.upstreams).cloned();
        let route = route.unwrap_or_else(|| Shares::new(self.max_per_route, self.max_per_route));
        let (Some(of_all), Some(of_route)) = (self.all.take(client), route.take(client)) else {
            return Join::Overloaded;
        };
        table.routes.insert(Arc::clone(&key.upstreams), route);
        let (sender, outcome) = watch::channel(None);
        table.questions.insert(Arc::clone(key), outcome.clone());
        self.metrics.in_flight.inc();
        let entry = Entry {
            table: Arc::clone(&self.table),
            key: Arc::clone(key),
            places: Some([of_all, of_route]),
            in_flight: self.metrics.in_flight.clone(),
        };
        Join::Leader(Leader { sender, entry }, Waiter { outcome, _seat: None })
    }
}

/// Owns one question's place in the table; hands its outcome to all who wait. Dropped without an outcome, it tells
/// them that there will be none.
pub(super) struct Leader {
    sender: watch::Sender<Option<Outcome>>,
    entry: Entry,
}

impl Leader {
    /// Ends the question. Who asks the same from now on asks anew.
    pub(super) fn finish(self, outcome: Outcome) {
        drop(self.entry);
        self.sender.send_replace(Some(outcome));
    }
}

struct Entry {
    table: Arc<Mutex<Table>>,
    key: Arc<Key>,
    places: Option<[Share; 2]>,
    /// Counts the question while it is in the table.
    in_flight: IntGauge,
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut table = lock(&self.table);
        table.questions.remove(&self.key);
        self.places = None;
        if table.routes.get(&self.key.upstreams).is_some_and(|route| route.taken() == 0) {
            table.routes.remove(&self.key.upstreams);
        }
        self.in_flight.dec();
    }
}

/// Waits for the outcome of a question.
pub(super) struct Waiter {
    outcome: watch::Receiver<Option<Outcome>>,
    _seat: Option<OwnedSemaphorePermit>,
}

impl Waiter {
    /// The outcome, as soon as there is one.
    pub(super) async fn outcome(mut self) -> Outcome {
        let outcome = self.outcome.wait_for(Option::is_some).await;
        outcome.ok().and_then(|outcome| outcome.clone()).unwrap_or(Err(ForwardError::Stopped))
    }
}

/// Nothing that holds the lock can panic half way through a change, so a poisoned table is a whole one.
fn lock(table: &Mutex<Table>) -> MutexGuard<'_, Table> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}
