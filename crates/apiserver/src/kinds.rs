//! The small table of kinds this server knows, and what is particular about each.
//!
//! Objects themselves stay untyped JSON; everything the rest of the crate must know about a kind is in [`Kind`].

use std::fmt;

use serde::{Deserialize, Serialize};

/// A resource this server stores, named as in a URL path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "each variant is the resource of the same name")]
pub enum Resource {
    ConfigMaps,
    Endpoints,
    Events,
    Namespaces,
    Nodes,
    Pods,
    Secrets,
    ServiceAccounts,
    Services,
    EndpointSlices,
}

/// What is particular about one kind.
#[derive(Debug)]
pub struct Kind {
    /// The resource it belongs to.
    pub resource: Resource,
    /// API group, empty for the core group.
    pub group: &'static str,
    /// Version within the group.
    pub version: &'static str,
    /// `kind` of an object.
    pub kind: &'static str,
    /// Resource name in URLs and messages.
    pub plural: &'static str,
    /// Name `kubectl` accepts for one of it.
    pub singular: &'static str,
    /// Abbreviations `kubectl` accepts.
    pub short_names: &'static [&'static str],
    /// Groups of resources it belongs to (`kubectl get all`).
    pub categories: &'static [&'static str],
    /// Whether objects live in a namespace.
    pub namespaced: bool,
    /// Whether there is a `/status` subresource.
    pub has_status: bool,
    /// Where a real server keeps it, the prefix of keys in continue tokens being below it.
    pub name_rule: NameRule,
    /// Fields selectable besides `metadata.name` and `metadata.namespace`.
    pub selectable: &'static [&'static str],
    /// What a real server's zero value holds after `metadata`; bookmarks carry it.
    pub empty_tail: &'static str,
}

/// What an object's name must look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRule {
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
    version: "v1",
    kind: "",
    plural: "",
    singular: "",
    short_names: &[],
    categories: &[],
    namespaced: true,
    has_status: false,
    name_rule: NameRule::Subdomain,
    selectable: &[],
    empty_tail: "",
};

/// All kinds, indexed by `Resource as usize`.
static KINDS: [Kind; 10] = [
    Kind {
        resource: Resource::ConfigMaps,
        kind: "ConfigMap",
        plural: "configmaps",
        singular: "configmap",
        short_names: &["cm"],
        ..BASE
    },
    Kind {
        resource: Resource::Endpoints,
        kind: "Endpoints",
        plural: "endpoints",
        singular: "endpoints",
        short_names: &["ep"],
        ..BASE
    },
    Kind {
        resource: Resource::Events,
        kind: "Event",
        plural: "events",
        singular: "event",
        short_names: &["ev"],
        selectable: &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        empty_tail: r#","involvedObject":{},"source":{},"firstTimestamp":null,"lastTimestamp":null,"eventTime":null,"reportingComponent":"","reportingInstance":"""#,
        ..BASE
    },
    Kind {
        resource: Resource::Namespaces,
        kind: "Namespace",
        plural: "namespaces",
        singular: "namespace",
        short_names: &["ns"],
        namespaced: false,
        has_status: true,
        name_rule: NameRule::Label1123,
        selectable: &["status.phase"],
        empty_tail: r#","spec":{},"status":{}"#,
        ..BASE
    },
    Kind {
        resource: Resource::Nodes,
        kind: "Node",
        plural: "nodes",
        singular: "node",
        short_names: &["no"],
        namespaced: false,
        has_status: true,
        selectable: &["spec.unschedulable"],
        empty_tail: concat!(
            r#","spec":{},"status":{"daemonEndpoints":{"kubeletEndpoint":{"Port":0}},"nodeInfo":{"machineID":"","#,
            r#""systemUUID":"","bootID":"","kernelVersion":"","osImage":"","containerRuntimeVersion":"","#,
            r#""kubeletVersion":"","kubeProxyVersion":"","operatingSystem":"","architecture":""}}"#
        ),
        ..BASE
    },
    Kind {
        resource: Resource::Pods,
        kind: "Pod",
        plural: "pods",
        singular: "pod",
        short_names: &["po"],
        categories: &["all"],
        has_status: true,
        selectable: &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "status.phase",
            "status.podIP",
        ],
        empty_tail: r#","spec":{"containers":null},"status":{}"#,
        ..BASE
    },
    Kind {
        resource: Resource::Secrets,
        kind: "Secret",
        plural: "secrets",
        singular: "secret",
        selectable: &["type"],
        ..BASE
    },
    Kind {
        resource: Resource::ServiceAccounts,
        kind: "ServiceAccount",
        plural: "serviceaccounts",
        singular: "serviceaccount",
        short_names: &["sa"],
        ..BASE
    },
    Kind {
        resource: Resource::Services,
        kind: "Service",
        plural: "services",
        singular: "service",
        short_names: &["svc"],
        categories: &["all"],
        has_status: true,
        name_rule: NameRule::Label1035,
        selectable: &["spec.clusterIP", "spec.type"],
        empty_tail: r#","spec":{},"status":{"loadBalancer":{}}"#,
        ..BASE
    },
    Kind {
        resource: Resource::EndpointSlices,
        group: "discovery.k8s.io",
        kind: "EndpointSlice",
        plural: "endpointslices",
        singular: "endpointslice",
        empty_tail: r#","addressType":"","endpoints":null,"ports":null"#,
        ..BASE
    },
];

