//! What a file of manifests says: YAML (or JSON) documents, `List` kinds taken apart.

use serde::Deserialize as _;
use serde_json::{Map, Value};

use crate::object::{resource_of, text};
use crate::registry::ObjectRef;

/// Lists inside lists at most.
const DEPTH: usize = 4;

/// One object as a file describes it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Document {
    pub(super) at: ObjectRef,
    pub(super) value: Value,
}

impl Document {
    /// What it is about, as in `services/apps/web`.
    pub(super) fn id(&self) -> String {
        format!("{}/{}", self.at.resource, self.at.key())
    }
}

/// Reads all documents of a file, or says what is wrong with it.
pub(super) fn parse(text: &str) -> Result<Vec<Document>, String> {
    let mut documents = Vec::new();
    for document in serde_norway::Deserializer::from_str(text) {
        let value = Value::deserialize(document).map_err(|error| error.to_string())?;
        collect(value, DEPTH, &mut documents)?;
    }
    Ok(documents)
}

fn collect(value: Value, depth: usize, documents: &mut Vec<Document>) -> Result<(), String> {
    let mut map = match value {
        Value::Null => return Ok(()),
        Value::Object(map) => map,
        _ => return Err("a document is not an object".to_owned()),
    };
    if text(&map, "kind").ends_with("List") {
        let Some(depth) = depth.checked_sub(1) else { return Err("lists nest too deep".to_owned()) };
        let item_type =
            (text(&map, "apiVersion").to_owned(), text(&map, "kind").trim_end_matches("List").to_owned());
        let Some(Value::Array(items)) = map.remove("items") else { return Ok(()) };
        for mut item in items {
            inherit_type(&mut item, &item_type);
            collect(item, depth, documents)?;
        }
        return Ok(());
    }
    documents.push(document(map)?);
    Ok(())
}

/// Items of a typed list (`ServiceList`) need not say what they are.
fn inherit_type(item: &mut Value, (api_version, kind): &(String, String)) {
    if let Some(map) = item.as_object_mut()
        && !kind.is_empty()
        && !map.contains_key("kind")
    {
        map.insert("kind".to_owned(), Value::String(kind.clone()));
        map.insert("apiVersion".to_owned(), Value::String(api_version.clone()));
    }
}

fn document(map: Map<String, Value>) -> Result<Document, String> {
    let mut value = Value::Object(map);
    let resource = resource_of(&value).map_err(|error| error.to_string())?;
    let meta = value.get_mut("metadata").and_then(Value::as_object_mut).ok_or("metadata is missing")?;
    for made_by_server in ["uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"] {
        meta.remove(made_by_server);
    }
    let name = text(meta, "name");
    if name.is_empty() {
        return Err(format!("a {} has no metadata.name", resource.kind().name));
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
    fn files_are_taken_apart() {
        let cases = [
            ("", vec![]),
            ("---\n---\n# nothing\n", vec![]),
            ("{apiVersion: v1, kind: Node, metadata: {name: a}}", vec!["nodes/a"]),
            (
                "apiVersion: v1\nkind: Service\nmetadata: {name: a}\n---\napiVersion: v1\nkind: Service\nmetadata: {name: a, namespace: b}\n",
                vec!["services/default/a", "services/b/a"],
            ),
            (
                "apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: Namespace, metadata: {name: a, namespace: x}}]",
                vec!["namespaces/a"],
            ),
            ("apiVersion: v1\nkind: ServiceList\nitems: [{metadata: {name: a}}]", vec!["services/default/a"]),
        ];
        for (text, expected) in cases {
            assert_eq!(ids(text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let cases = [
            ("a: [", "did not find expected"),
            ("- a", "a document is not an object"),
            (
                "apiVersion: apps/v1\nkind: Deployment",
                "no resource for kind \"Deployment\" in version \"apps/v1\"",
            ),
            ("apiVersion: v1\nkind: Service", "metadata is missing"),
            ("apiVersion: v1\nkind: Service\nmetadata: {}", "a Service has no metadata.name"),
        ];
        for (text, expected) in cases {
            let error = ids(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
