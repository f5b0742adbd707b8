use super::*;

use hickory_proto::op::{Message, Query};
use hickory_proto::rr::RecordType;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

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
    Running { address, stop, tasks }
}

fn query(name: &str, record_type: RecordType) -> Vec<u8> {
    let mut message = Message::query();
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), record_type));
    message.to_vec().unwrap()
}

async fn over_udp(server: SocketAddr, query: &[u8]) -> Message {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    socket.send_to(query, server).await.unwrap();
    let mut buffer = [0; 512];
    let length = timeout(PATIENCE, socket.recv(&mut buffer)).await.unwrap().unwrap();
    Message::from_vec(&buffer[..length]).unwrap()
}

/// The response as "RCODE: data, data".
async fn ask(server: SocketAddr, name: &str, record_type: RecordType) -> String {
    let response = over_udp(server, &query(name, record_type)).await;
    assert!(response.metadata.recursion_available, "{name}: dnsmasq warns of upstreams without RA");
    let data: Vec<String> = response.answers.iter().map(|record| record.data.to_string()).collect();
    format!("{:?}: {}", response.metadata.response_code, data.join(", "))
}

#[tokio::test]
async fn questions_and_answers() {
    let running = start(false).await;
    for (name, record_type, expected) in [
        ("payments.acme.example.", RecordType::A, "NoError: 192.0.2.80"),
        ("Payments.ACME.example.", RecordType::AAAA, "NoError: 2001:db8::80"),
        ("www.acme.example.", RecordType::A, "NoError: payments.acme.example., 192.0.2.80"),
        ("www.acme.example.", RecordType::CNAME, "NoError: payments.acme.example."),
        ("git.acme.example.", RecordType::AAAA, "NoError: "),
        ("acme.example.", RecordType::A, "NoError: "),
        ("acme.example.", RecordType::TXT, "NoError: answered by localpod's example upstream"),
        ("missing.acme.example.", RecordType::A, "NXDomain: "),
        ("other.example.", RecordType::A, "Refused: "),
    ] {
        assert_eq!(ask(running.address, name, record_type).await, expected, "{name} {record_type}");
    }
}

#[tokio::test]
async fn offline_it_denies_all_other_names() {
    let running = start(true).await;
    assert_eq!(ask(running.address, "other.example.", RecordType::A).await, "NXDomain: ");
    assert_eq!(ask(running.address, "git.acme.example.", RecordType::A).await, "NoError: 192.0.2.22");
}

#[tokio::test]
async fn tcp_answers_as_udp_does_and_ends_when_told() {
    let mut running = start(false).await;
    let query = query("payments.acme.example.", RecordType::A);
    let mut tcp = TcpStream::connect(running.address).await.unwrap();
    tcp.write_u16(u16::try_from(query.len()).unwrap()).await.unwrap();
    tcp.write_all(&query).await.unwrap();
    let mut response = vec![0; usize::from(timeout(PATIENCE, tcp.read_u16()).await.unwrap().unwrap())];
    tcp.read_exact(&mut response).await.unwrap();
    let response = Message::from_vec(&response).unwrap();
    assert_eq!(response.answers, over_udp(running.address, &query).await.answers);

    running.stop.cancel();
    assert!(running.tasks.join_next().await.unwrap().unwrap().is_ok());
}
