//! Collections to list and watch: their paths and selectors.

use std::net::IpAddr;

use kube::api::{ListParams, WatchParams};
use kube::core::Request;

use crate::objects::{IMPORT_NAME, Kind};
use crate::scope::{Namespaces, Scope};

/// The part of a collection that one request lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Extent {
    /// All objects from the API server's watch cache, not older than this version; "0" is any
    /// version.
    Cached(String),
    /// At most `limit` objects of the most recent version, or the next page of that list, which
    /// `token` identifies.
    Page { limit: u32, token: Option<String> },
}

/// The field selector of pods: pods that have ended no longer own an address.
const RUNNING: &str = "status.phase!=Succeeded,status.phase!=Failed";

/// Objects of a kind: all, the objects of a namespace, the objects that match selectors, or a
/// single object by name.
#[derive(Debug, Clone)]
pub struct Collection {
    kind: Kind,
    namespace: String,
    fields: Option<String>,
    labels: Option<String>,
}

impl Collection {
    /// All objects of `kind` in all namespaces.
    pub fn all(kind: Kind) -> Self {
        Self::in_namespace(kind, "")
    }

    /// All objects of `kind` in one namespace.
    fn in_namespace(kind: Kind, namespace: &str) -> Self {
        Self {
            kind,
            namespace: namespace.to_owned(),
            fields: None,
            labels: None,
        }
    }

    /// The collections with the objects of `kind` in the scope.
    pub fn in_scope(kind: Kind, scope: &Scope) -> Vec<Self> {
        let all = match &scope.namespaces {
            Namespaces::Only(names) => names
                .iter()
                .map(|name| Self::in_namespace(kind, name))
                .collect(),
            Namespaces::All | Namespaces::Selected(_) => vec![Self::all(kind)],
        };
        let labels = match (kind, &scope.namespaces) {
            (Kind::Service, _) => scope.services.clone(),
            (Kind::ImportedSlice, _) => Some(IMPORT_NAME.to_owned()),
            (Kind::Namespace, Namespaces::Selected(selector)) => Some(selector.clone()),
            _ => None,
        };
        let fields = (kind == Kind::Pod).then(|| RUNNING.to_owned());
        all.into_iter()
            .map(|collection| Self {
                labels: labels.clone(),
                fields: fields.clone(),
                ..collection
            })
            .collect()
    }

    /// The pods in the scope that have not ended and whose first address (`status.podIP`) is
    /// `address`. Kubernetes has no selector for the other addresses of a pod.
    pub fn pods_at(address: IpAddr, scope: &Scope) -> Vec<Self> {
        let fields = Some(format!("status.podIP={address},{RUNNING}"));
        let pods = Self::in_scope(Kind::Pod, scope).into_iter();
        pods.map(|collection| Self {
            fields: fields.clone(),
            ..collection
        })
        .collect()
    }

    /// The single object `name` of `kind` in `namespace`.
    pub fn one(kind: Kind, namespace: &str, name: &str) -> Self {
        Self {
            fields: Some(format!("metadata.name={name}")),
            ..Self::in_namespace(kind, namespace)
        }
    }

