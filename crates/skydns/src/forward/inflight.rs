//! Queries in flight. Identical queries are sent once. The number of queries is limited, in total
//! and for each client.
//!
//! A separate task sends the query of the first caller. Callers who joined that query still get
//! their reply if the first caller goes away.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus::IntGauge;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::key::{Key, Upstreams};
use super::{ForwardError, ForwardMetrics, Limits, Reply};
use crate::client_shares::{ClientShare, ClientShares};

/// Result for all callers of a query.
pub(super) type Outcome = Result<Arc<Reply>, ForwardError>;

/// A query in flight, which all clients with the same key share.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Flight {
    pub(super) key: Arc<Key>,
    /// Whether the query is sent over TCP alone. Only clients over TCP with a truncated reply need
    /// this.
    pub(super) over_tcp: bool,
}

#[derive(Debug)]
pub(super) struct InFlight {
    table: Arc<Mutex<Table>>,
    all: Arc<ClientShares>,
    joiners: Arc<Semaphore>,
    max_per_route: usize,
    metrics: ForwardMetrics,
}

#[derive(Debug, Default)]
struct Table {
    flights: HashMap<Flight, watch::Receiver<Option<Outcome>>>,
    /// The limits of each list of upstreams, shared among its clients.
    routes: HashMap<Upstreams, Arc<ClientShares>>,
}

/// Role of a caller in a query.
pub(super) enum Role {
    /// The query is new: send the query, and pass the outcome to the owner. The waiter gets the
    /// outcome, too.
    QueryOwner(QueryOwner, Waiter),
    /// The query is already in flight.
    Waiter(Waiter),
    /// Too many queries are in flight.
    Overloaded,
}

impl InFlight {
    /// Creates an empty table with the limits in `limits`.
    pub(super) fn new(limits: &Limits, metrics: ForwardMetrics) -> Self {
        Self {
            table: Arc::default(),
            all: ClientShares::new(limits.max_in_flight, limits.max_in_flight),
            joiners: Arc::new(Semaphore::new(
                limits.max_joined.min(Semaphore::MAX_PERMITS),
            )),
            max_per_route: limits.max_in_flight_per_route,
            metrics,
        }
    }

    /// Joins the query `flight` on behalf of `client`, or adds the query to the table.
    pub(super) fn join(&self, flight: &Flight, client: IpAddr) -> Role {
        let mut table = self.table.lock();
        if let Some(outcome) = table.flights.get(flight) {
            let Ok(seat) = Arc::clone(&self.joiners).try_acquire_owned() else {
                return Role::Overloaded;
            };
            self.metrics.joined.inc();
            return Role::Waiter(Waiter {
                outcome: outcome.clone(),
                _seat: Some(seat),
            });
        }
        let upstreams = &flight.key.upstreams;
        let route = table.routes.get(upstreams).cloned();
        let route =
            route.unwrap_or_else(|| ClientShares::new(self.max_per_route, self.max_per_route));
        let (Some(of_all), Some(of_route)) = (self.all.take(client), route.take(client)) else {
            return Role::Overloaded;
        };
        table.routes.insert(Arc::clone(upstreams), route);
        let (sender, outcome) = watch::channel(None);
        table.flights.insert(flight.clone(), outcome.clone());
        self.metrics.in_flight.inc();
        let entry = Entry {
            table: Arc::clone(&self.table),
            flight: flight.clone(),
            places: Some([of_all, of_route]),
            in_flight: self.metrics.in_flight.clone(),
        };
        Role::QueryOwner(
            QueryOwner { sender, entry },
            Waiter {
                outcome,
                _seat: None,
            },
        )
    }
}

/// Owner of a query in the table. The owner passes the outcome to all waiters. If the owner is
/// dropped without an outcome, the query of the waiters fails.
pub(super) struct QueryOwner {
    sender: watch::Sender<Option<Outcome>>,
    entry: Entry,
}

impl QueryOwner {
    /// Passes the outcome to all waiters. An identical query is sent again from now on.
    pub(super) fn finish(self, outcome: Outcome) {
        drop(self.entry);
        self.sender.send_replace(Some(outcome));
    }
}

struct Entry {
    table: Arc<Mutex<Table>>,
    flight: Flight,
    places: Option<[ClientShare; 2]>,
    in_flight: IntGauge,
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut table = self.table.lock();
        table.flights.remove(&self.flight);
        self.places = None;
        let upstreams = &self.flight.key.upstreams;
        if table
            .routes
            .get(upstreams)
            .is_some_and(|route| route.taken() == 0)
        {
            table.routes.remove(upstreams);
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
    /// Waits for the outcome. Without an outcome from the owner, the result is
    /// [`ForwardError::Stopped`].
    pub(super) async fn outcome(mut self) -> Outcome {
        let outcome = self.outcome.wait_for(Option::is_some).await;
        outcome
            .ok()
            .and_then(|outcome| outcome.clone())
            .unwrap_or(Err(ForwardError::Stopped))
    }
}
