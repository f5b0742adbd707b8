//! A message from a client to the DNS server.

use std::net::{Ipv4Addr, Ipv6Addr};

use cluster::snapshot::Snapshot;
use skydns::engine::{EngineOutcome, Identity, PendingAnswer, answer_message};
use skydns::external::{ExternalAnswer, ExternalAnswers, ExternalQuery, ExternalRecord};
use wire::Name;
use wire::{Query, QueryError, Transport, rtype};

use crate::{example, message};

/// Maximum number of rounds of upstream queries for one answer.
const ROUNDS: usize = 3;
/// Maximum number of upstream queries in one round.
const QUESTIONS: usize = 32;

/// No message makes the server panic. A response has the ID and the question of its query, is no
/// larger than the client accepts, and can be parsed by other software.
pub fn query(input: &[u8]) {
    let Some((&choice, octets)) = input.split_first() else {
        return;
    };
    let transport = message::transport(choice);
    let view = example::choose(choice >> 1);
    let told = choice >> 3 & 7;
    ask(view, octets, transport, |question| outside(told, question));
}

/// Passes a message to the engine as the server does, and checks the outcome. `told` returns the
/// upstream's answer to a query.
pub(crate) fn ask(
    view: &Snapshot,
    octets: &[u8],
    transport: Transport,
    told: impl Fn(&ExternalQuery) -> ExternalAnswer,
) {
    fastrand::seed(7);
    let identity = Identity {
        version: "version".to_owned(),
    };
    let mut outside = ExternalAnswers::none();
    for round in 0..=ROUNDS {
        if round == ROUNDS {
            outside.close();
        }
        let mut out = b"before".to_vec();
        match answer_message(view, &identity, octets, transport, &outside, &mut out) {
            EngineOutcome::Reply(reply) => {
                let octets_of_reply = out.strip_prefix(b"before").unwrap_or_default();
                message::answers(octets, transport, octets_of_reply);
                let read = message::read(octets_of_reply);
                assert_eq!(
                    message::extended_rcode(&read),
                    reply.rcode,
                    "the outcome must have the RCODE of the response"
                );
                return;
            }
            EngineOutcome::Pending(PendingAnswer::Forward(_)) => {
                assert!(
                    Query::parse(octets, transport).is_ok(),
                    "only valid queries may be forwarded"
                );
                assert_eq!(out, b"before");
                return;
            }
            EngineOutcome::Pending(PendingAnswer::Expensive) => {
                unreachable!("an answer from an example snapshot takes too many steps")
            }
            EngineOutcome::Search(_) => unreachable!("the zone has no search list"),
            EngineOutcome::Transfer => unreachable!("no zone is transferred"),
            EngineOutcome::Ignore => {
                assert!(
                    matches!(Query::parse(octets, transport), Err(QueryError::Ignore)),
                    "a query that needs a response is ignored: {octets:02x?}"
                );
                assert!(octets.len() < 12 || message::flags(octets) & 0x8000 != 0);
                assert_eq!(out, b"before");
                return;
            }
            EngineOutcome::Pending(PendingAnswer::External(questions)) => {
                assert!(
                    round < ROUNDS,
                    "too many rounds of upstream queries: {questions:?}"
                );
                assert_eq!(out, b"before");
                assert!(
                    (1..=QUESTIONS).contains(&questions.len()),
                    "{} questions",
                    questions.len()
                );
                assert!(
                    questions
                        .iter()
                        .all(|question| outside.get(question).is_none()),
                    "the upstream is queried again: {questions:?}"
                );
                for question in questions {
                    let answer = told(&question);
                    outside.insert(question, answer);
                }
            }
        }
    }
}

/// The upstream's answer to a query. `variation`, from 0 to 7, selects a failure, no records,
/// addresses or CNAMEs. Some CNAMEs form a loop, have a cluster name as target, or belong to a
/// name that was not queried.
fn outside(variation: u8, question: &ExternalQuery) -> ExternalAnswer {
    let address = |n: u8| ExternalRecord {
        owner: question.name.clone(),
        rtype: question.qtype,
        rdata: match question.qtype {
            rtype::A => Ipv4Addr::new(192, 0, 2, n).octets().as_slice().into(),
            _ => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, n.into())
                .octets()
                .as_slice()
                .into(),
        },
    };
    let alias = |owner: &Name, target: &Name| ExternalRecord {
        owner: owner.clone(),
        rtype: rtype::CNAME,
        rdata: target.wire().into(),
    };
    let [edge, web] = ["edge.outside.test", "web.apps.svc.cluster.local"].map(example::name);
    ExternalAnswer::Records(match variation {
        0 => return ExternalAnswer::Failed,
        1 => Vec::new(),
        2 => vec![address(1)],
        3 => vec![
            alias(&question.name, &edge),
            ExternalRecord {
                owner: edge,
                ..address(2)
            },
        ],
        4 => vec![alias(&question.name, &web)],
        5 => vec![alias(&question.name, &question.name), address(3)],
        6 => (0..=255).map(address).collect(),
        _ => vec![
            alias(&edge, &web),
            ExternalRecord {
                owner: edge,
                ..address(4)
            },
        ],
    })
}
