use serde_json::{Value, json};

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
    json!({ "kind": "Service", "apiVersion": "v1", "metadata": { "name": name, "namespace": namespace } })
}

fn get(store: &Store, query: &str) -> Result<Value, Status> {
    let raw = Query::parse(query);
    let selection =
        Selection::parse(raw.text("namespace"), raw.text("labelSelector"), raw.text("fieldSelector"))?;
    let page = page(store, Resource::Services, &selection, &ListQuery::parse(&raw)?)?;
    let text: Vec<u8> = encode::list(Format::Json, page).flatten().collect();
    Ok(serde_json::from_slice(&text).unwrap())
}

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect()
}

#[test]
fn an_empty_list_is_a_list() {
    let list = get(&store(0), "").unwrap();
    assert_eq!(
        list,
        json!({ "kind": "ServiceList", "apiVersion": "v1", "metadata": { "resourceVersion": "1" }, "items": [] })
    );
}

#[test]
fn pages_show_one_version() {
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
fn an_expired_token_offers_to_go_on_inconsistently() {
    let store = store(5);
    let first = get(&store, "limit=2").unwrap();
    store.delete(Resource::Services, "apps", "s0003");
    store.expire();
    let token = first["metadata"]["continue"].as_str().unwrap();
    let error = get(&store, &format!("limit=2&continue={token}")).unwrap_err();
    let status: Value = serde_json::from_slice(&error.to_json()).unwrap();
    assert_eq!((status["code"].as_u64(), status["reason"].as_str()), (Some(410), Some("Expired")));
    let token = status["metadata"]["continue"].as_str().unwrap();
    let rest = get(&store, &format!("limit=2&continue={token}")).unwrap();
    assert_eq!(names(&rest), ["s0002", "s0004"]);
}

#[test]
fn versions_decide_what_is_listed() {
    let store = store(3);
    let (first, now) = (store.version() - 2, store.version());
    let cases: [(String, Result<usize, u16>); 7] = [
        ("resourceVersion=0".into(), Ok(3)),
        ("resourceVersion=0&limit=1".into(), Ok(3)),
        (format!("resourceVersion={first}"), Ok(3)),
        (format!("resourceVersion={}", now + 1), Err(504)),
        (format!("resourceVersion={first}&resourceVersionMatch=Exact"), Err(422)),
        (format!("resourceVersion={first}&limit=1"), Err(422)),
        ("resourceVersion=nonsense".into(), Err(500)),
    ];
    for (query, expected) in cases {
        let got = get(&store, &query).map(|list| names(&list).len()).map_err(|status| status.code());
        assert_eq!(got, expected, "{query}");
    }
}

#[test]
fn selections_are_listed() {
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
    assert!(page["metadata"].get("remainingItemCount").is_none(), "unknown with a selector");
    assert!(page["metadata"].get("continue").is_some());
}

#[test]
fn a_long_list_comes_in_chunks() {
    let store = store(3000);
    let page = page(&store, Resource::Services, &Selection::default(), &ListQuery::default()).unwrap();
    let chunks: Vec<_> = encode::list(Format::Json, page).collect();
    assert!(chunks.len() > 10);
    let list: Value = serde_json::from_slice(&chunks.concat()).unwrap();
    assert_eq!(names(&list).len(), 3000);
}
