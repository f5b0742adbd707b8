//! The table of known kinds.

use std::fmt;

/// A resource that this server stores. Its `Display` text is the name in URL paths, such as
/// `configmaps`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "each variant is the resource of the same name")]
pub enum Resource {
    ConfigMaps,
    Endpoints,
    Namespaces,
    Nodes,
    Pods,
    ServiceAccounts,
    Services,
    EndpointSlices,
    ServiceImports,
}

/// The properties of one kind.
#[derive(Debug)]
pub(crate) struct Kind {
    pub(crate) resource: Resource,
    /// API group, empty for the core group.
    pub(crate) group: &'static str,
    /// `kind` of an object.
    pub(crate) name: &'static str,
    /// Resource name in URLs and messages.
    pub(crate) plural: &'static str,
    /// The abbreviation in `kubectl`.
    pub(crate) short_name: Option<&'static str>,
    pub(crate) namespaced: bool,
    /// The JSON after `metadata` in an empty object, as written by a real server. Bookmark events
    /// carry an empty object.
    pub(crate) empty_tail: &'static str,
}

const fn kind(
    resource: Resource,
    name: &'static str,
    plural: &'static str,
    short_name: &'static str,
    empty_tail: &'static str,
) -> Kind {
    Kind {
        resource,
        group: "",
        name,
        plural,
        short_name: Some(short_name),
        namespaced: true,
        empty_tail,
    }
}

const EMPTY: &str = r#","spec":{},"status":{}"#;
const EMPTY_SERVICE: &str = r#","spec":{},"status":{"loadBalancer":{}}"#;
const EMPTY_SLICE: &str = r#","addressType":"","endpoints":null,"ports":null"#;

/// All kinds, indexed by `Resource as usize`.
static KINDS: [Kind; 9] = [
    kind(Resource::ConfigMaps, "ConfigMap", "configmaps", "cm", ""),
    kind(Resource::Endpoints, "Endpoints", "endpoints", "ep", ""),
    Kind {
        namespaced: false,
        ..kind(Resource::Namespaces, "Namespace", "namespaces", "ns", EMPTY)
    },
    Kind {
        namespaced: false,
        ..kind(Resource::Nodes, "Node", "nodes", "no", EMPTY)
    },
    kind(
        Resource::Pods,
        "Pod",
        "pods",
        "po",
        r#","spec":{"containers":null},"status":{}"#,
    ),
    // ServiceAccounts are stored because the steps in docs/migrating.md save and restore the
    // ServiceAccount of kube-dns.
    kind(
        Resource::ServiceAccounts,
        "ServiceAccount",
        "serviceaccounts",
        "sa",
        "",
    ),
    kind(
        Resource::Services,
        "Service",
        "services",
        "svc",
        EMPTY_SERVICE,
    ),
    Kind {
        group: "discovery.k8s.io",
        short_name: None,
        ..kind(
            Resource::EndpointSlices,
            "EndpointSlice",
            "endpointslices",
            "",
            EMPTY_SLICE,
        )
    },
    Kind {
        group: "multicluster.x-k8s.io",
        ..kind(
            Resource::ServiceImports,
            "ServiceImport",
            "serviceimports",
            "svcim",
            "",
        )
    },
];

impl Resource {
    /// Every resource, in the order of the table.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        KINDS.iter().map(|kind| kind.resource)
    }

    /// The kind of the resource.
    #[allow(
        clippy::indexing_slicing,
        reason = "the table has an entry per variant, see the test"
    )]
    pub(crate) fn kind(self) -> &'static Kind {
        &KINDS[self as usize]
    }

    /// The resource of a URL path with this group, version and plural name.
    pub(crate) fn from_path(group: &str, version: &str, plural: &str) -> Option<Self> {
        let mut kinds = KINDS.iter().filter(|kind| kind.version() == version);
        kinds
            .find(|kind| kind.group == group && kind.plural == plural)
            .map(|kind| kind.resource)
    }

    /// The resource of an object's `apiVersion` and `kind`.
    pub(crate) fn from_object(api_version: &str, kind: &str) -> Option<Self> {
        let mut kinds = KINDS.iter().filter(|known| known.name == kind);
        kinds
            .find(|known| known.api_version() == api_version)
            .map(|known| known.resource)
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind().plural)
    }
}

impl Kind {
    /// `apiVersion` of objects of this kind.
    pub(crate) fn api_version(&self) -> &'static str {
        match self.group {
            "" => "v1",
            "discovery.k8s.io" => "discovery.k8s.io/v1",
            _ => "multicluster.x-k8s.io/v1alpha1",
        }
    }

    fn version(&self) -> &'static str {
        self.api_version().rsplit('/').next().unwrap_or_default()
    }

    /// Whether objects of this kind have a protobuf encoding. `ServiceImport` has none: it is a
    /// custom resource, and the only kind whose version is not `v1`.
    pub(crate) fn has_protobuf(&self) -> bool {
        self.version() == "v1"
    }

    /// The resource and its group, as messages name them: `services`,
    /// `endpointslices.discovery.k8s.io`.
    pub(crate) fn qualified(&self) -> String {
        self.with_group(self.plural)
    }

    /// The kind and its group, as messages name them: `Service`, `EndpointSlice.discovery.k8s.io`.
    pub(crate) fn qualified_kind(&self) -> String {
        self.with_group(self.name)
    }

    fn with_group(&self, name: &str) -> String {
        if self.group.is_empty() {
            name.to_owned()
        } else {
            format!("{name}.{}", self.group)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_table_follows_variants() {
        for (index, kind) in KINDS.iter().enumerate() {
            assert_eq!(kind.resource as usize, index, "{}", kind.name);
            let of_object = Resource::from_object(kind.api_version(), kind.name);
            assert_eq!(of_object, Some(kind.resource));
            let of_path = Resource::from_path(kind.group, kind.version(), kind.plural);
            assert_eq!(of_path, Some(kind.resource));
            let text = format!(r#"{{"metadata":{{}}{}}}"#, kind.empty_tail);
            assert!(
                serde_json::from_str::<serde_json::Value>(&text).is_ok(),
                "{text}"
            );
        }
        assert_eq!(Resource::from_object("v1", "EndpointSlice"), None);
    }
}
