//! Finds pods and nodes by their addresses, for the clients in `GET /top`.
//!
//! When `/top` is requested, kubedns looks up the ranked clients at the API server, if the role of
//! kubedns may list pods. It does not watch all pods for `/top`, because `/top` is rarely read, and
//! the watch would cost memory. With `--pods=verified`, kubedns watches pods anyway. But to save
//! memory, it does not keep their names.
//!
//! The API server scans all pods for each look-up, because it has no index of pods by address. So
//! the number and the duration of look-ups are limited, and results are cached. DNS queries never
//! wait for a look-up.
//!
//! With `--pods=node`, kubedns instead lists the pods of its own node, once for all clients. The
//! API server has an index of pods by node.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cluster::connect::Connection;
use cluster::objects::{ObjectKey, ScheduledPod};
use cluster::snapshot::{Published, Snapshot};
use cluster::watch::{Collection, Namespaces, RequestFailure, Scope, list_objects};
use futures::{TryStreamExt as _, stream};
use parking_lot::Mutex;
use querylog::ranking::ClientOwner;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

/// Timeout of all look-ups for one request for `/top`. The sidecar waits for `/top` for one second.
const LOOKUPS_TIMEOUT: Duration = Duration::from_millis(700);
/// Maximum number of list requests to the API server for one request for `/top`. With
/// `--namespaces`, an address needs one list request for each namespace. If there are more
/// namespaces than this maximum, no address is looked up. With `--pods=node`, the maximum does not
/// apply.
const MAX_REQUESTS: usize = 20;
/// Maximum number of concurrent look-ups.
const MAX_PARALLEL: usize = 4;
/// Maximum number of pods in each list for an address. Pods on the host network have the address of
/// their node.
const MAX_PODS: usize = 16;
/// Maximum number of pods in each list for a node. By default, a kubelet runs at most 110 pods.
const MAX_NODE_PODS: usize = 1024;
/// Lifetime of a cached owner. It is short, because the address may soon belong to another pod.
const OWNER_LIFETIME: Duration = Duration::from_mins(1);
/// Maximum number of cached owners.
const MAX_CACHED: usize = 256;
/// Pause of all look-ups after a failure other than [`RequestFailure::Refused`].
const PAUSE_FAILED: Duration = Duration::from_secs(10);
/// Pause of all look-ups after [`RequestFailure::Refused`]. Usually the role does not allow listing
/// pods.
const PAUSE_REFUSED: Duration = Duration::from_mins(5);

/// The owners of clients. An owner is a pod, a node, or the namespace of a pod.
#[derive(Debug, Clone)]
pub(crate) enum ClientOwners {
    /// The clients are pods and nodes of a cluster.
    OfCluster {
        /// Finds the owners at the API server.
        finder: Arc<OwnerFinder>,
        /// The current snapshot. With `--pods=verified` or `node`, it has the namespaces of pods.
        published: Arc<Published>,
    },
    /// There is no cluster.
    Unknown,
}

impl ClientOwners {
    /// Owners among the pods in `scope`, and only among those on `node` if it is given.
    pub(crate) fn of_cluster(
        connection: &Arc<Connection>,
        scope: &Scope,
        node: Option<&String>,
        published: &Arc<Published>,
    ) -> Self {
        Self::OfCluster {
            finder: Arc::new(OwnerFinder::new(connection, scope, node)),
            published: Arc::clone(published),
        }
    }

    /// Returns the owners of `clients`. If the API server names no owner for a client, the returned
    /// owner has only the namespace in the published snapshot, if any. Without a cluster, the map
    /// is empty.
    pub(crate) async fn find_owners(&self, clients: &[IpAddr]) -> HashMap<IpAddr, ClientOwner> {
        match self {
            Self::OfCluster { finder, published } => {
                let mut owners = finder.find_owners(clients).await;
                add_namespaces(&mut owners, clients, &published.get());
                owners
            }
            Self::Unknown => HashMap::new(),
        }
    }
}

/// Adds the namespaces of clients without an owner, if `snapshot` has them.
pub(super) fn add_namespaces(
    owners: &mut HashMap<IpAddr, ClientOwner>,
    clients: &[IpAddr],
    snapshot: &Snapshot,
) {
    for client in clients {
        let owner = owners.entry(*client).or_default();
        if *owner == ClientOwner::default() {
            owner.namespace = snapshot.namespace_of_pod(*client).map(ToString::to_string);
        }
    }
}

/// Owners of addresses according to the API server.
#[derive(Debug)]
pub(crate) struct OwnerFinder {
    connection: Arc<Connection>,
    scope: Scope,
    /// The node whose pods are listed together; `None` if each address is looked up separately.
    node: Option<String>,
    cache: Mutex<OwnerCache>,
    /// Permit for look-ups, held by one request for `/top` at a time.
    turn: Semaphore,
    /// Timeout of all look-ups for one request for `/top`.
    timeout: Duration,
    /// Whether the missing permission has been logged.
    is_refusal_logged: AtomicBool,
}

#[derive(Debug, Default)]
struct OwnerCache {
    /// Cached owners. An address without an owner has an empty owner here.
    owners: HashMap<IpAddr, CachedOwner>,
    /// End of the pause after a failure.
    not_before: Option<Instant>,
}

#[derive(Debug)]
struct CachedOwner {
    at: Instant,
    owner: ClientOwner,
}

impl OwnerFinder {
    /// Creates a finder of owners among the pods in `scope`, and only among those on `node` if it
    /// is given.
    pub(crate) fn new(connection: &Arc<Connection>, scope: &Scope, node: Option<&String>) -> Self {
        Self {
            connection: Arc::clone(connection),
            scope: scope.clone(),
            node: node.cloned(),
            cache: Mutex::default(),
            turn: Semaphore::new(1),
            timeout: LOOKUPS_TIMEOUT,
            is_refusal_logged: AtomicBool::new(false),
        }
    }

