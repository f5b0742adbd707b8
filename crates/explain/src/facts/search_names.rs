//! The names that a resolver derives from one name with its search list.
//!
//! The order is that of glibc. The order of musl differs: for a name of at least `ndots` dots, musl
//! skips the search list. For other names, musl stops at the first name that exists, even if it has
//! no records.

use skydns::Zone;
use wire::Name;

use crate::request::{ExplainRequest, RequestedSearch};

/// The search list of a request, in the cluster domain `domain`.
pub(crate) fn search_list(request: &ExplainRequest, domain: &Name) -> Vec<Name> {
    match &request.search {
        _ if request.absolute => Vec::new(),
        // If a pod of the namespace uses the DNS of the cluster, the kubelet puts these domains
        // first in the pod's search list.
        RequestedSearch::Namespace(namespace) => {
            let prefixes = [format!("{namespace}.svc"), "svc".to_owned(), String::new()];
            prefixes
                .iter()
                .filter_map(|prefix| Name::parse(prefix).ok()?.below(domain))
                .collect()
        }
        RequestedSearch::Domains(domains) => domains.clone(),
    }
}

/// Whether kubedns walks the search list for the querying pod (`--autopath`).
pub(crate) fn is_autopath(request: &ExplainRequest, zone: &Zone) -> bool {
    let is_of_pod = matches!(request.search, RequestedSearch::Namespace(_));
    !request.absolute
        && is_of_pod
        && zone
            .search
            .as_ref()
            .is_some_and(|search| search.is_autopath())
}

/// The names to query, in order. Names that are too long are omitted, as in resolvers. If kubedns
/// walks the search list for a name, the names that kubedns tries replace that name.
pub(crate) fn names_to_query(request: &ExplainRequest, list: &[Name], zone: &Zone) -> Vec<Name> {
    let typed = std::iter::once(request.name.clone());
    let searched = list.iter().filter_map(|domain| request.name.below(domain));
    // glibc tries the unchanged name first if the name has enough dots, and last if it has fewer
    // dots.
    let dots = request.name.label_count().saturating_sub(1);
    let names: Vec<Name> = if dots >= usize::from(request.ndots) {
        typed.chain(searched).collect()
    } else {
        searched.chain(typed).collect()
    };

    let mut names: Vec<Name> = names
        .into_iter()
        .flat_map(|name| walked_names(request, zone, name))
        .collect();
    // A name may occur twice, for example if two domains of the list differ only in case.
    let mut known: Vec<Name> = Vec::new();
    names.retain(|name| {
        let lower = name.to_lowercase();
        let is_new = !known.contains(&lower);
        known.push(lower);
        is_new
    });
    names
}

/// The names that kubedns tries when it walks the search list for `name`. If kubedns walks no list,
/// the result is `name` alone.
fn walked_names(request: &ExplainRequest, zone: &Zone, name: Name) -> Vec<Name> {
    // With --search-suffix, the list depends only on the name. With --autopath, the list also
    // depends on the querying pod.
    let list = zone
        .search_list(name.wire())
        .or_else(|| match &request.search {
            RequestedSearch::Namespace(namespace) if !request.absolute => {
                zone.search_list_of_client(name.wire(), namespace)
            }
            _ => None,
        });

    match list {
        Some(list) if !list.names.is_empty() => list.names,
        _ => vec![name],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::ExplainParameters;

    #[test]
    fn search_list_orders_names_as_glibc() {
        let label = "a".repeat(63);
        let long = [label.as_str(); 3].join(".");
        let port = "_http._tcp.web.apps.svc.cluster.local";
        let completed_port = format!("{port}.a.example.");
        let port_first = [&format!("{port}."), completed_port.as_str()];
        let in_prod = [
            "web.apps.prod.svc.cluster.local.",
            "web.apps.svc.cluster.local.",
            "web.apps.cluster.local.",
            "web.apps.",
        ];
        let unchanged_first = ["web.apps.", "web.apps.a.example.", "web.apps.b.example."];
        let too_long = format!("{label}.example b.example");
        let long_last = [&format!("{long}.b.example."), &*format!("{long}.")];
        let two = "a.example b.example";
        let twice = ". A.example a.example";
        for (name, search, ndots, expected) in [
            // A name with fewer dots than `ndots` is completed first; any other name is first
            // queried unchanged.
            ("web.apps", "prod", "", &in_prod[..]),
            ("web.apps", two, "1", &unchanged_first),
            (port, "a.example", "", &port_first),
            // Absolute names are not completed.
            ("web.apps.", "prod", "", &["web.apps."]),
            ("10.96.0.1", "prod", "", &["1.0.96.10.in-addr.arpa."]),
            // Repeated names, and names that are too long, are omitted.
            ("web", twice, "", &["web.", "web.A.example."]),
            (&long, &too_long, "", &long_last),
        ] {
            let [name, search, ndots] = [name, search, ndots].map(str::to_owned);
            let parameters = ExplainParameters {
                name,
                search,
                ndots,
                qtype: String::new(),
            };
            let request = ExplainRequest::parse(&parameters).unwrap();
            let domain = Name::parse("cluster.local.").unwrap();
            let list = search_list(&request, &domain);
            let names = names_to_query(&request, &list, &Zone::new(&domain));
            let names: Vec<String> = names.iter().map(ToString::to_string).collect();
            assert_eq!(names, expected, "{parameters:?}");
        }
    }
}
