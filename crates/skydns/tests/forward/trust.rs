//! Replies are taken only from where the query went, and guessing does not help.

use std::collections::HashSet;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use skydns::forward::{ForwardError, Limits, usable_upstreams};
use testkit::upstream::{Act, Asked, Reaction, Transport, Upstream};

use crate::support::{PATIENCE, Subject, a, address, is, says, told};

#[tokio::test]
async fn ids_and_ports_cannot_be_foretold() {
    const QUERIES: usize = 400;
    let upstream = Upstream::start(says(1)).await;
    let subject = Subject::new(Limits::default());
    for n in 0..QUERIES {
        subject.ask(a(&format!("n{n}.test.")), &[upstream.addr()]).await.unwrap();
    }
    let asked = upstream.asked();
    let ids: Vec<u16> =
        asked.iter().map(|asked| u16::from_be_bytes([asked.packet[0], asked.packet[1]])).collect();
    let ports: Vec<u16> = asked.iter().map(|asked| asked.from.port()).collect();
    for (what, values, distinct) in [("IDs", &ids, QUERIES - 20), ("ports", &ports, QUERIES - 40)] {
        let seen: HashSet<_> = values.iter().collect();
        assert!(seen.len() >= distinct, "{} distinct {what}", seen.len());
        let rising = values.windows(2).filter(|pair| pair[0] < pair[1]).count();
        assert!((QUERIES / 4..QUERIES * 3 / 4).contains(&rising), "{what} rise {rising} times");
        let steps: HashSet<_> = values.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect();
        assert!(steps.len() > QUERIES / 2, "{what} differ by {} amounts", steps.len());
    }
    for bit in 0..16 {
        let set = ids.iter().filter(|id| *id >> bit & 1 == 1).count();
        assert!((QUERIES / 4..QUERIES * 3 / 4).contains(&set), "bit {bit} of the ID is set {set} times");
    }
}

/// A right reply from another port is somebody else's.
#[tokio::test]
async fn replies_from_elsewhere_do_not_count() {
    let (asked_one, other) = (local_socket(), local_socket());
    let upstream = asked_one.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let mut buffer = [0; 512];
        let (length, from) = asked_one.recv_from(&mut buffer).unwrap();
        let asked =
            Asked { transport: Transport::Udp, from, packet: buffer[..length].to_vec(), question: None };
        let reply = |n| {
            testkit::reply::Reply::to(&asked.packet).answer(&format!("x.test. 1 IN A 192.0.2.{n}")).wire()
        };
        other.send_to(&reply(66), from).unwrap();
        // It has arrived, or never will, before the right one is sent.
        asked_one.send_to(&reply(1), from).unwrap();
    });
    let subject = Subject::new(Limits::default());
    assert_eq!(subject.ask_a("x.test.", &[upstream]).await, "NOERROR 192.0.2.1");
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
    let subject = Subject::new(Limits::default());
    assert_eq!(subject.ask_a("x.test.", &[upstream.addr()]).await, "NOERROR 192.0.2.1");
    assert!(is(subject.errors("mismatch"), 2));
}

/// Somebody who floods a port with guesses has the question asked over TCP, where guessing does not help.
#[tokio::test]
async fn guessing_ends_udp() {
    let flood = |asked: &Asked| match asked.transport {
        Transport::Udp => {
            let guess = |n: u16| {
                let mut packet = address(asked, 66).wire();
                let id = u16::from_be_bytes([packet[0], packet[1]]).wrapping_add(n);
                packet[..2].copy_from_slice(&id.to_be_bytes());
                packet
            };
            (1..=100).fold(Reaction::silence(), |reaction, n| reaction.then(Act::Send(guess(n))))
        }
        Transport::Tcp => says(1)(asked),
    };
    let upstream = Upstream::start(flood).await;
    let subject = Subject::new(Limits { resend_after: Duration::from_secs(5), ..Limits::default() });
    assert_eq!(subject.ask_a("x.test.", &[upstream.addr()]).await, "NOERROR 192.0.2.1");
    assert!(is(subject.errors("mismatch"), 65));

    let upstream = Upstream::start_udp_only(flood).await;
    let outcome = told(&subject.ask(a("y.test."), &[upstream.addr()]).await);
    assert_eq!(outcome, "failed: Flooded Flooded");
}