    /// The kind of the objects.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The namespace, empty for all namespaces.
    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }

    pub(super) fn request(&self) -> Request {
        let (api, plural) = (self.kind.api(), self.kind.plural());
        Request::new(match self.namespace.as_str() {
            "" => format!("{api}/{plural}"),
            namespace => format!("{api}/namespaces/{namespace}/{plural}"),
        })
    }

    pub(super) fn list(&self, extent: &Extent) -> ListParams {
        let (field_selector, label_selector) = (self.fields.clone(), self.labels.clone());
        let parameters = ListParams {
            field_selector,
            label_selector,
            ..ListParams::default()
        };
        match extent {
            Extent::Cached(version) => parameters.at(version),
            Extent::Page { limit, token } => ListParams {
                limit: Some(*limit),
                continue_token: token.clone(),
                ..parameters
            },
        }
    }

    pub(super) fn watch(&self, seconds: u32) -> WatchParams {
        WatchParams {
            field_selector: self.fields.clone(),
            label_selector: self.labels.clone(),
            timeout: Some(seconds),
            bookmarks: true,
            ..WatchParams::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paths of the requests.
    fn paths(kind: Kind, scope: &Scope) -> Vec<String> {
        let path = |collection: &Collection| {
            let list = collection.list(&Extent::Page {
                limit: 1,
                token: None,
            });
            let request = collection
                .request()
                .list(&ListParams {
                    limit: None,
                    ..list
                })
                .unwrap();
            request.uri().to_string()
        };
        Collection::in_scope(kind, scope).iter().map(path).collect()
    }

    #[test]
    fn imports_have_slices_of_their_own() {
        let services = Some("tier=x".to_owned());
        let scope = Scope {
            namespaces: Namespaces::Only(vec!["a".into()]),
            services,
        };
        let slices = "/apis/discovery.k8s.io/v1/namespaces/a/endpointslices\
                      ?&labelSelector=multicluster.kubernetes.io%2Fservice-name";
        assert_eq!(paths(Kind::ImportedSlice, &scope), [slices]);
        let imports = "/apis/multicluster.x-k8s.io/v1alpha1/namespaces/a/serviceimports?";
        assert_eq!(paths(Kind::ServiceImport, &scope), [imports]);
    }

    #[test]
    fn pods_are_looked_up_by_an_address_where_they_may_be_read() {
        let path = |collection: &Collection| {
            let request = collection
                .request()
                .list(&collection.list(&Extent::Cached("0".to_owned())))
                .unwrap();
            unescaped(&request.uri().to_string())
        };
        let running = "status.phase!=Succeeded,status.phase!=Failed&resourceVersion=0";
        let only = Namespaces::Only(vec!["a".into(), "b".into()]);
        for (namespaces, address, paths) in [
            (Namespaces::All, "fd00::1", vec!["/api/v1/pods"]),
            (
                Namespaces::Selected("team=a".to_owned()),
                "10.0.0.1",
                vec!["/api/v1/pods"],
            ),
            (
                only,
                "10.0.0.1",
                vec!["/api/v1/namespaces/a/pods", "/api/v1/namespaces/b/pods"],
            ),
        ] {
            let scope = Scope {
                namespaces,
                services: Some("tier=x".to_owned()),
            };
            let found = Collection::pods_at(address.parse().unwrap(), &scope);
            let found: Vec<String> = found.iter().map(path).collect();
            let expected =
                |path: &&str| format!("{path}?&fieldSelector=status.podIP={address},{running}");
            assert_eq!(found, paths.iter().map(expected).collect::<Vec<_>>());
        }
    }

    /// A URI without escapes.
    fn unescaped(uri: &str) -> String {
        percent_encoding::percent_decode_str(uri)
            .decode_utf8()
            .unwrap()
            .into_owned()
    }

    #[test]
    fn a_scope_decides_what_is_asked_for() {
        let only =
            |names: &[&str]| Namespaces::Only(names.iter().map(|name| (*name).into()).collect());
        let scope = |namespaces, services: Option<&str>| Scope {
            namespaces,
            services: services.map(str::to_owned),
        };
        let selected = || Namespaces::Selected("team=a".to_owned());
        let cases: [(&str, Scope, Kind, &[&str]); 7] = [
            (
                "all",
                Scope::default(),
                Kind::Service,
                &["/api/v1/services?"],
            ),
            (
                "one of several",
                scope(only(&["a", "b"]), None),
                Kind::EndpointSlice,
                &[
                    "/apis/discovery.k8s.io/v1/namespaces/a/endpointslices?",
                    "/apis/discovery.k8s.io/v1/namespaces/b/endpointslices?",
                ],
            ),
            (
                "labels in a namespace",
                scope(only(&["a"]), Some("tier=x")),
                Kind::Service,
                &["/api/v1/namespaces/a/services?&labelSelector=tier%3Dx"],
            ),
            (
                "labels of Services alone",
                scope(Namespaces::All, Some("tier=x")),
                Kind::Endpoints,
                &["/api/v1/endpoints?"],
            ),
            (
                "everything is read",
                scope(selected(), None),
                Kind::Service,
                &["/api/v1/services?"],
            ),
            (
                "to know which",
                scope(selected(), None),
                Kind::Namespace,
                &["/api/v1/namespaces?&labelSelector=team%3Da"],
            ),
            (
                "pods that run",
                Scope::default(),
                Kind::Pod,
                &[
                    "/api/v1/pods?&fieldSelector=status.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed",
                ],
            ),
        ];
        for (name, scope, kind, expected) in cases {
            assert_eq!(paths(kind, &scope), expected, "{name}");
        }
    }
}
