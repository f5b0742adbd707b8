//! Queries that hickory-net sends to test servers.

use hickory_proto::op::ResponseCode;
use hickory_proto::rr::{Name, RecordType};
use testkit::reply::Reply;
use testkit::upstream::{Act, Asked, Reaction, Upstream};
use wire::Transport;

use super::*;

/// Timeout of queries that must not time out; long enough for a busy machine.
const LONG_TIMEOUT: Duration = Duration::from_secs(20);
const SHORT_TIMEOUT: Duration = Duration::from_millis(300);
const ADDRESS: &str = "www.outside.test. 60 IN A 192.0.2.1";

fn address_query() -> Query {
    let name = Name::from_ascii("www.outside.test.").unwrap();
    Query::query(name, RecordType::A)
}

async fn query_upstream(upstream: &Upstream, timeout: Duration) -> Result<DnsAnswer, QueryError> {
    query_with_tcp_retry(&upstream.addr().into(), &address_query(), timeout).await
}

#[tokio::test]
async fn query_is_sent_over_tcp_after_truncated_answer() {
    let upstream = Upstream::start(|asked: &Asked| {
        let reply = Reply::to(&asked.packet);
        match asked.transport {
            Transport::Udp => Reaction::from(reply.truncated()),
            Transport::Tcp => reply.answer(ADDRESS).into(),
        }
    })
    .await;

    let answer = query_upstream(&upstream, LONG_TIMEOUT).await.unwrap();
    assert_eq!(answer.message.answers.len(), 1);
    assert_eq!(upstream.count(), 2);
}

#[tokio::test]
async fn query_has_no_edns() {
    let upstream =
        Upstream::start(|asked: &Asked| Reply::to(&asked.packet).answer(ADDRESS).into()).await;
    query_upstream(&upstream, LONG_TIMEOUT).await.unwrap();

    // One question, RD, no OPT record.
    let packet = upstream.asked().remove(0).packet;
    assert_eq!(packet[2..12], [1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
}

#[tokio::test]
async fn rcode_is_part_of_answer() {
    for (rcode, expected) in [
        ("NXDOMAIN", ResponseCode::NXDomain),
        ("SERVFAIL", ResponseCode::ServFail),
        ("REFUSED", ResponseCode::Refused),
    ] {
        let upstream =
            Upstream::start(move |asked: &Asked| Reply::to(&asked.packet).rcode(rcode).into())
                .await;
        let answer = query_upstream(&upstream, LONG_TIMEOUT).await.unwrap();
        assert_eq!(answer.message.metadata.response_code, expected);
    }
}

#[tokio::test]
async fn wrong_packets_are_ignored() {
    let upstream = Upstream::start(|asked: &Asked| {
        let reply = Reply::to(&asked.packet);
        let wrong_id = reply.clone().wrong_id().answer(ADDRESS).wire();
        let wrong_question = reply.clone().wrong_question("evil.test.", "A").wire();
        Reaction::send(wrong_id)
            .then(Act::Send(wrong_question))
            .then(Act::Send(reply.answer(ADDRESS).wire()))
    })
    .await;

    let answer = query_upstream(&upstream, LONG_TIMEOUT).await.unwrap();
    assert_eq!(answer.message.answers[0].data.to_string(), "192.0.2.1");
}

#[tokio::test]
async fn silence_is_timeout() {
    let upstream = Upstream::start(|_: &Asked| Reaction::silence()).await;
    let error = query_upstream(&upstream, SHORT_TIMEOUT).await.unwrap_err();
    let expected = format!("{}: request timed out", upstream.addr());
    assert_eq!(error.to_string(), expected);
}

#[tokio::test]
async fn silence_over_tcp_is_timeout() {
    let upstream = Upstream::start(|asked: &Asked| match asked.transport {
        Transport::Udp => Reply::to(&asked.packet).truncated().into(),
        Transport::Tcp => Reaction::silence(),
    })
    .await;
    let error = query_upstream(&upstream, SHORT_TIMEOUT).await.unwrap_err();
    assert!(
        error.to_string().ends_with(": request timed out"),
        "{error}"
    );
}

#[tokio::test]
async fn unused_port_is_refused_before_timeout() {
    let server = ServerAddr::new("127.0.0.1", testkit::ports::free_port());
    let begun = Instant::now();
    let error = query_with_tcp_retry(&server, &address_query(), LONG_TIMEOUT)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("onnection refused"), "{error}");
    assert!(begun.elapsed() < LONG_TIMEOUT);
}
