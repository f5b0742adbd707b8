//! `GET /explain` over HTTP.

use futures::future::join_all;
use serde_json::json;

use testkit::objects::{mk_endpoints, mk_headless};
use testkit::table;

use super::{cluster, ready};

#[tokio::test]
async fn name_is_explained_as_json() {
    let cluster = cluster();
    let kubedns = ready(&cluster, &[]).await;
    let explanation = kubedns.explain("name=web&type=a&search=apps").await;
    let name = "web.apps.svc.cluster.local.";
    let verdict = json!({"outcome": "answered", "text": "resolves to 10.96.0.10"});
    let route = json!({"kind": "cluster_domain", "domain": "cluster.local."});
    let place = json!({"kind": "service", "namespace": "apps", "name": "web"});
    let record = json!({"name": name, "type": "A", "data": "10.96.0.10", "ttl": 30});
    let dnsmasq =
        json!({"asks": "kubedns", "domain": "cluster.local.", "servers": [], "keeps_seconds": 30});
    let created = json!("2026-01-02T03:04:05Z");
    for (pointer, expected) in [
        ("/verdict", verdict),
        ("/question/types", json!(["A"])),
        ("/tried/0/name", json!(name)),
        ("/tried/1/asked", json!(false)),
        ("/detail/route", route),
        ("/detail/place", place),
        ("/detail/answers/0/records", json!([record])),
        (
            "/detail/objects/0/service/cluster_ips",
            json!(["10.96.0.10"]),
        ),
        ("/detail/objects/0/service/created", created),
        ("/detail/objects/0/endpoints/ready", json!(2)),
        ("/detail/dnsmasq", dnsmasq),
        ("/warnings", json!([])),
        ("/near", json!([])),
        ("/server/records_from", json!("api_server")),
    ] {
        let found = explanation.pointer(pointer);
        assert_eq!(found, Some(&expected), "{pointer}: {explanation:#}");
    }
}

#[tokio::test]
async fn explanation_follows_changes_of_objects() {
    let cluster = cluster();
    let kubedns = ready(&cluster, &[]).await;
    let name = "name=api.apps.svc.cluster.local.";
    let explanation = kubedns.explain(name).await;
    assert_eq!(explanation["verdict"]["outcome"], "nx_domain");
    let code = &explanation["detail"]["reasons"][0]["code"];
    assert_eq!(code, "no_such_service");
    cluster.set(mk_headless("apps", "api", &["http:80"]));
    let code = |code: &'static str| {
        let kubedns = &kubedns;
        move || async move {
            let explanation = kubedns.explain(name).await;
            let found = explanation["detail"]["reasons"][0]["code"].as_str();
            found.unwrap_or_default() == code
        }
    };
    kubedns.until(code("no_ready_endpoints")).await;
    cluster.set(mk_endpoints("apps", "api", &["10.0.0.9"], &["http:80"]));
    kubedns.until(code("")).await;
}

/// The query string of a request, and the beginning of the error.
const EXPLAIN_MISTAKES: &str = r#"
                                      | the request has no name: use /explain?name=NAME, optionally with &type=TYPE
    ?                                 | the request has no name: use /explain?name=NAME, optionally with &type=TYPE
    ?name=                            | the request has no name: use /explain?name=NAME, optionally with &type=TYPE
    ?name=http://                     | "http://" contains no name
    ?name=a..b                        | not a domain name: empty label in "a..b"
    ?name=web%0ainjected              | not a domain name: only visible ASCII characters
    ?name=%ff                         | not a domain name: only visible ASCII characters
    ?name=web&type=B                  | unknown type "B"; expected one of A, AAAA, SRV, PTR,
    ?name=web&search=A_B              | search "A_B" is neither a namespace nor a list of domains
    ?name=web&search=a..b+c           | search "a..b" is neither a namespace nor a list of domains
    ?name=web&ndots=-1                | ndots "-1": a number from 0 to 15 is accepted
    ?name=web&ndots=16                | ndots "16": a number from 0 to 15 is accepted
    ?name=web&ndots=x                 | ndots "x": a number from 0 to 15 is accepted
    ?name=web&format=xml              | format "xml": json and text are accepted
    ?name=web&name=db                 | parameter name is given more than once
    ?name=web&format=text&format=json | parameter format is given more than once
    ?nmae=web                         | unknown parameter "nmae": name, type, search, ndots and format are accepted
