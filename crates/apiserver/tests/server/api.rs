//! Writing and reading objects over HTTP.

use serde_json::{Value, json};

use crate::client::Server;

const SERVICES: &str = "/api/v1/namespaces/default/services";

fn service(name: &str) -> Value {
    json!({ "kind": "Service", "apiVersion": "v1", "metadata": { "name": name }, "spec": { "ports": [{ "port": 80 }] } })
}

#[tokio::test]
async fn object_is_created_updated_deleted() {
    let server = Server::start();
    let created = server.post(SERVICES, &service("web")).await;
    assert_eq!(created.code, 201);
    let created = created.json();
    assert_eq!(created["spec"]["clusterIP"], "10.96.1.1");
    let path = format!("{SERVICES}/web");
    assert_eq!(server.get(&path).await.json(), created);
    let refused = server.post(SERVICES, &service("web")).await.json();
    assert_eq!(refused["message"], "services \"web\" already exists");

    let mut stale = created.clone();
    stale["spec"]["ports"][0]["port"] = json!(81);
    let put = async |value: &Value| {
        server
            .send(
                "PUT",
                &path,
                &[("Content-Type", "application/json")],
                &value.to_string(),
            )
            .await
    };
    assert_eq!(put(&stale).await.code, 200);
    let conflict = put(&stale).await;
    assert_eq!(conflict.code, 409);
    assert_eq!(
        conflict.json()["message"],
        "Operation cannot be fulfilled on services \"web\": the object has been modified; please apply your changes to the latest version and try again"
    );

    let deleted = server.send("DELETE", &path, &[], "").await;
    let outcome = (deleted.code, deleted.json()["status"].clone());
    assert_eq!(outcome, (200, json!("Success")));
    assert_eq!(server.get(&path).await.code, 404);
}

/// Status code, method, target, content type (`-` for none) and body.
const BAD_REQUESTS: &str = r#"
400 POST /api/v1/namespaces/default/services application/json {
400 POST /api/v1/namespaces/default/services application/json []
415 POST /api/v1/namespaces/default/services text/plain {}
400 POST /api/v1/namespaces/default/services application/vnd.kubernetes.protobuf k8s
422 POST /api/v1/namespaces/default/services application/json {"metadata":{"name":"Web"},"spec":{"ports":[{"port":1}]}}
404 POST /api/v1/namespaces/none/services application/json {"metadata":{"name":"a"},"spec":{"ports":[{"port":1}]}}
400 POST /api/v1/namespaces/default/services application/json {"metadata":{"name":"z"},"spec":{"ports":[{"port":"80"}]}}
405 POST /api/v1/services application/json {}
405 DELETE /api/v1/namespaces/default/services application/json {}
400 DELETE /api/v1/namespaces/default/services/kubernetes?dryRun=All - {}
400 DELETE /api/v1/namespaces/default/services/kubernetes application/json {"dryRun":["All"]}
400 POST /api/v1/namespaces?dryRun=All application/json {"metadata":{"name":"dry"}}
405 PUT /api/v1/namespaces/default/services application/json {}
400 GET /api/v1/services?limit=x - -
400 GET /api/v1/services?labelSelector=a+b - -
400 GET /api/v1/services?fieldSelector=spec.type%3D1 - -
422 GET /api/v1/services?watch=1&sendInitialEvents=true - -
415 PATCH /api/v1/namespaces/default/services/kubernetes application/apply-patch+yaml {}
400 PATCH /api/v1/namespaces/default/services/kubernetes application/json-patch+json {"not":"a list"}
422 PATCH /api/v1/namespaces/default/services/kubernetes application/json-patch+json [{"op":"test","path":"/metadata/name","value":"other"}]
404 PATCH /api/v1/namespaces/default/services/none application/merge-patch+json {}
"#;

#[tokio::test]
async fn bad_request_gets_status_object_on_known_path() {
    let server = Server::start();
    for line in BAD_REQUESTS.trim().lines() {
        let words: Vec<&str> = line.splitn(5, ' ').collect();
        let [code, method, path, kind, body] = words[..] else {
            panic!("{line}")
        };
        let headers = [("Content-Type", kind)];
        let headers = if kind == "-" { &[] } else { &headers[..] };
        let response = server.send(method, path, headers, body).await;
        assert_eq!(response.code.to_string(), code, "{line}: {}", response.body);
        assert_eq!(response.json()["kind"], "Status", "{line}");
    }
    assert_eq!(
        server.get("/api/v1/nothing").await.body,
        "404 page not found\n"
    );
}