#[test]
fn upstreams_that_are_ourselves_are_not_used() {
    let addresses =
        |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<SocketAddr>>();
    let cases: &[(&[&str], &[&str], &[&str])] = &[
        // listening, upstreams, those usable
        (&["127.0.0.1:10053"], &["127.0.0.1:10053", "8.8.8.8:53"], &["8.8.8.8:53"]),
        (&["127.0.0.1:10053"], &["127.0.0.1:53", "127.0.0.2:10053"], &["127.0.0.1:53", "127.0.0.2:10053"]),
        (&["127.0.0.1:10053"], &["[::ffff:127.0.0.1]:10053", "0.0.0.0:10053"], &[]),
        (&["0.0.0.0:53"], &["127.0.0.53:53", "0.0.0.0:53", "192.0.2.1:53"], &["192.0.2.1:53"]),
        (&["0.0.0.0:53"], &["[::1]:53"], &["[::1]:53"]),
        (&["[::]:53"], &["127.0.0.1:53", "[::1]:53", "[2001:db8::1]:53"], &["[2001:db8::1]:53"]),
        (&["10.0.0.1:53", "127.0.0.1:53"], &["127.0.0.1:53", "10.0.0.1:53", "10.0.0.2:53"], &["10.0.0.2:53"]),
        (&[], &["127.0.0.1:53"], &["127.0.0.1:53"]),
    ];
    for (listening, upstreams, usable) in cases {
        let left = usable_upstreams(&addresses(upstreams), &addresses(listening));
        assert_eq!(left, addresses(usable), "{upstreams:?} while listening on {listening:?}");
    }
}

/// An upstream that forwards everything to the forwarder under test.
async fn relay(subject: Subject) -> (SocketAddr, tokio::task::JoinSet<()>) {
    let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move {
        let mut buffer = [0; 512];
        loop {
            let (length, from) = socket.recv_from(&mut buffer).await.unwrap();
            let packet = &buffer[..length];
            let question = testkit::message::Message::parse(packet).unwrap().questions.remove(0);
            // Some resolvers play with the case of names.
            let query =
                skydns::forward::Query { qtype: question.rtype, ..a(&question.name.to_ascii_uppercase()) };
            let rcode = match subject.ask(query, &[address]).await {
                Err(ForwardError::Loop) => "REFUSED",
                _ => "NOTIMP",
            };
            socket.send_to(&testkit::reply::Reply::to(packet).rcode(rcode).wire(), from).await.unwrap();
        }
    });
    (address, tasks)
}

#[tokio::test]
async fn an_upstream_that_leads_back_is_found_and_passed_over() {
    let subject = Subject::new(Limits::default());
    let (looping, _tasks) = relay(subject.clone()).await;
    let good = Upstream::start(says(2)).await;
    let upstreams = [looping, good.addr()];
    assert_eq!(subject.forwarder.find_loops(&upstreams).await, [looping]);
    assert_eq!(subject.ask_a("x.test.", &upstreams).await, "NOERROR 192.0.2.2");
    assert_eq!(subject.ask_a("x.test.", &[looping]).await, "no upstream servers");

    // What was found is forgotten when upstreams change.
    assert_eq!(subject.forwarder.find_loops(&[good.addr()]).await, []);
    let probes: Vec<_> = good.asked().iter().map(Asked::name).filter(|name| name != "x.test.").collect();
    assert_eq!(probes.len(), 2);
    for name in &probes {
        assert!(name.ends_with(".forward-loop.test.") && name.len() == 16 + 19, "{name}");
    }
    assert_ne!(probes[0], probes[1]);
    // Nor do names like those of the probes mean anything to others.
    assert_eq!(subject.ask_a(&probes[0], &[good.addr()]).await, "NOERROR 192.0.2.2");
}

#[tokio::test]
async fn looking_for_loops_does_not_wait_for_the_dead() {
    let dead = Upstream::start(|_: &Asked| Reaction::silence()).await;
    let subject = Subject::new(crate::support::short());
    let started = std::time::Instant::now();
    let upstreams = [dead.addr(), crate::support::nobody()];
    assert_eq!(subject.forwarder.find_loops(&upstreams).await, []);
    assert!(started.elapsed() < Duration::from_millis(1500), "{:?}", started.elapsed());
    assert_eq!(subject.ask_a("x.test.", &[dead.addr()]).await, "failed: Timeout");
}
