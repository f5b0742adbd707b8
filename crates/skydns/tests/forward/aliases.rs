//! Truncated replies for the targets of ExternalName Services. Apart from the CNAME, the answer is
//! the same as for a query for the external name itself.

use skydns::forward::CacheLimits;
use testkit::client::{ask, ask_tcp};
use testkit::query::Query as Ask;
use testkit::reply::Reply;
use testkit::upstream::{Asked, Reaction, Upstream};
use wire::Transport;

use crate::fixed::{Fixed, start};
use crate::support::{Does, address, message_text};

const TARGET: &str = "www.outside.test.";
const ALIAS: &str = "out.apps.svc.cluster.local.";

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
async fn alias_gets_same_answer_as_target_after_truncated_reply() {
    let whole = "NOERROR 192.0.2.1 192.0.2.2";
    let cases: [(&str, Does, &str, &str); 3] = [
        ("TCP refused", truncated, "NOERROR tc 192.0.2.1", "SERVFAIL"),
        (
            "TCP refused, no records",
            truncated_and_empty,
            "NOERROR tc",
            "SERVFAIL",
        ),
        ("whole over TCP", whole_over_tcp, whole, whole),
    ];
    for (what, handler, over_udp, over_tcp) in cases {
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
                    .map(|answer| sorted(&message_text(answer)));
                assert_eq!(told, [over_udp, over_tcp], "{what}: {name}");
                let aliases = usize::from(name == ALIAS && over_udp.starts_with("NOERROR"));
                let count = answers[0].answer_data("CNAME").len();
                assert_eq!(count, aliases, "{what}: {name}");
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
