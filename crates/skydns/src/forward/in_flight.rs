//! Queries in flight. Identical queries are sent once. The number of queries is limited in total,
//! for each client, and for each route. A route is a list of upstreams.
//!
//! A separate task sends the query of the first caller. Callers who joined that query still get
//! their reply if the first caller stops waiting.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use foldhash::fast::RandomState;
use parking_lot::Mutex;
use prometheus::IntGauge;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::key::{QueryKey, UpstreamList};
use super::{ForwardError, ForwardLimits, ForwardMetrics, UpstreamReply};
use crate::client_shares::{ClientShare, ClientShares};

/// Result for all callers of a query.
pub(super) type ForwardOutcome = Result<Arc<UpstreamReply>, ForwardError>;

/// Key of a query in flight. All callers whose queries have the same key share the query in flight.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct InFlightKey {
    pub(super) key: Arc<QueryKey>,
    /// Whether the query is sent only over TCP: a client has asked over TCP, and the reply of the
    /// upstream over UDP was truncated.
    pub(super) over_tcp: bool,
}

/// The queries in flight, and the places for further queries.
#[derive(Debug)]
pub(super) struct InFlightQueries {
    table: Arc<Mutex<InFlightTable>>,
    /// Places for the queries of all routes together.
    all: Arc<ClientShares>,
    /// Places for callers who wait for the query of another caller.
    joiners: Arc<Semaphore>,
    max_per_route: usize,
    metrics: ForwardMetrics,
}

#[derive(Debug, Default)]
struct InFlightTable {
    queries: HashMap<InFlightKey, watch::Receiver<Option<ForwardOutcome>>, RandomState>,
    /// For each list of upstreams, the places for queries. The clients share these places.
    routes: HashMap<UpstreamList, Arc<ClientShares>, RandomState>,
}

/// The result of [`InFlightQueries::join`].
pub(super) enum JoinOutcome {
    /// The query is new. The caller must send it, and pass the outcome to [`QueryOwner::finish`].
    /// The waiter then gets the outcome.
    Started(QueryOwner, OutcomeWaiter),
    /// The query is already in flight.
    Joined(OutcomeWaiter),
    /// There is no place for the client's query, or too many callers have joined queries.
    Overloaded,
}

impl InFlightQueries {
    /// Creates an empty table with the limits in `limits`.
    pub(super) fn new(limits: &ForwardLimits, metrics: ForwardMetrics) -> Self {
        let joiners = limits.max_joined.min(Semaphore::MAX_PERMITS);
        // A client has no fixed limit of its own: it may use its share of all places, and its share
        // of the places of each route.
        Self {
            table: Arc::default(),
            all: ClientShares::new(limits.max_in_flight, limits.max_in_flight),
            joiners: Arc::new(Semaphore::new(joiners)),
            max_per_route: limits.max_in_flight_per_route,
            metrics,
        }
    }

    /// Joins `query` if it is already in flight. Otherwise tries to add it to the table as a query
    /// of `client`.
    pub(super) fn join(&self, query: &InFlightKey, client: IpAddr) -> JoinOutcome {
        let mut table = self.table.lock();
        match table.queries.get(query) {
            Some(outcome) => self.join_existing(outcome),
            None => self.start_new(&mut table, query, client),
        }
    }

    fn join_existing(&self, outcome: &watch::Receiver<Option<ForwardOutcome>>) -> JoinOutcome {
        let Ok(seat) = Arc::clone(&self.joiners).try_acquire_owned() else {
            return JoinOutcome::Overloaded;
        };

        self.metrics.joined.inc();
        JoinOutcome::Joined(OutcomeWaiter {
            outcome: outcome.clone(),
            _seat: Some(seat),
        })
    }

    /// Adds `query` to the table if there is a place for it.
    fn start_new(
        &self,
        table: &mut InFlightTable,
        query: &InFlightKey,
        client: IpAddr,
    ) -> JoinOutcome {
        let upstreams = &query.key.upstreams;
        let route = table.routes.get(upstreams).cloned();
        let route = route.unwrap_or_else(|| self.add_route(table, upstreams));
        // A client needs a place under both limits. If there is no second place, the first place is
        // freed.
        let (Some(of_all), Some(of_route)) =
            (self.all.take_share(client), route.take_share(client))
        else {
            return JoinOutcome::Overloaded;
        };

        // From here on, identical queries join this one.
        let (sender, outcome) = watch::channel(None);
        table.queries.insert(query.clone(), outcome.clone());
        self.metrics.in_flight.inc();

        let entry = InFlightEntry {
            table: Arc::clone(&self.table),
            query: query.clone(),
            _shares: [of_all, of_route],
            in_flight: self.metrics.in_flight.clone(),
        };
        let waiter = OutcomeWaiter {
            outcome,
            _seat: None,
        };
        JoinOutcome::Started(QueryOwner { sender, entry }, waiter)
    }

    /// Adds the places of a new list of upstreams. Removes the places of lists without queries in
    /// flight.
    fn add_route(&self, table: &mut InFlightTable, upstreams: &UpstreamList) -> Arc<ClientShares> {
        table.routes.retain(|_, route| route.taken() > 0);

        let route = ClientShares::new(self.max_per_route, self.max_per_route);
        table
            .routes
            .insert(Arc::clone(upstreams), Arc::clone(&route));
        route
    }
}

/// Owner of a query in the table. The owner passes the outcome to all waiters. If the owner is
/// dropped without an outcome, the query of the waiters fails.
pub(super) struct QueryOwner {
    sender: watch::Sender<Option<ForwardOutcome>>,
    entry: InFlightEntry,
}

impl QueryOwner {
    /// Passes the outcome to all waiters. The entry is removed first, so an identical query that
    /// arrives now is sent again.
    pub(super) fn finish(self, outcome: ForwardOutcome) {
        drop(self.entry);
        self.sender.send_replace(Some(outcome));
    }
}

/// A query's place in the table and its shares. Dropping the entry frees them.
struct InFlightEntry {
    table: Arc<Mutex<InFlightTable>>,
    query: InFlightKey,
    _shares: [ClientShare; 2],
    in_flight: IntGauge,
}

impl Drop for InFlightEntry {
    fn drop(&mut self) {
        let mut table = self.table.lock();
        table.queries.remove(&self.query);
        self.in_flight.dec();
    }
}

/// Waits for the outcome of a query.
pub(super) struct OutcomeWaiter {
    outcome: watch::Receiver<Option<ForwardOutcome>>,
    _seat: Option<OwnedSemaphorePermit>,
}

impl OutcomeWaiter {
    /// Waits for the outcome. Without an outcome from the owner, the result is
    /// [`ForwardError::Stopped`].
    pub(super) async fn outcome(mut self) -> ForwardOutcome {
        let outcome = self.outcome.wait_for(Option::is_some).await;
        outcome
            .ok()
            .and_then(|outcome| outcome.clone())
            .unwrap_or(Err(ForwardError::Stopped))
    }
}
