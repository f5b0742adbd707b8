use std::fs;

use serde_json::{Value, json};

use super::*;
use crate::store::Store;

struct Fixture {
    directory: tempfile::TempDir,
    manifests: Manifests,
}

impl Fixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let registry = Registry {
            store: Store::default(),
        };
        registry.bootstrap();
        let manifests = Manifests::new(registry, directory.path().to_owned());
        Self {
            directory,
            manifests,
        }
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.directory.path().join(name), text).unwrap();
    }

    fn get(&self, resource: Resource, namespace: &str, name: &str) -> Option<Value> {
        self.manifests
            .registry
            .store
            .get(resource, namespace, name)
            .map(|object| object.value())
    }
}

fn service(name: &str, spec: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: apps}}\nspec: {spec}\n"
    )
}

#[test]
fn objects_follow_the_files() {
    let mut fixture = Fixture::new();
    fixture.write("a.yaml", &service("web", "{ports: [{port: 80}]}"));
    fixture.write(
        "b.yml",
        &service("db", "{clusterIP: 10.96.1.1, ports: [{port: 1}]}"),
    );
    fixture.write("notes.txt", "not a manifest");
    fixture.write(".hidden.yaml", "also: not");
    assert_eq!(fixture.manifests.load().unwrap(), 2);
    let web = fixture.get(Resource::Services, "apps", "web").unwrap();
    assert_eq!(
        web["spec"]["clusterIP"], "10.96.1.2",
        "10.96.1.1 is reserved for db, so web must get the next address: {web}"
    );
    assert!(fixture.get(Resource::Namespaces, "", "apps").is_some());

    let version = fixture.manifests.registry.store.version();
    fixture.manifests.load().unwrap();
    let found = fixture.manifests.registry.store.version();
    assert_eq!(
        found, version,
        "no manifest changed, so nothing may be written"
    );

    fixture.write("a.yaml", &service("web", "{ports: [{port: 81}]}"));
    fs::remove_file(fixture.directory.path().join("b.yml")).unwrap();
    fixture.manifests.load().unwrap();
    let again = fixture.get(Resource::Services, "apps", "web").unwrap();
    assert_eq!(again["spec"]["ports"][0]["port"], 81);
    assert_eq!(again["spec"]["clusterIP"], web["spec"]["clusterIP"]);
    assert_eq!(again["metadata"]["uid"], web["metadata"]["uid"]);
    assert!(fixture.get(Resource::Services, "apps", "db").is_none());
}

#[test]
fn broken_file_keeps_last_objects() {
    let mut fixture = Fixture::new();
    fixture.write("a.yaml", &service("web", "{ports: [{port: 80}]}"));
    fixture.manifests.load().unwrap();
    fixture.write("a.yaml", "kind: [");
    fixture.write("b.yaml", &service("db", "{ports: [{port: 1}]}"));
    assert_eq!(fixture.manifests.load().unwrap(), 2);
    assert!(fixture.get(Resource::Services, "apps", "web").is_some());
    fixture.write("a.yaml", &service("other", "{ports: [{port: 80}]}"));
    fixture.manifests.load().unwrap();
    assert!(fixture.get(Resource::Services, "apps", "web").is_none());
    assert!(fixture.get(Resource::Services, "apps", "other").is_some());
}

#[test]
fn rejected_object_is_retried_at_next_read() {
    let mut fixture = Fixture::new();
    fixture.write(
        "a.yaml",
        &service("taken", "{clusterIP: 10.96.0.1, ports: [{port: 80}]}"),
    );
    fixture.write("b.yaml", &service("web", "{ports: [{port: 80}]}"));
    assert_eq!(fixture.manifests.load().unwrap(), 1);
    let kubernetes = ObjectRef::new(Resource::Services, "default", "kubernetes");
    fixture.manifests.registry.delete(&kubernetes).unwrap();
    assert_eq!(fixture.manifests.load().unwrap(), 2);
}

#[test]
fn object_with_rejected_edit_is_deleted_with_file() {
    let mut fixture = Fixture::new();
    fixture.write("a.yaml", &service("web", "{ports: [{port: 80}]}"));
    fixture.manifests.load().unwrap();
    fixture.write("a.yaml", &service("web", "{ports: [{port: none}]}"));
    assert_eq!(fixture.manifests.load().unwrap(), 0);
    let kept = fixture.get(Resource::Services, "apps", "web").unwrap();
    assert_eq!(kept["spec"]["ports"][0]["port"], 80);

    fs::remove_file(fixture.directory.path().join("a.yaml")).unwrap();
    fixture.manifests.load().unwrap();
    assert_eq!(fixture.get(Resource::Services, "apps", "web"), None);
}

#[test]
fn objects_stay_without_manifest_of_their_namespace() {
    let mut fixture = Fixture::new();
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: apps}\n";
    fixture.write("a.yaml", namespace);
    fixture.write("b.yaml", &service("web", "{ports: [{port: 80}]}"));
    fixture.manifests.load().unwrap();

    fs::remove_file(fixture.directory.path().join("a.yaml")).unwrap();
    assert_eq!(fixture.manifests.load().unwrap(), 1);
    assert!(fixture.get(Resource::Services, "apps", "web").is_some());
}

#[test]
fn edit_through_api_stays_while_file_is_unchanged() {
    let mut fixture = Fixture::new();
    fixture.write("a.yaml", &service("web", "{ports: [{port: 80}]}"));
    fixture.manifests.load().unwrap();
    let place = ObjectRef::new(Resource::Services, "apps", "web");
    let edit = |mut value: Value| {
        value["spec"]["ports"][0]["port"] = json!(99);
        Ok(value)
    };
    fixture
        .manifests
        .registry
        .update(&place, crate::schema::Unknown::Drop, edit)
        .unwrap();
    fixture.manifests.load().unwrap();
    assert_eq!(
        fixture.get(Resource::Services, "apps", "web").unwrap()["spec"]["ports"][0]["port"],
        99
    );
}

#[test]
fn missing_directory_fails() {
    let mut fixture = Fixture::new();
    fixture.manifests.directory = "/nonexistent/manifests".into();
    let error = fixture.manifests.load().unwrap_err().to_string();
    assert_eq!(error, "cannot read the manifests in /nonexistent/manifests");
}
