//! Rules. A rule has a fault and selects the requests that get the fault.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::StatusDetails;

use super::corruption::Corruption;
use super::{Request, RequestFaults};
use crate::kinds::Resource;
use crate::status::{Status, details};

/// The user in an injected 403.
const KUBE_DNS_USER: &str = "system:serviceaccount:kube-system:kube-dns";

/// The verb of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the verbs of Kubernetes")]
pub enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
}

/// A fault, and the requests that get the fault. A new rule selects all requests for objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    action: Action,
    /// Empty for all verbs.
    verbs: Vec<Verb>,
    resources: Vec<Resource>,
    /// If empty, the rule applies to requests in all namespaces, and to requests without a
    /// namespace.
    namespaces: Vec<String>,
    /// Whether the rule applies to all requests except those that the fields above select.
    except: bool,
    skip: u32,
    times: Option<u32>,
}

/// A fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Responds with a failure: 401, 403, 404, 410, 429, 500, 503, ...
    Refuse {
        /// HTTP status code.
        code: u16,
    },
    /// Delays the response. In a list with pages, each page is delayed.
    Delay {
        /// The delay in milliseconds.
        ms: u64,
    },
    /// Never responds.
    Freeze,
    /// Opens a watch whose only event is an `ERROR` with this code. Other requests get a correct
    /// response.
    ErrorEvent {
        /// Code of the Status in the event, such as 410 for an expired version.
        code: u16,
    },
    /// Sends text that is not JSON, in place of the body or as the first line of a watch.
    Garbage,
    /// In an uncompressed JSON list, sets one field of the first object to a value of a wrong type.
    /// Other responses are correct.
    Malformed,
    /// Closes the connection before the end of the response.
    Cut {
        /// The maximum number of octets of the body that are sent.
        after: usize,
    },
}

/// The ID of an added rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RuleId(u64);

/// The rules in force.
#[derive(Debug, Default)]
pub(super) struct Rules {
    rules: Vec<Active>,
    last: u64,
}

#[derive(Debug)]
struct Active {
    id: RuleId,
    rule: Rule,
    /// Number of matching requests.
    matched: u32,
    applied: u32,
}

impl Rule {
    /// A rule that applies to every request for objects.
    pub fn new(action: Action) -> Self {
        Self {
            action,
            verbs: Vec::new(),
            resources: Vec::new(),
            namespaces: Vec::new(),
            except: false,
            skip: 0,
            times: None,
        }
    }

    /// Restricts the rule to requests with these verbs.
    #[must_use]
    pub fn verbs(mut self, verbs: impl IntoIterator<Item = Verb>) -> Self {
        self.verbs.extend(verbs);
        self
    }

    /// Restricts the rule to requests for these resources.
    #[must_use]
    pub fn on(mut self, resources: impl IntoIterator<Item = Resource>) -> Self {
        self.resources.extend(resources);
        self
    }

    /// Restricts the rule to requests in these namespaces.
    #[must_use]
    pub(super) fn within(mut self, namespaces: &[&str]) -> Self {
        let names = namespaces.iter().map(ToString::to_string);
        self.namespaces.extend(names);
        self
    }

    /// Applies the rule to all requests except those with its verbs, resources and namespaces.
    #[must_use]
    pub(super) fn inverted(mut self) -> Self {
        self.except = true;
        self
    }

    /// Exempts the first `skip` matching requests from the fault.
    #[must_use]
    pub fn skip(mut self, skip: u32) -> Self {
        self.skip = skip;
        self
    }

    /// Limits the fault to `times` requests. A request counts even if the fault does not change its
    /// response.
    #[must_use]
    pub fn times(mut self, times: u32) -> Self {
        self.times = Some(times);
        self
    }

    fn applies(&self, request: &Request<'_>) -> bool {
        let mut namespaces = self.namespaces.iter();
        let described = (self.verbs.is_empty() || self.verbs.contains(&request.verb))
            && (self.resources.is_empty() || self.resources.contains(&request.resource))
            && (self.namespaces.is_empty() || namespaces.any(|name| name == request.namespace));
        described != self.except
    }
}

