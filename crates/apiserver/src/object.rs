//! Stored objects. An object keeps its JSON text, so that lists and watches need not serialize the
//! object again. An object also keeps its labels and cluster IPs, so that label selectors and the
//! allocation of cluster IPs need not parse the text.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::kinds::Resource;
use crate::protobuf;

/// One version of an object. A write creates a new version.
#[derive(Debug)]
pub struct Object {
    resource: Resource,
    key: Box<str>,
    name_at: usize,
    uid: Box<str>,
    version: u64,
    labels: Box<[(Box<str>, Box<str>)]>,
    addresses: Box<[IpAddr]>,
    item: Bytes,
    /// The protobuf encoding, computed on first use.
    message: OnceLock<Bytes>,
}

/// A snapshot of the objects of one resource, in the order of their keys.
pub(crate) type Objects = Arc<[Arc<Object>]>;

/// The reason why a value cannot be stored as an object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ObjectError {
    /// The value is not a JSON object.
    #[error("the value is not a JSON object")]
    NotAnObject,
    /// This server stores no objects of this `apiVersion` and `kind`.
    #[error("this server stores no objects with apiVersion {api_version:?} and kind {kind:?}")]
    UnknownKind {
        /// `apiVersion` as given.
        api_version: String,
        /// `kind` as given.
        kind: String,
    },
    /// The value has no `metadata.name`.
    #[error("metadata.name is missing")]
    NoName,
    /// The kind is namespaced, but the value has no `metadata.namespace`.
    #[error("metadata.namespace is missing")]
    NoNamespace,
    /// The `type` of a watch event is unknown.
    #[error("unknown watch event type {0:?}, expected ADDED, MODIFIED or DELETED")]
    UnknownEvent(String),
}

impl Object {
    /// Converts `value` to an object of `resource` with `version` as its
    /// `metadata.resourceVersion`. `kind` and `apiVersion` in `value` are ignored.
    pub(crate) fn new(
        resource: Resource,
        mut value: Value,
        version: u64,
    ) -> Result<Self, ObjectError> {
        let map = value.as_object_mut().ok_or(ObjectError::NotAnObject)?;
        map.remove("kind");
        map.remove("apiVersion");
        let meta = map
            .get_mut("metadata")
            .and_then(Value::as_object_mut)
            .ok_or(ObjectError::NoName)?;
        meta.insert("resourceVersion".to_owned(), json!(version.to_string()));
        let (key, name_at) = key_of_meta(resource, meta)?;
        let uid = text(meta, "uid").into();
        let labels = labels(meta);
        let addresses = if resource == Resource::Services {
            cluster_ips(map)
        } else {
            Box::default()
        };
        let item = Bytes::from(serde_json::to_vec(&value).map_err(|_| ObjectError::NotAnObject)?);
        Ok(Self {
            resource,
            key: key.into(),
            name_at,
            uid,
            version,
            labels,
            addresses,
            item,
            message: OnceLock::new(),
        })
    }

    /// The same object at another version.
    pub(crate) fn at_version(&self, version: u64) -> Result<Self, ObjectError> {
        Self::new(self.resource, self.value(), version)
    }

    /// The resource of the object.
    pub(crate) fn resource(&self) -> Resource {
        self.resource
    }

    /// `namespace/name`, or `name` for a cluster-scoped resource. Lists are sorted by the octets of
    /// the key, as on a real server.
    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    /// `metadata.name`.
    pub(crate) fn name(&self) -> &str {
        self.key.get(self.name_at..).unwrap_or_default()
    }

    /// `metadata.namespace`, empty if there is none.
    pub(crate) fn namespace(&self) -> &str {
        self.key
            .get(..self.name_at.saturating_sub(1))
            .unwrap_or_default()
    }

    /// `metadata.uid`, empty if there is none.
    pub(crate) fn uid(&self) -> &str {
        &self.uid
    }

    /// `metadata.resourceVersion`.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// The value of a label.
    pub(crate) fn label(&self, name: &str) -> Option<&str> {
        self.labels
            .iter()
            .find(|(key, _)| &**key == name)
            .map(|(_, value)| &**value)
    }

