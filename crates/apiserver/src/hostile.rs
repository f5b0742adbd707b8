//! Property tests which check that no input makes the server panic.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::Resource;
use crate::encode::{self, EventType, Format};
use crate::list::ListQuery;
use crate::object::Object;
use crate::patch::Patch;
use crate::query::Query;
use crate::registry::{ObjectRef, Registry};
use crate::schema::Unknown;
use crate::selector::Selection;
use crate::store::Store;

/// Field names and values that the server interprets.
const WORDS: &str = "metadata name namespace labels spec status ports port protocol clusterIP clusterIPs ipFamilies \
    ipFamilyPolicy type selector subsets addresses ip endpoints addressType data None IPv4 IPv6 TCP NodePort ExternalName \
    externalName 10.96.0.7 fd00:10:96::7 SingleStack PreferDualStack nodePort $patch";

fn word() -> impl Strategy<Value = String> {
    prop_oneof![8 => proptest::sample::select(WORDS.split_whitespace().collect::<Vec<_>>()).prop_map(str::to_owned), 1 => ".{0,6}"]
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-1_i64..70_000).prop_map(Value::from),
        word().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::vec((word(), inner), 0..6)
                .prop_map(|pairs| Value::Object(pairs.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

fn resource() -> impl Strategy<Value = Resource> {
    proptest::sample::select(Resource::all().collect::<Vec<_>>())
}

fn registry() -> Registry {
    let registry = Registry {
        store: Store::default(),
    };
    registry.bootstrap();
    registry
}

proptest! {
    #[test]
    fn writes(resource in resource(), spec in value(), body in value(), patch in value(), kind in 0..3_usize) {
        let registry = registry();
        let at = ObjectRef::new(resource, "default", "x");
        let mut sensible = json!({ "metadata": { "name": "x" }, "spec": spec.clone(), "subsets": spec.clone() });
        if let (Some(map), Value::Object(more)) = (sensible.as_object_mut(), spec) {
            map.extend(more.into_iter().filter(|(field, _)| field != "metadata"));
        }
        let _either = registry.create(&at, body, Unknown::Drop);
        let _either = registry.create(&at, sensible, Unknown::Drop);
        let media_type = ["json-patch", "merge-patch", "strategic-merge-patch"][kind];
        let text = serde_json::to_vec(&patch).unwrap();
        if let Ok(patch) = Patch::parse(&format!("application/{media_type}+json"), &text) {
            let _either = registry.update(&at, Unknown::Drop, |value| patch.apply(value));
        }
        let _either = registry.apply(&at, patch);
    }

    #[test]
    fn raw_objects_become_tables(resource in resource(), body in value()) {
        let mut value = body;
        if let Some(map) = value.as_object_mut() {
            map.insert("metadata".to_owned(), json!({ "name": "x", "namespace": "n", "labels": map.get("labels") }));
        }
        if let Ok(object) = Object::new(resource, value, 1) {
            let object = Arc::new(object);
            for format in [Format::Json, Format::Table] {
                let line = encode::event(format, EventType::Added, &object);
                prop_assert!(serde_json::from_slice::<Value>(&line).is_ok());
            }
        }
    }

    #[test]
    fn queries(raw in "[a-zA-Z=&%!,() ]{0,60}", labels in ".{0,40}", fields in ".{0,40}", token in "[A-Za-z0-9_-]{0,40}") {
        let _either = ListQuery::parse(&Query::parse(&raw));
        let _either = Selection::parse("", &labels, &fields);
        let query = Query::parse(&format!("limit=1&continue={token}"));
        let selection = Selection::default();
        if let Ok(query) = ListQuery::parse(&query) {
            let _either = crate::list::read_page(&Store::default(), Resource::Services, &selection, &query);
        }
    }

    #[test]
    fn manifests(text in ".{0,200}") {
        let _either = crate::manifests::parse(&text);
    }
}