impl Rules {
    pub(super) fn add(&mut self, rule: Rule) -> RuleId {
        self.last += 1;
        let id = RuleId(self.last);
        self.rules.push(Active {
            id,
            rule,
            matched: 0,
            applied: 0,
        });
        id
    }

    pub(super) fn remove(&mut self, id: RuleId) -> bool {
        let before = self.rules.len();
        self.rules.retain(|active| active.id != id);
        self.rules.len() < before
    }

    pub(super) fn judge(&mut self, request: &Request<'_>) -> RequestFaults {
        let mut faults = RequestFaults::default();
        for active in self
            .rules
            .iter_mut()
            .filter(|active| !active.is_over() && active.rule.applies(request))
        {
            if active.count_request() {
                faults.add(&active.rule.action, request);
            }
        }
        self.rules.retain(|active| !active.is_over());
        faults
    }
}

impl Active {
    /// Counts a matching request. Returns whether the request gets the fault.
    fn count_request(&mut self) -> bool {
        self.matched = self.matched.saturating_add(1);
        let hit = self.matched > self.rule.skip;
        self.applied = self.applied.saturating_add(u32::from(hit));
        hit
    }

    fn is_over(&self) -> bool {
        self.rule.times.is_some_and(|times| self.applied >= times)
    }
}

impl RequestFaults {
    /// Adds a fault. Of several refusals, the first takes effect; of several corruptions, the last.
    /// Delays add up.
    fn add(&mut self, action: &Action, request: &Request<'_>) {
        let watch = request.verb == Verb::Watch;
        match *action {
            Action::Refuse { code } => {
                self.refusal.get_or_insert_with(|| refusal(code, request));
            }
            Action::Delay { ms } => {
                self.delay = self.delay.saturating_add(Duration::from_millis(ms));
            }
            Action::Freeze => self.freeze = true,
            Action::ErrorEvent { code } if watch => {
                self.corruption = Some(Corruption::Error(refusal(code, request)));
            }
            Action::ErrorEvent { .. } => {}
            Action::Garbage => self.corruption = Some(Corruption::Garbage),
            Action::Malformed => self.corruption = Some(Corruption::Malformed),
            Action::Cut { after } => self.corruption = Some(Corruption::Cut(after)),
        }
    }
}

fn refusal(code: u16, request: &Request<'_>) -> Status {
    let (reason, message) = match code {
        401 => ("Unauthorized", "Unauthorized"),
        403 => return forbidden(request, KUBE_DNS_USER),
        404 => (
            "NotFound",
            "the server could not find the requested resource",
        ),
        410 => ("Expired", "too old resource version: 1 (2)"),
        429 => {
            let details = StatusDetails {
                retry_after_seconds: Some(1),
                ..StatusDetails::default()
            };
            let status =
                Status::failure(429, Some("TooManyRequests"), "storage is (re)initializing");
            return status.with_details(details);
        }
        500 => ("InternalError", "Internal error occurred: injected fault"),
        503 => (
            "ServiceUnavailable",
            "the server is currently unable to handle the request",
        ),
        504 => (
            "Timeout",
            "Timeout: request did not complete within the allotted timeout",
        ),
        other => return Status::failure(other, None, "injected fault"),
    };
    Status::failure(code, Some(reason), message)
}

/// A 403 with the message of a real server.
pub(super) fn forbidden(request: &Request<'_>, user: &str) -> Status {
    let (kind, name) = (request.resource.kind(), request.name);
    let quoted = if name.is_empty() {
        String::new()
    } else {
        format!(" \"{name}\"")
    };
    let scope = match request.namespace {
        "" => "at the cluster scope".to_owned(),
        namespace => format!("in the namespace \"{namespace}\""),
    };
    let (what, verb, plural, group) = (
        kind.qualified(),
        request.verb.as_str(),
        kind.plural,
        kind.group,
    );
    let message = format!(
        "{what}{quoted} is forbidden: User \"{user}\" cannot {verb} resource \"{plural}\" in API group \"{group}\" {scope}"
    );
    Status::failure(403, Some("Forbidden"), message).with_details(details(kind, name))
}

impl Verb {
    /// The verb in lower case, as in Kubernetes.
    fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
        }
    }
}
