//! Taps (requests to `/tap`), the ranking (`/top`) and the query log. Taps and the ranking never
//! restart dnsmasq.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use daemon::http::{StreamingPage, get_streaming};
use nix::sys::signal::Signal;
use querylog::QueryLine;
use querylog::ranking::{RankingDocument, RankingRow};
use serde_json::Value;
use testkit::client::TcpConnection;
use testkit::query::Query;
use testkit::reply::Reply;
use testkit::upstream::{Asked, Reaction, Upstream};
use testkit::{eventually, http, message};
use tokio::net::UdpSocket;

use super::rig::{NannyRig, NannySetup, PATIENCE, at, only};

async fn upstream() -> Upstream {
    Upstream::start(|asked: &Asked| {
        let reply = Reply::to(&asked.packet);
        match asked.name().as_str() {
            "www.example.test." => reply.answer("www.example.test. 60 IN A 192.0.2.1").into(),
            "slow.example.test." => {
                Reaction::from(reply.rcode("NXDOMAIN")).after(Duration::from_millis(250))
            }
            _ => reply.rcode("NXDOMAIN").into(),
        }
    })
    .await
}

async fn tap(status: SocketAddr, target: &str) -> StreamingPage {
    get_streaming(&status.to_string(), target, PATIENCE)
        .await
        .unwrap()
        .unwrap()
}

/// The client, name, type and RCODE in the next line of the tap.
async fn line(following: &mut StreamingPage) -> String {
    let line = tokio::time::timeout(PATIENCE, following.line(4096))
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    let query: QueryLine = serde_json::from_str(&line).unwrap();
    let QueryLine { client, name, .. } = &query;
    format!("{client} {name} {} {}", query.qtype, query.rcode)
}

async fn restarted(rig: &NannyRig, times: u64) {
    let is_so = |status: &Value| {
        let restarts = &status["dnsmasq"]["restarts"]["configuration"];
        status["dnsmasq"]["up"] == true && restarts.as_u64().unwrap_or(0) == times
    };
    rig.status_with("restarts", is_so).await;
}

/// Status and text of the response that refuses a tap.
async fn refusal(status: SocketAddr) -> (u16, String) {
    let refused = get_streaming(&status.to_string(), "/tap", PATIENCE)
        .await
        .unwrap()
        .unwrap_err();
    (refused.status, String::from_utf8(refused.body).unwrap())
}

async fn ranking(status: SocketAddr) -> RankingDocument {
    let page = http::get(status, "/top").await.unwrap();
    serde_json::from_str(&page.body).unwrap()
}

