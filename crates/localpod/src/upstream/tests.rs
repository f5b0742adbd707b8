use super::*;

use dnsclient::DnsAnswer;
use hickory_proto::op::Query;
use hickory_proto::rr::RecordType;
use tokio::task::JoinSet;
use wire::ServerAddr;
use wire::Transport;

struct Running {
    address: SocketAddr,
    stop: CancellationToken,
    tasks: JoinSet<Result<(), NetError>>,
}

async fn start(offline: bool) -> Running {
    let upstream = Upstream::bind(0, offline).await.unwrap();
    let address = upstream.local_addr().unwrap();
    let stop = CancellationToken::new();
    let mut tasks = JoinSet::new();
    tasks.spawn(upstream.run(stop.clone()));
    Running {
        address,
        stop,
        tasks,
    }
}

async fn answer(
    server: SocketAddr,
    transport: Transport,
    name: &str,
    record_type: RecordType,
) -> DnsAnswer {
    let server = ServerAddr::new(&server.ip().to_string(), server.port());
    let question = Query::query(Name::from_ascii(name).unwrap(), record_type);
    dnsclient::query_server(&server, transport, &question, PATIENCE)
        .await
        .unwrap()
}

/// The response as "RCODE: data, data".
async fn ask(server: SocketAddr, name: &str, record_type: RecordType) -> String {
    let response = answer(server, Transport::Udp, name, record_type)
        .await
        .message;
    assert!(
        response.metadata.recursion_available,
        "{name}: dnsmasq warns of upstreams without RA"
    );
    let data: Vec<String> = response
        .answers
        .iter()
        .map(|record| record.data.to_string())
        .collect();
    format!("{:?}: {}", response.metadata.response_code, data.join(", "))
}

#[tokio::test]
async fn questions_and_answers() {
    let running = start(false).await;
    for (name, record_type, expected) in [
        (
            "payments.acme.example.",
            RecordType::A,
            "NoError: 192.0.2.80",
        ),
        (
            "Payments.ACME.example.",
            RecordType::AAAA,
            "NoError: 2001:db8::80",
        ),
        (
            "www.acme.example.",
            RecordType::A,
            "NoError: payments.acme.example., 192.0.2.80",
        ),
        (
            "www.acme.example.",
            RecordType::CNAME,
            "NoError: payments.acme.example.",
        ),
        ("git.acme.example.", RecordType::AAAA, "NoError: "),
        ("acme.example.", RecordType::A, "NoError: "),
        (
            "acme.example.",
            RecordType::TXT,
            "NoError: answered by localpod's example upstream",
        ),
        ("missing.acme.example.", RecordType::A, "NXDomain: "),
        ("other.example.", RecordType::A, "Refused: "),
    ] {
        assert_eq!(
            ask(running.address, name, record_type).await,
            expected,
            "{name} {record_type}"
        );
    }
}

#[tokio::test]
async fn offline_upstream_denies_other_names() {
    let running = start(true).await;
    assert_eq!(
        ask(running.address, "other.example.", RecordType::A).await,
        "NXDomain: "
    );
    assert_eq!(
        ask(running.address, "git.acme.example.", RecordType::A).await,
        "NoError: 192.0.2.22"
    );
}

#[tokio::test]
async fn tcp_matches_udp_and_stops() {
    let mut running = start(false).await;
    let [udp, tcp] = [Transport::Udp, Transport::Tcp].map(|transport| {
        answer(
            running.address,
            transport,
            "payments.acme.example.",
            RecordType::A,
        )
    });
    assert_eq!(tcp.await.message.answers, udp.await.message.answers);

    running.stop.cancel();
    assert!(running.tasks.join_next().await.unwrap().unwrap().is_ok());
}
