//! Zone transfers over real sockets: authorization, serials, AXFR and IXFR, transfers of several
//! messages, and clients that are numerous, slow or disconnected.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, LazyLock};
use std::time::SystemTime;

use futures::future::join_all;
use skydns::transfer::{TransferMetrics, ZoneTransfers};
use skydns::{OwnNames, ZoneSerials};
use testkit::eventually;
use testkit::query::Query;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use wire::{Message, Name, Section, frame_message, rcode, rtype};

use super::fixed::{Fixed, RunningServer, start_with_transfers};
use super::{TIMEOUT, exchange_tcp, exchange_udp, metric};

const PEERS: &str = "127.0.0.0/8";
/// The time of the first version of the zone. Before that version, the serial of the zone is the
/// time at which the process started. The first version is an hour later, so its serial is
/// certainly higher.
static FIRST_TIME: LazyLock<u64> = LazyLock::new(|| {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .expect("the time must be after 1970")
        .as_secs()
        + 3600
});

/// A server, its zone transfers, and their metrics.
struct Primary {
    server: RunningServer,
    transfers: Arc<ZoneTransfers<Fixed>>,
    metrics: TransferMetrics,
}

impl Primary {
    fn start(view: Fixed, peers: &str) -> Self {
        let metrics = TransferMetrics::new().expect("the metrics must be valid");
        let peers = peers.parse().expect("the peers must be valid");
        let transfers = ZoneTransfers::new(peers, None, ZoneSerials::new(), metrics.clone());
        let view = Arc::new(view.transferred(&transfers));
        let server = start_with_transfers(&view, &transfers);
        assert!(transfers.update_versions(&view, *FIRST_TIME));
        Self {
            server,
            transfers,
            metrics,
        }
    }

    #[track_caller]
    fn wait_for_metric(&self, series: &'static str, expected: f64) -> impl Future<Output = ()> {
        eventually(TIMEOUT, move || async move {
            let value = metric(&self.metrics, series);
            (value == Some(expected)).then_some(()).ok_or(value)
        })
    }
}

const RUNNING: &str = "kubedns_transfers_running ";
const FAILED: &str = "kubedns_transfers_total{form=\"axfr\",result=\"failed\"}";
const COMPLETED: &str = "kubedns_transfers_total{form=\"axfr\",result=\"completed\"}";

/// A query. If `since` (serial and EXPIRE) is given, the authority section has an SOA record with
/// these values.
fn transfer_query(name: &str, qtype: u16, since: Option<(u32, u32)>) -> Vec<u8> {
    let mut message = Query::new(name, &format!("TYPE{qtype}")).id(7).wire();
    if let Some((serial, expire)) = since {
        message[9] = 1;
        message.extend([0xc0, 12, 0, 6, 0, 1, 0, 0, 0, 0, 0, 22, 0, 0]);
        let numbers = [serial, 0, 0, expire, 0].map(u32::to_be_bytes);
        message.extend(numbers.concat());
    }
    message
}

/// RCODE, and the type of each answer record.
fn response_outcome(message: &[u8]) -> (u16, Vec<u16>) {
    let message = Message::parse(message).expect("the message must be well-formed");
    let types = message.section(Section::Answer).map(|record| record.rtype);
    (message.header().rcode(), types.collect())
}

/// The numbers of the first SOA record in a message.
fn soa_numbers(message: &[u8]) -> [u32; 5] {
    let message = Message::parse(message).expect("the message must be well-formed");
    let mut records = message.records();
    let soa = records.find(|record| record.rtype == rtype::SOA);
    let data = soa.expect("the message must have an SOA record").data();
    let numbers = data
        .last_chunk::<20>()
        .expect("an SOA must have its numbers");
    std::array::from_fn(|at| {
        let number = numbers.as_chunks::<4>().0[at];
        u32::from_be_bytes(number)
    })
}

