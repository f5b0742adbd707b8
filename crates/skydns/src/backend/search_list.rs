//! The names that a pod's resolver would look up one after the other, and that this server looks up
//! instead of the resolver; see [`crate::search`].

use smallvec::SmallVec;
use wire::name::{MAX_NAME, Name, is_within, labels};

use super::Zone;
use crate::search::{Search, SearchList};

/// The label between a namespace and the cluster domain, in wire format.
const SVC: &[u8] = b"\x03svc";

impl Zone {
    /// The names to look up for `name` (wire format), in the order in which a resolver with the
    /// usual search list would query them. The search domains are `<namespace>.svc.<domain>`,
    /// `svc.<domain>`, the cluster domain `<domain>`, and then the domains of `--search-domains`
    /// or, without this flag, of resolv.conf. The name without a search domain comes last. The list
    /// is empty for the suffix (`--search-suffix`) itself and for a namespace directly below the
    /// suffix. The result is `None` for names outside the suffix, and without `--search-suffix`.
    pub fn search_list(&self, name: &[u8]) -> Option<SearchList> {
        let search = self.search.as_deref()?;
        let suffix = search.suffix()?.wire();
        if !is_within(&name.to_ascii_lowercase(), suffix) {
            return None;
        }

        // The label before the suffix is the namespace, as in `www.example.com.apps.<suffix>`.
        let below = name.get(..name.len() - suffix.len()).unwrap_or_default();
        let namespace_len = labels(below).last().map_or(0, |label| 1 + label.len());
        let (bare, namespace) = below.split_at(below.len() - namespace_len);

        let names = if bare.is_empty() {
            Vec::new()
        } else {
            self.searched_names(search, bare, namespace, &self.domain)
        };
        Some(SearchList {
            names,
            starts_with_query_name: false,
        })
    }

    /// The names to look up for `name` (wire format) of a client in `namespace`. The first one is
    /// `name` itself, unless `name` is the search suffix or below the search suffix. `None` without
    /// `--autopath`, or if `name` is not below the client's first search domain.
    pub fn search_list_of_client(&self, name: &[u8], namespace: &str) -> Option<SearchList> {
        let search = self
            .search
            .as_deref()
            .filter(|search| search.is_autopath())?;
        // The copy is on the stack, because this function is called for each query of a pod for a
        // cluster name that does not exist.
        let mut lower = SmallVec::<[u8; MAX_NAME]>::from_slice(name);
        lower.make_ascii_lowercase();
        let domain = self.domain_of(&lower)?;

        // The first search domain: `<namespace>.svc.<domain>`.
        let mut first = SmallVec::<[u8; MAX_NAME]>::new();
        first.push(u8::try_from(namespace.len()).ok()?);
        first.extend_from_slice(namespace.as_bytes());
        let namespace_len = first.len();
        first.extend_from_slice(SVC);
        first.extend_from_slice(domain.wire());

        // A pod's resolver first queries a name below the first search domain, so any other name
        // does not begin a search.
        if !is_within(&lower, &first) || lower.len() == first.len() {
            return None;
        }

        let bare = name.get(..name.len() - first.len())?;
        let namespace = first.get(..namespace_len)?;
        let names = self.searched_names(search, bare, namespace, domain);
        let first_name = names.first().map(Name::to_lowercase);
        Some(SearchList {
            starts_with_query_name: first_name.is_some_and(|first| first.wire() == &lower[..]),
            names,
        })
    }

    /// The labels `bare` followed by each search domain of a pod in `namespace`, then `bare` as a
    /// whole name. `bare` and `namespace` are in wire format without the root. Repeated names, and
    /// names that are too long, are left out. So are the search suffix, names below the search
    /// suffix, and names for which [`must_not_forward`](Self::must_not_forward) is true.
    fn searched_names(
        &self,
        search: &Search,
        bare: &[u8],
        namespace: &[u8],
        domain: &Name,
    ) -> Vec<Name> {
        let domain = domain.wire();
        let mut suffixes = vec![
            [namespace, SVC, domain].concat(),
            [SVC, domain].concat(),
            domain.to_vec(),
        ];
        suffixes.extend(search.domains().iter().map(|domain| domain.wire().to_vec()));
        // Resolvers try the bare name last if it has fewer dots than `ndots`.
        suffixes.push(vec![0]);

        let mut candidates: Vec<Name> = Vec::new();
        for suffix in suffixes {
            // A name that would be too long does not exist.
            let Some(name) = Name::from_wire(&[bare, &suffix].concat()) else {
                continue;
            };

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
