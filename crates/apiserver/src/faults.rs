//! Faults for tests: [`Faults`] makes a server misbehave.

pub(crate) mod mangle;
mod rule;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use self::rule::Rules;
pub use self::rule::{Action, Rule, RuleId, Verb};
use crate::kinds::Resource;
use crate::status::Status;
use crate::store::Store;

/// Requests remembered.
const MAX_REQUESTS: usize = 10_000;

/// A handle to make things go wrong. Cloning gives another handle to the same server.
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

/// One request about objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestRecord {
    /// Its verb.
    pub verb: Verb,
    /// The resource it is about.
    pub resource: Resource,
}

/// Orders to every open connection and watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Signals {
    /// Watches opened before this changed are to end.
    pub(crate) dropped: u64,
    /// End them in the middle of the response instead of properly.
    pub(crate) abort: bool,
    /// Watches deliver nothing.
    pub(crate) held: bool,
    pub(crate) presence: Presence,
}

/// Whether the server answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Presence {
    #[default]
    Up,
    /// No request is answered, watches deliver nothing.
    Frozen,
    /// Connections are closed as soon as they are accepted.
    Down,
}

/// The faults of one request.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) refusal: Option<Status>,
    pub(crate) delay: Duration,
    pub(crate) freeze: bool,
    pub(crate) mangle: Option<mangle::Mangle>,
}

/// One request about objects, as far as faults look at it.
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
        Self { shared: Arc::new(Shared { store, signals, state: Mutex::default() }) }
    }

    /// Ends all watches that are open now, as a server does that shuts down: the responses are complete.
    pub fn drop_watches(&self) {
        self.signal(|signals| {
            signals.dropped += 1;
            signals.abort = false;
        });
    }

    /// Cuts all watches that are open now: their connections close in the middle of the response.
    pub fn cut_watches(&self) {
        self.signal(|signals| {
            signals.dropped += 1;
            signals.abort = true;
        });
    }

    /// Holds back everything watches would deliver, bookmarks and their own end included. Watches opened meanwhile are
    /// accepted and deliver nothing either; where they start is looked at when they are released.
    pub fn hold_watches(&self) {
        self.signal(|signals| signals.held = true);
    }

    /// Ends [`Faults::hold_watches`].
    pub fn release_watches(&self) {
        self.signal(|signals| signals.held = false);
    }

    /// Watches open now.
    pub fn open_watches(&self, resource: Resource) -> usize {
        self.shared.store.watchers(resource)
    }

    /// Expires all versions: watches and pages from versions handed out so far get a 410.
    pub fn expire(&self) {
        self.shared.store.expire();
    }

    /// Makes changes that no watch sees: all are ended, and those opened again from an earlier version get a 410.
    pub fn gap<R>(&self, changes: impl FnOnce(&Store) -> R) -> R {
        self.hold_watches();
        self.drop_watches();
        let result = changes(&self.shared.store);
        self.shared.store.expire();
        self.release_watches();
        result
    }

    /// Restarts the server with a fresh space of versions, as after a restore from a backup: all watches are cut, the
    /// history is gone, the same objects have new, low versions. Watches from versions that are now in the future wait for
    /// them in silence, as on a real server.
    pub fn restart(&self) {
        self.hold_watches();
        self.cut_watches();
        self.shared.store.renumber();
        self.release_watches();
    }

    /// Answers nothing more, without closing anything: connections are accepted, requests read, watches go silent.
    pub fn freeze(&self) {
        self.signal(|signals| signals.presence = Presence::Frozen);
    }

    /// Closes all connections, and new ones as soon as they are accepted.
    pub fn down(&self) {
        self.signal(|signals| signals.presence = Presence::Down);
    }

    /// Ends [`Faults::down`] and [`Faults::freeze`]: everything that waited is answered.
    pub fn up(&self) {
        self.signal(|signals| signals.presence = Presence::Up);
    }

    /// Adds a rule. Of those that apply to a request, the first refusal counts; delays add up.
    pub fn add(&self, rule: Rule) -> RuleId {
        self.state().rules.add(rule)
    }

    /// Removes a rule; whether it was there.
    pub fn remove(&self, id: RuleId) -> bool {
        self.state().rules.remove(id)
    }

    /// Refuses everything about a resource with 403.
    pub fn forbid(&self, resource: Resource) -> RuleId {
        self.add(Rule::new(Action::Refuse { code: 403 }).on([resource]))
    }

    /// Grants no more than the stock role `system:kube-dns` does: to list and watch Services and Endpoints.
    pub fn kube_dns_role(&self) -> RuleId {
        let granted = Rule::new(Action::Refuse { code: 403 })
            .verbs([Verb::List, Verb::Watch])
            .on([Resource::Services, Resource::Endpoints]);
        self.add(granted.inverted())
    }

    /// From now on, requests without this bearer token are those of `system:anonymous`, who may do nothing (403); those
    /// with another one get a 401. `None` lets everybody in.
    pub fn require_token(&self, token: Option<&str>) {
        self.state().token = token.map(ToOwned::to_owned);
    }

    /// Removes all rules and ends everything that lasts; the token stays.
    pub fn clear(&self) {
        self.state().rules = Rules::default();
        self.signal(|signals| (signals.held, signals.presence) = (false, Presence::Up));
    }

    /// The requests about objects so far, the oldest dropped beyond a bound of 10,000.
    pub fn requests(&self) -> Vec<RequestRecord> {
        self.state().requests.iter().copied().collect()
    }

    /// Forgets the requests so far.
    pub fn clear_requests(&self) {
        self.state().requests.clear();
    }

    pub(crate) fn signals(&self) -> watch::Receiver<Signals> {
        self.shared.signals.subscribe()
    }

    /// Records a request and returns its faults.
    pub(crate) fn admit(&self, request: &Request<'_>) -> Verdict {
        let mut state = self.state();
        if state.requests.len() >= MAX_REQUESTS {
            state.requests.pop_front();
        }
        state.requests.push_back(RequestRecord { verb: request.verb, resource: request.resource });
        if let Err(refusal) = authenticate(state.token.as_deref(), request) {
            return Verdict { refusal: Some(refusal), ..Verdict::default() };
        }
        state.rules.judge(request)
    }

    fn signal(&self, change: impl FnOnce(&mut Signals)) {
        self.shared.signals.send_modify(change);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
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
