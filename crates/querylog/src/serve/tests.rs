use std::collections::VecDeque;
use std::sync::Mutex;

use daemon::http::{GetError, Page, Server, StreamingPage, get_streaming};
use tokio::task::JoinSet;

use super::*;

#[derive(Default)]
struct LineBuffer {
    waiting: VecDeque<QueryLine>,
    left_out: u64,
}

/// A source whose lines the test sets.
#[derive(Clone, Default)]
struct SharedLines(Arc<Mutex<LineBuffer>>);

impl LineSource for SharedLines {
    fn next_line(&mut self) -> Option<QueryLine> {
        self.0.lock().unwrap().waiting.pop_front()
    }

    fn take_left_out(&mut self) -> u64 {
        std::mem::take(&mut self.0.lock().unwrap().left_out)
    }
}

fn line(name: &str) -> QueryLine {
    QueryLine {
        time: String::new(),
        client: "10.0.0.1".to_owned(),
        transport: None,
        name: name.to_owned(),
        qtype: "A".to_owned(),
        rcode: "NOERROR".to_owned(),
        size: None,
        micros: None,
        truncated: false,
        by: "auth".to_owned(),
    }
}

async fn serve(lines: &SharedLines) -> (String, CancellationToken, JoinSet<()>) {
    let server = Server::bind("127.0.0.1", 0).await.unwrap();
    let address = server.local_addr().to_string();
    let stop = CancellationToken::new();
    let shared = lines.clone();
    let route = tap_route(move |_| Ok(shared.clone()), stop.clone());
    let mut tasks = JoinSet::new();
    tasks.spawn(server.run(route, stop.clone()));
    (address, stop, tasks)
}

async fn open(address: &str, target: &str) -> Result<Result<StreamingPage, Page>, GetError> {
    get_streaming(address, target, Duration::from_secs(10)).await
}

/// Status and text of the response that refuses a request.
async fn refusal(address: &str, target: &str) -> (u16, String) {
    let refused = open(address, target).await.unwrap().unwrap_err();
    (refused.status, String::from_utf8(refused.body).unwrap())
}

#[tokio::test]
async fn tap_streams_lines_for_requested_time() {
    let lines = SharedLines::default();
    let (address, _stop, _server) = serve(&lines).await;
    let mut following = open(&address, "/tap?seconds=2").await.unwrap().unwrap();
    for name in ["a.", "b."] {
        lines.0.lock().unwrap().waiting.push_back(line(name));
        let found: QueryLine =
            serde_json::from_str(&following.line(1000).await.unwrap().unwrap()).unwrap();
        assert_eq!(found.name, name);
    }
    lines.0.lock().unwrap().left_out = 7;
    let line = following.line(1000).await.unwrap();
    assert_eq!(line.as_deref(), Some("{\"leftOut\":7}"));
    assert_eq!(following.line(1000).await.unwrap(), None);
}

#[tokio::test]
async fn reader_above_limit_is_refused_until_another_leaves() {
    let lines = SharedLines::default();
    let (address, stop, _server) = serve(&lines).await;
    let mut all = Vec::new();
    for _ in 0..MAX_READERS {
        all.push(open(&address, "/tap?seconds=600").await.unwrap().unwrap());
    }
    let (status, body) = refusal(&address, "/tap").await;
    assert_eq!(status, 503);
    assert_eq!(body, "4 other readers already follow the queries\n");
    all.pop();
    let mut again = loop {
        match open(&address, "/tap?seconds=600").await.unwrap() {
            Ok(following) => break following,
            Err(_) => tokio::task::yield_now().await,
        }
    };
    stop.cancel();
    assert_eq!(again.line(1000).await.unwrap(), None);
}

#[tokio::test]
async fn invalid_or_nonlocal_request_is_rejected() {
    let lines = SharedLines::default();
    let (address, _stop, _server) = serve(&lines).await;
    let (status, body) = refusal(&address, "/tap?seconds=x").await;
    assert_eq!(status, 400);
    assert_eq!(body, "seconds \"x\": a number from 1 to 600 is accepted\n");
    let route = tap_route(move |_| Ok(lines.clone()), CancellationToken::new());
    let request = |method: &str, client: Option<&str>, host: &str| {
        let request = warp::test::request()
            .method(method)
            .path("/tap?seconds=1")
            .header("host", host);
        match client {
            Some(client) => request.extension(daemon::http::ClientAddr(client.parse().unwrap())),
            None => request,
        }
    };
    for (method, client, host, status) in [
        ("POST", Some("127.0.0.1:1"), "127.0.0.1", 405),
        ("GET", Some("10.244.0.7:1"), "127.0.0.1", 403),
        ("GET", Some("[fd00::1]:1"), "127.0.0.1", 403),
        ("GET", None, "127.0.0.1", 403),
        ("GET", Some("127.0.0.1:1"), "pages.example:8081", 403),
    ] {
        let reply = request(method, client, host).reply(&route).await;
        assert_eq!(reply.status(), status, "{method} {client:?} {host}");
    }
}
