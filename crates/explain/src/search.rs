//! The names that a resolver makes of one name with its search list.
//!
//! The order is that of glibc. musl differs: for a name of at least `ndots` dots musl skips the
//! search list. For other names musl stops at the first name that exists, even without records.

use skydns::Zone;
use wire::Name;

use crate::request::{Request, Search};

/// The search list of a request, in the cluster domain `domain`.
pub(crate) fn list(request: &Request, domain: &Name) -> Vec<Name> {
    match &request.search {
        _ if request.absolute => Vec::new(),
        Search::Namespace(namespace) => {
            let prefixes = [format!("{namespace}.svc"), "svc".to_owned(), String::new()];
            prefixes
                .iter()
                .filter_map(|prefix| Name::parse(prefix).ok()?.below(domain))
                .collect()
        }
        Search::Domains(domains) => domains.clone(),
    }
}

/// Whether kubedns walks the search list for the querying pod (`--autopath`).
pub(crate) fn is_autopath(request: &Request, zone: &Zone) -> bool {
    let of_pod = !request.absolute && matches!(request.search, Search::Namespace(_));
    of_pod
        && zone
            .search
            .as_ref()
            .is_some_and(|search| search.is_autopath())
}

/// The names to query, in order. Names that are too long are omitted, as in resolvers. If kubedns
/// walks the search list for a name, the names of kubedns's list replace that name.
pub(crate) fn names(request: &Request, list: &[Name], zone: &Zone) -> Vec<Name> {
    let as_it_is = std::iter::once(request.name.clone());
    let searched = list.iter().filter_map(|domain| request.name.below(domain));
    let dots = request.name.label_count().saturating_sub(1);
    let names: Vec<Name> = if dots >= usize::from(request.ndots) {
        as_it_is.chain(searched).collect()
    } else {
        searched.chain(as_it_is).collect()
    };
    let walked = |name: Name| {
        let list = zone
            .search_list(name.wire())
            .or_else(|| match &request.search {
                Search::Namespace(namespace) if !request.absolute => {
                    zone.search_list_of_client(name.wire(), namespace)
                }
                _ => None,
            });
        list.map(|list| list.names)
            .filter(|names| !names.is_empty())
            .unwrap_or_else(|| vec![name])
    };
    let mut names: Vec<Name> = names.into_iter().flat_map(walked).collect();
    let mut known: Vec<Name> = Vec::new();
    names.retain(|name| {
        let lower = name.to_lowercase();
        let new = !known.contains(&lower);
        known.push(lower);
        new
    });
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Parameters;

    #[test]
    fn names_and_their_order() {
        let label = "a".repeat(63);
        let long = [label.as_str(); 3].join(".");
        for (name, search, ndots, expected) in [
            // A name with fewer dots than `ndots` is completed first; any other name is first
            // queried unchanged.
            (
                "web.apps",
                "prod",
                "",
                &[
                    "web.apps.prod.svc.cluster.local.",
                    "web.apps.svc.cluster.local.",
                    "web.apps.cluster.local.",
                    "web.apps.",
                ][..],
            ),
            (
                "web.apps",
                "a.example b.example",
                "1",
                &["web.apps.", "web.apps.a.example.", "web.apps.b.example."],
            ),
            (
                "_http._tcp.web.apps.svc.cluster.local",
                "a.example",
                "",
                &[
                    "_http._tcp.web.apps.svc.cluster.local.",
                    "_http._tcp.web.apps.svc.cluster.local.a.example.",
                ],
            ),
            // Absolute names are not completed.
            ("web.apps.", "prod", "", &["web.apps."]),
            ("10.96.0.1", "prod", "", &["1.0.96.10.in-addr.arpa."]),
            // Repeated names and too long names are omitted.
            (
                "web",
                ". A.example a.example",
                "",
                &["web.", "web.A.example."],
            ),
            (
                &long,
                &format!("{label}.example b.example"),
                "",
                &[&format!("{long}.b.example."), &format!("{long}.")],
            ),
        ] {
            let [name, search, ndots] = [name, search, ndots].map(str::to_owned);
            let parameters = Parameters {
                name,
                search,
                ndots,
                qtype: String::new(),
            };
            let request = Request::new(&parameters).unwrap();
            let list = list(&request, &Name::parse("cluster.local.").unwrap());
            let names: Vec<String> = names(
                &request,
                &list,
                &Zone::new(&Name::parse("cluster.local.").unwrap()),
            )
            .iter()
            .map(ToString::to_string)
            .collect();
            assert_eq!(names, expected, "{parameters:?}");
        }
    }
}
