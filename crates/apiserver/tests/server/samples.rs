//! Compares responses with responses that were recorded from a real kube-apiserver. Values that are
//! different in every run are not compared.

use serde_json::{Value, json};

use crate::client::{Response, Server};

macro_rules! sample {
    ($name:literal) => {
        Sample::parse(include_str!(concat!("samples/", $name, ".txt")))
    };
}

/// A recorded exchange.
struct Sample {
    path: String,
    code: u16,
    headers: Vec<(String, String)>,
    body: String,
}

impl Sample {
    fn parse(text: &str) -> Self {
        let (request, rest) = text.split_once("\n\n").unwrap();
        let (head, body) = rest.split_once("\n\n").unwrap();
        let mut head = head.lines();
        let status = head.next().unwrap();
        let code = status.split(' ').nth(1).unwrap().parse().unwrap();
        let headers = head.map(|line| line.split_once(": ").unwrap());
        let headers = headers
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        let path = request.split(' ').nth(1).unwrap().trim().to_owned();
        Self {
            path,
            code,
            headers,
            body: body.replace("<end of stream>", "").trim().to_owned(),
        }
    }

    fn lines(&self) -> Vec<Value> {
        self.body
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

/// A server with the objects that the recorded server had.
async fn cluster() -> Server {
    let server = Server::start();
    let make = async |path: &str, body: Value| {
        let response = server.post(path, &body).await;
        assert_eq!(response.code, 201, "{}", response.body);
    };
    make(
        "/api/v1/namespaces",
        json!({ "metadata": { "name": "apps" } }),
    )
    .await;
    let services = "/api/v1/namespaces/apps/services";
    make(
        services,
        json!({ "metadata": { "name": "web" }, "spec": {
            "clusterIP": "10.96.1.10", "clusterIPs": ["10.96.1.10", "fd00:10:96::110"], "ipFamilyPolicy": "RequireDualStack",
            "ports": [{ "name": "http", "port": 80 }, { "name": "dns", "port": 53, "protocol": "UDP" }],
        } }),
    )
    .await;
    let ports = json!([{ "name": "sql", "port": 5432 }]);
    make(
        services,
        json!({ "metadata": { "name": "db" }, "spec": { "clusterIP": "None", "ports": ports } }),
    )
    .await;
    make(
        "/api/v1/namespaces/apps/endpoints",
        json!({ "metadata": { "name": "db" }, "subsets": [{
            "addresses": [{ "ip": "10.244.0.11", "hostname": "db-0" }, { "ip": "10.244.0.12" }], "ports": ports,
        }] }),
    )
    .await;
    make(
        services,
        json!({ "metadata": { "name": "ext" }, "spec": { "type": "ExternalName", "externalName": "www.outside.test" } }),
    )
    .await;
    make(
        "/api/v1/namespaces/kube-system/configmaps",
        json!({ "metadata": { "name": "kube-apiserver-legacy-service-account-token-tracking" },
                "data": { "since": "2026-11-20" } }),
    )
    .await;
    server
}

/// Writes `<blank>` for the values that are different in every run: resourceVersions, UIDs, times
/// and continue tokens. Removes `managedFields`, which this server does not write. In messages,
/// replaces the user of kube-dns with the recorded user `nobody`, and removes the current
/// resourceVersion.
fn blank(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.remove("managedFields");
            for (field, value) in map.iter_mut() {
                match field.as_str() {
                    "resourceVersion" | "uid" | "creationTimestamp" | "continue" => {
                        *value = json!("<blank>");
                    }
                    "message" => *value = json!(blank_message(value.as_str().unwrap())),
                    _ => blank(value),
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(blank),
        _ => {}
    }
}

fn blank_message(text: &str) -> String {
    let text = text.replace("system:serviceaccount:kube-system:kube-dns", "nobody");
    let versions: String = text.split('(').next().unwrap_or_default().to_owned();
    if text.starts_with("too old resource version") {
        versions
    } else {
        text
    }
}

fn assert_same(sample: &Sample, response: &Response) {
    let path = &sample.path;
    assert_eq!(response.code, sample.code, "{path}");
    for (name, value) in &sample.headers {
        if name == "content-length" || name == "transfer-encoding" {
            continue;
        }
        let value_sent = response.header(name);
        assert_eq!(value_sent, Some(value.as_str()), "{path}: {name}");
    }
    let mut expected: Value = serde_json::from_str(&sample.body).unwrap();
    let mut given = response.json();
    blank(&mut expected);
    blank(&mut given);
    assert_eq!(given, expected, "{path}\n{given:#}\n{expected:#}");
    assert!(response.body.ends_with('\n'), "{path}");
}

#[tokio::test]
async fn responses_match_recordings() {
    let server = cluster().await;
    let samples = [
        sample!("list-services"),
        sample!("list-services-limit"),
        sample!("list-services-rv0"),
        sample!("list-endpoints"),
        sample!("list-configmaps-kube-system"),
        sample!("list-nodes-empty"),
        sample!("get-configmap-missing"),
        sample!("watch-bad-resource-version"),
    ];
    for sample in samples {
        assert_same(&sample, &server.get(&sample.path).await);
    }
}

#[tokio::test]
async fn refusals_match_recordings() {
    let server = cluster().await;
    server.faults.require_token(Some("secret"));
    server.faults.forbid(apiserver::Resource::Services);
    for (sample, authorization) in [
        (sample!("list-no-token"), None),
        (sample!("list-bad-token"), Some("Bearer wrong")),
        (sample!("list-forbidden"), Some("Bearer secret")),
    ] {
        let headers: Vec<_> = authorization
            .map(|value| ("Authorization", value))
            .into_iter()
            .collect();
        let response = server.send("GET", &sample.path, &headers, "").await;
        assert_same(&sample, &response);
    }
}

async fn watched(server: &Server, sample: &Sample, path: &str) {
    let mut watch = server.watch(path).await;
    assert_eq!(watch.code, sample.code);
    let mut events = Vec::new();
    while let Some(mut event) = watch.event().await {
        blank(&mut event);
        events.push(event);
    }
    let mut expected = sample.lines();
    expected.iter_mut().for_each(blank);
    assert_eq!(events, expected, "{path}");
}

#[tokio::test]
async fn watches_match_recordings() {
    let server = cluster().await;
    for sample in [
        sample!("watch-services-no-version"),
        sample!("watch-expired-resource-version"),
        sample!("watch-future-resource-version"),
    ] {
        watched(&server, &sample, &sample.path).await;
    }
}

#[tokio::test]
async fn watch_of_changes_matches_recording() {
    let server = cluster().await;
    let version = server.store.version();
    let services = "/api/v1/namespaces/apps/services";
    let mut tmp = json!({ "metadata": { "name": "tmp" }, "spec": { "clusterIP": "10.96.1.20", "ports": [{ "name": "http", "port": 80 }] } });
    assert_eq!(server.post(services, &tmp).await.code, 201);
    tmp["spec"]["ports"][0]["port"] = json!(81);
    let json_type = [("Content-Type", "application/json")];
    let updated = server
        .send(
            "PUT",
            &format!("{services}/tmp"),
            &json_type,
            &tmp.to_string(),
        )
        .await;
    assert_eq!(updated.code, 200, "{}", updated.body);
    let deleted = server
        .send("DELETE", &format!("{services}/tmp"), &[], "")
        .await
        .code;
    assert_eq!(deleted, 200);
    let sample = sample!("watch-services");
    let path = sample
        .path
        .replace("resourceVersion=215", &format!("resourceVersion={version}"));
    watched(&server, &sample, &path).await;
}
