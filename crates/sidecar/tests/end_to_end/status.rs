//! The JSON at `/status` and the status page at `/`, with and without answers from kubedns and the
//! nanny.

use serde_json::Value;
use testkit::eventually;
use testkit::http::ScriptedHttp;

use crate::healthcheck::Servers;
use crate::running::{PATIENCE, Sidecar};

async fn status(sidecar: &Sidecar) -> Value {
    let (code, body) = sidecar.get("/status").await;
    assert_eq!(code, 200);
    serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}"))
}

/// A server that returns this text for every page.
async fn says(body: &str) -> ScriptedHttp {
    ScriptedHttp::start(format!("HTTP/1.1 200 OK\r\n\r\n{body}")).await
}

#[tokio::test]
async fn status_has_probes_with_history() {
    let servers = Servers::start().await;
    let sidecar = Sidecar::start(&servers.probes()).await;
    let probes = eventually(PATIENCE, || async {
        let status = status(&sidecar).await;
        let probes = status["probes"].as_array().unwrap().clone();
        probes
            .iter()
            .all(|probe| probe["state"] != "waiting")
            .then_some(probes)
    })
    .await;
    let of = |label: &str| probes.iter().find(|probe| probe["label"] == label).unwrap();
    assert_eq!(of("good")["state"], "ok");
    assert_eq!(of("good")["name"], "www.outside.test.");
    assert!(of("good")["latencyMs"].as_f64().unwrap() > 0.0);
    assert_eq!(of("tcp")["transport"], "tcp");
    assert_eq!(of("nx")["state"], "failed");
    let missing = of("nx");
    assert_eq!(
        missing["error"],
        "no RRs for domain \"nowhere.outside.test.\""
    );
    assert_eq!(of("nx")["history"][0]["state"], "failed");
    let (code, page) = sidecar.get("/").await;
    assert_eq!(code, 200);
    assert!(
        page.contains("<polyline class=\"ok\"") || page.contains("<circle class=\"ok\""),
        "{page}"
    );
    assert!(
        page.contains("no RRs for domain &quot;nowhere.outside.test.&quot;"),
        "{page}"
    );
}

#[tokio::test]
async fn status_request_fetches_state_of_kubedns_and_nanny() {
    let kubedns = says("kubedns_synced 1\nkube_dns_build_info{version=\"9.8.7\"} 1\n").await;
    let nanny = says(r#"{"configuration":{"version":"00ff","rejected":2}}"#).await;
    let flags = [
        format!("--kubedns-metrics={}", kubedns.url("/metrics")),
        format!("--nanny-status={}", nanny.url("/status")),
    ];
    let sidecar = Sidecar::start(&flags).await;
    let status = status(&sidecar).await;
    assert_eq!(status["kubedns"]["known"]["version"], "9.8.7");
    assert_eq!(status["kubedns"]["known"]["synced"], true);
    assert_eq!(status["nanny"]["known"]["configuration"]["rejected"], 2);
    let (_, page) = sidecar.get("/").await;
    assert!(
        page.contains("kubedns 9.8.7") && page.contains("2 earlier edits were rejected"),
        "{page}"
    );
}

#[tokio::test]
async fn unavailable_kubedns_and_nanny_are_unknown() {
    let kubedns = ScriptedHttp::hanging("").await;
    let flags = [
        format!("--kubedns-metrics={}", kubedns.url("/metrics")),
        "--nanny-status=/nonexistent/status.json".to_owned(),
    ];
    let sidecar = Sidecar::start(&flags).await;
    let status = status(&sidecar).await;
    assert_eq!(status["kubedns"]["known"], Value::Null);
    assert_eq!(status["kubedns"]["error"], "no answer within 1s");
    assert_eq!(status["nanny"]["known"], Value::Null);
    let (_, page) = sidecar.get("/").await;
    assert!(
        page.contains("metrics unknown: http://127.0.0.1:"),
        "{page}"
    );
}

#[tokio::test]
async fn status_page_has_security_and_cache_headers() {
    let sidecar = Sidecar::start::<&str>(&[]).await;
    let reply = sidecar.reply("GET", "/").await;
    let head = reply.split("\r\n\r\n").next().unwrap();
    for header in [
        "Content-Type: text/html; charset=utf-8",
        "Content-Security-Policy: default-src 'none'; ",
        "Cache-Control: no-store",
    ] {
        assert!(head.contains(header), "{header}: {head}");
    }
}

/// In a pod with only kubedns, there is no health check of dnsmasq, and the pages do not mention
/// dnsmasq.
#[tokio::test]
async fn pod_without_dnsmasq_shows_no_dnsmasq() {
    let kubedns = says("kubedns_synced 1\n").await;
    let servers = Servers::start().await;
    let probe = servers.probes().remove(0).replace("=good,", "=kubedns,");
    let flags = [
        probe,
        "--dnsmasq-addr=".to_owned(),
        format!("--kubedns-metrics={}", kubedns.url("/metrics")),
    ];
    let sidecar = Sidecar::start(&flags).await;
    eventually(PATIENCE, || async {
        sidecar.get("/healthcheck/kubedns").await.0 == 200
    })
    .await;
    assert_eq!(sidecar.get("/healthcheck/dnsmasq").await.0, 404);
    let status = status(&sidecar).await;
    assert_eq!(status["dnsmasq"], Value::Null);
    assert_eq!(status["nanny"]["source"], "");
    for path in ["/", "/metrics"] {
        let (code, text) = sidecar.get(path).await;
        assert!(
            code == 200 && text.contains("kubedns") && !text.contains("dnsmasq"),
            "{path}: {text}"
        );
    }
}

/// The response of kubedns is passed on, even if it is an error.
#[tokio::test]
async fn explain_is_passed_to_kubedns() {
    let kubedns = ScriptedHttp::start("HTTP/1.1 400 Bad Request\r\n\r\nno such type\n").await;
    let explain = format!("--kubedns-explain={}", kubedns.url("/explain"));
    let sidecar = Sidecar::start(&[explain]).await;
    let target = "/explain?name=web.apps&type=X&format=text";
    let answer = sidecar.get(target).await;
    assert_eq!(answer, (400, "no such type\n".to_owned()));
    assert_eq!(kubedns.requests(), [format!("GET {target} HTTP/1.0")]);
    drop(kubedns);
    assert_eq!(sidecar.get("/explain?name=web.apps").await.0, 502);
    let without = Sidecar::start(&["--kubedns-explain="]).await;
    assert_eq!(without.get("/explain?name=web.apps").await.0, 404);
}

/// A probe that fails repeatedly is a finding in the verdict. The metrics show the finding without
/// a request for the page.
#[tokio::test]
async fn verdict_is_exported_as_metric() {
    let nobody = testkit::ports::free_port();
    let probe = format!("--probe=kubedns,127.0.0.1:{nobody},x.test,1,A");
    let sidecar = Sidecar::start(&[probe, "--dnsmasq-addr=".to_owned()]).await;
    eventually(PATIENCE, || async {
        sidecar.metric("kubedns_verdict").await == Some(2.0)
    })
    .await;
    let silent = "kubedns_verdict_findings{kind=\"kubedns_silent\"}";
    assert_eq!(sidecar.metric(silent).await, Some(1.0));
    let verdict = status(&sidecar).await["verdict"].clone();
    assert_eq!(verdict["level"], "down");
    assert_eq!(verdict["findings"][0]["kind"], "kubedns_silent");
    assert!(sidecar.get("/").await.1.contains("\u{2717} down"));
}
