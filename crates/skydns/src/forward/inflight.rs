//! Questions under way: identical ones are asked once, and their number is bounded.
//!
//! The first asker's question is put to the upstreams by a task of its own, so that those who joined it do not lose
//! their reply when the first asker goes away. A burst beyond what may be under way at once queues for a short while.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus::IntGauge;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::timeout;

use super::{ForwardError, ForwardMetrics, Limits, Query, Reply};

/// What the askers of one question get.
pub(super) type Outcome = Result<Arc<Reply>, ForwardError>;

/// Questions are the same if the bytes sent and the upstreams asked would be.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) query: Query,
    pub(super) upstreams: Arc<[SocketAddr]>,
}

/// The questions under way and queued.
#[derive(Debug)]
pub(super) struct InFlight {
    table: Arc<Mutex<Table>>,
    under_way: Arc<Semaphore>,
    joiners: Arc<Semaphore>,
    limits: Limits,
    metrics: ForwardMetrics,
}

#[derive(Debug, Default)]
struct Table {
    questions: HashMap<Arc<Key>, watch::Receiver<Option<Outcome>>>,
    routes: HashMap<Arc<[SocketAddr]>, Route>,
}

/// The questions to one list of upstreams.
#[derive(Debug)]
struct Route {
    questions: usize,
    under_way: Arc<Semaphore>,
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
            under_way: semaphore(limits.max_in_flight),
            joiners: semaphore(limits.max_joined),
            limits: limits.clone(),
            metrics,
        }
    }

    /// Takes part in the question `key`.
    pub(super) fn join(&self, key: &Arc<Key>) -> Join {
        let mut table = lock(&self.table);
        if let Some(outcome) = table.questions.get(key) {
            let Ok(seat) = Arc::clone(&self.joiners).try_acquire_owned() else { return Join::Overloaded };
            self.metrics.joined.inc();
            return Join::Waiter(Waiter { outcome: outcome.clone(), _seat: Some(seat) });
        }
        if table.questions.len() >= self.limits.max_in_flight.saturating_add(self.limits.max_queued) {
            return Join::Overloaded;
        }
        let per_route = self.limits.max_in_flight_per_route;
        let route = table.routes.entry(Arc::clone(&key.upstreams));
        let route = route.or_insert_with(|| Route { questions: 0, under_way: semaphore(per_route) });
        if route.questions >= per_route.saturating_add(self.limits.max_queued_per_route) {
            return Join::Overloaded;
        }
        route.questions += 1;
        let admission = Admission {
            route: Arc::clone(&route.under_way),
            all: Arc::clone(&self.under_way),
            queue_for: self.limits.queue_for,
            metrics: self.metrics.clone(),
        };
        let (sender, outcome) = watch::channel(None);
        table.questions.insert(Arc::clone(key), outcome.clone());
        let entry = Entry { table: Arc::clone(&self.table), key: Arc::clone(key) };
        Join::Leader(Leader { sender, entry, admission }, Waiter { outcome, _seat: None })
    }
}

/// Owns one question's place in the table; hands its outcome to all who wait. Dropped without an outcome, it tells
/// them that there will be none.
pub(super) struct Leader {
    sender: watch::Sender<Option<Outcome>>,
    entry: Entry,
    admission: Admission,
}

impl Leader {
    /// Waits, but not for long, until the question may be put to the upstreams.
    pub(super) async fn admitted(&self) -> Result<Admitted, ForwardError> {
        self.admission.wait().await
    }

    /// Ends the question. Who asks the same from now on asks anew.
    pub(super) fn finish(self, outcome: Outcome) {
        drop(self.entry);
        self.sender.send_replace(Some(outcome));
    }
}

struct Admission {
    route: Arc<Semaphore>,
    all: Arc<Semaphore>,
    queue_for: Duration,
    metrics: ForwardMetrics,
}

impl Admission {
    async fn wait(&self) -> Result<Admitted, ForwardError> {
        let _queued = Counted::new(&self.metrics.queued);
        // The route first: who waits for a dead upstream's turn must not hold up others.
        let permits = async {
            let route = Arc::clone(&self.route).acquire_owned().await.ok()?;
            let all = Arc::clone(&self.all).acquire_owned().await.ok()?;
            Some([route, all])
        };
        let permits = timeout(self.queue_for, permits).await.ok().flatten();
        let permits = permits.ok_or(ForwardError::Overloaded)?;
        Ok(Admitted { _permits: permits, _counted: Counted::new(&self.metrics.in_flight) })
    }
}

/// While it lives, a question is under way.
pub(super) struct Admitted {
    _permits: [OwnedSemaphorePermit; 2],
    _counted: Counted,
}

/// Counts in a gauge while it lives.
struct Counted(IntGauge);

impl Counted {
    fn new(gauge: &IntGauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}

struct Entry {
    table: Arc<Mutex<Table>>,
    key: Arc<Key>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut table = lock(&self.table);
        table.questions.remove(&self.key);
        if let Some(route) = table.routes.get_mut(&self.key.upstreams) {
            route.questions -= 1;
            if route.questions == 0 {
                table.routes.remove(&self.key.upstreams);
            }
        }
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

fn semaphore(permits: usize) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(permits.min(Semaphore::MAX_PERMITS)))
}

/// Nothing that holds the lock can panic half way through a change, so a poisoned table is a whole one.
fn lock(table: &Mutex<Table>) -> MutexGuard<'_, Table> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}
