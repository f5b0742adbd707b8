//! Look-ups of names that only upstreams can resolve, for an answer of our own.

use wire::{Message, Section, Transport, class, rcode, rtype};

use super::Resolver;
use super::waiting::AdmittedAsk;
use crate::backend::Backend;
use crate::backend::zones::is_ours;
use crate::cause::Cause;
use crate::external::{ExternalAnswer, ExternalQuery, ExternalRecord};
use crate::forward::{self, UpstreamFailure};

/// Maximum number of aliases to follow within an upstream's answer.
const MAX_CHAIN: usize = 16;

/// The answer of the upstreams to an external query.
pub(super) struct ExternalLookup {
    pub(super) answer: ExternalAnswer,
    /// Whether the answer replaces a failure of the upstreams.
    pub(super) stale: bool,
}

impl<B: Backend> Resolver<B> {
    /// Looks up an external name at its upstreams, until the deadline of the query that needs it.
    pub(super) async fn look_up(
        &self,
        late: AdmittedAsk<'_, B::View>,
        question: &ExternalQuery,
    ) -> Result<ExternalLookup, Cause> {
        let transport = late.query.transport;
        let view = &**late.view;
        let lower = question.name.to_lowercase();
        let query = forward::UpstreamQuery::new(lower.wire(), question.qtype);
        let reply = self
            .exchange(late, query)
            .await
            .map_err(|error| Cause::from(&error))?;

        let is_ours = |name: &[u8]| is_ours(view, name);
        let answer = match external_answer(question, is_ours, &reply.message, reply.rcode) {
            ExternalAnswer::Failed => {
                return Err(Cause::Reply(reply.upstream.clone(), reply.rcode));
            }
            // As for the name itself: a client over UDP retries over TCP, a client over TCP cannot
            // use a part.
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
        })
    }
}

/// Extracts the answer to `question` from the upstream's `message` with RCODE `code`. The answer is
/// the chain of aliases from the name in `question`, and the addresses of the names in the chain.
/// The chain ends before a name (wire format, lower case) that `is_ours`. Records of other names
/// must not be passed on.
// Differs from kube-dns, which passes on the whole answer section.
pub fn external_answer(
    question: &ExternalQuery,
    is_ours: impl Fn(&[u8]) -> bool,
    message: &[u8],
    code: u16,
) -> ExternalAnswer {
    if !matches!(code, rcode::NOERROR | rcode::NXDOMAIN) {
        return ExternalAnswer::Failed;
    }
    let Ok(message) = Message::parse(message) else {
        return ExternalAnswer::Failed;
    };
    let mut records = Vec::new();
    for record in message.section(Section::Answer) {
        if !matches!(record.rtype, rtype::A | rtype::AAAA | rtype::CNAME)
            || record.class != class::IN
        {
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
    let names = chain(question.name.wire(), is_ours, &records);
    records.retain(|record| {
        names
            .iter()
            .any(|name| record.owner.wire().eq_ignore_ascii_case(name))
    });
    ExternalAnswer::Records(records)
}

/// `start`, and the names that its aliases among `records` lead to. The chain ends before one of
/// our own names.
fn chain(
    start: &[u8],
    is_ours: impl Fn(&[u8]) -> bool,
    records: &[ExternalRecord],
) -> Vec<Vec<u8>> {
    let alias = |name: &[u8]| {
        let mut aliases = records.iter().filter(|record| record.rtype == rtype::CNAME);
        // A length octet is never a letter, so the comparison may ignore case.
        let found = aliases.find(|record| record.owner.wire().eq_ignore_ascii_case(name))?;
        Some(found.rdata.to_vec())
    };
    let mut names = vec![start.to_vec()];
    while let Some(target) = names.last().and_then(|name| alias(name)) {
        let ours = is_ours(&target.to_ascii_lowercase());
        if ours
            || names.len() > MAX_CHAIN
            || names.iter().any(|name| name.eq_ignore_ascii_case(&target))
        {
            break;
        }
        names.push(target);
    }
    names
}
