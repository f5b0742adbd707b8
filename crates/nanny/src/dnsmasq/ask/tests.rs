//! Exchanges with a scripted server.

use std::time::Duration;

use hickory_proto::rr::{Name, RecordType};
use testkit::reply::Reply;
use testkit::upstream::{Asked, Reaction, Upstream};

use super::*;

fn query(name: &str) -> Query {
    Query::query(Name::from_ascii(name).unwrap(), RecordType::A)
}

#[tokio::test]
async fn a_truncated_answer_is_asked_for_again_over_tcp() {
    let upstream = Upstream::start(|asked: &Asked| {
        let reply = Reply::to(&asked.packet);
        match asked.transport {
            testkit::upstream::Transport::Udp => Reaction::from(reply.truncated()),
            testkit::upstream::Transport::Tcp => reply.answer("a.test. 60 IN A 192.0.2.1").into(),
        }
    })
    .await;
    let answer = ask(upstream.addr(), query("a.test."), PATIENCE).await.unwrap();
    assert_eq!(answer.answers.len(), 1);
    assert_eq!(upstream.count(), 2);
}

#[tokio::test]
async fn silence_is_told_in_time() {
    let upstream = Upstream::start(|_: &Asked| Reaction::silence()).await;
    let error = ask(upstream.addr(), query("a.test."), Duration::from_millis(300)).await.unwrap_err();
    assert!(matches!(error, AskError::Timeout(server) if server == upstream.addr()), "{error}");
}
