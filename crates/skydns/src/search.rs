//! A pod's search list, which this server walks instead of the pod's resolver.
//!
//! Search completion is for pods whose only search domain is `<namespace>.<suffix>`. Such a pod queries
//! `www.example.com.apps.<suffix>`, instead of each name of the usual list in turn. The server needs neither state
//! nor client addresses. Autopath is for pods with the usual list, whose first query is
//! `www.example.com.apps.svc.<domain>`. If that name does not exist, and the client's address belongs to a pod of the
//! namespace, the server walks the rest of the list.
//!
//! [`Search`] builds the list of names for a query; [`walk`] walks the list.

pub mod walk;

use smallvec::SmallVec;

use crate::backend::Zone;
use crate::wire::Name;
use crate::wire::name::{MAX_NAME, is_within, labels};

/// Maximum number of search domains after those of the cluster. Each domain may cost a query to an upstream.
pub const MAX_DOMAINS: usize = 8;

/// The label between a namespace and the cluster domain, in wire format.
const SVC: &[u8] = b"\x03svc";

/// The settings of the search: its domains, and the queries for which the server walks the list.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Search {
    suffix: Option<Name>,
    autopath: bool,
    domains: Vec<Name>,
}

/// The names to look up for a query, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchList {
    /// The names. Names that are too long are left out, as in resolvers. The bare name is left out if it must not be
    /// forwarded or is itself below the suffix.
    pub names: Vec<Name>,
    /// Whether the first name is the query name.
    pub(crate) starts_with_query_name: bool,
}

impl Search {
    /// Creates the settings for names below `suffix`, and with `autopath` for names in the client's first search
    /// domain. The search domains are those of the cluster and the first [`MAX_DOMAINS`] of `domains`.
    pub fn new(suffix: Option<&Name>, autopath: bool, domains: impl IntoIterator<Item = Name>) -> Self {
        let domains = domains.into_iter().take(MAX_DOMAINS).collect();
        Self { suffix: suffix.map(Name::to_lowercase), autopath, domains }
    }

    /// The suffix in lower case; `None` without search completion.
    pub fn suffix(&self) -> Option<&Name> {
        self.suffix.as_ref()
    }

    /// Whether autopath is on.
    pub fn is_autopath(&self) -> bool {
        self.autopath
    }

    /// The search domains after those of the cluster.
    pub fn domains(&self) -> &[Name] {
        &self.domains
    }

    /// Whether a name (wire format, lower case) is the suffix or below the suffix.
    pub(crate) fn holds(&self, name: &[u8]) -> bool {
        self.suffix.as_ref().is_some_and(|suffix| is_within(name, suffix.wire()))
    }

    /// The names that a resolver would query instead of `name` (wire format), in order. The search domains are the
    /// namespace, `svc`, the cluster domain and the further domains; the bare name comes last. `None` for names that
    /// are not below the suffix; empty for the suffix itself and for a namespace below it.
    pub fn candidates(&self, name: &[u8], zone: &Zone) -> Option<SearchList> {
        let suffix = self.suffix.as_ref()?.wire();
        if !is_within(&name.to_ascii_lowercase(), suffix) {
            return None;
        }
        let below = name.get(..name.len() - suffix.len()).unwrap_or_default();
        let namespace = labels(below).last().map_or(0, |label| 1 + label.len());
        let (bare, namespace) = below.split_at(below.len() - namespace);
        let names = if bare.is_empty() { Vec::new() } else { self.list(bare, namespace, &zone.domain, zone) };
        Some(SearchList { names, starts_with_query_name: false })
    }

    /// The names to look up for `name` (wire format) of a client in `namespace`, beginning with `name` itself. `None`
    /// if `name` is not in the client's first search domain.
    pub fn of_client(&self, name: &[u8], namespace: &str, zone: &Zone) -> Option<SearchList> {
        if !self.autopath {
            return None;
        }
        let mut lower = SmallVec::<[u8; MAX_NAME]>::from_slice(name);
        lower.make_ascii_lowercase();
        let domain = zone.domain_of(&lower)?;
        let mut first = SmallVec::<[u8; MAX_NAME]>::new();
        first.push(u8::try_from(namespace.len()).ok()?);
        first.extend_from_slice(namespace.as_bytes());
        let label = first.len();
        first.extend_from_slice(SVC);
        first.extend_from_slice(domain.wire());
        if !is_within(&lower, &first) || lower.len() == first.len() {
            return None;
        }
        let bare = name.get(..name.len() - first.len())?;
        let names = self.list(bare, first.get(..label)?, domain, zone);
        Some(SearchList { names, starts_with_query_name: true })
    }

    /// The list for the labels `bare` and a namespace. Both are in wire format without the root.
    fn list(&self, bare: &[u8], namespace: &[u8], domain: &Name, zone: &Zone) -> Vec<Name> {
        let domain = domain.wire();
        let cluster = [[namespace, SVC, domain].concat(), [SVC, domain].concat(), domain.to_vec()];
        let further = self.domains.iter().map(|domain| domain.wire().to_vec());
        let searched = cluster.into_iter().chain(further).map(|domain| [bare, &domain].concat());
        let as_it_is = std::iter::once([bare, b"\x00"].concat());
        let names = searched.chain(as_it_is).filter_map(|name| Name::from_wire(&name));
        let mut candidates: Vec<Name> = Vec::new();
        for name in names {
            let lower = name.to_lowercase();
            let known = candidates.iter().any(|known| known.to_lowercase() == lower);
            if !known && !self.holds(lower.wire()) && !zone.must_not_forward(lower.wire()) {
                candidates.push(name);
            }
        }
        candidates
    }
}
