//! Warnings about those upstream servers of a name that are down or left out.
//!
//! kubedns knows the state only of its own upstream servers. If dnsmasq forwards the name, there
//! are warnings only about servers that are upstream servers of kubedns, too.

use cluster::snapshot::Snapshot;
use wire::Name;

use crate::document::{CodedNote, LookupOutcome};
use crate::facts::candidate::{NameCandidate, queried_candidates};
use crate::facts::server_state::{FailingCause, FailingUpstream, ServerState};
use crate::list::join;

/// Warnings about the servers of two kinds of names: names that the resolver queries and that are
/// forwarded, and external names whose records kubedns adds to an answer.
pub(crate) fn warn_of_upstreams(
    state: &ServerState,
    snapshot: &Snapshot,
    candidates: &[NameCandidate],
) -> Vec<CodedNote> {
    let mut warnings: Vec<CodedNote> = Vec::new();
    for forwarded in forwarded_names(snapshot, candidates) {
        for warning in forwarded.warn(&state.failing) {
            // Several of the names often have the same servers.
            if !warnings.contains(&warning) {
                warnings.push(warning);
            }
        }
    }
    warnings
}

/// A name that is forwarded, and its servers.
struct ForwardedName {
    name: String,
    /// The stub domain that contains the name; `None` if no stub domain contains the name.
    domain: Option<Name>,
    /// The servers to which the name is forwarded, as far as they are known.
    servers: Vec<String>,
    /// Whether dnsmasq queries the servers.
    by_dnsmasq: bool,
}

fn forwarded_names(snapshot: &Snapshot, candidates: &[NameCandidate]) -> Vec<ForwardedName> {
    let mut names = Vec::new();
    for candidate in queried_candidates(candidates) {
        if candidate.outcome() == LookupOutcome::Forwarded {
            names.push(ForwardedName::of_candidate(snapshot, candidate));
        }
        for ask in candidate.answers.iter().flat_map(|answer| &answer.asks) {
            // Each of `asks` is `NAME TYPE`.
            let name = ask.split(' ').next().unwrap_or(ask);
            names.extend(ForwardedName::by_kubedns(snapshot, name));
        }
    }
    names
}

impl ForwardedName {
    fn of_candidate(snapshot: &Snapshot, candidate: &NameCandidate) -> Self {
        let name = &candidate.name;
        let mut forwarded = Self::of_kubedns(snapshot, name);
        if !candidate.dnsmasq.leads_to_kubedns() {
            forwarded.by_dnsmasq = true;
            forwarded.servers.clone_from(&candidate.dnsmasq.servers);
        }
        forwarded
    }

    /// An external name whose records kubedns adds to an answer; `None` if the text is not a name.
    fn by_kubedns(snapshot: &Snapshot, name: &str) -> Option<Self> {
        let name = Name::parse(name).ok()?;
        Some(Self::of_kubedns(snapshot, &name))
    }

    fn of_kubedns(snapshot: &Snapshot, name: &Name) -> Self {
        let lower = name.to_lowercase();
        let (servers, domain) = snapshot.zone.servers_for(lower.wire());
        Self {
            name: name.to_string(),
            domain: domain.map(Name::to_lowercase),
            servers: servers.iter().map(ToString::to_string).collect(),
            by_dnsmasq: false,
        }
    }

    fn warn(&self, failing: &[FailingUpstream]) -> Vec<CodedNote> {
        let mut down = Vec::new();
        let mut warnings = Vec::new();
        for upstream in failing.iter().filter(|upstream| self.is_asked(upstream)) {
            let server = &upstream.server;
            match upstream.cause {
                FailingCause::Down => down.push(server),
                FailingCause::Loop => {
                    let text = format!(
                        "upstream {server} is left out: it is kubedns itself, or forwards back to \
                         kubedns"
                    );
                    warnings.push(CodedNote::new("upstream_loop", text));
                }
                FailingCause::WithoutAddress => {
                    let text = format!(
                        "upstream {server} is left out: its name has no address, see the log for \
                         the failed look-up"
                    );
                    warnings.push(CodedNote::new("upstream_without_address", text));
                }
            }
        }

        warnings.extend(self.warn_of_down(&down));
        warnings
    }

    fn warn_of_down(&self, down: &[&String]) -> Option<CodedNote> {
        if down.is_empty() {
            return None;
        }

        let list = join(down);
        let is_any_left = self.servers.iter().any(|server| !down.contains(&server));
        if is_any_left {
            let text = format!(
                "there is no answer now from upstream {list}: the other upstreams are asked first"
            );
            return Some(CodedNote::new("upstream_down", text));
        }
        let text = format!(
            "no upstream of {} answers now ({list}): unless the name is cached, it does not \
             resolve until an upstream answers",
            self.name
        );
        Some(CodedNote::new("upstreams_down", text))
    }

    /// Whether the name is forwarded to the server, or would be if the server were not left out.
    fn is_asked(&self, upstream: &FailingUpstream) -> bool {
        if self.by_dnsmasq {
            self.servers.contains(&upstream.server)
        } else {
            self.domain == upstream.domain
        }
    }
}
