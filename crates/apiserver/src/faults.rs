//! Fault injection for tests: [`Faults`] makes a server misbehave.

pub(crate) mod corruption;
mod rule;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

use self::rule::Rules;
pub use self::rule::{Action, Rule, RuleId, Verb};
use crate::kinds::Resource;
use crate::status::Status;
use crate::store::Store;

/// Maximum number of recorded requests. The oldest is dropped first.
const MAX_REQUESTS: usize = 10_000;

/// A handle that injects faults into a server. Clones share the server.
#[derive(Debug, Clone)]
pub struct Faults {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    store: Store,
    signals: watch::Sender<Signals>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    rules: Rules,
    requests: VecDeque<RequestRecord>,
    token: Option<String>,
}

/// A recorded request for objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestRecord {
    /// Verb of the request.
    pub verb: Verb,
    /// Resource of the request.
    pub resource: Resource,
}

/// Signals to all open connections and watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Signals {
    /// A counter. Each increment ends all open watches.
    pub(crate) dropped: u64,
    /// Whether an increment of `dropped` ends watches in the middle of the response.
    pub(crate) abort: bool,
    /// Whether watches are suspended, so that they send nothing.
    pub(crate) held: bool,
    pub(crate) presence: Presence,
}

/// The reachability of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Presence {
    #[default]
    Up,
    /// Requests get no response, and watches send nothing.
    Frozen,
    /// Open connections are closed. New connections are closed as soon as they are accepted.
    Down,
}

/// The faults of one request.
#[derive(Debug, Default)]
pub(crate) struct RequestFaults {
    pub(crate) refusal: Option<Status>,
    pub(crate) delay: Duration,
    pub(crate) freeze: bool,
    pub(crate) corruption: Option<corruption::Corruption>,
}

/// The properties of a request that decide its faults or appear in a refusal.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) verb: Verb,
    pub(crate) resource: Resource,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) authorization: Option<&'a str>,
}

impl Faults {
    pub(crate) fn new(store: Store) -> Self {
        let signals = watch::channel(Signals::default()).0;
        Self {
            shared: Arc::new(Shared {
                store,
                signals,
                state: Mutex::default(),
            }),
        }
    }

    /// Ends all open watches with complete responses, like a server that shuts down.
    pub fn drop_watches(&self) {
        self.signal(|signals| {
            signals.dropped += 1;
            signals.abort = false;
        });
    }

    /// Cuts all open watches: their connections close in the middle of the response.
    pub fn cut_watches(&self) {
        self.signal(|signals| {
            signals.dropped += 1;
            signals.abort = true;
        });
    }

    /// Suspends all watches: they send no events and no bookmarks, and do not time out. New watches
    /// are accepted, but stay silent until [`Faults::release_watches`]. The `resourceVersion` of a
    /// new watch is checked at the release.
    pub fn hold_watches(&self) {
        self.signal(|signals| signals.held = true);
    }

    /// Ends [`Faults::hold_watches`].
    pub fn release_watches(&self) {
        self.signal(|signals| signals.held = false);
    }

    /// Number of open watches of a resource. The mirroring of Endpoints, if enabled, adds one for
    /// Endpoints and one for `EndpointSlices`.
    pub fn open_watches(&self, resource: Resource) -> usize {
        self.shared.store.watchers(resource)
    }

    /// Expires all resource versions up to now. A new watch from such a version opens, and its only
    /// event is a 410. A request for the next page of a list at such a version gets a 410.
    pub fn expire(&self) {
        self.shared.store.expire();
    }

    /// Makes changes that no watch sees: all watches end, and a watch from an earlier version gets
    /// a 410.
    pub fn gap<R>(&self, changes: impl FnOnce(&Store) -> R) -> R {
        self.hold_watches();
        self.drop_watches();
        let result = changes(&self.shared.store);
        self.shared.store.expire();
        self.release_watches();
        result
    }

    /// Restarts the server with new resource versions, as after a restore from a backup. All
    /// watches are cut, the history is empty, and the objects have new, low versions.
    ///
    /// A watch from a version above the version of the store is silent until the store reaches that
    /// version, as on a real server.
    pub fn restart(&self) {
        self.hold_watches();
        self.cut_watches();
        self.shared.store.renumber();
        self.release_watches();
    }

    /// Stops responding without closing connections: connections are accepted, requests are read,
    /// and watches become silent.
    pub fn freeze(&self) {
        self.signal(|signals| signals.presence = Presence::Frozen);
    }

