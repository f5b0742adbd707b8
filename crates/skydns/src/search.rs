//! A pod's search list, walked here in place of the pod's resolver.
//!
//! Search completion: the only search domain of such a pod is `<namespace>.<suffix>`, so its resolver asks for
//! `www.example.com.apps.<suffix>` where it would ask for each name of the list in turn. No state and no address of a client
//! is needed. Autopath: a pod has the usual list and begins with `www.example.com.apps.svc.<domain>`. Where that does not
//! exist, and the client's address is that of a pod of this namespace, the rest of the list is walked here.
//!
//! [`Search`] says which names such a question stands for; [`walk`] goes through them.

pub mod walk;

use smallvec::SmallVec;

use crate::backend::Zone;
use crate::wire::Name;
use crate::wire::name::{MAX_NAME, is_within, labels};

/// The most search domains behind those of the cluster. Each may cost a question to an upstream.
pub const MAX_DOMAINS: usize = 8;

/// The label between a namespace and the cluster domain, in wire format.
const SVC: &[u8] = b"\x03svc";

/// The search list that is walked, and for whom.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Search {
    suffix: Option<Name>,
    autopath: bool,
    domains: Vec<Name>,
}

/// The names that a question stands for, in the order they are looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchList {
    /// The names. Those that are too long are left out, as resolvers do, and so is a bare name that is not sent out or would
    /// be completed again.
    pub names: Vec<Name>,
    /// The first of them is the name in the question.
    pub(crate) begins_as_asked: bool,
}

impl Search {
    /// The list of the cluster followed by `domains`, of which the first [`MAX_DOMAINS`] count, for names below `suffix`, and
    /// with `autopath` for names in the first search domain of the client.
    pub fn new(suffix: Option<&Name>, autopath: bool, domains: impl IntoIterator<Item = Name>) -> Self {
        let domains = domains.into_iter().take(MAX_DOMAINS).collect();
        Self { suffix: suffix.map(Name::to_lowercase), autopath, domains }
    }

    /// The suffix, in lower case, if names are completed.
    pub fn suffix(&self) -> Option<&Name> {
        self.suffix.as_ref()
    }

    /// Whether clients are known by their addresses.
    pub fn is_autopath(&self) -> bool {
        self.autopath
    }

    /// The search domains behind those of the cluster.
    pub fn domains(&self) -> &[Name] {
        &self.domains
    }

    /// Whether a name (wire format, lower case) is completed here.
    pub(crate) fn holds(&self, name: &[u8]) -> bool {
        self.suffix.as_ref().is_some_and(|suffix| is_within(name, suffix.wire()))
    }

    /// The names that a resolver would ask for instead of `name` (wire format), in its order: those of the namespace, of
    /// `svc`, of the cluster domain, of the further domains, and the bare name. `None` for names of no suffix; empty for
    /// the suffix itself and for a namespace below it.
    pub fn candidates(&self, name: &[u8], zone: &Zone) -> Option<SearchList> {
        let suffix = self.suffix.as_ref()?.wire();
        if !is_within(&name.to_ascii_lowercase(), suffix) {
            return None;
        }
        let below = name.get(..name.len() - suffix.len()).unwrap_or_default();
        let namespace = labels(below).last().map_or(0, |label| 1 + label.len());
        let (bare, namespace) = below.split_at(below.len() - namespace);
        let names = if bare.is_empty() { Vec::new() } else { self.list(bare, namespace, &zone.domain, zone) };
        Some(SearchList { names, begins_as_asked: false })
    }

    /// The same for `name` (wire format) of a client in `namespace`; `None` where it is not in the client's first search
    /// domain. The name itself is the first.
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
        Some(SearchList { names, begins_as_asked: true })
    }

    /// The list for the labels `bare` and a namespace, both in wire format without the root.
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
            if !known && !self.holds(lower.wire()) && !zone.keeps_back(lower.wire()) {
                candidates.push(name);
            }
        }
        candidates
    }
}