"#;

#[tokio::test]
async fn invalid_explain_request_has_one_line_error() {
    let cluster = cluster();
    let kubedns = ready(&cluster, &[]).await;
    let label = "a".repeat(64);
    let name_length = "octets, but a name has at most 255";
    let too_long = "the search list is too long: at most 32 domains";
    let long_values = [
        ("a".repeat(256), format!("the text has 256 {name_length}")),
        (
            "a.".repeat(5000),
            format!("the text has 10000 {name_length}"),
        ),
        (
            label,
            "not a domain name: label of more than 63 octets".to_owned(),
        ),
        (
            "web&search=".to_owned() + &"a.b+".repeat(33),
            too_long.to_owned(),
        ),
        (
            "web&search=".to_owned() + &"a.b+".repeat(1300),
            too_long.to_owned(),
        ),
    ]
    .map(|(name, line)| (format!("?name={name}"), line));
    let long_values = long_values
        .iter()
        .map(|(query, line)| (query.as_str(), line.as_str()));
    let mistakes = table::rows(EXPLAIN_MISTAKES).into_iter();
    for (query, line) in mistakes.map(Into::into).chain(long_values) {
        let (code, body) = kubedns.get(format!("/explain{query}")).await;
        assert_eq!(code, 400, "{query}: {body}");
        assert!(
            body.starts_with(line) && body.lines().count() == 1 && body.len() < 300,
            "{query}: {body}"
        );
    }
    assert_eq!(kubedns.get("/explain/?name=web").await.0, 404);
}

#[tokio::test]
async fn explain_accepts_only_get_and_head() {
    let cluster = cluster();
    let kubedns = ready(&cluster, &[]).await;
    for (method, status) in [
        ("GET", 200),
        ("HEAD", 200),
        ("POST", 405),
        ("PUT", 405),
        ("DELETE", 405),
    ] {
        let target = "/explain?name=web.apps";
        let reply = testkit::http::request(kubedns.status, method, target).await;
        let reply = reply.unwrap().to_ascii_lowercase();
        let start = format!("http/1.1 {status} ");
        assert!(reply.starts_with(&start), "{method}: {reply}");
        let has_allow = reply.lines().any(|line| line == "allow: get, head");
        assert_eq!(has_allow, status == 405, "{method}: {reply}");
    }
}

#[tokio::test]
async fn explanation_is_text_on_request() {
    let cluster = cluster();
    let kubedns = ready(&cluster, &[]).await;
    let (code, text) = kubedns.get("/explain?name=10.244.1.20&format=text").await;
    assert_eq!(code, 200);
    assert!(
        text.starts_with("10.244.1.20 belongs to db-0.db.apps.svc.cluster.local.\nanswer "),
        "{text}"
    );
}

#[tokio::test]
async fn explaining_changes_neither_dns_metrics_nor_cache() {
    let cluster = cluster();
    let kubedns = ready(&cluster, &[]).await;
    let state = || async {
        let metrics = kubedns.metrics().await;
        let counters = ["skydns_", "kubedns_forward_", "kubedns_publi"];
        let counts = |line: &&str| counters.iter().any(|counter| line.starts_with(counter));
        let counted: Vec<String> = metrics.lines().filter(counts).map(str::to_owned).collect();
        (kubedns.get("/cache").await, counted)
    };
    let before = state().await;
    assert!(!before.1.is_empty());
    let queries = [
        "web.apps",
        "nothing",
        "*.*",
        "www.example.com",
        "10.96.0.10",
        "192.0.2.1",
    ];
    join_all(queries.map(|name| kubedns.get(format!("/explain?name={name}")))).await;
    assert_eq!(state().await, before);
}

#[tokio::test]
async fn concurrent_explanations_are_bounded() {
    let cluster = cluster();
    let kubedns = ready(&cluster, &[]).await;
    let all = (0..60).map(|_| kubedns.get("/explain?name=*.*.svc.cluster.local"));
    for (code, body) in join_all(all).await {
        match code {
            200 => assert!(body.contains("\"verdict\"")),
            503 => assert_eq!(
                body,
                "kubedns already has 4 requests for explanations; ask again later\n"
            ),
            other => panic!("{other}: {body}"),
        }
    }
    let explanation = kubedns.explain("name=web.apps").await;
    assert_eq!(explanation["verdict"]["outcome"], "answered");
}