    /// The cluster IPs of a Service; empty for other resources.
    pub(crate) fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// The JSON text without `kind` and `apiVersion`. A real server also omits these fields in
    /// lists.
    pub(crate) fn item(&self) -> &Bytes {
        &self.item
    }

    /// The object in protobuf, without an envelope.
    pub(crate) fn message(&self) -> &Bytes {
        self.message
            .get_or_init(|| protobuf::message(self.resource.kind().name, &self.value()).into())
    }

    /// The object as a value, with `kind` and `apiVersion`.
    pub fn value(&self) -> Value {
        let mut value: Value = serde_json::from_slice(&self.item).unwrap_or_default();
        if let Some(map) = value.as_object_mut() {
            map.insert("kind".to_owned(), json!(self.resource.kind().name));
            map.insert(
                "apiVersion".to_owned(),
                json!(self.resource.kind().api_version()),
            );
        }
        value
    }
}

/// The resource of `value`'s `apiVersion` and `kind`.
pub(crate) fn resource_of(value: &Value) -> Result<Resource, ObjectError> {
    let map = value.as_object().ok_or(ObjectError::NotAnObject)?;
    let api_version = text(map, "apiVersion");
    let kind = text(map, "kind");
    Resource::from_object(api_version, kind).ok_or_else(|| ObjectError::UnknownKind {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
    })
}

/// The key of an object of `resource`.
pub(crate) fn key(resource: Resource, namespace: &str, name: &str) -> String {
    if resource.kind().namespaced {
        format!("{namespace}/{name}")
    } else {
        name.to_owned()
    }
}

/// The key of the object in `value`.
pub(crate) fn key_of(resource: Resource, value: &Value) -> Result<String, ObjectError> {
    let meta = value
        .get("metadata")
        .and_then(Value::as_object)
        .ok_or(ObjectError::NoName)?;
    key_of_meta(resource, meta).map(|(key, _)| key)
}

fn key_of_meta(
    resource: Resource,
    meta: &Map<String, Value>,
) -> Result<(String, usize), ObjectError> {
    let name = text(meta, "name");
    if name.is_empty() {
        return Err(ObjectError::NoName);
    }
    if !resource.kind().namespaced {
        return Ok((name.to_owned(), 0));
    }
    let namespace = text(meta, "namespace");
    if namespace.is_empty() {
        return Err(ObjectError::NoNamespace);
    }
    Ok((key(resource, namespace, name), namespace.len() + 1))
}

/// A string field of a map; empty if missing.
pub(crate) fn text<'a>(map: &'a Map<String, Value>, field: &str) -> &'a str {
    map.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn labels(meta: &Map<String, Value>) -> Box<[(Box<str>, Box<str>)]> {
    let Some(labels) = meta.get("labels").and_then(Value::as_object) else {
        return Box::default();
    };
    labels
        .iter()
        .filter_map(|(key, value)| Some((key.as_str().into(), value.as_str()?.into())))
        .collect()
}

fn cluster_ips(service: &Map<String, Value>) -> Box<[IpAddr]> {
    let Some(spec) = service.get("spec").and_then(Value::as_object) else {
        return Box::default();
    };
    let listed = spec
        .get("clusterIPs")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    let mut addresses: Vec<IpAddr> = Vec::new();
    for address in listed
        .chain(spec.get("clusterIP"))
        .filter_map(|ip| ip.as_str()?.parse().ok())
    {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    addresses.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_requires_name_and_namespace() {
        let cases = [
            (json!([]), ObjectError::NotAnObject),
            (json!({}), ObjectError::NoName),
            (
                json!({ "metadata": { "namespace": "apps" } }),
                ObjectError::NoName,
            ),
            (
                json!({ "metadata": { "name": "web" } }),
                ObjectError::NoNamespace,
            ),
        ];
        for (value, error) in cases {
            let refused = Object::new(Resource::Services, value, 1).unwrap_err();
            assert_eq!(refused, error);
        }
    }
}
