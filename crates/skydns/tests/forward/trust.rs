//! Protection against forged replies (random ports and IDs, checks of replies), and detection of
//! forwarding loops.

use std::collections::{HashMap, HashSet};
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use skydns::forward::{ForwardLimits, is_own_address};
use testkit::message::Message;
use testkit::reply::Reply;
use testkit::upstream::{Act, Asked, Reaction, Upstream};
use wire::Transport;

use crate::support::{
    GOOD, PATIENCE, Subject, address, answers_with, good, refuses, short_limits, unused_address,
};

/// Number of queries, one after the other, whose IDs and ports are compared.
const QUERIES: usize = 400;

/// Sends [`QUERIES`] queries and returns the packets that arrived.
async fn ask_many() -> Vec<Asked> {
    let upstream = Upstream::start(answers_with(1)).await;
    let subject = Subject::new(ForwardLimits::default());
    for n in 0..QUERIES {
        let name = format!("n{n}.test.");
        assert_eq!(subject.ask_a(&name, &[upstream.addr()]).await, GOOD);
    }
    upstream.asked()
}

/// In this test, each query is sent from one of eight sockets, which is chosen at random. A socket
/// sends at most 64 queries, and is then replaced. So an attacker cannot predict the source port of
/// a query.
#[tokio::test]
async fn queries_choose_among_changing_ports() {
    let asked = ask_many().await;
    let ports: Vec<u16> = asked.iter().map(|asked| asked.from.port()).collect();

    let mut queries_by_port: HashMap<u16, usize> = HashMap::new();
    for port in &ports {
        *queries_by_port.entry(*port).or_default() += 1;
    }
    let most = queries_by_port.values().max();
    assert!(most <= Some(&64), "a port carries {most:?} queries");
    assert!(
        queries_by_port.len() >= 8,
        "only {} ports were used",
        queries_by_port.len()
    );

    // In about one of eight pairs of successive queries, both queries use the same socket.
    let stays = ports.windows(2).filter(|pair| pair[0] == pair[1]).count();
    assert!(stays < QUERIES / 4, "the port stays {stays} times");
    let used: HashSet<_> = ports.windows(2).map(|pair| (pair[0], pair[1])).collect();
    assert!(
        used.len() > 40,
        "only {} pairs of ports were used",
        used.len()
    );
}

/// Replies that arrive twice, for example after a repeated query, are not counted as forgeries.
#[tokio::test]
async fn repeated_replies_are_no_mismatches() {
    let upstream = Upstream::start(|asked: &Asked| {
        let reply = address(asked, 1).wire();
        Reaction::send(reply.clone()).then(Act::Send(reply))
    })
    .await;
    let subject = Subject::new(ForwardLimits::default());

    for n in 0..200 {
        let name = format!("n{n}.test.");
        assert_eq!(subject.ask_a(&name, &[upstream.addr()]).await, GOOD);
    }
    assert_eq!(subject.errors("mismatch"), 0);
}

/// An ICMP error for one query must not make the next query fail, because the upstream may work
/// again by then.
#[tokio::test]
async fn upstream_that_works_again_answers_next_queries() {
    let address = unused_address();
    let subject = Subject::new(short_limits());
    for n in 0..50 {
        let name = format!("dead{n}.test.");
        assert_ne!(subject.ask_a(&name, &[address]).await, GOOD);
    }

    let _upstream = Upstream::start_on(address, good).await;
    for n in 0..50 {
        let name = format!("alive{n}.test.");
        assert_eq!(subject.ask_a(&name, &[address]).await, GOOD, "{n}");
    }
}

#[tokio::test]
async fn ids_are_random() {
    const HALF: std::ops::Range<usize> = QUERIES / 4..QUERIES * 3 / 4;
    let asked = ask_many().await;
    let ids: Vec<u16> = asked
        .iter()
        .map(|asked| u16::from_be_bytes([asked.packet[0], asked.packet[1]]))
        .collect();
    let seen: HashSet<_> = ids.iter().collect();
    assert!(seen.len() >= QUERIES - 20, "{} distinct IDs", seen.len());
    let pairs = || ids.windows(2);
    let rising = pairs().filter(|pair| pair[0] < pair[1]).count();
    assert!(HALF.contains(&rising), "IDs rise {rising} times");
    let steps: HashSet<_> = pairs().map(|pair| pair[1].wrapping_sub(pair[0])).collect();
    assert!(
        steps.len() > QUERIES / 2,
        "only {} distinct differences between successive IDs",
        steps.len()
    );
    for bit in 0..16 {
        let set = ids.iter().filter(|id| *id >> bit & 1 == 1).count();
        assert!(
            HALF.contains(&set),
            "bit {bit} of the ID is set {set} times"
        );
    }
}

