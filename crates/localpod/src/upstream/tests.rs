use super::*;

use hickory_proto::op::{Message, Query, ResponseCode};
use hickory_proto::rr::{Name, RecordType};

fn question(name: &str) -> Message {
    let mut message = Message::query();
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), RecordType::A));
    message
}

async fn running() -> (SocketAddr, CancellationToken, JoinSet<io::Result<()>>) {
    let upstream = Upstream::bind(0, Zone::new(false)).await.unwrap();
    let address = upstream.local_addr().unwrap();
    let token = CancellationToken::new();
    let mut tasks = JoinSet::new();
    tasks.spawn(upstream.run(token.clone()));
    (address, token, tasks)
}

#[tokio::test]
async fn answers_over_udp_and_tcp() {
    let (address, token, mut tasks) = running().await;
    let sent = question("payments.acme.example.");

    let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    udp.send_to(&sent.to_vec().unwrap(), address).await.unwrap();
    let mut buffer = [0; 512];
    let length = timeout(PATIENCE, udp.recv(&mut buffer)).await.unwrap().unwrap();
    let over_udp = Message::from_vec(&buffer[..length]).unwrap();
    assert_eq!(over_udp.metadata.id, sent.metadata.id);
    assert_eq!(over_udp.metadata.response_code, ResponseCode::NoError);

    let mut tcp = TcpStream::connect(address).await.unwrap();
    let bytes = sent.to_vec().unwrap();
    tcp.write_u16(u16::try_from(bytes.len()).unwrap()).await.unwrap();
    tcp.write_all(&bytes).await.unwrap();
    let mut answer = vec![0; usize::from(tcp.read_u16().await.unwrap())];
    tcp.read_exact(&mut answer).await.unwrap();
    assert_eq!(Message::from_vec(&answer).unwrap().answers, over_udp.answers);

    token.cancel();
    assert!(tasks.join_next().await.unwrap().unwrap().is_ok());
}

#[tokio::test]
async fn rubbish_ends_a_connection_and_nothing_else() {
    let (address, _token, _tasks) = running().await;
    for rubbish in [&[0u8, 3, 1, 2, 3][..], &[0, 0], &[0xff, 0xff]] {
        let mut tcp = TcpStream::connect(address).await.unwrap();
        tcp.write_all(rubbish).await.unwrap();
        tcp.shutdown().await.unwrap();
        let mut rest = Vec::new();
        timeout(PATIENCE, tcp.read_to_end(&mut rest)).await.unwrap().unwrap();
        assert!(rest.is_empty(), "{rubbish:?}: {rest:?}");
    }
    let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    udp.send_to(b"rubbish", address).await.unwrap();
    udp.send_to(&question("git.acme.example.").to_vec().unwrap(), address).await.unwrap();
    let mut buffer = [0; 512];
    let length = timeout(PATIENCE, udp.recv(&mut buffer)).await.unwrap().unwrap();
    assert_eq!(Message::from_vec(&buffer[..length]).unwrap().answers.len(), 1);
}
