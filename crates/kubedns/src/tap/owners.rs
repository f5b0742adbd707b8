//! Finds pods and nodes by their addresses, for the clients in `GET /top`.
//!
//! A request of `/top` looks up its clients at the API server, if the role may list pods. `/top` is
//! rarely read, so a watch of all pods would cost memory for little use. The index of
//! `--pods=verified` holds no names of pods, to save memory.
//!
//! The API server scans all pods for each look-up, because it has no index by address. So the
//! number and the duration of look-ups have bounds, and results are cached. DNS queries never wait
//! for a look-up.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cluster::connect::Connection;
use cluster::objects::{ObjectKey, ScheduledPod};
use cluster::watch::{Collection, RequestFailure, list_objects};
use cluster::watch::{Namespaces, Scope};
use futures::{TryStreamExt as _, stream};
use parking_lot::Mutex;
use querylog::ranking::ClientOwner;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

/// Timeout of all look-ups of one request. The sidecar waits for `/top` for one second.
const DEADLINE: Duration = Duration::from_millis(700);
/// Bound of the look-ups of one request.
const REQUESTS: usize = 20;
/// Bound of the concurrent look-ups.
const PARALLEL: usize = 4;
/// Bound of the listed pods per address. Pods in the network of a node share its address.
const PODS: usize = 16;
/// Lifetime of a cached owner; clusters reuse addresses soon.
const FRESH: Duration = Duration::from_mins(1);
/// Bound of the cached owners.
const KEPT: usize = 256;
/// Pause after a failure.
const FAILED: Duration = Duration::from_secs(10);
/// Pause after a 403: the role does not allow listing pods.
const REFUSED: Duration = Duration::from_mins(5);

/// Owners of addresses according to the API server.
#[derive(Debug)]
pub(crate) struct Owners {
    connection: Arc<Connection>,
    scope: Scope,
    kept: Mutex<Kept>,
    /// Permit for look-ups. Concurrent requests wait for the permit, and then find the results in
    /// the cache.
    turn: Semaphore,
    deadline: Duration,
    /// Whether the missing permission has been logged.
    logged: AtomicBool,
}

#[derive(Debug, Default)]
struct Kept {
    /// Cached owners. An address without an owner has an empty owner here.
    owners: HashMap<IpAddr, (Instant, ClientOwner)>,
    /// End of the pause after a failure.
    not_before: Option<Instant>,
}

impl Owners {
    /// Creates a finder of owners among the pods in `scope`.
    pub(crate) fn new(connection: &Arc<Connection>, scope: &Scope) -> Self {
        let (connection, scope) = (Arc::clone(connection), scope.clone());
        let (kept, turn, logged) = (Mutex::default(), Semaphore::new(1), AtomicBool::new(false));
        Self {
            connection,
            scope,
            kept,
            turn,
            deadline: DEADLINE,
            logged,
        }
    }

    /// Returns the owners that are cached or found before the deadline. The look-ups follow the
    /// order of `addresses`.
    pub(crate) async fn of(&self, addresses: &[IpAddr]) -> HashMap<IpAddr, ClientOwner> {
        let deadline = Instant::now() + self.deadline;
        if let Ok(Ok(_turn)) = timeout_at(deadline, self.turn.acquire()).await {
            let asking = timeout_at(deadline, self.learn(addresses)).await;
            if let Err(failure) = asking.unwrap_or(Err(RequestFailure::Silent(self.deadline))) {
                self.pause(&failure);
            }
        }
        let kept = self.kept.lock();
        let known = |address: &IpAddr| Some((*address, kept.owners.get(address)?.1.clone()));
        addresses.iter().filter_map(known).collect()
    }

    /// Looks up the addresses that are not cached, until the first failure.
    async fn learn(&self, addresses: &[IpAddr]) -> Result<(), RequestFailure> {
        let missing = self.kept.lock().missing(addresses);
        let affordable = missing.into_iter().take(REQUESTS / self.namespaces());
        let asking = affordable.map(|address| Ok(self.look_up(address)));
        stream::iter(asking)
            .try_for_each_concurrent(PARALLEL, |asking| asking)
            .await
    }

    /// Number of list requests per address.
    fn namespaces(&self) -> usize {
        match &self.scope.namespaces {
            Namespaces::Only(names) => names.len().max(1),
            Namespaces::All | Namespaces::Selected(_) => 1,
        }
    }

    async fn look_up(&self, address: IpAddr) -> Result<(), RequestFailure> {
        let mut pods = Vec::new();
        for collection in Collection::pods_at(address, &self.scope) {
            pods.extend(list_objects(&self.connection, collection, PODS, self.deadline).await?);
        }
        self.kept
            .lock()
            .owners
            .insert(address, (Instant::now(), owner(address, &pods)));
        Ok(())
    }

    fn pause(&self, failure: &RequestFailure) {
        let is_refused = matches!(failure, RequestFailure::Refused(_));
        self.kept.lock().not_before =
            Some(Instant::now() + if is_refused { REFUSED } else { FAILED });
        if is_refused && !self.logged.swap(true, Ordering::Relaxed) {
            tracing::info!(error = %failure, "pods cannot be listed, /top shows only addresses");
        } else {
            tracing::debug!(error = %failure, "cannot look pods up for /top");
        }
    }
}

impl Kept {
    /// Drops expired owners, and returns the addresses to look up.
    fn missing(&mut self, addresses: &[IpAddr]) -> Vec<IpAddr> {
        self.owners.retain(|_, (at, _)| at.elapsed() < FRESH);
        if self
            .not_before
            .is_some_and(|not_before| Instant::now() < not_before)
        {
            return Vec::new();
        }
        let unknown = addresses
            .iter()
            .filter(|address| !self.owners.contains_key(address));
        unknown.copied().take(KEPT - self.owners.len()).collect()
    }
}

/// Selects the owner of `address` among the listed pods. A pod in the network of its node has the
/// node as owner. Otherwise, if several pods have the address, it is passing from one pod to
/// another, and its owner is unknown.
fn owner(address: IpAddr, pods: &[ScheduledPod]) -> ClientOwner {
    let pods: Vec<_> = pods
        .iter()
        .filter(|pod| pod.pod.addresses.contains(&address))
        .collect();
    let node = |pod: &ScheduledPod| Some(pod.node.to_string()).filter(|node| !node.is_empty());
    if let Some(pod) = pods.iter().find(|pod| pod.host_network) {
        return ClientOwner {
            node: node(pod),
            ..ClientOwner::default()
        };
    }
    let [found] = pods.as_slice() else {
        return ClientOwner::default();
    };
    let ObjectKey { namespace, name } = &found.pod.key;
    ClientOwner {
        namespace: Some(namespace.to_string()),
        pod: Some(name.to_string()),
        node: node(found),
    }
}

#[cfg(test)]
mod tests;