/// A reply from another port is ignored, even if its ID and its question are correct.
#[tokio::test]
async fn reply_from_other_port_is_ignored() {
    let asked_one = local_socket();
    let other = local_socket();
    let upstream = asked_one.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let mut buffer = [0; 512];
        let (length, from) = asked_one.recv_from(&mut buffer).unwrap();
        let asked = Asked {
            transport: Transport::Udp,
            from,
            packet: buffer[..length].to_vec(),
            question: None,
        };
        let forged = address(&asked, 66).wire();
        other.send_to(&forged, from).unwrap();
        // The correct reply is sent after the reply from the other port.
        let correct = address(&asked, 1).wire();
        asked_one.send_to(&correct, from).unwrap();
    });
    let subject = Subject::new(ForwardLimits::default());
    assert_eq!(subject.ask_a("x.test.", &[upstream]).await, GOOD);
    server.join().unwrap();
}

fn local_socket() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

#[tokio::test]
async fn mismatches_are_counted() {
    let upstream = Upstream::start(|asked: &Asked| {
        let wrong = address(asked, 66).wrong_id().wire();
        let reaction = Reaction::send(wrong.clone()).then(Act::Send(wrong));
        reaction.then(Act::Send(address(asked, 1).wire()))
    })
    .await;
    let subject = Subject::new(ForwardLimits::default());
    let reply = subject.ask_a("x.test.", &[upstream.addr()]).await;
    assert_eq!(reply, GOOD);
    assert_eq!(subject.errors("mismatch"), 2);
}

/// After too many replies with a wrong ID, the query is sent over TCP, which is safe from guessed
/// IDs. If the upstream refuses TCP, the query fails.
#[tokio::test]
async fn query_is_sent_over_tcp_after_many_wrong_ids() {
    let flood = |asked: &Asked| match asked.transport {
        Transport::Udp => {
            let guess = |n: u16| {
                let mut packet = address(asked, 66).wire();
                let id = u16::from_be_bytes([packet[0], packet[1]]).wrapping_add(n);
                packet[..2].copy_from_slice(&id.to_be_bytes());
                packet
            };
            (1..=100).fold(Reaction::silence(), |reaction, n| {
                reaction.then(Act::Send(guess(n)))
            })
        }
        Transport::Tcp => good(asked),
    };
    let upstream = Upstream::start(flood).await;
    let subject = Subject::new(ForwardLimits {
        resend_after: Duration::from_secs(5),
        ..ForwardLimits::default()
    });
    let reply = subject.ask_a("x.test.", &[upstream.addr()]).await;
    assert_eq!(reply, GOOD);
    assert_eq!(subject.errors("mismatch"), 65);

    let upstream = Upstream::start_udp_only(flood).await;
    let outcome = subject.ask_a("y.test.", &[upstream.addr()]).await;
    assert_eq!(outcome, "failed: Flooded Flooded");
}

/// Each row has the addresses on which a server listens, and upstreams. An upstream with `-` is
/// that server itself, and an upstream with `+` is usable.
const OWN_ADDRESSES: [(&str, &str); 8] = [
    ("127.0.0.1:10053", "-127.0.0.1:10053 +8.8.8.8:53"),
    ("127.0.0.1:10053", "+127.0.0.1:53 +127.0.0.2:10053"),
    (
        "127.0.0.1:10053",
        "-[::ffff:127.0.0.1]:10053 -0.0.0.0:10053",
    ),
    ("0.0.0.0:53", "-127.0.0.53:53 -0.0.0.0:53 +192.0.2.1:53"),
    ("0.0.0.0:53", "+[::1]:53"),
    ("[::]:53", "-127.0.0.1:53 -[::1]:53 +[2001:db8::1]:53"),
    (
        "10.0.0.1:53 127.0.0.1:53",
        "-127.0.0.1:53 -10.0.0.1:53 +10.0.0.2:53",
    ),
    ("", "+127.0.0.1:53"),
];

#[test]
fn own_addresses_are_no_upstreams() {
    for (listening, upstreams) in OWN_ADDRESSES {
        let addresses = listening.split_whitespace();
        let addresses: Vec<SocketAddr> = addresses.map(|text| text.parse().unwrap()).collect();
        for upstream in upstreams.split(' ') {
            let (sign, address) = upstream.split_at(1);
            let address: SocketAddr = address.parse().unwrap();
            let is_own = is_own_address(&address.into(), &addresses);
            assert_eq!(
                is_own,
                sign == "-",
                "{address} while listening on {listening}"
            );
        }
    }
}