/// Serial and EXPIRE of the first SOA record.
fn soa_serial_and_expire(message: &[u8]) -> (u32, u32) {
    let [serial, _, _, expire, _] = soa_numbers(message);
    (serial, expire)
}

/// The numbers of the SOA record in the response to a query. The record is in the answer section,
/// or in the authority section of a negative answer.
async fn ask_soa_numbers(server: SocketAddr, name: &str, rtype: &str) -> [u32; 5] {
    soa_numbers(&exchange_udp(server, &Query::new(name, rtype).wire()).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn negative_answers_have_serial_of_zone() {
    let view = Fixed::new(&[]).small().search("search.cluster.local", &[]);
    let primary = Primary::start(view, PEERS);
    let server = primary.server.address;

    let zone = ask_soa_numbers(server, "cluster.local.", "SOA").await;
    for missing in [
        "no.apps.svc.cluster.local.",
        "no.apps.search.cluster.local.",
        "apps.search.cluster.local.",
    ] {
        let found = ask_soa_numbers(server, missing, "A").await;
        assert_eq!(found, zone, "{missing}");
    }
    primary.server.stop().await;
}

/// A primary whose zone has changed once, and serial and EXPIRE of the first version of the zone.
struct ChangedPrimary {
    primary: Primary,
    serial: u32,
    expire: u32,
}

/// The time from the first version to the change, in seconds.
const CHANGE_AGE: u32 = 5;

impl ChangedPrimary {
    async fn start() -> Self {
        let primary = Primary::start(Fixed::new(&[]).small(), PEERS);
        let axfr = transfer_query(ZONE, rtype::AXFR, None);
        let first = exchange_tcp(primary.server.address, &axfr).await;
        let (serial, expire) = soa_serial_and_expire(&first);

        let changed =
            Fixed::new(&[])
                .small()
                .with_address(&["svc", "apps", "new"], "n", "new.apps.svc");
        let view = Arc::new(changed.transferred(&primary.transfers));
        let time = *FIRST_TIME + u64::from(CHANGE_AGE);
        assert!(primary.transfers.update_versions(&view, time));
        Self {
            primary,
            serial,
            expire,
        }
    }

    fn address(&self) -> SocketAddr {
        self.primary.server.address
    }
}

const ZONE: &str = "cluster.local.";

/// RCODE and record types of the response over TCP.
async fn transfer_outcome(
    server: SocketAddr,
    name: &str,
    qtype: u16,
    since: Option<(u32, u32)>,
) -> (u16, Vec<u16>) {
    response_outcome(&exchange_tcp(server, &transfer_query(name, qtype, since)).await)
}

fn is_whole_zone(types: &[u16]) -> bool {
    types.starts_with(&[rtype::SOA, rtype::NS]) && types.ends_with(&[rtype::SOA])
}

#[tokio::test(flavor = "multi_thread")]
async fn axfr_needs_peer_and_name_of_zone() {
    let changed = ChangedPrimary::start().await;
    let others = Primary::start(Fixed::new(&[]).small(), "192.0.2.1");
    let ours = changed.address();
    let theirs = others.server.address;

    let (code, types) = transfer_outcome(ours, "Cluster.LOCAL.", rtype::AXFR, None).await;
    assert_eq!(code, rcode::NOERROR);
    assert!(is_whole_zone(&types), "{types:?}");

    for (what, server, name, expected) in [
        ("a name below", ours, "svc.cluster.local.", rcode::NOTAUTH),
        ("another zone", ours, "example.org.", rcode::NOTAUTH),
        ("the root", ours, ".", rcode::NOTAUTH),
        ("a client that is not a peer", theirs, ZONE, rcode::REFUSED),
    ] {
        let outcome = transfer_outcome(server, name, rtype::AXFR, None).await;
        assert_eq!(outcome, (expected, Vec::new()), "{what}");
    }

    changed.primary.server.stop().await;
    others.server.stop().await;
}

/// The cluster's zone and the zones `a.test` and `b.test`. Only `a.test` has an address of its own
/// for its name server.
fn three_zones(a: Fixed, b: Fixed) -> Fixed {
    let a = a.address_at(&["dns", "ns"], "192.0.2.53");
    Fixed::new(&[])
        .small()
        .skydns_zone("a.test", a)
        .skydns_zone("b.test", b)
}

/// The zones of [`three_zones`], and an alias from the configuration.
fn zones_with_alias(alias: &str, target: &str, b: Fixed) -> Fixed {
    let name = |text| Name::parse(text).expect("the name must be valid");
    let mut own = OwnNames::new();
    own.add_alias(&name(alias), &name(target));
    three_zones(Fixed::empty(), b).own_names(own)
}

/// A version of an incomplete zone would delete names from the copies of the secondaries.
#[tokio::test(flavor = "multi_thread")]
async fn incomplete_zone_gets_no_version() {
    let loaded = || three_zones(Fixed::empty(), Fixed::empty());
    let unloaded = || Fixed::empty().unsynced();
    let alias_to_b = |alias| zones_with_alias(alias, "web.b.test", unloaded());
    let alias_to = |target| zones_with_alias("x.a.test", target, Fixed::empty());

    for (what, view, expected) in [
        (
            "everything is loaded",
            loaded(),
            "cluster.local a.test b.test",
        ),
        ("the configuration is unknown", loaded().unconfigured(), ""),
        ("the cluster is not loaded", loaded().unsynced(), "a.test"),
        (
            "a zone is not loaded",
            three_zones(Fixed::empty(), unloaded()),
            "cluster.local a.test",
        ),
        (
            "the target of an alias in a.test is not loaded",
            alias_to_b("x.a.test"),
            "cluster.local",
        ),
        (
            "the target of an alias in cluster.local is not loaded",
            alias_to_b("x.cluster.local"),
            "a.test",
        ),
        (
            "the target of an alias outside our zones is not loaded",
            alias_to_b("x.outside.test"),
            "cluster.local a.test",
        ),
        (
            "an alias points to itself",
            alias_to("x.a.test"),
            "cluster.local a.test b.test",
        ),
        (
            "an alias points to an external name",
            alias_to("www.outside.test"),
            "cluster.local a.test b.test",
        ),
        (
            "the cluster is not loaded, and an alias hides the address of the name server of a.test",
            zones_with_alias("ns.dns.a.test", "web.a.test", Fixed::empty()).unsynced(),
            "",
        ),
    ] {
        let peers = PEERS.parse().expect("the peers must be valid");
        let metrics = TransferMetrics::new().expect("the metrics must be valid");
        let transfers = ZoneTransfers::new(peers, None, ZoneSerials::new(), metrics);
        let view = Arc::new(view.transferred(&transfers));
        let server = start_with_transfers(&view, &transfers);
        transfers.update_versions(&view, *FIRST_TIME);

        let mut transferred = Vec::new();
        for zone in ["cluster.local", "a.test", "b.test"] {
            let (code, types) = transfer_outcome(server.address, zone, rtype::AXFR, None).await;
            if code == rcode::NOERROR {
                transferred.push(zone);
            } else {
                assert_eq!(
                    (code, types),
                    (rcode::SERVFAIL, Vec::new()),
                    "{what}: {zone}"
                );
            }
        }
        assert_eq!(transferred.join(" "), expected, "{what}");
        server.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ixfr_depends_on_client_version() {
    let changed = ChangedPrimary::start().await;
    let ours = changed.address();
    let ChangedPrimary { serial, expire, .. } = changed;
    let newest = serial + CHANGE_AGE;

    for (what, since) in [
        ("a query with EXPIRE 0, as PowerDNS sends it", (serial, 0)),
        (
            "a version of another replica, which has another EXPIRE",
            (serial, expire + 1),
        ),
        ("a version that is not kept", (serial - 1, expire)),
    ] {
        let (code, types) = transfer_outcome(ours, ZONE, rtype::IXFR, Some(since)).await;
        assert_eq!(code, rcode::NOERROR, "{what}");
        assert!(is_whole_zone(&types), "{what}: {types:?}");
    }

    for (what, since, expected) in [
        (
            "the first version",
            (serial, expire),
            vec![6, 6, 6, 1, 33, 6],
        ),
        ("the current version", (newest, expire), vec![6]),
        ("a newer version", (newest + 9, expire), vec![6]),
    ] {
        let outcome = transfer_outcome(ours, ZONE, rtype::IXFR, Some(since)).await;
        assert_eq!(outcome, (rcode::NOERROR, expected), "{what}");
    }

    let without_version = transfer_outcome(ours, ZONE, rtype::IXFR, None).await;
    assert_eq!(without_version, (rcode::FORMERR, Vec::new()));
    changed.primary.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn udp_response_to_transfer_query_has_at_most_soa() {
    let changed = ChangedPrimary::start().await;
    let others = Primary::start(Fixed::new(&[]).small(), "192.0.2.1");
    let ours = changed.address();
    let theirs = others.server.address;
    let ixfr = transfer_query(ZONE, rtype::IXFR, Some((changed.serial, changed.expire)));
    let axfr = transfer_query(ZONE, rtype::AXFR, None);
    for (what, server, query, expected) in [
        ("IXFR", ours, &ixfr, (rcode::NOERROR, vec![6])),
        ("AXFR", ours, &axfr, (rcode::FORMERR, vec![])),
        (
            "a client that is not a peer",
            theirs,
            &ixfr,
            (rcode::REFUSED, vec![]),
        ),
    ] {
        let answer = exchange_udp(server, query).await;
        assert_eq!(response_outcome(&answer), expected, "{what}");
    }

    let asked = exchange_udp(ours, &Query::new(ZONE, "SOA").wire()).await;
    let newest = changed.serial + CHANGE_AGE;
    assert_eq!(
        soa_serial_and_expire(&asked),
        (newest, changed.expire),
        "the SOA record in the answer to an SOA query"
    );
    changed.primary.server.stop().await;
    others.server.stop().await;
}

/// A zone of about 600 KB.
fn large_zone() -> Fixed {
    Fixed::new(&[]).small().with_names(LARGE)
}

const LARGE: usize = 2400;

/// Opens a connection from 127.0.0.`local` and sends a transfer query.
async fn request_zone_from(local: u8, server: SocketAddr) -> TcpStream {
    request_zone_with_buffer(local, server, 1 << 18).await
}

/// Opens a connection with a receive buffer of `size` octets and sends a transfer query.
async fn request_zone_with_buffer(local: u8, server: SocketAddr, size: u32) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket must open");
    socket
        .set_recv_buffer_size(size)
        .expect("the receive buffer must be set");
    socket
        .bind((Ipv4Addr::new(127, 0, 0, local), 0).into())
        .expect("the socket must be bound");
    let mut stream = socket
        .connect(server)
        .await
        .expect("the server must accept the connection");
    let query = transfer_query(ZONE, rtype::AXFR, None);
    let sent = stream.write_all(&frame_message(&query)).await;
    sent.expect("the query must be sent");
    stream
}

/// Receives the next message of a stream.
async fn next_message(stream: &mut TcpStream) -> Vec<u8> {
    let length = stream.read_u16().await.expect("a length must arrive");
    let mut message = vec![0; length.into()];
    stream
        .read_exact(&mut message)
        .await
        .expect("a message must arrive");
    message
}

/// Receives a whole zone and returns the number of its records without the SOA record. Asserts that
/// the transfer has several messages, and that only the SOA record is transferred twice.
async fn receive_zone(mut stream: TcpStream) -> usize {
    let (mut records, mut soas, mut messages) = (BTreeSet::new(), 0, 0);
    while soas < 2 {
        let message = next_message(&mut stream).await;
        let message = Message::parse(&message).expect("the message must be well-formed");
        for record in message.section(Section::Answer) {
            soas += usize::from(record.rtype == rtype::SOA);
            let record = (
                record
                    .owner()
                    .expect("the owner must be a name")
                    .to_string(),
                record.rtype,
                record.data().to_vec(),
            );
            let again = record.1 != rtype::SOA && !records.insert(record);
            assert!(!again, "only the SOA may be transferred twice");
        }
        messages += 1;
    }
    assert!(messages > 1, "the zone must not fit into one message");
    records.len()
}

#[tokio::test(flavor = "multi_thread")]
async fn name_whose_records_exceed_one_message_is_transferred() {
    let primary = Primary::start(Fixed::new(&[]), PEERS);
    let whole = receive_zone(request_zone_from(1, primary.server.address).await).await;
    // The NS record, the CNAME record of `out.apps.svc`, one A and one SRV record of
    // `web.apps.svc`, and 5000 A and 5000 SRV records of `big.apps.svc`.
    assert_eq!(whole, 1 + 1 + 2 + 2 * 5000);
    primary.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_secondary_is_disconnected() {
    let primary = Primary::start(large_zone(), PEERS);
    let slow = || async {
        let mut stream = request_zone_with_buffer(2, primary.server.address, 4096).await;
        // Twenty transfers of the zone are larger than the socket buffers.
        let again = frame_message(&transfer_query(ZONE, rtype::AXFR, None)).repeat(19);
        stream
            .write_all(&again)
            .await
            .expect("the octets must be sent");
        stream
    };
    let _slow = [slow().await, slow().await];
    primary.wait_for_metric(RUNNING, 2.0).await;
    let whole = receive_zone(request_zone_from(3, primary.server.address).await).await;
    assert_eq!(whole, 1 + 1 + 2 + LARGE);
    let asked = Query::new("web.apps.svc.cluster.local.", "A");
    exchange_tcp(primary.server.address, &asked.wire()).await;
    primary.wait_for_metric(FAILED, 2.0).await;
    primary.wait_for_metric(RUNNING, 0.0).await;
    primary.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ninth_concurrent_transfer_to_one_client_is_refused() {
    let primary = Primary::start(Fixed::new(&[]).small().with_names(150), PEERS);
    let server = primary.server.address;
    let receive = async |local| receive_zone(request_zone_from(local, server).await).await;
    let all = join_all((1..=100).map(receive)).await;
    assert_eq!(all, [1 + 1 + 2 + 150; 100]);
    primary.wait_for_metric(COMPLETED, 100.0).await;
    primary.server.stop().await;

    let primary = Primary::start(large_zone(), PEERS);
    let server = primary.server.address;
    let mut greedy = join_all((0..9).map(|_| request_zone_from(1, server))).await;
    let first_rcode =
        async |stream: &mut TcpStream| response_outcome(&next_message(stream).await).0;
    let rcodes = join_all(greedy.iter_mut().map(first_rcode)).await;
    let refused = rcodes.iter().filter(|rcode| **rcode == 5).count();
    assert_eq!((refused, rcodes.len()), (1, 9), "{rcodes:?}");
    let other = first_rcode(&mut request_zone_from(2, server).await).await;
    assert_eq!(other, 0, "a transfer to another client must not be refused");
    drop(greedy);
    primary.wait_for_metric(RUNNING, 0.0).await;
    primary.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn closed_connection_ends_its_transfer() {
    let primary = Primary::start(large_zone(), PEERS);
    for _ in 0..5 {
        let mut stream = request_zone_from(1, primary.server.address).await;
        next_message(&mut stream).await;
        drop(stream);
        primary.wait_for_metric(RUNNING, 0.0).await;
    }
    assert_eq!(metric(&primary.metrics, FAILED), Some(5.0));
    primary.server.stop().await;
}
