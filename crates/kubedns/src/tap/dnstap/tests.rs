use std::net::Ipv4Addr;

use prost::Message as _;
use tokio::net::UnixListener;
use tokio::task::JoinSet;

use super::frames::ACCEPT;
use super::message::{CLIENT_QUERY, CLIENT_RESPONSE, DnstapFrame};
use super::*;

#[test]
fn reader_addresses_are_parsed() {
    let reader = |text: &str| text.parse::<DnstapOutput>().map(|output| output.0);
    assert_eq!(reader(""), Ok(None));
    assert_eq!(
        reader("unix:///run/dnstap.sock"),
        Ok(Some(DnstapReader::Unix("/run/dnstap.sock".into())))
    );
    assert_eq!(
        reader("tcp://dnstap.logging:6000"),
        Ok(Some(DnstapReader::Tcp("dnstap.logging:6000".to_owned())))
    );
    assert_eq!(
        reader("tcp://[::1]:6000"),
        Ok(Some(DnstapReader::Tcp("[::1]:6000".to_owned())))
    );
    for text in [
        "unix://run/x",
        "unix:///",
        "/run/x",
        "tcp://host",
        "tcp://:6000",
        "tcp://h:0",
        "udp://h:1",
    ] {
        assert_eq!(reader(text), Err(DnstapReaderError), "{text}");
    }
}

/// Accepts a connection like a dnstap reader, with the handshake up to START.
async fn accept(listener: &UnixListener) -> UnixStream {
    let (mut stream, _) = listener.accept().await.unwrap();
    assert_eq!(frames::read_control(&mut stream).await.unwrap().kind, READY);
    stream.write_all(&control_frame(ACCEPT)).await.unwrap();
    assert_eq!(frames::read_control(&mut stream).await.unwrap().kind, START);
    stream
}

async fn read(stream: &mut UnixStream) -> DnstapFrame {
    let length = stream.read_u32().await.unwrap();
    let mut frame = vec![0; length.try_into().unwrap()];
    stream.read_exact(&mut frame).await.unwrap();
    DnstapFrame::decode(&frame[..]).unwrap()
}

/// A DNS server without records.
fn server() -> (
    std::net::SocketAddr,
    Arc<QueryTap>,
    JoinSet<std::io::Result<()>>,
) {
    let registry = prometheus::Registry::new();
    let metrics = skydns::forward::ForwardMetrics::new(&registry).unwrap();
    let limits = skydns::forward::ForwardLimits::default();
    let trust = skydns::forward::TlsTrust::default();
    let config = skydns::server::ServerConfig {
        address: (Ipv4Addr::LOCALHOST, 0).into(),
        udp_sockets: std::num::NonZeroUsize::MIN,
        identity: skydns::engine::Identity {
            version: String::new(),
        },
        forwarder: Arc::new(skydns::forward::Forwarder::with_trust_and_cache(
            limits, metrics, trust, None,
        )),
        metrics: skydns::metrics::Metrics::new("", ""),
        client_rate: None,
    };
    let zone = skydns::Zone::new(&wire::Name::parse("cluster.local.").unwrap());
    let published = cluster::snapshot::Published::new(cluster::snapshot::Snapshot::new(zone));
    let server = skydns::server::DnsServer::bind(config, Arc::new(published)).unwrap();

    let address = server.local_addr();
    let tap = server.tap();
    let mut tasks = JoinSet::new();
    tasks.spawn(server.run(CancellationToken::new()));
    (address, tap, tasks)
}

