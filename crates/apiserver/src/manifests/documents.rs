//! The objects in a manifest file: YAML or JSON documents, including the items of `List`s.

use serde::Deserialize as _;
use serde_json::{Map, Value};

use crate::object::{resource_of, text};
use crate::registry::ObjectRef;

/// The manifest of an object.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Document {
    pub(super) at: ObjectRef,
    pub(super) value: Value,
}

impl Document {
    /// Resource and key, such as `services/apps/web`.
    pub(super) fn id(&self) -> String {
        format!("{}/{}", self.at.resource, self.at.key())
    }
}

/// Parses all documents of a file.
pub(crate) fn parse(text: &str) -> Result<Vec<Document>, String> {
    let mut documents = Vec::new();
    for document in serde_norway::Deserializer::from_str(text) {
        let value = Value::deserialize(document).map_err(|error| error.to_string())?;
        collect(value, &mut documents)?;
    }
    Ok(documents)
}

fn collect(value: Value, documents: &mut Vec<Document>) -> Result<(), String> {
    let mut map = match value {
        Value::Null => return Ok(()),
        Value::Object(map) => map,
        _ => {
            return Err(
                "a manifest is not a mapping with apiVersion, kind and metadata".to_owned(),
            );
        }
    };
    if text(&map, "kind") != "List" {
        documents.push(document(map)?);
        return Ok(());
    }
    let Some(Value::Array(items)) = map.remove("items") else {
        return Ok(());
    };
    items
        .into_iter()
        .try_for_each(|item| collect(item, documents))
}

fn document(map: Map<String, Value>) -> Result<Document, String> {
    let mut value = Value::Object(map);
    let resource = resource_of(&value).map_err(|error| error.to_string())?;
    let no_name = || {
        format!(
            "a manifest of kind {} has no metadata.name",
            resource.kind().name
        )
    };
    let meta = value
        .get_mut("metadata")
        .and_then(Value::as_object_mut)
        .ok_or_else(no_name)?;
    for made_by_server in [
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "generation",
        "managedFields",
    ] {
        meta.remove(made_by_server);
    }
    let name = text(meta, "name");
    if name.is_empty() {
        return Err(no_name());
    }
    let namespace = match text(meta, "namespace") {
        "" => "default",
        namespace => namespace,
    };
    let at = ObjectRef::new(resource, namespace, name);
    Ok(Document { at, value })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(text: &str) -> Result<Vec<String>, String> {
        parse(text).map(|documents| documents.iter().map(Document::id).collect())
    }

    #[test]
    fn file_splits_into_documents() {
        let cases = [
            ("", vec![]),
            ("---\n---\n# nothing\n", vec![]),
            (
                "{apiVersion: v1, kind: Node, metadata: {name: a}}",
                vec!["nodes/a"],
            ),
            (
                "apiVersion: v1\nkind: Service\nmetadata: {name: a}\n---\napiVersion: v1\nkind: Service\nmetadata: {name: a, namespace: b}\n",
                vec!["services/default/a", "services/b/a"],
            ),
            (
                "apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: Namespace, metadata: {name: a, namespace: x}}]",
                vec!["namespaces/a"],
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(ids(text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn manifest_errors_name_the_cause() {
        let cases = [
            ("a: [", "did not find expected"),
            ("- a", "a manifest is not a mapping with apiVersion"),
            (
                "apiVersion: apps/v1\nkind: Deployment",
                "this server stores no objects with apiVersion \"apps/v1\" and kind \"Deployment\"",
            ),
            (
                "apiVersion: v1\nkind: Service",
                "a manifest of kind Service has no metadata.name",
            ),
            (
                "apiVersion: v1\nkind: Service\nmetadata: {}",
                "a manifest of kind Service has no metadata.name",
            ),
        ];
        for (text, expected) in cases {
            let error = ids(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
