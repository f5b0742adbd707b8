//! The small table of kinds this server knows, and what is particular about each.
//!
//! Objects are stored as JSON; their fields are those of the typed objects in [`crate::schema`].

use std::fmt;

/// A resource this server stores, named as in a URL path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "each variant is the resource of the same name")]
pub enum Resource {
    ConfigMaps,
    Endpoints,
    Namespaces,
    Nodes,
    ServiceAccounts,
    Services,
    EndpointSlices,
}

/// What is particular about one kind. All have version `v1` in their group.
#[derive(Debug)]
pub(crate) struct Kind {
    pub(crate) resource: Resource,
    /// API group, empty for the core group.
    pub(crate) group: &'static str,
    /// `kind` of an object.
    pub(crate) name: &'static str,
    /// Resource name in URLs and messages.
    pub(crate) plural: &'static str,
    /// Name `kubectl` accepts for one of it.
    pub(crate) singular: &'static str,
    /// Abbreviation `kubectl` accepts.
    pub(crate) short_name: Option<&'static str>,
    /// Whether objects live in a namespace.
    pub(crate) namespaced: bool,
    pub(crate) name_rule: NameRule,
    /// What a real server's zero value holds after `metadata`; bookmarks carry it.
    pub(crate) empty_tail: &'static str,
}

/// What an object's name must look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameRule {
    /// RFC 1035 label.
    Label1035,
    /// RFC 1123 label.
    Label1123,
    /// RFC 1123 subdomain.
    Subdomain,
}

const BASE: Kind = Kind {
    resource: Resource::ConfigMaps,
    group: "",
    name: "ConfigMap",
    plural: "configmaps",
    singular: "configmap",
    short_name: Some("cm"),
    namespaced: true,
    name_rule: NameRule::Subdomain,
    empty_tail: "",
};

/// All kinds, indexed by `Resource as usize`.
static KINDS: [Kind; 7] = [
    BASE,
    Kind {
        resource: Resource::Endpoints,
        name: "Endpoints",
        plural: "endpoints",
        singular: "endpoints",
        short_name: Some("ep"),
        ..BASE
    },
    Kind {
        resource: Resource::Namespaces,
        name: "Namespace",
        plural: "namespaces",
        singular: "namespace",
        short_name: Some("ns"),
        namespaced: false,
        name_rule: NameRule::Label1123,
        empty_tail: r#","spec":{},"status":{}"#,
        ..BASE
    },
    Kind {
        resource: Resource::Nodes,
        name: "Node",
        plural: "nodes",
        singular: "node",
        short_name: Some("no"),
        namespaced: false,
        empty_tail: r#","spec":{},"status":{}"#,
        ..BASE
    },
    Kind {
        resource: Resource::ServiceAccounts,
        name: "ServiceAccount",
        plural: "serviceaccounts",
        singular: "serviceaccount",
        short_name: Some("sa"),
        ..BASE
    },
    Kind {
        resource: Resource::Services,
        name: "Service",
        plural: "services",
        singular: "service",
        short_name: Some("svc"),
        name_rule: NameRule::Label1035,
        empty_tail: r#","spec":{},"status":{"loadBalancer":{}}"#,
        ..BASE
    },
    Kind {
        resource: Resource::EndpointSlices,
        group: "discovery.k8s.io",
        name: "EndpointSlice",
        plural: "endpointslices",
        singular: "endpointslice",
        short_name: None,
        empty_tail: r#","addressType":"","endpoints":null,"ports":null"#,
        ..BASE
    },
];

impl Resource {
    /// Every resource, in the order of discovery.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        KINDS.iter().map(|kind| kind.resource)
    }

    /// What is particular about its kind.
    #[allow(clippy::indexing_slicing, reason = "the table has an entry per variant, see the test")]
    pub(crate) fn kind(self) -> &'static Kind {
        &KINDS[self as usize]
    }

    /// The resource of a URL path: group, version, plural.
    pub(crate) fn from_path(group: &str, version: &str, plural: &str) -> Option<Self> {
        let mut kinds = KINDS.iter().filter(|_| version == "v1");
        kinds.find(|kind| kind.group == group && kind.plural == plural).map(|kind| kind.resource)
    }

    /// The resource of an object's `apiVersion` and `kind`.
    pub(crate) fn from_object(api_version: &str, kind: &str) -> Option<Self> {
        let mut kinds = KINDS.iter().filter(|known| known.name == kind);
        kinds.find(|known| known.api_version() == api_version).map(|known| known.resource)
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind().plural)
    }
}

impl Kind {
    /// `apiVersion` of its objects.
    pub(crate) fn api_version(&self) -> &'static str {
        if self.group.is_empty() { "v1" } else { "discovery.k8s.io/v1" }
    }

    /// Resource with its group, as in messages: `services`, `endpointslices.discovery.k8s.io`.
    pub(crate) fn qualified(&self) -> String {
        if self.group.is_empty() { self.plural.to_owned() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// Kind with its group, as in messages: `Service`, `EndpointSlice.discovery.k8s.io`.
    pub(crate) fn qualified_kind(&self) -> String {
        if self.group.is_empty() { self.name.to_owned() } else { format!("{}.{}", self.name, self.group) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_in_the_order_of_the_variants() {
        for (index, kind) in KINDS.iter().enumerate() {
            assert_eq!(kind.resource as usize, index, "{}", kind.name);
            assert_eq!(Resource::from_object(kind.api_version(), kind.name), Some(kind.resource));
            assert_eq!(Resource::from_path(kind.group, "v1", kind.plural), Some(kind.resource));
            let text = format!(r#"{{"metadata":{{}}{}}}"#, kind.empty_tail);
            assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok(), "{text}");
        }
        assert_eq!(Resource::from_object("v1", "EndpointSlice"), None);
    }
}
