//! Label and field selectors of lists and watches. A selector compares values for equality, or
//! tests whether a label exists.

use serde_json::Value;

use crate::object::Object;
use crate::status::Status;

/// The fields that field selectors may use.
const FIELDS: [&str; 4] = [
    "metadata.name",
    "spec.nodeName",
    "status.phase",
    "status.podIP",
];

/// The objects that a list or a watch selects.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Selection {
    /// The namespace; empty for all namespaces.
    pub(crate) namespace: String,
    labels: Vec<Term>,
    fields: Vec<Term>,
}

/// One term of a selector: `key=value`, `key!=value`, or, for a label, only `key`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Term {
    key: String,
    /// `false` for `key!=value`, which also selects objects without the label. Otherwise `true`.
    equal: bool,
    /// `None` selects objects with the label, whatever its value.
    value: Option<String>,
}

impl Selection {
    /// Parses `labelSelector` and `fieldSelector`.
    pub(crate) fn parse(namespace: &str, labels: &str, fields: &str) -> Result<Self, Status> {
        let labels = parse_terms(labels)?;
        let fields = parse_terms(fields)?;
        for term in &fields {
            if !FIELDS.contains(&term.key.as_str()) {
                return Err(Status::bad_request(format!(
                    "field label not supported: {}",
                    term.key
                )));
            }
            if term.value.is_none() {
                return Err(Status::bad_request(format!(
                    "invalid field selector '{}': expected KEY=VALUE or KEY!=VALUE",
                    term.key
                )));
            }
        }

        Ok(Self {
            namespace: namespace.to_owned(),
            labels,
            fields,
        })
    }

    /// Whether the selection has label or field selectors.
    pub(crate) fn has_selectors(&self) -> bool {
        !self.labels.is_empty() || !self.fields.is_empty()
    }

    /// Whether the selection contains all objects.
    pub(crate) fn is_everything(&self) -> bool {
        self.namespace.is_empty() && !self.has_selectors()
    }

    /// Whether the selection contains this object.
    pub(crate) fn matches(&self, object: &Object) -> bool {
        (self.namespace.is_empty() || self.namespace == object.namespace())
            && self
                .labels
                .iter()
                .all(|term| term.matches(object.label(&term.key)))
            && self.fields.iter().all(|term| term.matches_field(object))
    }
}

impl Term {
    fn matches_field(&self, object: &Object) -> bool {
        if self.key == "metadata.name" {
            return self.matches(Some(object.name()));
        }
        let value = object.value();
        let pointer = format!("/{}", self.key.replace('.', "/"));
        // A missing field counts as an empty string, unlike a missing label.
        let field = value.pointer(&pointer).and_then(Value::as_str);
        self.matches(Some(field.unwrap_or_default()))
    }

    fn matches(&self, value: Option<&str>) -> bool {
        match &self.value {
            None => value.is_some(),
            own => (value == own.as_deref()) == self.equal,
        }
    }
}

fn parse_terms(text: &str) -> Result<Vec<Term>, Status> {
    text.split(',')
        .map(str::trim)
        .filter(|term| !term.is_empty())
        .map(parse_term)
        .collect()
}

fn parse_term(term: &str) -> Result<Term, Status> {
    let (key, equal, value) = if let Some((key, value)) = term.split_once("!=") {
        (key, false, Some(value))
    } else if let Some((key, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
        (key, true, Some(value))
    } else {
        (term, true, None)
    };

    let key = key.trim();
    if key.is_empty() || key.contains(' ') {
        let message = format!(
            "unable to parse requirement: found '{term}', expected KEY=VALUE, KEY!=VALUE or, for a label, KEY"
        );
        return Err(Status::bad_request(message));
    }

    Ok(Term {
        key: key.to_owned(),
        equal,
        value: value.map(|value| value.trim().to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::Resource;

    fn selects(labels: &str, fields: &str) -> bool {
        let value = json!({ "metadata": { "name": "web", "namespace": "apps", "labels": { "app": "web", "a/b": "" } } });
        let object = Object::new(Resource::Services, value, 1).unwrap();
        Selection::parse("", labels, fields)
            .unwrap()
            .matches(&object)
    }

    #[test]
    fn object_is_selected_if_it_matches_every_term() {
        let cases = [
            ("app=web", "", true),
            ("app==web", "", true),
            ("app!=web", "", false),
            ("tier!=web", "", true),
            ("a/b=", "", true),
            ("a/b", "", true),
            ("tier", "", false),
            ("app=web, tier=x", "", false),
            ("", "metadata.name=web", true),
            ("", "metadata.name!=web", false),
            ("app=web", "metadata.name=web", true),
            ("", "status.phase!=Failed,status.phase!=Succeeded", true),
            ("", "status.phase=Failed", false),
            ("", "status.podIP!=10.0.0.1", true),
            ("", "status.podIP=10.0.0.1", false),
            ("", "spec.nodeName=", true),
            ("", "spec.nodeName!=", false),
        ];
        for (labels, fields, expected) in cases {
            assert_eq!(selects(labels, fields), expected, "{labels} {fields}");
        }
    }

    #[test]
    fn pod_ip_selector_matches_first_address() {
        let ips = json!([{ "ip": "10.0.0.1" }, { "ip": "fd00::1" }]);
        let status = json!({ "phase": "Running", "podIP": "10.0.0.1", "podIPs": ips });
        let value = json!({ "metadata": { "name": "web", "namespace": "apps" }, "status": status });
        let pod = Object::new(Resource::Pods, value, 1).unwrap();
        for (fields, expected) in [
            ("status.podIP=10.0.0.1", true),
            ("status.podIP=10.0.0.1,status.phase!=Failed", true),
            ("status.podIP=10.0.0.1,status.phase!=Running", false),
            ("status.podIP!=10.0.0.1", false),
            ("status.podIP=10.0.0.10", false),
            ("status.podIP=fd00::1", false),
        ] {
            let matches = Selection::parse("", "", fields).unwrap().matches(&pod);
            assert_eq!(matches, expected, "{fields}");
        }
    }

    #[test]
    fn unsupported_selectors_are_bad_requests() {
        for (labels, fields) in [
            ("a b", ""),
            ("a in (b)", ""),
            ("=x", ""),
            ("", "spec.type=x"),
            ("", "x"),
        ] {
            let refused = Selection::parse("", labels, fields).unwrap_err().code();
            assert_eq!(refused, 400, "{labels} {fields}");
        }
    }
}
