use serde_json::json;

use super::*;

fn registry() -> Registry {
    let registry = Registry::new(Store::default(), &crate::Options::default().service_ranges);
    registry.bootstrap();
    registry
}

fn place(resource: Resource, name: &str) -> Place {
    Place::new(resource, "default", name)
}

fn service(name: &str) -> Value {
    json!({ "metadata": { "name": name }, "spec": { "ports": [{ "port": 80 }] } })
}

#[test]
fn every_cluster_has_the_api_servers_service() {
    let registry = registry();
    let service = registry.get(&place(Resource::Services, "kubernetes")).unwrap().value();
    assert_eq!(service["spec"]["clusterIP"], "10.96.0.1");
    assert_eq!(service["spec"]["ipFamilyPolicy"], "SingleStack");
    assert_eq!(service["status"], json!({ "loadBalancer": {} }));
    registry.get(&place(Resource::Endpoints, "kubernetes")).unwrap();
    registry.get(&place(Resource::EndpointSlices, "kubernetes")).unwrap();
}

#[test]
fn an_update_without_a_change_takes_no_version() {
    let registry = registry();
    let created = registry.create(&place(Resource::Services, ""), service("web"), false).unwrap();
    let again = registry
        .update(&place(Resource::Services, "web"), Part::Main, false, |_| Ok(service("web")))
        .unwrap();
    assert_eq!(again.version(), created.version());
    let mut other = service("web");
    other["spec"]["ports"][0]["port"] = json!(81);
    other["status"] = json!({ "loadBalancer": { "ingress": [{ "ip": "192.0.2.1" }] } });
    let changed =
        registry.update(&place(Resource::Services, "web"), Part::Main, false, |_| Ok(other.clone())).unwrap();
    assert!(changed.version() > created.version());
    assert_eq!(changed.value()["status"], json!({ "loadBalancer": {} }), "the status is a part of its own");
    let status = registry.update(&place(Resource::Services, "web"), Part::Status, false, |_| {
        let mut value = service("web");
        value["status"] = other["status"].clone();
        Ok(value)
    });
    let status = status.unwrap().value();
    assert_eq!(status["status"], other["status"]);
    assert_eq!(status["spec"]["ports"][0]["port"], 81);
}

#[test]
fn a_namespace_takes_its_objects_along() {
    let registry = registry();
    registry
        .create(&Place::new(Resource::Namespaces, "", ""), json!({ "metadata": { "name": "apps" } }), false)
        .unwrap();
    let created =
        registry.create(&Place::new(Resource::Services, "apps", ""), service("web"), false).unwrap();
    let address = created.value()["spec"]["clusterIP"].clone();
    let gone = registry.delete(&Place::new(Resource::Namespaces, "", "apps"), &Deletion::default()).unwrap();
    assert_eq!(gone.value()["status"]["phase"], "Terminating");
    assert!(registry.get(&Place::new(Resource::Services, "apps", "web")).is_err());
    let error =
        registry.create(&Place::new(Resource::Services, "apps", ""), service("web"), false).unwrap_err();
    assert_eq!(error.message(), "namespaces \"apps\" not found");
    let mut chosen = service("other");
    chosen["spec"]["clusterIP"] = address;
    registry.create(&place(Resource::Services, ""), chosen, false).expect("its address is free again");
    let error =
        registry.delete(&Place::new(Resource::Namespaces, "", "default"), &Deletion::default()).unwrap_err();
    assert_eq!(error.code(), 403);
}

#[test]
fn a_dry_run_leaves_nothing_behind() {
    let registry = registry();
    let version = registry.store.version();
    registry.create(&place(Resource::Services, ""), service("web"), true).unwrap();
    let deletion = Deletion { dry_run: true, ..Deletion::default() };
    registry.delete(&place(Resource::Services, "kubernetes"), &deletion).unwrap();
    assert_eq!(registry.store.version(), version);
}

#[test]
fn preconditions_protect_against_deleting_another() {
    let registry = registry();
    let body = json!({ "preconditions": { "uid": "another" } });
    let error = registry
        .delete(&place(Resource::Services, "kubernetes"), &Deletion::from_body(&body, false))
        .unwrap_err();
    assert_eq!(error.code(), 409);
}

#[test]
fn applying_makes_the_namespace() {
    let registry = registry();
    let place = Place::new(Resource::Services, "fresh", "web");
    let made = registry.apply(&place, service("web")).unwrap();
    registry.get(&Place::new(Resource::Namespaces, "", "fresh")).unwrap();
    let again = registry.apply(&place, service("web")).unwrap();
    assert_eq!(made.version(), again.version());
}

#[test]
fn the_generation_counts_changes_of_content() {
    let registry = registry();
    let slice = |address: &str| json!({ "metadata": { "name": "s" }, "addressType": "IPv4", "endpoints": [{ "addresses": [address] }] });
    registry.create(&place(Resource::EndpointSlices, ""), slice("10.0.0.1"), false).unwrap();
    let update = |value: Value| {
        let slice = registry.update(&place(Resource::EndpointSlices, "s"), Part::Main, false, |_| Ok(value));
        slice.unwrap().value()["metadata"]["generation"].clone()
    };
    assert_eq!(update(slice("10.0.0.1")), 1);
    assert_eq!(update(slice("10.0.0.2")), 2);
    let mut labelled = slice("10.0.0.2");
    labelled["metadata"]["labels"] = json!({ "a": "b" });
    assert_eq!(update(labelled), 2);
}
