//! The scripted upstream, queried over real sockets with the client of this crate.

use std::time::Duration;

use testkit::client::{self, AskError};
use testkit::hex::unhex;
use testkit::message::Message;
use testkit::query::Query;
use testkit::reply::Reply;
use testkit::upstream::{Act, Asked, Exchange, Reaction, Replay, Upstream};
use wire::Transport;

const SHORT: Duration = Duration::from_millis(200);
const LONG: Duration = Duration::from_secs(10);

#[tokio::test]
async fn it_misbehaves_as_told() {
    let upstream = Upstream::start(|asked: &Asked| match asked.name().as_str() {
        "silent." => Reaction::silence(),
        "late." => Reaction::from(Reply::to(&asked.packet)).after(SHORT),
        "badid." => Reply::to(&asked.packet).wrong_id().into(),
        "garbage." => Reaction::silence()
            .then(Act::Raw(vec![1, 2, 3]))
            .then(Act::Close),
        _ => Reaction::close(),
    })
    .await;
    let query = |name| Query::new(name, "A").id(9).wire();
    let addr = upstream.addr();
    assert!(matches!(
        client::udp(addr, &query("silent."), SHORT).await,
        Err(AskError::Timeout(_))
    ));
    assert!(matches!(
        client::tcp(addr, &query("silent."), SHORT).await,
        Err(AskError::Timeout(_))
    ));
    let start = std::time::Instant::now();
    client::udp(addr, &query("late."), LONG)
        .await
        .expect("a late answer");
    assert!(start.elapsed() >= SHORT);
    let lie = client::udp(addr, &query("badid."), LONG)
        .await
        .expect("an answer");
    assert_ne!(Message::parse(&lie).expect("a message").id, 9);
    let answer = client::udp(addr, &query("garbage."), LONG)
        .await
        .expect("garbage");
    assert_eq!(answer, [1, 2, 3]);
    assert!(matches!(
        client::tcp(addr, &query("garbage."), LONG).await,
        Err(AskError::Closed)
    ));
    assert!(matches!(
        client::tcp(addr, &query("close."), LONG).await,
        Err(AskError::Closed)
    ));
}

fn exchange(transport: Transport, responses: &[&str]) -> Exchange {
    let responses = responses.iter().filter_map(|text| unhex(text)).collect();
    Exchange {
        transport,
        question: "a.b. IN A".to_owned(),
        responses,
    }
}

#[tokio::test]
async fn replay_answers_in_recorded_order() {
    let replay = Replay::new(|asked: &Asked| Reply::to(&asked.packet).rcode("REFUSED").into());
    let upstream = Upstream::start(replay.handler()).await;
    let servfail = "000081820000000000000000";
    let wrong_then_good = ["ffff81800000000000000000", "000081800000000000000000"];
    replay.load([
        exchange(Transport::Udp, &[servfail]),
        exchange(Transport::Udp, &wrong_then_good),
    ]);
    let ask = async |name: &str| {
        let wire = client::udp(
            upstream.addr(),
            &Query::new(name, "A").id(0x0102).wire(),
            LONG,
        )
        .await;
        let message = Message::parse(&wire.expect("an answer")).expect("a message");
        (message.id, message.rcode_name())
    };
    assert_eq!(ask("A.b.").await, (0x0102, "SERVFAIL".to_owned()));
    assert_eq!(
        ask("a.b.").await,
        (0xfefd, "NOERROR".to_owned()),
        "another ID, as recorded"
    );
    let found = ask("a.b.").await;
    assert_eq!(found, (0xfefd, "NOERROR".to_owned()), "the last one again");
    let found = ask("c.b.").await;
    assert_eq!(found, (0x0102, "REFUSED".to_owned()), "the fallback");
    replay.load([exchange(Transport::Udp, &[servfail])]);
    let over_tcp = client::ask_tcp(upstream.addr(), &Query::new("a.b.", "A")).await;
    assert_eq!(over_tcp.rcode_name(), "SERVFAIL", "recorded over UDP only");
    replay.load([exchange(Transport::Udp, &["000083800000000000000000"])]);
    let over_tcp = client::ask_tcp(upstream.addr(), &Query::new("a.b.", "A")).await;
    let rcode = over_tcp.rcode_name();
    assert_eq!(rcode, "REFUSED", "a truncated answer is no answer over TCP");
}