#[tokio::test(flavor = "multi_thread")]
async fn reader_that_returns_gets_messages_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("dnstap.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let (address, tap, _server) = server();
    let stop = CancellationToken::new();
    let mut tasks = JoinSet::new();
    tasks.spawn(run(
        DnstapReader::Unix(path),
        Arc::clone(&tap),
        "kube-dns-rs".to_owned(),
        stop.clone(),
    ));
    let query = testkit::query::Query::new("web.apps.svc.cluster.local.", "A").wire();
    for _ in 0..2 {
        let mut stream = accept(&listener).await;
        testkit::eventually(Duration::from_secs(20), || {
            let open = tap.counts().watches;
            async move { open == 1 }
        })
        .await;
        let answer = testkit::client::udp(address, &query, Duration::from_secs(20))
            .await
            .unwrap();
        let [asked, answered] = [read(&mut stream).await, read(&mut stream).await];
        assert_eq!(asked.version.as_deref(), Some(&b"kube-dns-rs"[..]));

        let asked = asked.message.unwrap();
        assert_eq!(asked.kind, CLIENT_QUERY);
        assert_eq!(asked.query_message.unwrap(), query);
        assert_eq!(asked.socket_family, Some(1));
        assert_eq!(asked.socket_protocol, Some(1));
        assert_eq!(asked.query_address, Some(vec![127, 0, 0, 1]));
        assert!(asked.query_port.is_some_and(|port| port > 0));

        let answered = answered.message.unwrap();
        assert_eq!(answered.kind, CLIENT_RESPONSE);
        assert_eq!(answered.response_message.unwrap(), answer);
        assert!(answered.response_time_sec > Some(1_600_000_000));
        drop(stream);
    }
    let mut stream = accept(&listener).await;
    stop.cancel();
    assert_eq!(frames::read_control(&mut stream).await.unwrap().kind, STOP);
    stream.write_all(&control_frame(FINISH)).await.unwrap();
    tasks.join_all().await;
    assert_eq!(tap.counts().watches, 0);
}

#[tokio::test]
async fn reader_that_does_not_reply_accept_is_rejected() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("dnstap.sock");
    let listener = UnixListener::bind(&path).unwrap();
    for reply in [
        control_frame(FINISH),
        b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
    ] {
        let answering = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(&reply).await.unwrap();
            stream
        };
        let reader = DnstapReader::Unix(path.clone());
        let (connected, _stream) = tokio::join!(connect(&reader), answering);
        assert!(connected.is_err());
    }
}

/// After `stop` is cancelled, a write that waits for the reader ends soon, and so does a handshake
/// that the reader does not answer.
#[tokio::test]
async fn stalled_reader_cannot_delay_stop_for_long() {
    let (address, tap, _server) = server();
    let encoder = MessageEncoder::new("kube-dns-rs".to_owned());
    let stop = CancellationToken::new();
    let (ours, mut reader) = tokio::io::duplex(16);
    let sending = send_records(Box::new(ours), &tap, &encoder, &stop);
    let stopping = async {
        let query = testkit::query::Query::new("web.apps.svc.cluster.local.", "A").wire();
        let answer = testkit::client::udp(address, &query, Duration::from_secs(20)).await;
        assert!(answer.is_ok(), "{answer:?}");
        // The write has begun, and waits for room for the rest of the frames.
        reader.read_u8().await.unwrap();

        tokio::time::pause();
        stop.cancel();
        Instant::now()
    };
    let (sent, since) = tokio::join!(sending, stopping);
    assert!(sent.is_ok(), "{sent:?}");
    assert!(since.elapsed() < 2 * STOP_TIMEOUT, "{:?}", since.elapsed());
    tokio::time::resume();

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("dnstap.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let stop = CancellationToken::new();
    let version = "kube-dns-rs".to_owned();
    let running = run(DnstapReader::Unix(path), tap, version, stop.clone());
    let stopping = async {
        let (silent, _) = listener.accept().await.unwrap();
        tokio::time::pause();
        stop.cancel();
        (silent, Instant::now())
    };
    let ((), (_silent, since)) = tokio::join!(running, stopping);
    assert!(since.elapsed() < STOP_TIMEOUT, "{:?}", since.elapsed());
}

#[tokio::test(start_paused = true)]
async fn pauses_grow_until_connection_outlives_longest_pause() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("dnstap.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let (_, tap, _server) = server();
    let stop = CancellationToken::new();
    let version = "kube-dns-rs".to_owned();
    let running = run(DnstapReader::Unix(path), tap, version, stop.clone());

    let accepting = async {
        let mut connections = Vec::new();
        // The fifth connection lives longer than the longest pause.
        for life in [0, 0, 0, 0, 61, 0] {
            let stream = accept(&listener).await;
            connections.push(Instant::now());
            tokio::time::sleep(Duration::from_secs(life)).await;
            drop(stream);
        }
        stop.cancel();
        connections
    };
    let ((), connections) = tokio::join!(running, accepting);
    let seconds: Vec<u64> = connections
        .windows(2)
        .map(|pair| (pair[1] - pair[0]).as_secs())
        .collect();
    assert_eq!(seconds, [1, 2, 4, 8, 62]);
}
