use serde_json::{Value, json};
use testkit::objects::mk_service;

use super::*;
use crate::encode::{self, Format};

fn store(count: usize) -> Store {
    let store = Store::new(1000);
    for index in 0..count {
        store.set(service("apps", &format!("s{index:04}"))).unwrap();
    }
    store
}

fn service(namespace: &str, name: &str) -> Value {
    mk_service(namespace, name, json!({}))
}

fn get(store: &Store, query: &str) -> Result<Value, Status> {
    let raw = Query::parse(query);
    let selection = Selection::parse(
        raw.text("namespace"),
        raw.text("labelSelector"),
        raw.text("fieldSelector"),
    )?;
    let page = read_page(
        store,
        Resource::Services,
        &selection,
        &ListQuery::parse(&raw)?,
    )?;
    Ok(serde_json::from_slice(&encode::list(Format::Json, &page)).unwrap())
}

fn names(list: &Value) -> Vec<&str> {
    list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["metadata"]["name"].as_str().unwrap())
        .collect()
}

#[test]
fn pages_share_one_version() {
    let store = store(5);
    let version = store.version();
    let first = get(&store, "limit=2").unwrap();
    assert_eq!(names(&first), ["s0000", "s0001"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 3);
    store.delete(Resource::Services, "apps", "s0003");
    store.set(service("apps", "s0002x")).unwrap();
    let token = first["metadata"]["continue"].as_str().unwrap();
    let second = get(&store, &format!("limit=2&continue={token}")).unwrap();
    assert_eq!(names(&second), ["s0002", "s0003"]);
    assert_eq!(second["metadata"]["resourceVersion"], version.to_string());
    let token = second["metadata"]["continue"].as_str().unwrap();
    let third = get(&store, &format!("limit=2&continue={token}")).unwrap();
    assert_eq!(names(&third), ["s0004"]);
    assert!(third["metadata"].get("continue").is_none());
}

#[test]
fn expired_or_malformed_token_is_rejected() {
    let store = store(5);
    let first = get(&store, "limit=2").unwrap();
    store.expire();
    for (token, code) in [
        (first["metadata"]["continue"].as_str().unwrap(), 410),
        ("nonsense", 400),
        ("!", 400),
    ] {
        let answered = get(&store, &format!("limit=2&continue={token}"))
            .unwrap_err()
            .code();
        assert_eq!(answered, code, "{token}");
    }
}

#[test]
fn list_at_future_or_malformed_or_exact_version_is_rejected() {
    let store = store(3);
    let (first, now) = (store.version() - 2, store.version());
    let cases: [(String, Result<usize, u16>); 7] = [
        ("resourceVersion=0".into(), Ok(3)),
        ("resourceVersion=0&limit=1".into(), Ok(3)),
        (format!("resourceVersion={first}"), Ok(3)),
        (format!("resourceVersion={}", now + 1), Err(504)),
        (
            format!("resourceVersion={first}&resourceVersionMatch=Exact"),
            Err(422),
        ),
        (format!("resourceVersion={first}&limit=1"), Err(422)),
        ("resourceVersion=nonsense".into(), Err(500)),
    ];
    for (query, expected) in cases {
        let got = get(&store, &query)
            .map(|list| names(&list).len())
            .map_err(|status| status.code());
        assert_eq!(got, expected, "{query}");
    }
}

#[test]
fn only_selected_objects_are_listed() {
    let store = store(2);
    store.set(service("apps-2", "web")).unwrap();
    let mut labelled = service("other", "web");
    labelled["metadata"]["labels"] = json!({ "app": "web" });
    store.set(labelled).unwrap();
    let cases = [
        ("", vec!["web", "s0000", "s0001", "web"]),
        ("namespace=apps", vec!["s0000", "s0001"]),
        ("namespace=none", vec![]),
        ("labelSelector=app%3Dweb", vec!["web"]),
        ("fieldSelector=metadata.name%3Dweb", vec!["web", "web"]),
    ];
    for (query, expected) in cases {
        assert_eq!(names(&get(&store, query).unwrap()), expected, "{query}");
    }
    let page = get(&store, "limit=1&fieldSelector=metadata.name%3Dweb").unwrap();
    assert!(
        page["metadata"].get("remainingItemCount").is_none(),
        "a list with a selector must have no remainingItemCount"
    );
    assert!(page["metadata"].get("continue").is_some());
}
