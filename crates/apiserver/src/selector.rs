//! Label and field selectors of lists and watches.

use serde_json::Value;

use crate::kinds::Kind;
use crate::object::Object;
use crate::status::Status;

/// Which objects a list or a watch is about.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Selection {
    /// Only this namespace; all when empty.
    pub(crate) namespace: String,
    labels: Vec<LabelRule>,
    fields: Vec<FieldRule>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct LabelRule {
    label: String,
    test: LabelTest,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum LabelTest {
    Exists,
    DoesNotExist,
    In(Vec<String>),
    NotIn(Vec<String>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct FieldRule {
    field: String,
    equal: bool,
    value: String,
}

impl Selection {
    /// Reads `labelSelector` and `fieldSelector`.
    pub(crate) fn parse(kind: &Kind, namespace: &str, labels: &str, fields: &str) -> Result<Self, Status> {
        Ok(Self {
            namespace: namespace.to_owned(),
            labels: parse_labels(labels)?,
            fields: parse_fields(kind, fields)?,
        })
    }

    /// Whether it selects among the objects of its namespace.
    pub(crate) fn has_selectors(&self) -> bool {
        !self.labels.is_empty() || !self.fields.is_empty()
    }

    /// Whether it selects everything.
    pub(crate) fn is_everything(&self) -> bool {
        self.namespace.is_empty() && !self.has_selectors()
    }

    /// Whether it selects this object.
    pub(crate) fn matches(&self, object: &Object) -> bool {
        (self.namespace.is_empty() || self.namespace == object.namespace())
            && self.labels.iter().all(|rule| rule.matches(object.label(&rule.label)))
            && self.fields.iter().all(|rule| rule.matches(object))
    }
}

impl LabelRule {
    fn matches(&self, value: Option<&str>) -> bool {
        match &self.test {
            LabelTest::Exists => value.is_some(),
            LabelTest::DoesNotExist => value.is_none(),
            LabelTest::In(values) => value.is_some_and(|value| values.iter().any(|v| v == value)),
            LabelTest::NotIn(values) => !value.is_some_and(|value| values.iter().any(|v| v == value)),
        }
    }
}

impl FieldRule {
    fn matches(&self, object: &Object) -> bool {
        let equal = match self.field.as_str() {
            "metadata.name" => object.name() == self.value,
            "metadata.namespace" => object.namespace() == self.value,
            field => field_text(&object.value(), field) == self.value,
        };
        equal == self.equal
    }
}

fn field_text(value: &Value, field: &str) -> String {
    let found = field.split('.').try_fold(value, |value, part| value.get(part));
    match found {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Bool(_) | Value::Number(_)) => found.map(ToString::to_string).unwrap_or_default(),
        _ => String::new(),
    }
}

fn parse_fields(kind: &Kind, text: &str) -> Result<Vec<FieldRule>, Status> {
    let mut rules = Vec::new();
    for term in text.split(',').filter(|term| !term.is_empty()) {
        let (field, equal, value) = split_equality(term).ok_or_else(|| {
            Status::bad_request(format!("invalid field selector: {text:?}; can't understand {term:?}"))
        })?;
        let known = field == "metadata.name"
            || (field == "metadata.namespace" && kind.namespaced)
            || kind.selectable.contains(&field);
        if !known {
            return Err(Status::bad_request(format!("field label not supported: {field}")));
        }
        rules.push(FieldRule { field: field.to_owned(), equal, value: value.to_owned() });
    }
    Ok(rules)
}

fn parse_labels(text: &str) -> Result<Vec<LabelRule>, Status> {
    split_outside_parentheses(text)
        .into_iter()
        .filter(|term| !term.trim().is_empty())
        .map(parse_label)
        .collect()
}

fn parse_label(term: &str) -> Result<LabelRule, Status> {
    let unreadable = || Status::bad_request(format!("unable to parse requirement: found '{term}'"));
    let term = term.trim();
    let rule = |label: &str, test| LabelRule { label: label.trim().to_owned(), test };
    let rule = if let Some((label, equal, value)) = split_equality(term) {
        let values = vec![value.trim().to_owned()];
        rule(label, if equal { LabelTest::In(values) } else { LabelTest::NotIn(values) })
    } else if let Some(label) = term.strip_prefix('!') {
        rule(label, LabelTest::DoesNotExist)
    } else if let Some((left, values)) = term.split_once('(') {
        let values = values.strip_suffix(')').ok_or_else(unreadable)?;
        let values = values.split(',').map(|value| value.trim().to_owned()).collect();
        let (label, operator) = left.trim().split_once(char::is_whitespace).ok_or_else(unreadable)?;
        match operator.trim() {
            "in" => rule(label, LabelTest::In(values)),
            "notin" => rule(label, LabelTest::NotIn(values)),
            _ => return Err(unreadable()),
        }
    } else {
        rule(term, LabelTest::Exists)
    };
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    if rule.label.is_empty() || !rule.label.chars().all(legal) {
        return Err(unreadable());
    }
    Ok(rule)
}

fn split_equality(term: &str) -> Option<(&str, bool, &str)> {
    if let Some((left, right)) = term.split_once("!=") {
        return Some((left, false, right));
    }
    term.split_once("==").or_else(|| term.split_once('=')).map(|(left, right)| (left, true, right))
}

fn split_outside_parentheses(text: &str) -> Vec<&str> {
    let mut inside = false;
    text.split(|c| {
        inside = (inside || c == '(') && c != ')';
        c == ',' && !inside
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::Resource;

    fn selects(labels: &str, fields: &str) -> bool {
        let value = json!({
            "metadata": { "name": "web", "namespace": "apps", "labels": { "app": "web", "a/b": "" } },
            "spec": { "type": "ClusterIP" },
        });
        let object = Object::new(Resource::Services, value, 1).unwrap();
        Selection::parse(Resource::Services.kind(), "", labels, fields).unwrap().matches(&object)
    }

    #[test]
    fn labels_select() {
        let cases = [
            ("app=web", true),
            ("app==web", true),
            ("app!=web", false),
            ("tier!=web", true),
            ("app", true),
            ("!app", false),
            ("tier", false),
            ("!tier", true),
            ("app in (db, web)", true),
            ("app notin (db,web)", false),
            ("tier notin (db)", true),
            ("tier in (db)", false),
            ("app in (web),a/b", true),
            ("a/b=", true),
            ("app=web,tier=x", false),
        ];
        for (labels, expected) in cases {
            assert_eq!(selects(labels, ""), expected, "{labels}");
        }
    }

    #[test]
    fn fields_select() {
        let cases = [
            ("metadata.name=web", true),
            ("metadata.name!=web", false),
            ("metadata.namespace=other", false),
            ("metadata.name=web,spec.type=ClusterIP", true),
            ("spec.type=NodePort", false),
        ];
        for (fields, expected) in cases {
            assert_eq!(selects("", fields), expected, "{fields}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for (labels, fields) in
            [("a b", ""), ("a in b", ""), ("a in (b", ""), ("=x", ""), ("", "spec.nothing=x"), ("", "x")]
        {
            let error = Selection::parse(Resource::Services.kind(), "", labels, fields).unwrap_err();
            assert_eq!(error.code(), 400, "{labels} {fields}");
        }
    }
}