/// The result of [`refusal`] if dnsmasq does not run with `--log-queries=extra`.
fn not_logged() -> (u16, String) {
    let text = "dnsmasq does not run with --log-queries=extra, and the nanny does not restart dnsmasq for this request: \
                set queryLog in the ConfigMap, or start dnsmasq with this argument\n";
    (503, text.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn get_of_any_page_restarts_nothing() {
    for flags in [&[][..], &["-restartDnsmasq=false"]] {
        let upstream = upstream().await;
        let (mut plan, status) = NannySetup::new()
            .forwarding_to(&upstream)
            .with_status_page();
        for flag in flags {
            plan = plan.flag(*flag);
        }
        let rig = plan.start().await;
        rig.resolve("www.example.test").await;
        let process = rig.dnsmasq();

        assert_eq!(refusal(status).await, not_logged());
        for page in ["/status", "/healthz", "/metrics", "/tap?seconds=1", "/top"] {
            http::get(status, page).await.unwrap();
        }

        // A restart would give dnsmasq another process, with an empty cache.
        rig.resolve("www.example.test").await;
        restarted(&rig, 0).await;
        assert_eq!(rig.dnsmasq(), process);
        let asked = upstream.count_of("www.example.test.", "A");
        assert_eq!(asked, 1, "the cache must be kept");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tap_and_ranking_include_queries_outside_query_log() {
    let upstream = upstream().await;
    let config = logging(&upstream, r#"{"name": "nothing.test"}"#);
    let (plan, status) = in_front(&upstream).config(&config).with_status_page();
    let mut rig = plan.start().await;
    let mut following = tap(status, "/tap?name=*.example.test&seconds=600").await;
    for (name, rcode) in [
        ("www.example.test", "NOERROR"),
        ("www.example.test", "NOERROR"),
        ("no.example.test", "NXDOMAIN"),
    ] {
        rig.resolve(name).await;
        let shown = line(&mut following).await;
        assert_eq!(shown, format!("127.0.0.1 {name}. A {rcode}"));
    }

    // The ranking also counts queries that match neither the tap's filter nor the query log's.
    rig.resolve("other.test").await;
    eventually(PATIENCE, || async {
        let ranking = ranking(status).await;
        let queries_of = |rows: &[RankingRow], name: &str| {
            let mut rows = rows.iter();
            rows.find(|row| row.key == name).map(|row| row.queries)
        };
        let is_complete = queries_of(&ranking.names, "www.example.test.") == Some(2)
            && queries_of(&ranking.names, "other.test.") == Some(1)
            && queries_of(&ranking.nxdomain, "no.example.test.") == Some(1)
            && queries_of(&ranking.clients, "127.0.0.1").is_some();
        is_complete.then_some(()).ok_or(format!("{ranking:?}"))
    })
    .await;

    // Without `queryLog` in the ConfigMap, dnsmasq is restarted without logging of queries, so the
    // tap ends.
    rig.forward_to(&upstream);
    restarted(&rig, 1).await;
    assert_eq!(following.line(4096).await.unwrap(), None);
    assert_eq!(refusal(status).await, not_logged());
}

#[tokio::test(flavor = "multi_thread")]
async fn tap_of_logging_dnsmasq_needs_no_restart() {
    let upstream = upstream().await;
    let (plan, status) = NannySetup::new()
        .forwarding_to(&upstream)
        .with_status_page();
    let rig = plan
        .flag("-restartDnsmasq=false")
        .dnsmasq("--log-queries=extra")
        .start()
        .await;
    let mut following = tap(status, "/tap?name=*.example.test").await;
    rig.resolve("www.example.test").await;
    let shown = line(&mut following).await;
    assert_eq!(shown, "127.0.0.1 www.example.test. A NOERROR");
    drop(following);
    restarted(&rig, 0).await;
}

/// As in the stock manifest, clients query dnsmasq, which forwards cluster names to kubedns.
/// `upstream` takes the place of kubedns.
fn in_front(upstream: &Upstream) -> NannySetup {
    let server = upstream.addr();
    let cluster = format!("--server=/cluster.local/{}#{}", server.ip(), server.port());
    NannySetup::new()
        .flag(format!("-kubednsServer={}", at(upstream)))
        .dnsmasq(cluster)
}

/// A `ConfigMap` with a server for all names, and with this query log.
fn logging(upstream: &Upstream, query_log: &str) -> [(&'static str, String); 2] {
    [
        ("upstreamNameservers", only(upstream)),
        ("queryLog", query_log.to_owned()),
    ]
}

/// The lines of the query log so far: client, name, type, RCODE, and the source of the answer.
fn logged(rig: &NannyRig) -> Vec<String> {
    let lines = rig.nanny.stderr();
    let answered = lines
        .iter()
        .filter_map(|line| Some(line.split_once("query answered ")?.1));
    let field = |line: &str, name: &str| {
        let (_, rest) = line.split_once(&format!("{name}=\"")).unwrap_or_default();
        rest.split('"').next().unwrap_or_default().to_owned()
    };
    let fields = ["client", "name", "type", "rcode", "by"];
    answered
        .map(|line| fields.map(|name| field(line, name)).join(" "))
        .collect()
}

/// Waits until the query log consists of these lines.
async fn has_logged(rig: &NannyRig, expected: &[String]) {
    eventually(PATIENCE, || async {
        let found = logged(rig);
        if found == expected {
            Ok(())
        } else {
            Err(format!("{found:#?}"))
        }
    })
    .await;
}

/// The RCODE of the answer to a query from the address `client`.
async fn ask_as(client: Ipv4Addr, rig: &NannyRig, name: &str) -> String {
    let socket = UdpSocket::bind((client, 0)).await.unwrap();
    socket
        .send_to(&Query::new(name, "A").wire(), rig.server())
        .await
        .unwrap();
    let mut buffer = vec![0; 4096];
    let (length, _) = tokio::time::timeout(PATIENCE, socket.recv_from(&mut buffer))
        .await
        .unwrap()
        .unwrap();
    message::Message::parse(&buffer[..length])
        .unwrap()
        .rcode_name()
}

#[tokio::test(flavor = "multi_thread")]
async fn query_log_has_line_per_matching_query() {
    let upstream = upstream().await;
    let mut rig = in_front(&upstream).forwarding_to(&upstream).start().await;
    rig.config(&logging(&upstream, r#"{"name": "*.example.test"}"#));
    restarted(&rig, 1).await;
    let by = upstream.addr().to_string().replace(':', "#");
    let mut expected = Vec::new();
    for (client, name, rcode, by) in [
        (7, "www.example.test", "NOERROR", &*by),
        (8, "www.example.test", "NOERROR", "cache"),
        (8, "no.example.test", "NXDOMAIN", &by),
    ] {
        let client = Ipv4Addr::new(127, 0, 0, client);
        assert_eq!(ask_as(client, &rig, name).await, rcode);
        expected.push(format!("{client} {name}. A {rcode} {by}"));
        has_logged(&rig, &expected).await;
    }
    let client = Ipv4Addr::new(127, 0, 0, 9);
    let mut connection = TcpConnection::open_from(client, rig.server())
        .await
        .unwrap();
    connection
        .send(&Query::new("www.example.test", "A").wire())
        .await
        .unwrap();
    connection.receive(PATIENCE).await.unwrap();
    expected.push(format!("{client} www.example.test. A NOERROR cache"));
    has_logged(&rig, &expected).await;

    // A changed filter neither restarts dnsmasq nor empties its cache.
    let filter = r#"{"client": "127.0.0.7", "rate": 5}"#;
    rig.config(&logging(&upstream, filter));
    rig.logs("query log started rate=5").await;
    for client in [8, 7] {
        let answer = ask_as(Ipv4Addr::new(127, 0, 0, client), &rig, "www.example.test").await;
        assert_eq!(answer, "NOERROR");
    }
    expected.push("127.0.0.7 www.example.test. A NOERROR cache".to_owned());
    has_logged(&rig, &expected).await;
    restarted(&rig, 1).await;

    rig.forward_to(&upstream);
    restarted(&rig, 2).await;
    assert_eq!(rig.resolve("www.example.test").await, "192.0.2.1");
    assert_eq!(logged(&rig), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn query_log_at_start_causes_restart_only_at_its_end() {
    let upstream = upstream().await;
    let initial = logging(&upstream, r#"{"name": "www.example.test"}"#);
    let mut rig = in_front(&upstream).config(&initial).start().await;
    rig.resolve("www.example.test").await;
    let by = upstream.addr().to_string().replace(':', "#");
    let expected = [format!("127.0.0.1 www.example.test. A NOERROR {by}")];
    has_logged(&rig, &expected).await;
    restarted(&rig, 0).await;
    let ended = r#"{"name": "www.example.test", "seconds": 0}"#;
    rig.config(&logging(&upstream, ended));
    rig.logs("query log has already ended").await;
    restarted(&rig, 1).await;
    assert_eq!(rig.resolve("www.example.test").await, "192.0.2.1");
    assert_eq!(logged(&rig), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn query_log_starts_and_ends_if_restarts_are_off() {
    let upstream = upstream().await;
    let plan = in_front(&upstream)
        .flag("-restartDnsmasq=false")
        .config(&logging(&upstream, r#"{"seconds": 3}"#));
    let mut rig = plan.start().await;
    rig.logs("query log started").await;
    rig.logs("query log ended").await;
    assert_eq!(rig.resolve("www.example.test").await, "192.0.2.1");
    restarted(&rig, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nanny_behind_kubedns_writes_no_query_log() {
    let upstream = upstream().await;
    let plan = NannySetup::new().config(&logging(&upstream, "{}"));
    let mut rig = plan.start().await;
    rig.logs("query log is written elsewhere").await;
    assert_eq!(rig.resolve("www.example.test").await, "192.0.2.1");
    restarted(&rig, 0).await;
    assert_eq!(logged(&rig), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_nanny_delays_no_answer() {
    let upstream = upstream().await;
    let config = logging(&upstream, "{}");
    let (plan, status) = in_front(&upstream).config(&config).with_status_page();
    let rig = plan
        .dnsmasq("--address=/local.test/192.0.2.7")
        .start()
        .await;
    let label = "x".repeat(60);
    let name = format!("{label}.{label}.{label}.local.test");
    rig.nanny.signal(Signal::SIGSTOP);
    // The log lines of these queries do not fit into the pipe from dnsmasq to the nanny.
    for number in 0..4000 {
        assert_eq!(rig.resolve(&name).await, "192.0.2.7", "query {number}");
    }
    rig.nanny.signal(Signal::SIGCONT);
    let metric = async |name| {
        http::get(status, "/metrics")
            .await
            .unwrap()
            .metric(name)
            .unwrap()
    };
    eventually(PATIENCE, || async {
        metric("nanny_dnsmasq_lost_log_lines_total").await > 0.0
    })
    .await;
    let client = Ipv4Addr::new(127, 0, 0, 7);
    let has_line = || {
        logged(&rig)
            .iter()
            .any(|line| line.starts_with("127.0.0.7 www.example.test. A NOERROR"))
    };
    // The query is repeated until it is logged. At first, the rate limit of the query log may leave
    // it out.
    eventually(PATIENCE, || async {
        assert_eq!(ask_as(client, &rig, "www.example.test").await, "NOERROR");
        has_line()
    })
    .await;
    assert!(metric("nanny_taps").await >= 1.0);
    assert!(metric("nanny_tap_records_total{result=\"sent\"}").await >= 1.0);
    restarted(&rig, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_query_is_answered_before_restart() {
    let upstream = upstream().await;
    let mut rig = in_front(&upstream).forwarding_to(&upstream).start().await;
    let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    client
        .send_to(&Query::new("slow.example.test", "A").wire(), rig.server())
        .await
        .unwrap();
    eventually(PATIENCE, || async {
        upstream.count_of("slow.example.test.", "A") == 1
    })
    .await;
    rig.config(&logging(&upstream, "{}"));
    restarted(&rig, 1).await;
    let ended = rig.logs("dnsmasq ends and is replaced").await;
    // Before the restart, the nanny waits until dnsmasq is idle, and then logs `Quietly`. On a very
    // busy machine, the wait may reach its time limit. The answer may then be lost.
    if ended.contains("Quietly") {
        tokio::time::timeout(PATIENCE, client.recv(&mut [0; 512]))
            .await
            .unwrap()
            .unwrap();
    }
}
