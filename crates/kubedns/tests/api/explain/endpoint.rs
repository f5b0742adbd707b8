//! `GET /explain` over HTTP.

use futures::future::join_all;
use serde_json::{Value, json};

use super::{cluster, ready};

/// The values at these JSON pointers.
fn at<const N: usize>(value: &Value, pointers: [&str; N]) -> [Value; N] {
    pointers.map(|pointer| value.pointer(pointer).cloned().unwrap_or_default())
}

#[tokio::test]
async fn name_is_explained_as_json() {
    let cluster = cluster();
    let kubedns = ready(&cluster, &[]).await;
    let explanation = kubedns.explain("name=web&type=a&search=apps").await;
    let found = at(
        &explanation,
        [
            "/verdict",
            "/question/types",
            "/tried/0/name",
            "/tried/1/asked",
            "/detail/route",
            "/detail/place",
            "/detail/answers/0/records",
            "/detail/objects/0/service/cluster_ips",
            "/detail/objects/0/endpoints/ready",
            "/detail/dnsmasq",
            "/warnings",
            "/near",
            "/server/records_from",
        ],
    );
    let name = "web.apps.svc.cluster.local.";
    let expected = [
        json!({"outcome": "answered", "text": "resolves to 10.96.0.10"}),
        json!(["A"]),
        json!(name),
        json!(false),
        json!({"kind": "cluster_domain", "domain": "cluster.local."}),
        json!({"kind": "service", "namespace": "apps", "name": "web"}),
        json!([{"name": name, "type": "A", "data": "10.96.0.10", "ttl": 30}]),
        json!(["10.96.0.10"]),
        json!(2),
        json!({"asks": "kubedns", "domain": "cluster.local.", "servers": [], "keeps_seconds": 30}),
        json!([]),
        json!([]),
        json!("api_server"),
    ];
    assert_eq!(found, expected, "{explanation:#}");
    assert_eq!(
        explanation["detail"]["objects"][0]["service"]["created"],
        "2026-01-02T03:04:05Z"
    );
}

#[tokio::test]
async fn explanation_follows_events() {
    let cluster = cluster();
    let kubedns = ready(&cluster, &[]).await;
    let explanation = kubedns.explain("name=api.apps.svc.cluster.local.").await;
    assert_eq!(explanation["verdict"]["outcome"], "nx_domain");
    assert_eq!(
        explanation["detail"]["reasons"][0]["code"],
        "no_such_service"
    );
    cluster.set(testkit::objects::mk_headless("apps", "api", &["http:80"]));
    let code = |code: &'static str| {
        let kubedns = &kubedns;
        move || async move {
            let explanation = kubedns.explain("name=api.apps.svc.cluster.local.").await;
            explanation["detail"]["reasons"][0]["code"]
                .as_str()
                .unwrap_or_default()
                == code
        }
    };
    kubedns.until(code("no_ready_endpoints")).await;
    cluster.set(testkit::objects::mk_endpoints(
        "apps",
        "api",
        &["10.0.0.9"],
        &["http:80"],
    ));
    kubedns.until(code("")).await;
}

/// The query of a request, and the beginning of its error.
const EXPLAIN_MISTAKES: &[(&str, &str)] = &[
    (
        "",
        "no name: /explain?name=NAME, optionally with &type=TYPE",
    ),
    ("?", "no name: "),
    ("?name=", "no name: "),
    ("?name=http://", "no name: "),
    ("?name=a..b", "not a domain name: empty label in \"a..b\""),
    (
        "?name=web%0ainjected",
        "not a domain name: only visible ASCII characters",
    ),
    (
        "?name=%ff",
        "not a domain name: only visible ASCII characters",
    ),
    ("?name=web&type=B", "unknown type \"B\": A, AAAA, SRV, PTR,"),
    (
        "?name=web&search=A_B",
        "search \"A_B\": neither a namespace nor a list of domains",
    ),
    (
        "?name=web&search=a..b+c",
        "search \"a..b\": neither a namespace nor a list of domains",
    ),
    (
        "?name=web&ndots=-1",
        "ndots \"-1\": a number from 0 to 15 is accepted",
    ),
    (
        "?name=web&ndots=16",
        "ndots \"16\": a number from 0 to 15 is accepted",
    ),
    (
        "?name=web&ndots=x",
        "ndots \"x\": a number from 0 to 15 is accepted",
    ),
    (
        "?name=web&format=xml",
        "format \"xml\": json and text are accepted",
    ),
    ("?name=web&name=db", "name is given more than once"),
    (
        "?name=web&format=text&format=json",
        "format is given more than once",
    ),
    (
        "?nmae=web",
        "unknown parameter \"nmae\": name, type, search, ndots and format are accepted",
    ),
];

#[tokio::test]
async fn explain_mistake_is_one_line() {
    let cluster = cluster();
    let kubedns = ready(&cluster, &[]).await;
    let long = "a".repeat(256);
    let longer = "a.".repeat(5000);
    let label = "a".repeat(64);
    let many = "a.b+".repeat(33);
    let search = "a.b+".repeat(1300);
    let too_long = "the search list is too long: at most 32 domains";
    let long_values = [
        (
            format!("?name={long}"),
            "the name has 256 characters, and a name has at most 255",
        ),
        (
            format!("?name={longer}"),
            "the name has 10000 characters, and a name has at most 255",
        ),
        (
            format!("?name={label}"),
            "not a domain name: label of more than 63 octets",
        ),
        (format!("?name=web&search={many}"), too_long),
        (format!("?name=web&search={search}"), too_long),
    ];
    let long_values = long_values
        .iter()
        .map(|(query, line)| (query.as_str(), *line));
    for (query, line) in EXPLAIN_MISTAKES.iter().copied().chain(long_values) {
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
async fn explain_accepts_get_alone() {
    let cluster = cluster();
    let kubedns = ready(&cluster, &[]).await;
    for (method, status) in [
        ("GET", 200),
        ("HEAD", 200),
        ("POST", 405),
        ("PUT", 405),
        ("DELETE", 405),
    ] {
        let reply = testkit::http::request(kubedns.status, method, "/explain?name=web.apps")
            .await
            .unwrap();
        assert!(
            reply.starts_with(&format!("HTTP/1.1 {status} ")),
            "{method}: {reply}"
        );
        let allow = reply
            .lines()
            .find(|line| line.to_ascii_lowercase().starts_with("allow:"));
        assert_eq!(
            allow.is_some_and(|line| line.ends_with("GET, HEAD")),
            status == 405,
            "{method}: {reply}"
        );
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
async fn explaining_changes_no_metrics() {
    let cluster = cluster();
    let kubedns = ready(&cluster, &[]).await;
    let state = || async {
        let metrics = kubedns.metrics().await;
        let counts = |line: &&str| {
            line.starts_with("skydns_")
                || line.starts_with("kubedns_forward_")
                || line.starts_with("kubedns_publi")
        };
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
            503 => assert_eq!(body, "4 names are being explained already, ask again\n"),
            other => panic!("{other}: {body}"),
        }
    }
    assert_eq!(
        kubedns.explain("name=web.apps").await["verdict"]["outcome"],
        "answered"
    );
}