    /// Returns the owners that are cached or found before the timeout. The look-ups follow the
    /// order of `addresses`.
    pub(crate) async fn find_owners(&self, addresses: &[IpAddr]) -> HashMap<IpAddr, ClientOwner> {
        let deadline = Instant::now() + self.timeout;
        // Only one request for `/top` at a time looks up owners, to spare the API server.
        if let Ok(Ok(_turn)) = timeout_at(deadline, self.turn.acquire()).await {
            let found = timeout_at(deadline, self.look_up_missing(addresses)).await;
            if let Err(failure) = found.unwrap_or(Err(RequestFailure::Silent(self.timeout))) {
                self.pause_lookups(&failure);
            }
        }

        // After a timeout or a failure, the owners that are known are still returned.
        let cache = self.cache.lock();
        let mut owners = HashMap::new();
        for address in addresses {
            if let Some(cached) = cache.owners.get(address) {
                owners.insert(*address, cached.owner.clone());
            }
        }
        owners
    }

    /// Looks up the addresses that are not cached, with at most [`MAX_REQUESTS`] requests. The
    /// first failure ends the look-ups. If a node is given, its pods are listed instead.
    async fn look_up_missing(&self, addresses: &[IpAddr]) -> Result<(), RequestFailure> {
        let missing = self.cache.lock().missing(addresses);
        if let Some(node) = self.node.as_ref().filter(|_| !missing.is_empty()) {
            let collections = Collection::pods_on(node, &self.scope);
            let pods = self.list_pods(collections, MAX_NODE_PODS).await?;
            self.cache_owners(&missing, &pods);
            return Ok(());
        }

        let affordable = missing
            .into_iter()
            .take(MAX_REQUESTS / self.requests_per_address());
        let lookups = affordable.map(|address| Ok(self.look_up(address)));
        stream::iter(lookups)
            .try_for_each_concurrent(MAX_PARALLEL, |lookup| lookup)
            .await
    }

    /// Number of list requests per address: one for each namespace of `--namespaces`, or one for
    /// all namespaces.
    fn requests_per_address(&self) -> usize {
        match &self.scope.namespaces {
            Namespaces::Only(names) => names.len().max(1),
            Namespaces::All | Namespaces::Selected(_) => 1,
        }
    }

    async fn look_up(&self, address: IpAddr) -> Result<(), RequestFailure> {
        let collections = Collection::pods_at(address, &self.scope);
        let pods = self.list_pods(collections, MAX_PODS).await?;
        self.cache_owners(&[address], &pods);
        Ok(())
    }

    /// Lists the pods of the collections, at most `limit` of each.
    async fn list_pods(
        &self,
        collections: Vec<Collection>,
        limit: usize,
    ) -> Result<Vec<ScheduledPod>, RequestFailure> {
        let mut pods = Vec::new();
        for collection in collections {
            pods.extend(list_objects(&self.connection, collection, limit, self.timeout).await?);
        }
        Ok(pods)
    }

    /// Keeps the owners of the addresses. The lack of an owner is kept, too.
    fn cache_owners(&self, addresses: &[IpAddr], pods: &[ScheduledPod]) {
        let mut cache = self.cache.lock();
        for address in addresses {
            let cached = CachedOwner {
                at: Instant::now(),
                owner: select_owner(*address, pods),
            };
            cache.owners.insert(*address, cached);
        }
    }

    /// Suspends all look-ups after a failure.
    fn pause_lookups(&self, failure: &RequestFailure) {
        let is_refused = matches!(failure, RequestFailure::Refused(_));
        // A refusal usually lasts until the role is edited. Any other failure may soon be over.
        let pause = if is_refused {
            PAUSE_REFUSED
        } else {
            PAUSE_FAILED
        };
        self.cache.lock().not_before = Some(Instant::now() + pause);

        if is_refused && !self.is_refusal_logged.swap(true, Ordering::Relaxed) {
            tracing::info!(error = %failure, "pods cannot be listed, so /top does not name the pods and nodes of clients");
        } else {
            tracing::debug!(error = %failure, "cannot look pods up for /top");
        }
    }
}

impl OwnerCache {
    /// Drops expired owners, and returns the addresses to look up.
    fn missing(&mut self, addresses: &[IpAddr]) -> Vec<IpAddr> {
        self.owners
            .retain(|_, cached| cached.at.elapsed() < OWNER_LIFETIME);
        let now = Instant::now();
        if self.not_before.is_some_and(|not_before| now < not_before) {
            return Vec::new();
        }

        let unknown = addresses
            .iter()
            .filter(|address| !self.owners.contains_key(address));
        unknown
            .copied()
            .take(MAX_CACHED - self.owners.len())
            .collect()
    }
}

/// Selects the owner of `address` among the listed pods. If a pod with the address is on the host
/// network, its node is the owner. Otherwise the owner is the only pod with the address. If several
/// pods have the address, the address is passing from one pod to another, and the owner is unknown.
fn select_owner(address: IpAddr, pods: &[ScheduledPod]) -> ClientOwner {
    let mut pods: Vec<&ScheduledPod> = pods.iter().collect();
    pods.retain(|pod| pod.pod.addresses.contains(&address));

    if let Some(pod) = pods.iter().find(|pod| pod.host_network) {
        return ClientOwner {
            node: node_of(pod),
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
        node: node_of(found),
    }
}

/// The node of the pod; `None` before the pod is scheduled.
fn node_of(pod: &ScheduledPod) -> Option<String> {
    (!pod.node.is_empty()).then(|| pod.node.to_string())
}

#[cfg(test)]
mod tests;
