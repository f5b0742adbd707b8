//! Lookups of external names that are targets of our aliases, or of our SRV and MX records. Only
//! upstreams can resolve these names.

use super::Resolver;
use super::waiting::AdmittedAsk;
use crate::backend::zones::{external_route, is_ours, rule_for_reply};
use crate::backend::{Backend, ExternalRoute};
use crate::cause::Cause;
use crate::external::{ExternalAnswer, ExternalQuery, ExternalRecord};
use crate::external_rules::RuleKey;
use crate::forward::{self, UpstreamFailure};
use wire::{Message, Section, Transport, class, rcode, rtype};

/// Maximum number of aliases to follow within an upstream's answer.
const MAX_CHAIN: usize = 16;

/// The result of the lookup of an external name.
pub(super) struct ExternalLookup {
    pub(super) answer: ExternalAnswer,
    /// Whether the answer is from the cache and older than its TTL.
    pub(super) stale: bool,
    /// The rule of the configuration that left out the records; `None` if no rule did.
    pub(super) rule: Option<RuleKey>,
}

impl ExternalLookup {
    /// An answer that has no records because of a rule of the configuration.
    fn without_records(rule: RuleKey) -> Self {
        Self {
            answer: ExternalAnswer::Records(Vec::new()),
            stale: false,
            rule: Some(rule),
        }
    }
}

impl<B: Backend> Resolver<B> {
    /// Looks up an external name, until the deadline of the query that needs the name. A rule of
    /// the configuration can answer in place of the upstreams.
    pub(super) async fn look_up_external(
        &self,
        admitted: &AdmittedAsk<'_, B::View>,
        question: &ExternalQuery,
    ) -> Result<ExternalLookup, Cause> {
        let transport = admitted.ask.query.transport;
        let view = admitted.ask.view;
        let lower = question.name.to_lowercase();
        // A name whose records a rule leaves out is treated as a name without records.
        if let ExternalRoute::Rule(rule) = external_route(view, lower.wire(), question.qtype) {
            return Ok(ExternalLookup::without_records(rule.key));
        }

        let query = forward::UpstreamQuery::new(lower.wire(), question.qtype);
        let reply = self
            .query_upstreams(admitted, query)
            .await
            .map_err(|error| Cause::from(&error))?;
        if let Some(rule) = rule_for_reply(view, &reply.message, lower.wire()) {
            return Ok(ExternalLookup::without_records(rule.key));
        }
        let answer = extract_external_answer(
            question,
            |name| is_ours(view, name),
            &reply.message,
            reply.rcode,
        );

        let answer = match answer {
            ExternalAnswer::Failed => {
                return Err(Cause::Reply(reply.upstream.clone(), reply.rcode));
            }
            // A client over UDP retries a truncated answer over TCP. A client over TCP cannot use
            // an incomplete answer.
            ExternalAnswer::Records(_) if reply.truncated && transport == Transport::Tcp => {
                return Err(Cause::Upstream(
                    reply.upstream.clone(),
                    UpstreamFailure::Garbage,
                ));
            }
            ExternalAnswer::Records(records) if reply.truncated => {
                ExternalAnswer::Truncated(records)
            }
            answer => answer,
        };
        Ok(ExternalLookup {
            answer,
            stale: reply.stale,
            rule: None,
        })
    }
}

/// Extracts the answer to `question` from the upstream's `message` with RCODE `code`. The answer is
/// the chain of aliases from the name in `question`, and the addresses (A and AAAA, whatever the
/// type in `question`) of the names in the chain. The chain ends before a name for which `is_ours`
/// returns true; `is_ours` gets names in wire format and lower case. Records of other names must
/// not be passed on.
// Differs from kube-dns, which passes on the whole answer section.
pub fn extract_external_answer(
    question: &ExternalQuery,
    is_ours: impl Fn(&[u8]) -> bool,
    message: &[u8],
    code: u16,
) -> ExternalAnswer {
    // An NXDOMAIN reply may still contain aliases.
    if !matches!(code, rcode::NOERROR | rcode::NXDOMAIN) {
        return ExternalAnswer::Failed;
    }
    let Ok(message) = Message::parse(message) else {
        return ExternalAnswer::Failed;
    };

    let mut records = aliases_and_addresses(&message);
    let names = follow_aliases(question.name.wire(), is_ours, &records);
    records.retain(|record| contains_name(&names, record.owner.wire()));
    ExternalAnswer::Records(records)
}

/// The CNAME, A and AAAA records of the answer section. Malformed records are left out.
fn aliases_and_addresses(message: &Message<'_>) -> Vec<ExternalRecord> {
    let mut records = Vec::new();
    for record in message.section(Section::Answer) {
        let is_wanted = matches!(record.rtype, rtype::A | rtype::AAAA | rtype::CNAME)
            && record.class == class::IN;
        if !is_wanted {
            continue;
        }

        let mut rdata = Vec::new();
        let (Ok(owner), Ok(())) = (record.owner(), record.append_data(&mut rdata)) else {
            continue;
        };
        records.push(ExternalRecord {
            owner,
            rtype: record.rtype,
            rdata: rdata.into(),
        });
    }
    records
}

/// Returns the names in the chain of aliases in `records` that begins with `start`: first `start`,
/// then the target of each alias. The chain ends before a name for which `is_ours` returns true.
fn follow_aliases(
    start: &[u8],
    is_ours: impl Fn(&[u8]) -> bool,
    records: &[ExternalRecord],
) -> Vec<Vec<u8>> {
    let mut names = vec![start.to_vec()];
    while let Some(target) = names.last().and_then(|name| alias_target(records, name)) {
        let is_own = is_ours(&target.to_ascii_lowercase());
        // An alias whose target is an earlier name of the chain makes a loop.
        if is_own || names.len() > MAX_CHAIN || contains_name(&names, target) {
            break;
        }
        names.push(target.to_vec());
    }
    names
}

/// The target of the first CNAME record of `name`.
fn alias_target<'r>(records: &'r [ExternalRecord], name: &[u8]) -> Option<&'r [u8]> {
    let mut aliases = records.iter().filter(|record| record.rtype == rtype::CNAME);
    // A length octet is never a letter, so the comparison may ignore case.
    let alias = aliases.find(|record| record.owner.wire().eq_ignore_ascii_case(name))?;
    Some(&alias.rdata)
}

/// Whether `names` contain `name`, regardless of the case of letters.
fn contains_name(names: &[Vec<u8>], name: &[u8]) -> bool {
    names.iter().any(|known| known.eq_ignore_ascii_case(name))
}
