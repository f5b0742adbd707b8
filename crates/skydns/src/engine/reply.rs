//! The properties of an answer that metrics and logs show, and functions that write answers without
//! records in the answer section.

use wire::{Query, QueryError, ResponseWriter, Section, Transport, flag, rcode};

use crate::answer::{ZoneSoa, default_soa_numbers};
use crate::backend::Zone;
use crate::backend::zones::Authority;
use crate::cause::Cause;
use crate::external_rules::{RuleAnswer, RuleKey};

/// The part of the server that answers a query, for the label `system` of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum System {
    /// All queries that do not belong to another system. Examples are names in our zones, hosts and
    /// aliases of the configuration, `localhost`, CHAOS names, refused and malformed queries, and
    /// queries that a rule of the configuration answers before they are forwarded.
    Auth,
    /// Names that only upstreams can resolve, except names in stub domains.
    Recursive,
    /// PTR queries that are answered with the PTR records of an address of the cluster, of an
    /// address in `hosts` of the configuration, or of a further zone that holds only PTR records.
    Reverse,
    /// Names of a stub domain.
    Stub,
}

impl System {
    pub(crate) const ALL: [Self; 4] = [Self::Auth, Self::Recursive, Self::Reverse, Self::Stub];

    /// Value of the label `system`.
    pub fn label(self) -> &'static str {
        match self {
            Self::Auth => "auth",
            Self::Recursive => "recursive",
            Self::Reverse => "reverse",
            Self::Stub => "stub",
        }
    }
}

/// Properties of a written answer, which metrics and the query log show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reply {
    /// The part of the server that answered.
    pub system: System,
    /// QTYPE; 0 for a query that cannot be parsed.
    pub qtype: u16,
    /// The RCODE.
    pub rcode: u16,
    /// Whether the answer was truncated.
    pub truncated: bool,
    /// The [number](crate::FurtherZone::number) of the further zone for which the metrics count the
    /// answer, if any.
    pub zone: Option<u8>,
    /// The reason for the answer, if it is a rule of the configuration or too many queries of the
    /// client.
    pub reason: Option<AnswerReason>,
}

/// The reason for an answer: a rule of the configuration, or too many queries of the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerReason {
    /// A rule of the configuration, for the query name or for another name that the answer needs.
    Rule(RuleKey),
    /// The client has sent too many queries a second.
    ClientRate,
}

impl AnswerReason {
    /// The word for the reason in the copies of answered queries (see [`crate::tap`]). The word for
    /// a rule is the key of the rule.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rule(key) => key.as_str(),
            Self::ClientRate => "client-qps",
        }
    }

    /// The key of the configuration, if the reason is a rule.
    pub(crate) fn rule(self) -> Option<RuleKey> {
        match self {
            Self::Rule(key) => Some(key),
            Self::ClientRate => None,
        }
    }

    /// The cause to show to the client.
    pub(crate) fn cause(self) -> Cause {
        match self {
            Self::Rule(key) => Cause::Rule(key),
            Self::ClientRate => Cause::ClientRate,
        }
    }
}

/// Appends the error response for a malformed message; `None` if there must be no response.
pub(crate) fn answer_malformed(
    malformed: &QueryError,
    message: &[u8],
    out: &mut Vec<u8>,
) -> Option<Reply> {
    match *malformed {
        QueryError::Ignore => None,
        QueryError::Respond(error) => {
            error.append_to(message, out);
            Some(Reply {
                system: System::Auth,
                qtype: 0,
                rcode: error.rcode,
                truncated: false,
                zone: None,
                reason: None,
            })
        }
    }
}

/// Appends SERVFAIL, with the cause if extended errors are enabled. RD and CD are copied from the
/// query.
pub(crate) fn append_servfail(
    zone: &Zone,
    query: &Query<'_>,
    system: System,
    cause: &Cause,
    out: &mut Vec<u8>,
) -> Reply {
    let start = out.len();
    let copied = query.header.flags & (flag::RD | flag::CD);

    ResponseWriter::new(query, out).finish(copied | flag::RA, rcode::SERVFAIL);
    cause.append_if_enabled(zone, query, start, out);
    Reply {
        system,
        qtype: query.qtype,
        rcode: rcode::SERVFAIL,
        truncated: false,
        zone: None,
        reason: None,
    }
}

/// Appends the answer of a rule for an external name. The answer section is empty. The authority
/// section has an SOA record with the negative TTL of `zone`, if the record fits. The answer is not
/// authoritative.
pub(crate) fn append_rule_answer(
    zone: &Zone,
    query: &Query<'_>,
    system: System,
    answer: &RuleAnswer<'_>,
    out: &mut Vec<u8>,
) -> Reply {
    let start = out.len();
    let copied = query.header.flags & (flag::RD | flag::CD);
    let soa = ZoneSoa {
        domain: answer.soa_owner,
        numbers: default_soa_numbers(),
        ttl: zone.negative_ttl,
        minimum: zone.negative_ttl,
    };

    let mut writer = ResponseWriter::new(query, out);
    // If the SOA does not fit, it is left out. The answer is valid without it, but resolvers do not
    // cache the answer (RFC 2308, section 5).
    let _ = soa.write(Section::Authority, &mut writer);
    writer.finish(copied | flag::RA, answer.rcode);
    let reason = AnswerReason::Rule(answer.key);
    reason.cause().append_if_enabled(zone, query, start, out);
    Reply {
        system,
        qtype: query.qtype,
        rcode: answer.rcode,
        truncated: false,
        zone: None,
        reason: Some(reason),
    }
}

/// Appends REFUSED for a client that has sent too many queries a second.
pub(crate) fn append_rate_refusal(zone: &Zone, query: &Query<'_>, out: &mut Vec<u8>) -> Reply {
    let start = out.len();
    let copied = query.header.flags & (flag::RD | flag::CD);

    ResponseWriter::new(query, out).finish(copied | flag::RA, rcode::REFUSED);
    let reason = AnswerReason::ClientRate;
    reason.cause().append_if_enabled(zone, query, start, out);
    Reply {
        system: System::Auth,
        qtype: query.qtype,
        rcode: rcode::REFUSED,
        truncated: false,
        zone: None,
        reason: Some(reason),
    }
}

/// The reply, with the number of the further zone that contains the name, for the metrics.
pub(super) fn reply_of_zone(reply: Reply, authority: Authority<'_>) -> Reply {
    Reply {
        zone: authority.further.map(|further| further.number),
        ..reply
    }
}

/// TC for a truncated answer over UDP, otherwise 0. TC asks the client to retry over TCP, so an
/// answer over TCP never has TC.
pub(crate) fn truncation_flag(truncated: bool, query: &Query<'_>) -> u16 {
    if truncated && query.transport == Transport::Udp {
        flag::TC
    } else {
        0
    }
}
