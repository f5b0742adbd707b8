//! Writing and reading objects over HTTP.

use serde_json::{Value, json};

use crate::client::{Response, Server};

const SERVICES: &str = "/api/v1/namespaces/default/services";

fn service(name: &str) -> Value {
    json!({ "kind": "Service", "apiVersion": "v1", "metadata": { "name": name }, "spec": { "ports": [{ "port": 80 }] } })
}

async fn patch(server: &Server, kind: &str, path: &str, body: &Value) -> Response {
    let media_type = format!("application/{kind}");
    server
        .send(
            "PATCH",
            path,
            &[("Content-Type", &media_type)],
            &body.to_string(),
        )
        .await
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
    assert_eq!(
        server.post(SERVICES, &service("web")).await.json()["message"],
        "services \"web\" already exists"
    );

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
    assert_eq!(
        (deleted.code, deleted.json()["status"].clone()),
        (200, json!("Success"))
    );
    assert_eq!(server.get(&path).await.code, 404);
}

#[tokio::test]
async fn every_patch_type_applies() {
    let server = Server::start();
    server.post(SERVICES, &service("web")).await;
    let path = format!("{SERVICES}/web");
    let cases = [
        (
            "merge-patch+json",
            json!({ "metadata": { "labels": { "a": "1" } } }),
            200,
        ),
        (
            "strategic-merge-patch+json",
            json!({ "spec": { "ports": [{ "port": 80, "name": "http" }] } }),
            200,
        ),
        (
            "json-patch+json",
            json!([{ "op": "add", "path": "/metadata/labels/b", "value": "2" }]),
            200,
        ),
        ("apply-patch+yaml", json!({}), 415),
        (
            "merge-patch+json",
            json!({ "spec": { "clusterIP": "10.96.9.9" } }),
            422,
        ),
        (
            "json-patch+json",
            json!([{ "op": "test", "path": "/metadata/name", "value": "other" }]),
            422,
        ),
        ("json-patch+json", json!({ "not": "a list" }), 400),
    ];
    for (kind, body, code) in cases {
        let response = patch(&server, kind, &path, &body).await;
        assert_eq!(response.code, code, "{}", response.body);
    }
    let value = server.get(&path).await.json();
    assert_eq!(value["metadata"]["labels"], json!({ "a": "1", "b": "2" }));
    assert_eq!(value["spec"]["ports"][0]["name"], "http");
    assert_eq!(
        patch(
            &server,
            "merge-patch+json",
            &format!("{SERVICES}/none"),
            &json!({})
        )
        .await
        .code,
        404
    );
}

/// Method, target, content type and body of a request, and the status code of its response.
type BadRequest = (&'static str, &'static str, &'static str, &'static str, u16);

const BAD_REQUESTS: &[BadRequest] = &[
    ("POST", SERVICES, "application/json", "{", 400),
    ("POST", SERVICES, "application/json", "[]", 400),
    ("POST", SERVICES, "text/plain", "{}", 415),
    (
        "POST",
        SERVICES,
        "application/vnd.kubernetes.protobuf",
        "k8s",
        400,
    ),
    (
        "POST",
        SERVICES,
        "application/json",
        r#"{"metadata":{"name":"Web"},"spec":{"ports":[{"port":1}]}}"#,
        422,
    ),
    (
        "POST",
        "/api/v1/namespaces/none/services",
        "application/json",
        r#"{"metadata":{"name":"a"},"spec":{"ports":[{"port":1}]}}"#,
        404,
    ),
    (
        "POST",
        SERVICES,
        "application/json",
        r#"{"metadata":{"name":"z"},"spec":{"ports":[{"port":"80"}]}}"#,
        400,
    ),
    ("POST", "/api/v1/services", "application/json", "{}", 405),
    ("DELETE", SERVICES, "application/json", "", 405),
    (
        "DELETE",
        "/api/v1/namespaces/default/services/kubernetes?dryRun=All",
        "",
        "",
        400,
    ),
    (
        "DELETE",
        "/api/v1/namespaces/default/services/kubernetes",
        "application/json",
        r#"{"dryRun":["All"]}"#,
        400,
    ),
    (
        "POST",
        "/api/v1/namespaces?dryRun=All",
        "application/json",
        r#"{"metadata":{"name":"dry"}}"#,
        400,
    ),
    ("PUT", SERVICES, "application/json", "{}", 405),
    ("GET", "/api/v1/services?limit=x", "", "", 400),
    ("GET", "/api/v1/services?labelSelector=a+b", "", "", 400),
    (
        "GET",
        "/api/v1/services?fieldSelector=spec.type%3D1",
        "",
        "",
        400,
    ),
    (
        "GET",
        "/api/v1/services?watch=1&sendInitialEvents=true",
        "",
        "",
        422,
    ),
];

#[tokio::test]
async fn bad_request_gets_a_status() {
    let server = Server::start();
    for &(method, path, kind, body, code) in BAD_REQUESTS {
        let headers = if kind.is_empty() {
            vec![]
        } else {
            vec![("Content-Type", kind)]
        };
        let response = server.send(method, path, &headers, body).await;
        assert_eq!(
            response.code, code,
            "{method} {path} {body}: {}",
            response.body
        );
        assert_eq!(response.json()["kind"], "Status", "{path}");
    }
    assert_eq!(
        server.get("/api/v1/nothing").await.body,
        "404 page not found\n"
    );
}

#[tokio::test]
async fn accept_header_selects_encoding() {
    let server = Server::start();
    let table = [(
        "Accept",
        "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
    )];
    let value = server
        .send("GET", "/api/v1/services", &table, "")
        .await
        .json();
    assert_eq!(value["kind"], "Table");
    assert_eq!(value["rows"][0]["cells"][0], "kubernetes");
    let html = [("Accept", "text/html")];
    assert_eq!(
        server.send("GET", "/api/v1/services", &html, "").await.code,
        406
    );
}
