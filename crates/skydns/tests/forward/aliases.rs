//! ExternalName Services: the answer is what a client gets that queries the upstream's name itself.

use std::sync::atomic::{AtomicBool, Ordering};

use skydns::forward::CacheLimits;
use testkit::client::{ask, ask_tcp};
use testkit::eventually;
use testkit::message::Message;
use testkit::query::Query as Ask;
use testkit::reply::Reply;
use testkit::upstream::{Asked, Reaction, Upstream};
use wire::Transport;

use crate::cache::{hour_of_stale_answers, servfail};
use crate::fixed::{Fixed, start};
use crate::support::{PATIENCE, address};

const TARGET: &str = "www.outside.test.";
const ALIAS: &str = "out.apps.svc.cluster.local.";

/// RCODE, `tc` if set, and addresses.
fn outcome_text(answer: &Message) -> String {
    let tc = answer.has("tc").then(|| "tc".to_owned());
    [answer.rcode_name()]
        .into_iter()
        .chain(tc)
        .chain(answer.answer_data("A"))
        .collect::<Vec<_>>()
        .join(" ")
}

fn truncated(asked: &Asked) -> Reaction {
    address(asked, 1).truncated().into()
}

fn truncated_and_empty(asked: &Asked) -> Reaction {
    Reply::to(&asked.packet).truncated().into()
}

fn whole_over_tcp(asked: &Asked) -> Reaction {
    match asked.transport {
        Transport::Udp => truncated(asked),
        Transport::Tcp => address(asked, 1)
            .answer(&format!("{} 60 IN A 192.0.2.2", asked.name()))
            .into(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn truncated_alias_target_is_answered() {
    let whole = "NOERROR 192.0.2.1 192.0.2.2";
    for (what, handler, over_udp, over_tcp) in [
        (
            "TCP refused",
            truncated as fn(&Asked) -> Reaction,
            "NOERROR tc 192.0.2.1",
            "SERVFAIL",
        ),
        (
            "TCP refused, no records",
            truncated_and_empty,
            "NOERROR tc",
            "SERVFAIL",
        ),
        ("whole over TCP", whole_over_tcp, whole, whole),
    ] {
        let upstream = match what {
            "whole over TCP" => Upstream::start(handler).await,
            _ => Upstream::start_udp_only(handler).await,
        };
        for caching in [
            CacheLimits {
                entries: 0,
                ..CacheLimits::default()
            },
            CacheLimits::default(),
        ] {
            let server = start(Fixed::new(&[upstream.addr()]).caching(caching));
            for name in [TARGET, ALIAS] {
                let query = Ask::new(name, "A").edns(1232);
                let answers = [
                    ask(server.address, &query).await,
                    ask_tcp(server.address, &query).await,
                ];
                let told = answers
                    .each_ref()
                    .map(|answer| sorted(&outcome_text(answer)));
                assert_eq!(told, [over_udp, over_tcp], "{what}: {name}");
            }
            server.stop().await;
        }
    }
}

fn sorted(told: &str) -> String {
    let mut words: Vec<_> = told.split(' ').collect();
    words.sort_unstable_by_key(|word| (word.starts_with(char::is_numeric), *word));
    words.join(" ")
}

/// RFC 8767, section 4, and RFC 8914, section 4.4.
#[tokio::test(flavor = "multi_thread")]
async fn stale_alias_target_is_answered() {
    static DOWN: AtomicBool = AtomicBool::new(false);
    let upstream = Upstream::start(|asked: &Asked| {
        let address = format!("{} 1 IN A 192.0.2.1", asked.name());
        if DOWN.load(Ordering::SeqCst) {
            servfail(asked)
        } else {
            Reply::to(&asked.packet).answer(&address).into()
        }
    })
    .await;
    let server = start(Fixed::new(&[upstream.addr()]).caching(hour_of_stale_answers()));
    let query = Ask::new(ALIAS, "A").edns(1232);
    let fresh = ask(server.address, &query).await;
    assert_eq!(
        (outcome_text(&fresh).as_str(), fresh.edns.unwrap().options),
        ("NOERROR 192.0.2.1", vec![])
    );

    DOWN.store(true, Ordering::SeqCst);
    let stale = eventually(PATIENCE, || async {
        let answer = ask(server.address, &query).await;
        (upstream.count() > 1).then_some(answer)
    })
    .await;
    let ttl = stale
        .answer
        .iter()
        .find(|record| record.rtype == 1)
        .map(|record| record.ttl);
    assert_eq!(
        (outcome_text(&stale).as_str(), ttl),
        ("NOERROR 192.0.2.1", Some(30))
    );
    assert_eq!(stale.edns.unwrap().options, [(15, vec![0, 3])]);
    let without_edns = ask_tcp(server.address, &Ask::new(ALIAS, "A")).await;
    assert_eq!(
        (outcome_text(&without_edns).as_str(), without_edns.edns),
        ("NOERROR 192.0.2.1", None)
    );
    server.stop().await;
}