    /// Closes all connections, and new connections as soon as they are accepted.
    pub fn down(&self) {
        self.signal(|signals| signals.presence = Presence::Down);
    }

    /// Simulates a crash: the server is down until [`Faults::up`] starts it again. The restarted
    /// server refuses the first `refusals` requests with 403, like a kube-apiserver that has not
    /// read the RBAC roles yet. It knows no earlier resource versions: a watch from such a version
    /// opens, and its only event is a 410.
    pub fn crash(&self, refusals: u32) {
        self.down();
        self.cut_watches();
        self.expire();
        self.add(Rule::new(Action::Refuse { code: 403 }).times(refusals));
    }

    /// Ends [`Faults::down`] and [`Faults::freeze`]: waiting requests get their responses.
    pub fn up(&self) {
        self.signal(|signals| signals.presence = Presence::Up);
    }

    /// Adds a rule. If several rules apply to a request, the first refusal and the last corruption
    /// of the body take effect, and delays add up.
    pub fn add(&self, rule: Rule) -> RuleId {
        self.shared.state.lock().rules.add(rule)
    }

    /// Removes a rule. Returns whether the rule existed.
    pub fn remove(&self, id: RuleId) -> bool {
        self.shared.state.lock().rules.remove(id)
    }

    /// Refuses all requests for a resource with 403.
    pub fn forbid(&self, resource: Resource) -> RuleId {
        self.add(Rule::new(Action::Refuse { code: 403 }).on([resource]))
    }

    /// Grants only the permissions of the stock role `system:kube-dns`: to list and watch Services
    /// and Endpoints.
    pub fn kube_dns_role(&self) -> RuleId {
        let granted = Rule::new(Action::Refuse { code: 403 })
            .verbs([Verb::List, Verb::Watch])
            .on([Resource::Services, Resource::Endpoints]);
        self.add(granted.inverted())
    }

    /// Grants only the permissions of a Role in each of these namespaces: to list and watch
    /// Services, Endpoints and EndpointSlices.
    pub fn roles_in(&self, namespaces: &[&str]) -> RuleId {
        let granted = Rule::new(Action::Refuse { code: 403 })
            .verbs([Verb::List, Verb::Watch])
            .on([
                Resource::Services,
                Resource::Endpoints,
                Resource::EndpointSlices,
            ])
            .within(namespaces);
        self.add(granted.inverted())
    }

    /// Requires a bearer token. Requests without a token come from `system:anonymous` and get a
    /// 403; requests with another token get a 401. With `None`, requests need no token.
    pub fn require_token(&self, token: Option<&str>) {
        self.shared.state.lock().token = token.map(ToOwned::to_owned);
    }

    /// Removes all rules and ends [`Faults::hold_watches`], [`Faults::freeze`] and
    /// [`Faults::down`]. The required token stays.
    pub fn clear(&self) {
        self.shared.state.lock().rules = Rules::default();
        self.signal(|signals| (signals.held, signals.presence) = (false, Presence::Up));
    }

    /// The requests for objects so far, at most the last 10,000.
    pub fn requests(&self) -> Vec<RequestRecord> {
        self.shared.state.lock().requests.iter().copied().collect()
    }

    /// Forgets the requests so far.
    pub fn clear_requests(&self) {
        self.shared.state.lock().requests.clear();
    }

    pub(crate) fn signals(&self) -> watch::Receiver<Signals> {
        self.shared.signals.subscribe()
    }

    /// Records a request and returns its faults.
    pub(crate) fn admit(&self, request: &Request<'_>) -> RequestFaults {
        let mut state = self.shared.state.lock();
        if state.requests.len() >= MAX_REQUESTS {
            state.requests.pop_front();
        }
        state.requests.push_back(RequestRecord {
            verb: request.verb,
            resource: request.resource,
        });
        if let Err(refusal) = authenticate(state.token.as_deref(), request) {
            return RequestFaults {
                refusal: Some(refusal),
                ..RequestFaults::default()
            };
        }
        state.rules.judge(request)
    }

    fn signal(&self, change: impl FnOnce(&mut Signals)) {
        self.shared.signals.send_modify(change);
    }
}

fn authenticate(token: Option<&str>, request: &Request<'_>) -> Result<(), Status> {
    let Some(token) = token else { return Ok(()) };
    match request.authorization {
        None => Err(rule::forbidden(request, "system:anonymous")),
        Some(given) if given.strip_prefix("Bearer ") == Some(token) => Ok(()),
        Some(_) => Err(Status::failure(401, Some("Unauthorized"), "Unauthorized")),
    }
}

#[cfg(test)]
mod tests;
