use serde_json::json;

use super::*;

fn registry() -> Registry {
    let registry = Registry {
        store: Store::default(),
    };
    registry.bootstrap();
    registry
}

fn at(resource: Resource, name: &str) -> ObjectRef {
    ObjectRef::new(resource, "default", name)
}

fn service(name: &str) -> Value {
    json!({ "metadata": { "name": name }, "spec": { "ports": [{ "port": 80 }] } })
}

impl Registry {
    fn make(&self, at: &ObjectRef, value: Value) -> Result<Arc<Object>, Status> {
        self.create(at, value, Unknown::Reject)
    }

    fn replace(&self, at: &ObjectRef, value: Value) -> Value {
        self.update(at, Unknown::Reject, |_| Ok(value))
            .unwrap()
            .value()
    }
}

#[test]
fn unchanged_update_keeps_version() {
    let registry = registry();
    let web = at(Resource::Services, "web");
    let created = registry
        .make(&at(Resource::Services, ""), service("web"))
        .unwrap()
        .value();
    assert_eq!(registry.replace(&web, service("web")), created);
    let mut other = service("web");
    other["status"] = json!({ "loadBalancer": { "ingress": [{ "ip": "192.0.2.1" }] } });
    let changed = registry.replace(&web, other);
    let version = &changed["metadata"]["resourceVersion"];
    assert_ne!(*version, created["metadata"]["resourceVersion"]);
    assert_eq!(
        registry.replace(&web, service("web")),
        changed,
        "a status must stay unless the write has a status"
    );
}

#[test]
fn deleted_namespace_deletes_its_objects() {
    let registry = registry();
    let (namespaces, services) = (
        ObjectRef::new(Resource::Namespaces, "", ""),
        ObjectRef::new(Resource::Services, "apps", ""),
    );
    registry
        .make(&namespaces, json!({ "metadata": { "name": "apps" } }))
        .unwrap();
    let created = registry.make(&services, service("web")).unwrap();
    let address = created.value()["spec"]["clusterIP"].clone();
    registry
        .delete(&ObjectRef::new(Resource::Namespaces, "", "apps"))
        .unwrap();
    assert!(
        registry
            .get(&ObjectRef::new(Resource::Services, "apps", "web"))
            .is_err()
    );
    let error = registry.make(&services, service("web")).unwrap_err();
    assert_eq!(error.to_string(), "namespaces \"apps\" not found");
    let mut chosen = service("other");
    chosen["spec"]["clusterIP"] = address;
    registry
        .make(&at(Resource::Services, ""), chosen)
        .expect("the address of the deleted Service must be free again");
}

#[test]
fn apply_creates_missing_namespace() {
    let registry = registry();
    let web = ObjectRef::new(Resource::Services, "fresh", "web");
    let made = registry.apply(&web, service("web")).unwrap();
    registry
        .get(&ObjectRef::new(Resource::Namespaces, "", "fresh"))
        .unwrap();
    let again = registry.apply(&web, service("web")).unwrap();
    assert_eq!(made.version(), again.version());
}