impl Resource {
    /// How many resources there are.
    pub const COUNT: usize = KINDS.len();

    /// Every resource, in the order of discovery.
    pub fn all() -> impl Iterator<Item = Self> {
        KINDS.iter().map(|kind| kind.resource)
    }

    /// What is particular about its kind.
    #[allow(clippy::indexing_slicing, reason = "the table has an entry per variant, see the test")]
    pub fn kind(self) -> &'static Kind {
        &KINDS[self as usize]
    }

    /// The resource of a URL path: group, version, plural.
    pub fn from_path(group: &str, version: &str, plural: &str) -> Option<Self> {
        KINDS
            .iter()
            .find(|kind| kind.group == group && kind.version == version && kind.plural == plural)
            .map(|kind| kind.resource)
    }

    /// The resource of an object's `apiVersion` and `kind`.
    pub fn from_object(api_version: &str, kind: &str) -> Option<Self> {
        KINDS
            .iter()
            .find(|known| known.kind == kind && known.api_version() == api_version)
            .map(|k| k.resource)
    }

    /// The resource of a plural name, whatever its group.
    pub fn from_plural(plural: &str) -> Option<Self> {
        KINDS.iter().find(|kind| kind.plural == plural).map(|kind| kind.resource)
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind().plural)
    }
}

impl Kind {
    /// `apiVersion` of its objects.
    pub fn api_version(&self) -> &'static str {
        match self.group {
            "" => "v1",
            "discovery.k8s.io" => "discovery.k8s.io/v1",
            _ => self.version,
        }
    }

    /// Resource with its group, as in messages: `services`, `endpointslices.discovery.k8s.io`.
    pub fn qualified(&self) -> String {
        if self.group.is_empty() { self.plural.to_owned() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// Kind with its group, as in messages: `Service`, `EndpointSlice.discovery.k8s.io`.
    pub fn qualified_kind(&self) -> String {
        if self.group.is_empty() { self.kind.to_owned() } else { format!("{}.{}", self.kind, self.group) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_in_the_order_of_the_variants() {
        for (index, kind) in KINDS.iter().enumerate() {
            assert_eq!(kind.resource as usize, index, "{}", kind.kind);
            assert_eq!(kind.resource.kind().plural, kind.plural);
            assert_eq!(Resource::from_plural(kind.plural), Some(kind.resource));
        }
        assert_eq!(
            Resource::from_object("discovery.k8s.io/v1", "EndpointSlice"),
            Some(Resource::EndpointSlices)
        );
        assert_eq!(Resource::from_object("v1", "EndpointSlice"), None);
    }

    #[test]
    fn empty_tails_are_json() {
        for kind in &KINDS {
            let text = format!(r#"{{"metadata":{{}}{}}}"#, kind.empty_tail);
            assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok(), "{text}");
        }
    }
}
