//! Answers one query within the process, for the tools that show the engine's answers.
//!
//! [`ask`] queries no upstream, so an alias with an external target is shown without addresses. The
//! rules that answer queries for external names apply as they do for a client.

use wire::{
    Header, Message, Name, PLAIN_UDP, Question, Section, Transport, class, flag, rcode, text,
};

use crate::backend::zones::external_route;
use crate::backend::{ExternalRoute, View};
use crate::engine::{self, AnswerReason, EngineOutcome, Identity, PendingAnswer};
use crate::external::{ExternalAnswer, ExternalAnswers, ExternalQuery, MAX_ROUNDS};
use crate::external_rules::RuleKey;

/// The answer to one query.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Response {
    /// The RCODE; `None` if the engine gives no response, for example because the query must be
    /// forwarded to an upstream.
    pub rcode: Option<u16>,
    /// The answer section, in random order, as a client gets it.
    pub records: Vec<Record>,
    /// Whether the answer would be truncated over UDP without EDNS. Always false if the answer
    /// needs external queries.
    pub truncated: bool,
    /// External queries that a full answer needs, without those that a rule of the configuration
    /// answers.
    pub external: Vec<ExternalQuery>,
    /// The rule of the configuration that answers, for the name itself or for the target of its
    /// alias.
    pub rule: Option<RuleKey>,
}

/// One record in presentation format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The owner name.
    pub owner: String,
    /// The type.
    pub rtype: u16,
    /// The TTL, in seconds.
    pub ttl: u32,
    /// The RDATA.
    pub data: String,
}

/// Queries `view` for the records of type `qtype` of `name`.
pub fn ask(view: &impl View, name: &Name, qtype: u16) -> Response {
    let query = query_message(name, qtype);
    let mut response = Response::default();
    let mut external = ExternalAnswers::none();
    let mut out = Vec::new();

    for round in 0..=MAX_ROUNDS {
        // The DNS server also makes at most this number of rounds of external queries.
        if round == MAX_ROUNDS {
            external.close();
        }

        match answer(view, &query, Transport::Tcp, &external, &mut out) {
            EngineOutcome::Reply(reply) => {
                response.rcode = Some(reply.rcode);
                response.rule = reply.reason.and_then(AnswerReason::rule);
                response.records = records(&out);
                response.truncated = out.len() > PLAIN_UDP && is_truncated(view, &query);
                return response;
            }
            EngineOutcome::Pending(PendingAnswer::External(questions)) => {
                for question in questions {
                    external.insert(question.clone(), ExternalAnswer::Records(Vec::new()));
                    match rule_for(view, &question) {
                        Some(rule) if question.qtype == qtype => external.set_rule(rule),
                        Some(_) => {}
                        None => response.external.push(question),
                    }
                }
            }
            // With `--search-suffix` the server completes this name with a search list. The
            // response here has no records. `explain` shows each completed name with its answer
            // instead.
            EngineOutcome::Search(_) => {
                return Response {
                    rcode: Some(rcode::NOERROR),
                    ..response
                };
            }
            EngineOutcome::Pending(PendingAnswer::Forward(_) | PendingAnswer::Expensive)
            | EngineOutcome::Transfer
            | EngineOutcome::Ignore => {
                return response;
            }
        }
    }
    response
}

/// The rule that answers an external query in place of the upstreams.
fn rule_for(view: &impl View, question: &ExternalQuery) -> Option<RuleKey> {
    let lower = question.name.to_lowercase();
    match external_route(view, lower.wire(), question.qtype) {
        ExternalRoute::Rule(rule) => Some(rule.key),
        _ => None,
    }
}

/// A query as a stub resolver sends it: with RD, without EDNS.
fn query_message(name: &Name, qtype: u16) -> Vec<u8> {
    let mut message = Header {
        id: 0,
        flags: flag::RD,
        counts: [1, 0, 0, 0],
    }
    .octets()
    .to_vec();
    Question {
        name: name.wire(),
        qtype,
        qclass: class::IN,
    }
    .append(&mut message);
    message
}

fn answer(
    view: &impl View,
    query: &[u8],
    transport: Transport,
    external: &ExternalAnswers,
    out: &mut Vec<u8>,
) -> EngineOutcome {
    // The identity is only used for CHAOS queries.
    let identity = Identity {
        version: String::new(),
    };
    engine::answer_message(view, &identity, query, transport, external, out)
}

fn is_truncated(view: &impl View, query: &[u8]) -> bool {
    let outcome = answer(
        view,
        query,
        Transport::Udp,
        &ExternalAnswers::none(),
        &mut Vec::new(),
    );
    matches!(outcome, EngineOutcome::Reply(reply) if reply.truncated)
}

fn records(message: &[u8]) -> Vec<Record> {
    let Ok(message) = Message::parse(message) else {
        return Vec::new();
    };
    message
        .section(Section::Answer)
        .filter_map(|record| Record::new(&record))
        .collect()
}

impl Record {
    fn new(record: &wire::Record<'_>) -> Option<Self> {
        let mut data = Vec::new();
        record.append_data(&mut data).ok()?;
        let owner = record.owner().ok()?.to_string();
        Some(Self {
            owner,
            rtype: record.rtype,
            ttl: record.ttl,
            data: text::rdata_text(record.rtype, &data),
        })
    }
}
