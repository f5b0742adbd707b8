//! Queries in flight: identical queries are sent once, and their number is limited, also for each client.
//!
//! A task of its own sends the first caller's query, so that callers who joined it still get their reply when the
//! first caller goes away.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use dnsconfig::Upstream;
use parking_lot::Mutex;
use prometheus::IntGauge;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::{ForwardError, ForwardMetrics, Limits, Query, Reply};
use crate::shares::{Share, Shares};

/// Result for all callers of a query.
pub(super) type Outcome = Result<Arc<Reply>, ForwardError>;

/// Identity of a query: queries are identical if they have the same octets and the same upstreams.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) query: Query,
    pub(super) upstreams: Arc<[Upstream]>,
}

/// The queries in flight.
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
    /// The shares of each list of upstreams.
    routes: HashMap<Arc<[Upstream]>, Arc<Shares>>,
}

/// Role of a caller in a query.
pub(super) enum Role {
    /// The query is new: send it, and pass the outcome to its owner; the waiter gets it, too.
    QueryOwner(QueryOwner, Waiter),
    /// The query is already in flight.
    Waiter(Waiter),
    /// Too many queries are in flight.
    Overloaded,
}

impl InFlight {
    /// An empty table with the limits of `limits`.
    pub(super) fn new(limits: &Limits, metrics: ForwardMetrics) -> Self {
        Self {
            table: Arc::default(),
            all: Shares::new(limits.max_in_flight, limits.max_in_flight),
            joiners: Arc::new(Semaphore::new(limits.max_joined.min(Semaphore::MAX_PERMITS))),
            max_per_route: limits.max_in_flight_per_route,
            metrics,
        }
    }

    /// Joins the query `key` on behalf of `client`.
    pub(super) fn join(&self, key: &Arc<Key>, client: IpAddr) -> Role {
        let mut table = self.table.lock();
        if let Some(outcome) = table.questions.get(key) {
            let Ok(seat) = Arc::clone(&self.joiners).try_acquire_owned() else { return Role::Overloaded };
            self.metrics.joined.inc();
            return Role::Waiter(Waiter { outcome: outcome.clone(), _seat: Some(seat) });
        }
        let route = table.routes.get(&key.upstreams).cloned();
        let route = route.unwrap_or_else(|| Shares::new(self.max_per_route, self.max_per_route));
        let (Some(of_all), Some(of_route)) = (self.all.take(client), route.take(client)) else {
            return Role::Overloaded;
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
        Role::QueryOwner(QueryOwner { sender, entry }, Waiter { outcome, _seat: None })
    }
}

/// Owner of a query in the table; hands the outcome to all waiters. Dropped without an outcome, it makes them fail.
pub(super) struct QueryOwner {
    sender: watch::Sender<Option<Outcome>>,
    entry: Entry,
}

impl QueryOwner {
    /// Ends the query. An identical query is sent anew from now on.
    pub(super) fn finish(self, outcome: Outcome) {
        drop(self.entry);
        self.sender.send_replace(Some(outcome));
    }
}

struct Entry {
    table: Arc<Mutex<Table>>,
    key: Arc<Key>,
    places: Option<[Share; 2]>,
    /// Counts the query while it is in the table.
    in_flight: IntGauge,
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut table = self.table.lock();
        table.questions.remove(&self.key);
        self.places = None;
        if table.routes.get(&self.key.upstreams).is_some_and(|route| route.taken() == 0) {
            table.routes.remove(&self.key.upstreams);
        }
        self.in_flight.dec();
    }
}

/// Waits for the outcome of a query.
pub(super) struct Waiter {
    outcome: watch::Receiver<Option<Outcome>>,
    _seat: Option<OwnedSemaphorePermit>,
}

impl Waiter {
    /// Waits for the outcome.
    pub(super) async fn outcome(mut self) -> Outcome {
        let outcome = self.outcome.wait_for(Option::is_some).await;
        outcome.ok().and_then(|outcome| outcome.clone()).unwrap_or(Err(ForwardError::Stopped))
    }
}
