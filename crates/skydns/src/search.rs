//! Search completion: a pod's search list, walked here in place of the pod's resolver.
//!
//! The only search domain of such a pod is `<namespace>.<suffix>`, so its resolver asks for `www.example.com.apps.<suffix>`
//! where it would ask for each name of the list in turn. No state and no address of a client is needed. [`Search`] says which
//! names such a question stands for; [`walk`] goes through them.

pub(crate) mod walk;

use crate::backend::Zone;
use crate::wire::Name;
use crate::wire::name::{is_within, labels};

/// The most search domains behind those of the cluster. Each may cost a question to an upstream.
pub const MAX_DOMAINS: usize = 8;

/// The search list that is walked for names below a suffix.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Search {
    suffix: Name,
    domains: Vec<Name>,
}

impl Search {
    /// The list of the cluster followed by `domains`, of which the first [`MAX_DOMAINS`] count, for names below `suffix`.
    pub fn new(suffix: &Name, domains: impl IntoIterator<Item = Name>) -> Self {
        let domains = domains.into_iter().take(MAX_DOMAINS).collect();
        Self { suffix: suffix.to_lowercase(), domains }
    }

    /// The suffix, in lower case.
    pub fn suffix(&self) -> &Name {
        &self.suffix
    }

    /// The search domains behind those of the cluster.
    pub fn domains(&self) -> &[Name] {
        &self.domains
    }

    /// Whether a name (wire format, lower case) is completed here.
    pub(crate) fn holds(&self, name: &[u8]) -> bool {
        is_within(name, self.suffix.wire())
    }

    /// The names that a resolver would ask for instead of `name` (wire format), in its order: those of the namespace, of
    /// `svc`, of the cluster domain, of the further domains, and the bare name. `None` for names of no suffix; empty for
    /// the suffix itself and for a namespace below it. Names that are too long are left out, as resolvers do, and so is a
    /// bare name that is not sent out or would be completed again.
    pub fn candidates(&self, name: &[u8], zone: &Zone) -> Option<Vec<Name>> {
        let lower = name.to_ascii_lowercase();
        if !self.holds(&lower) {
            return None;
        }
        let below = name.get(..name.len() - self.suffix.wire().len()).unwrap_or_default();
        let namespace = labels(below).last().map_or(0, |label| 1 + label.len());
        let (bare, namespace) = below.split_at(below.len() - namespace);
        if bare.is_empty() {
            return Some(Vec::new());
        }
        let domain = zone.domain.wire();
        let cluster =
            [[namespace, b"\x03svc", domain].concat(), [b"\x03svc", domain].concat(), domain.to_vec()];
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
        Some(candidates)
    }
}
