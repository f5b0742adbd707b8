//! `/healthcheck/<label>` and related paths, compared with recorded responses of kube-dns.

use std::collections::BTreeMap;

use serde_json::Value;
use testkit::eventually;
use testkit::reply::Reply;
use testkit::upstream::{Asked, Reaction, Upstream};

use crate::running::{PATIENCE, Sidecar};

/// The targets of the probes: two scripted servers, and a port without a server.
pub(crate) struct Servers {
    upstream: Upstream,
    silent: Upstream,
    dead: u16,
}

impl Servers {
    pub(crate) async fn start() -> Self {
        Self {
            upstream: Upstream::start(upstream).await,
            silent: Upstream::start(|_: &Asked| Reaction::silence()).await,
            dead: testkit::ports::free_port(),
        }
    }

    /// The `--probe` arguments with which the sidecar of kube-dns was recorded, but with these
    /// targets, and with one more probe: `tcp`.
    pub(crate) fn probes(&self) -> Vec<String> {
        let up = self.upstream.addr();
        [
            format!("good,{up},www.outside.test,1,A"),
            format!("nodata,{up},v4only.outside.test,1,AAAA"),
            format!("nx,{up},nowhere.outside.test,1,A"),
            format!("refused,{up},www.unknown-domain.test,1,A"),
            format!("servfail,{up},servfail.quirk.test,1,A"),
            format!("truncated,{up},tc.quirk.test,1,A"),
            format!("dead,127.0.0.1:{},www.outside.test,1,A", self.dead),
            format!("silent,{},www.outside.test,1,A", self.silent.addr()),
            format!("any,{up},www.outside.test,1"),
            format!("tcp,{up},www.outside.test,1,A/tcp"),
        ]
        .map(|probe| format!("--probe={probe}"))
        .to_vec()
    }
}

fn upstream(asked: &Asked) -> Reaction {
    let reply = Reply::to(&asked.packet);
    match asked.name().as_str() {
        "www.outside.test." => reply
            .answer("www.outside.test. 60 IN A 198.51.100.10")
            .into(),
        "v4only.outside.test." => reply.into(),
        "nowhere.outside.test." => reply.rcode("NXDOMAIN").into(),
        "servfail.quirk.test." => reply.rcode("SERVFAIL").into(),
        "tc.quirk.test." => reply.truncated().into(),
        _ => reply.rcode("REFUSED").into(),
    }
}

/// Status line, headers and body of a response, with varying numbers blanked and headers sorted.
/// The headers `Date` and `Content-Length` are left out.
fn normal(reply: &str) -> (String, BTreeMap<String, String>, String) {
    let reply = reply.replace("\r\n", "\n");
    let (head, body) = reply.split_once("\n\n").unwrap();
    let mut lines = head.lines();
    let status = lines.next().unwrap().to_owned();
    let mut headers: BTreeMap<String, String> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    headers.remove("Date");
    let length: usize = headers.remove("Content-Length").unwrap().parse().unwrap();
    let body = body.strip_suffix('\n').unwrap_or(body);
    // Recordings may end in a line feed that Content-Length does not include. If a recording has
    // the placeholder `DEAD` or `SILENT` instead of a port, the length differs.
    assert!(
        length == body.len()
            || length == body.len() + 1
            || body.contains("DEAD")
            || body.contains("SILENT")
    );
    (status, headers, blank(body))
}

fn blank(body: &str) -> String {
    match serde_json::from_str::<Value>(body) {
        Ok(value)
            if value["LatencySeconds"]
                .as_f64()
                .is_some_and(|latency| latency > 0.0) =>
        {
            body.replace(&value["LatencySeconds"].to_string(), "LATENCY")
        }
        _ => {
            let words: Vec<&str> = body
                .split(':')
                .map(|word| word.trim_start_matches(|c: char| c.is_ascii_digit()))
                .collect();
            words.join(":").replace("DEAD", "").replace("SILENT", "")
        }
    }
}

/// The recorded reply of the sidecar of kube-dns to `/healthcheck/<label>`. `case` is the label, or
/// `unknown-label`, or `not-yet-probed`.
fn captured(case: &str) -> String {
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data");
    std::fs::read_to_string(format!("{data}/sidecar-http-healthcheck-{case}.txt")).unwrap()
}

#[tokio::test]
async fn replies_are_those_of_kube_dns() {
    let servers = Servers::start().await;
    let sidecar = Sidecar::start(&servers.probes()).await;
    let labels = "good nodata nx refused servfail truncated dead silent any tcp";
    for label in labels.split(' ') {
        // kube-dns has no probes over TCP. The reply for such a probe must be the same as over UDP.
        let captured = captured(if label == "tcp" { "good" } else { label });
        let path = format!("/healthcheck/{label}");
        let reply = eventually(PATIENCE, || async {
            let reply = sidecar.reply("GET", &path).await;
            (!reply.contains("waiting for first probe")).then_some(reply)
        })
        .await;
        assert_eq!(normal(&reply), normal(&captured), "{label}");
    }
    let unknown = sidecar.reply("GET", "/healthcheck/unknown").await;
    assert_eq!(normal(&unknown), normal(&captured("unknown-label")));
    for path in [
        "/healthcheck/",
        "/healthcheck",
        "/healthcheck/good/",
        "/none",
        "/healthcheck/%00",
    ] {
        let shown = sidecar.get(path).await;
        assert_eq!(shown, (404, "404 page not found\n".to_owned()), "{path}");
    }
}

#[tokio::test]
async fn probe_without_result_fails_its_check() {
    let silent = Upstream::start(|_: &Asked| Reaction::silence()).await;
    let probe = format!("--probe=later,{},www.outside.test,600,SRV", silent.addr());
    let sidecar = Sidecar::start(&[probe]).await;
    let reply = sidecar.reply("GET", "/healthcheck/later").await;
    assert_eq!(normal(&reply), normal(&captured("not-yet-probed")));
}

#[tokio::test]
async fn healthz_has_the_time() {
    let sidecar = Sidecar::start::<&str>(&[]).await;
    let shape = |reply: &str| {
        let (status, headers, body) = normal(reply);
        let body: String = body
            .chars()
            .map(|c| if c.is_ascii_digit() { '0' } else { c })
            .collect();
        // The seconds since the start have a varying number of digits.
        (
            status,
            headers,
            body.split("m=+").next().unwrap().to_owned(),
        )
    };
    let reply = sidecar.reply("GET", "/healthz").await;
    let expected = shape(include_str!("../data/sidecar-http-healthz.txt"));
    assert_eq!(shape(&reply), expected);
    assert!(reply.ends_with(')'), "{reply}");
}

#[tokio::test]
async fn head_and_post_return_200() {
    let sidecar = Sidecar::start::<&str>(&[]).await;
    for path in ["/metrics", "/healthz", "/status", "/"] {
        let head = sidecar.reply("HEAD", path).await;
        assert!(
            head.starts_with("HTTP/1.1 200 OK\r\n") && head.ends_with("\r\n\r\n"),
            "{path}: {head}"
        );
        let post = sidecar.reply("POST", path).await;
        assert!(post.starts_with("HTTP/1.1 200 OK\r\n"), "{path}: {post}");
    }
}
