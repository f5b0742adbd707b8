//! The names that this server looks up instead of a pod's resolver, see [`crate::search`].

use smallvec::SmallVec;
use wire::name::{MAX_NAME, Name, is_within, labels};

use super::Zone;
use crate::search::{Search, SearchList};

/// The label between a namespace and the cluster domain, in wire format.
const SVC: &[u8] = b"\x03svc";

impl Zone {
    /// The names that a resolver would query instead of `name` (wire format), in order. The search
    /// domains are the namespace, `svc`, the cluster domain and the further domains; the bare name
    /// comes last. `None` for names that are not below the suffix; empty for the suffix itself and
    /// for a namespace below it.
    pub fn search_list(&self, name: &[u8]) -> Option<SearchList> {
        let search = self.search.as_deref()?;
        let suffix = search.suffix()?.wire();
        if !is_within(&name.to_ascii_lowercase(), suffix) {
            return None;
        }
        // The label before the suffix is the namespace, as in `www.example.com.apps.<suffix>`.
        let below = name.get(..name.len() - suffix.len()).unwrap_or_default();
        let namespace = labels(below).last().map_or(0, |label| 1 + label.len());
        let (bare, namespace) = below.split_at(below.len() - namespace);
        let names = if bare.is_empty() {
            Vec::new()
        } else {
            self.list(search, bare, namespace, &self.domain)
        };
        Some(SearchList {
            names,
            starts_with_query_name: false,
        })
    }

    /// The names to look up for `name` (wire format) of a client in `namespace`, beginning with
    /// `name` itself. `None` if `name` is not in the client's first search domain.
    pub fn search_list_of_client(&self, name: &[u8], namespace: &str) -> Option<SearchList> {
        let search = self
            .search
            .as_deref()
            .filter(|search| search.is_autopath())?;
        let mut lower = SmallVec::<[u8; MAX_NAME]>::from_slice(name);
        lower.make_ascii_lowercase();
        let domain = self.domain_of(&lower)?;
        let mut first = SmallVec::<[u8; MAX_NAME]>::new();
        first.push(u8::try_from(namespace.len()).ok()?);
        first.extend_from_slice(namespace.as_bytes());
        let label = first.len();
        first.extend_from_slice(SVC);
        first.extend_from_slice(domain.wire());
        // A pod begins its list with its namespace: any other name is not the start of a list.
        if !is_within(&lower, &first) || lower.len() == first.len() {
            return None;
        }
        let bare = name.get(..name.len() - first.len())?;
        let names = self.list(search, bare, first.get(..label)?, domain);
        Some(SearchList {
            names,
            starts_with_query_name: true,
        })
    }

    /// The list for the labels `bare` and a namespace. Both are in wire format without the root.
    fn list(&self, search: &Search, bare: &[u8], namespace: &[u8], domain: &Name) -> Vec<Name> {
        let domain = domain.wire();
        let cluster = [
            [namespace, SVC, domain].concat(),
            [SVC, domain].concat(),
            domain.to_vec(),
        ];
        let further = search.domains().iter().map(|domain| domain.wire().to_vec());
        let searched = cluster
            .into_iter()
            .chain(further)
            .map(|domain| [bare, &domain].concat());
        // Resolvers try the bare name last if it has fewer dots than `ndots`.
        let as_it_is = std::iter::once([bare, b"\x00"].concat());
        let names = searched
            .chain(as_it_is)
            .filter_map(|name| Name::from_wire(&name));
        let mut candidates: Vec<Name> = Vec::new();
        for name in names {
            // Search domains may overlap, and each name is looked up once.
            let lower = name.to_lowercase();
            let known = candidates.iter().any(|known| known.to_lowercase() == lower);
            if !known && !search.holds(lower.wire()) && !self.must_not_forward(lower.wire()) {
                candidates.push(name);
            }
        }
        candidates
    }
}