/// An upstream that acts as if every query came back to the forwarder under test: it passes the
/// name of the query to `record_returned_probe`, and answers REFUSED if the query is a probe.
async fn relay(subject: Subject) -> (SocketAddr, tokio::task::JoinSet<()>) {
    let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move {
        let mut buffer = [0; 512];
        loop {
            let (length, from) = socket.recv_from(&mut buffer).await.unwrap();
            let packet = &buffer[..length];
            let question = Message::parse(packet).unwrap().questions.remove(0);
            // Some resolvers randomize the case of names.
            let name = question.name.to_ascii_uppercase();
            let is_probe = subject
                .forwarder
                .record_returned_probe(wire::Name::parse(&name).unwrap().wire());
            let rcode = if is_probe { "REFUSED" } else { "NOTIMP" };
            let reply = Reply::to(packet).rcode(rcode).wire();
            socket.send_to(&reply, from).await.unwrap();
        }
    });
    (address, tasks)
}

async fn leads_back(subject: &Subject, upstream: SocketAddr, domain: &str) -> Option<bool> {
    subject
        .forwarder
        .find_loops(vec![(upstream.into(), wire::Name::parse(domain).unwrap())])
        .await[0]
}

#[tokio::test]
async fn looping_upstream_is_found() {
    let subject = Subject::new(ForwardLimits::default());
    let (looping, _tasks) = relay(subject.clone()).await;
    let good = Upstream::start(refuses("NXDOMAIN")).await;
    for domain in ["test", "corp.example", ""] {
        for (upstream, expected) in [(looping, true), (good.addr(), false)] {
            let found = leads_back(&subject, upstream, domain).await;
            assert_eq!(found, Some(expected), "{domain}");
        }
    }
    // The name of a probe below this domain would be too long.
    let long = vec!["d".repeat(56); 4].join(".");
    assert_eq!(leads_back(&subject, looping, &long).await, None);
    let requests = subject.count("requests_total");
    assert_eq!(requests, 0, "loop probes must not count as requests");
}

/// The number of concurrent loop probes is limited, but every upstream is probed.
#[tokio::test]
async fn loop_is_found_among_many_upstreams() {
    let subject = Subject::new(ForwardLimits::default());
    let (looping, _tasks) = relay(subject.clone()).await;
    let good = Upstream::start(refuses("NXDOMAIN")).await;
    let mut ways: Vec<(wire::Upstream, wire::Name)> = Vec::new();
    for number in 0..150 {
        let domain = format!("stub-{number}.example");
        ways.push((good.addr().into(), wire::Name::parse(&domain).unwrap()));
    }
    ways.push((looping.into(), wire::Name::parse("test").unwrap()));

    let found = subject.forwarder.find_loops(ways).await;
    assert_eq!(found.len(), 151);
    let (last, others) = found.split_last().unwrap();
    assert_eq!(*last, Some(true));
    assert!(others.iter().all(|leads_back| *leads_back == Some(false)));
}

#[tokio::test]
async fn probe_names_differ_and_foreign_probe_is_forwarded() {
    let subject = Subject::new(ForwardLimits::default());
    // The upstream is a plain socket, because `Upstream::asked` does not contain loop probes, and
    // this test compares their names.
    let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    let says_no = async {
        let mut names = Vec::new();
        let mut buffer = [0; 512];
        while names.len() < 3 {
            let (length, from) = socket.recv_from(&mut buffer).await.unwrap();
            let packet = &buffer[..length];
            let question = Message::parse(packet).unwrap().questions.remove(0);
            let reply = Reply::to(packet).rcode("NXDOMAIN").wire();
            socket.send_to(&reply, from).await.unwrap();
            names.push(question.name);
        }
        names
    };
    let asks = async {
        for _ in 0..2 {
            let found = leads_back(&subject, address, "corp.example").await;
            assert_eq!(found, Some(false));
        }
        // The name has the form of a probe's name, but this forwarder has sent no such probe. The
        // query is forwarded like any other query.
        let old = "0123456789abcdef.forward-loop.corp.example.";
        assert_eq!(subject.ask_a(old, &[address]).await, "NXDOMAIN");
    };
    let (names, ()) = tokio::join!(says_no, asks);
    for name in &names {
        assert!(
            name.ends_with(".forward-loop.corp.example.") && name.find('.') == Some(16),
            "{name}"
        );
    }
    assert_ne!(names[0], names[1]);
}

#[tokio::test]
async fn loop_state_of_upstream_without_answer_is_unknown() {
    let socket = local_socket();
    let subject = Subject::new(short_limits());
    for upstream in [socket.local_addr().unwrap(), unused_address()] {
        assert_eq!(leads_back(&subject, upstream, "test").await, None);
    }
}
