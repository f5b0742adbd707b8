//! A pod's search list. This server walks the list, so that the pod's resolver does not have to.
//!
//! The usual list of a pod has the domains `<namespace>.svc.<domain>`, `svc.<domain>` and
//! `<domain>`, where `<domain>` is the cluster domain. The search domains of the node follow.
//!
//! Search completion is for pods whose only search domain is `<namespace>.<suffix>`. To look up
//! `www.example.com`, such a pod in the namespace `apps` queries `www.example.com.apps.<suffix>`.
//! The server then walks the usual list. For search completion, the server needs neither state nor
//! client addresses.
//!
//! Autopath is for pods with the usual list. Such a pod first queries
//! `www.example.com.apps.svc.<domain>`. If that name does not exist, and the client's address
//! belongs to a pod of the namespace, the server walks the rest of the list.
//!
//! [`Zone::search_list`](crate::Zone::search_list) builds the list of names for search completion,
//! and [`Zone::search_list_of_client`](crate::Zone::search_list_of_client) the list for autopath.
//! [`crate::resolve::search_walk`] walks the list.

use wire::Name;
use wire::name::is_within;

/// Maximum number of search domains after those of the cluster. Each domain may cost a query to an
/// upstream.
pub const MAX_DOMAINS: usize = 8;

/// The settings of search completion and of autopath.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Search {
    suffix: Option<Name>,
    autopath: bool,
    domains: Vec<Name>,
}

/// The names to look up for a query, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchList {
    /// The names, each once. The name without a search domain comes last. Names that are too long
    /// are left out, as in resolvers. The suffix, names below the suffix, and external names that
    /// must not be forwarded (`Zone::must_not_forward`) are left out, too.
    pub names: Vec<Name>,
    /// Whether the first name is the query name.
    pub(crate) starts_with_query_name: bool,
}

impl Search {
    /// Creates the settings. Search completion is for names below `suffix`, and autopath is on if
    /// `autopath` is true. The search domains are those of the cluster and the first
    /// [`MAX_DOMAINS`] of `domains`.
    pub fn new(
        suffix: Option<&Name>,
        autopath: bool,
        domains: impl IntoIterator<Item = Name>,
    ) -> Self {
        let domains = domains.into_iter().take(MAX_DOMAINS).collect();
        Self {
            suffix: suffix.map(Name::to_lowercase),
            autopath,
            domains,
        }
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
        self.suffix
            .as_ref()
            .is_some_and(|suffix| is_within(name, suffix.wire()))
    }
}
