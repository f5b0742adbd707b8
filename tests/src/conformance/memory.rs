//! The recorded exchanges of kube-dns with its resolver, from all scenarios.
//!
//! For each question to the server, the test resolver replays the exchanges that were recorded with
//! the question. If the server forwards a query that has no such exchange, the response comes from
//! [`Memory`].

use std::collections::HashMap;

use anyhow::Context as _;
use testkit::hex::unhex;
use testkit::message::Message;
use testkit::upstream::Exchange;
use wire::Transport;

use super::vector::Scenario;

/// The recorded exchanges of all scenarios.
#[derive(Debug)]
pub struct Memory {
    exchanges: HashMap<Key, Exchange>,
}

/// The question (unchanged or in lower case), the transport, and whether the query has an OPT
/// record.
type Key = (String, Transport, bool);

/// The domains for which the recorded resolver had data. A question in these domains that was not
/// recorded gets NXDOMAIN, and all other unrecorded questions get REFUSED.
const KNOWN: [&str; 7] = [
    "outside.test.",
    "example.com.",
    "example.net.",
    "example.org.",
    "fed.example.",
    "arpa.",
    "quirk.test.",
];

/// A response of the recorded resolver.
#[derive(Clone, Copy, Debug)]
pub enum Recalled<'m> {
    /// A recorded exchange.
    Exchange(&'m Exchange),
    /// The query came over TCP, but the recording has only a truncated response over UDP.
    OnlyTruncated,
    /// The recording has no response. The resolver would have answered with this RCODE and no
    /// records.
    Unknown(&'static str),
}

impl Memory {
    /// Collects the exchanges of all cases with the opcode QUERY.
    pub fn of(scenarios: &[Scenario]) -> anyhow::Result<Self> {
        let cases = scenarios
            .iter()
            .flat_map(|scenario| &scenario.steps)
            .flat_map(|step| &step.queries);
        let plain = cases.filter(|case| case.query.opcode == "QUERY");
        let mut exchanges = HashMap::new();
        for recorded in plain.flat_map(|case| &case.upstream) {
            let exchange = recorded.to_replay()?;
            let query = unhex(&recorded.query_wire)
                .with_context(|| format!("{}: the query is not hex", recorded.question))?;
            for question in [exchange.question.clone(), exchange.question.to_lowercase()] {
                let key = (question, exchange.transport, has_opt(&query));
                exchanges.entry(key).or_insert_with(|| exchange.clone());
            }
        }
        Ok(Self { exchanges })
    }

    /// The resolver's response to a question (`name class type`). `opt` tells whether the query has
    /// an OPT record. If nothing was recorded with this value of `opt`, a recording with the other
    /// value is used. If nothing was recorded over TCP, a complete response over UDP is used.
    pub fn recall(&self, question: &str, transport: Transport, opt: bool) -> Recalled<'_> {
        if let Some(exchange) = self.recorded(question, transport, opt) {
            return Recalled::Exchange(exchange);
        }
        match self.recorded(question, Transport::Udp, opt) {
            Some(exchange) if exchange.is_truncated() => Recalled::OnlyTruncated,
            Some(exchange) => Recalled::Exchange(exchange),
            None => Recalled::Unknown(rcode_of_unknown(
                question.split(' ').next().unwrap_or_default(),
            )),
        }
    }

    fn recorded(&self, question: &str, transport: Transport, opt: bool) -> Option<&Exchange> {
        let of = |question: &str, opt| self.exchanges.get(&(question.to_owned(), transport, opt));
        let in_any_case = |opt| of(question, opt).or_else(|| of(&question.to_lowercase(), opt));
        in_any_case(opt).or_else(|| in_any_case(!opt))
    }
}

/// Returns whether a query has an OPT record.
pub fn has_opt(query: &[u8]) -> bool {
    Message::read(query).0.edns.is_some()
}

fn rcode_of_unknown(name: &str) -> &'static str {
    let name = name.to_lowercase();
    let known = KNOWN
        .iter()
        .any(|domain| name == *domain || name.ends_with(&format!(".{domain}")));
    if known { "NXDOMAIN" } else { "REFUSED" }
}
