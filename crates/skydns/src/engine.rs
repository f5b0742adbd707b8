//! The query engine: a pure, synchronous function that answers one query from one view. Query and answer are in wire
//! format.
//!
//! The engine routes a query (authoritative, reverse, CHAOS or forward) and sets the RCODE and flags of the answer;
//! [`crate::answer`] writes the records. The conformance vectors pin the unusual behaviour that is kept from
//! kube-dns. docs/differences.md lists the differences.

use std::net::IpAddr;

use crate::answer::{Answer, Answered};
use crate::backend::View;
use crate::backend::zones::{Authority, is_ours};
use crate::cause::Cause;
use crate::external::{ExternalAnswers, ExternalQuery};
pub use crate::metrics::Reply;
use crate::metrics::System;
use crate::own_names::{OwnNames, OwnTarget};
use crate::search::SearchList;
use crate::wire::{self, Malformed, Name, Query, Transport, Writer, class, flag, rcode, reverse, rtype};

/// Outcome of one query message.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The answer was appended to the buffer.
    Reply(Reply),
    /// The query is not for our names: forward it to an upstream unchanged. Nothing was written.
    Forward(System),
    /// The answer needs external names. The caller gets the answers to these queries and calls the engine again.
    /// Nothing was written.
    NeedsExternal(Vec<ExternalQuery>),
    /// The name must be completed with a search list, see [`crate::search`]. Nothing was written.
    Search(SearchList),
    /// The query asks for a zone transfer, see [`crate::transfer`]. Nothing was written.
    Transfer,
    /// The answer takes more steps than allowed. Nothing was written.
    Expensive,
    /// The message gets no response.
    Ignore,
}

impl Outcome {
    /// The part of the server that answers the query.
    pub(crate) fn system(&self) -> System {
        match self {
            Self::Reply(reply) => reply.system,
            Self::Forward(system) => *system,
            Self::NeedsExternal(_) | Self::Search(_) | Self::Transfer | Self::Expensive | Self::Ignore => {
                System::Auth
            }
        }
    }

    /// Reason for rejecting the query instead of waiting for its answer.
    pub(crate) fn refusal(&self) -> Cause {
        if *self == Self::Expensive { Cause::Expensive } else { Cause::Overloaded }
    }
}

/// Identity of a server, for queries in class CHAOS.
#[derive(Debug, Clone)]
pub struct Identity {
    /// Answer to `version.bind` and `version.server`.
    pub version: String,
}

/// Flags of our own answers. Other flags are copied from the query.
pub(crate) const AUTHORITATIVE: u16 = flag::AA | flag::RA;

/// The CHAOS name of [`Zone::routes`](crate::backend::Zone::routes) in wire format.
const ROUTES: &[u8] = b"\x06routes\x07kubedns\x00";

/// Maximum work for one answer, in steps (see [`Records::records`](crate::Records::records)): about 0.2 s. A wildcard
/// in a cluster of 100,000 Services takes a third of these steps.
pub const MAX_STEPS: usize = 10_000_000;

/// Answers `message` from `view` and appends the answer to `out`. `external` holds the answers to the external
/// queries that an earlier call returned.
///
/// An answer takes at most [`MAX_STEPS`]. An answer that needs more has the outcome [`Outcome::Expensive`].
pub fn answer<V: View>(
    view: &V,
    identity: &Identity,
    message: &[u8],
    transport: Transport,
    external: &ExternalAnswers,
    out: &mut Vec<u8>,
) -> Outcome {
    answer_for(
        Asker { steps: MAX_STEPS, client: None, zone_data: false },
        view,
        identity,
        message,
        transport,
        external,
        out,
    )
}

/// The client of a query, and the work that its answer may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asker {
    /// Maximum work in steps, see [`View::records`].
    pub(crate) steps: usize,
    /// The client whose search list completes the name; `None` to answer without a search list.
    pub(crate) client: Option<IpAddr>,
    /// Whether only the data of the name itself are answered, for zone transfers: aliases are not followed.
    pub(crate) zone_data: bool,
}

/// Answers as [`answer`] does, for a client and with a work limit.
pub(crate) fn answer_for<V: View>(
    asker: Asker,
    view: &V,
    identity: &Identity,
    message: &[u8],
    transport: Transport,
    external: &ExternalAnswers,
    out: &mut Vec<u8>,
) -> Outcome {
    let mut query = match Query::parse(message, transport) {
        Ok(query) => query,
        Err(Malformed::Ignore) => return Outcome::Ignore,
        Err(Malformed::Refuse { rcode, question_end, dnssec_ok }) => {
            wire::refuse(message, question_end, rcode, dnssec_ok, out);
            return Outcome::Reply(Reply {
                system: System::Auth,
                qtype: 0,
                rcode,
                truncated: false,
                zone: None,
            });
        }
    };
    query.max_udp = view.zone().max_udp();
    answer_query(asker, view, identity, &query, external, out)
}

/// Answers as [`answer_for`] does, for a parsed query.
pub(crate) fn answer_query<V: View>(
    asker: Asker,
    view: &V,
    identity: &Identity,
    query: &Query<'_>,
    external: &ExternalAnswers,
    out: &mut Vec<u8>,
) -> Outcome {
    let start = out.len();
    let outcome = Engine { view, identity, query, external, asker, start }.answer(out);
    if !matches!(outcome, Outcome::Reply(_)) {
        out.truncate(start);
    }
    outcome
}

struct Engine<'a, V> {
    view: &'a V,
    identity: &'a Identity,
    query: &'a Query<'a>,
    external: &'a ExternalAnswers,
    asker: Asker,
    /// Offset in the output at which the answer starts.
    start: usize,
}

impl<V: View> Engine<'_, V> {
    fn answer(&self, out: &mut Vec<u8>) -> Outcome {
        let zone = self.view.zone();
        let name = self.query.lower();
        if self.query.lax && zone.strict {
            self.bare(rcode::FORMERR, flag::RD, out);
            return self.because(&Cause::Malformed, rcode::FORMERR, System::Auth, out);
        }
        if self.query.edns.as_ref().is_some_and(|edns| edns.version != 0) {
            return self.bare(rcode::BADVERS, flag::RD, out);
        }
        if self.query.qtype == rtype::ANY && (!zone.forwards_all || is_ours(self.view, name)) {
            return self.refused(&Cause::AnyType, out);
        }
        if self.query.qclass != class::IN {
            return self.other_class(out);
        }
        if zone.serials.is_some() && matches!(self.query.qtype, rtype::AXFR | rtype::IXFR) {
            return Outcome::Transfer;
        }
        if zone.search.as_ref().is_some_and(|search| search.holds(name)) {
            let any = self.query.qtype == rtype::ANY;
            return match zone.search_list(self.query.name) {
                Some(list) if !any && self.view.has_synced() => Outcome::Search(list),
                _ if any => self.refused(&Cause::AnyType, out),
                _ => self.refused(&Cause::NotSynced, out),
            };
        }
        if let Some(own) = zone.own_names.as_deref()
            && let Some(outcome) = self.own(own, out)
        {
            return outcome;
        }
        let authority = Authority::of(self.view, name);
        if self.query.qtype == rtype::PTR
            && authority.is_none_or(|authority| authority.further.is_some())
            && let Some(address) = reverse::address(name)
        {
            return self.reverse(address, authority, out);
        }
        self.named(authority, out)
    }

    /// Answers from the zone that holds the name, or forwards the query.
    fn named(&self, authority: Option<Authority<'_>>, out: &mut Vec<u8>) -> Outcome {
        let outcome = match authority {
            None => self.forward(out),
            Some(authority) if authority.records.has_synced() => self.authoritative(authority, out),
            Some(authority) if authority.further.is_some() => self.servfail(&Cause::ZoneNotLoaded, out),
            Some(_) => self.refused(&Cause::NotSynced, out),
        };
        match (outcome, authority.and_then(|authority| authority.further)) {
            (Outcome::Reply(reply), Some(further)) => {
                Outcome::Reply(Reply { zone: Some(further.number), ..reply })
            }
            (outcome, _) => outcome,
        }
    }

    fn begin<'q, 'b>(&'q self, authority: Authority<'q>, out: &'b mut Vec<u8>) -> Answer<'q, 'b, V> {
        Answer::new((self.view, authority), self.query, self.external, self.asker, out)
    }

    /// Answers SERVFAIL, with the cause if extended errors are enabled.
    fn servfail(&self, cause: &Cause, out: &mut Vec<u8>) -> Outcome {
        Writer::new(self.query, out).finish(self.copied_flags() | flag::RA, rcode::SERVFAIL);
        self.because(cause, rcode::SERVFAIL, System::Auth, out)
    }

    /// Answers without records. `copied` are the flags to copy from the query; CD is always copied.
    fn bare(&self, rcode: u16, copied: u16, out: &mut Vec<u8>) -> Outcome {
        let flags = self.query.header.flags & (copied | flag::CD);
        Writer::new(self.query, out).finish(flags, rcode);
        self.reply(System::Auth, rcode, false)
    }

    /// Answers REFUSED. kube-dns does not copy RD here, against RFC 1035, section 4.1.1.
    fn refused(&self, cause: &Cause, out: &mut Vec<u8>) -> Outcome {
        self.bare(rcode::REFUSED, if self.view.zone().strict { flag::RD } else { 0 }, out);
        self.because(cause, rcode::REFUSED, System::Auth, out)
    }

    /// Adds the cause to the written answer, if extended errors are enabled.
    fn because(&self, cause: &Cause, rcode: u16, system: System, out: &mut Vec<u8>) -> Outcome {
        if self.view.zone().extended_errors {
            cause.append(self.start, self.query.limit(), out);
        }
        self.reply(system, rcode, false)
    }

    fn copied_flags(&self) -> u16 {
        self.query.header.flags & (flag::RD | flag::CD)
    }

    /// Forwards the query. A query that [must not be forwarded](crate::backend::Zone::must_not_forward) gets
    /// SERVFAIL.
    fn forward(&self, out: &mut Vec<u8>) -> Outcome {
        let zone = self.view.zone();
        let (_, stub) = zone.servers_for(self.query.lower());
        let system = if stub.is_some() { System::Stub } else { System::Recursive };
        if zone.must_not_forward(self.query.lower()) {
            Writer::new(self.query, out).finish(self.copied_flags() | flag::RA, rcode::SERVFAIL);
            return self.because(&Cause::OneLabel, rcode::SERVFAIL, system, out);
        }
        Outcome::Forward(system)
    }

    fn other_class(&self, out: &mut Vec<u8>) -> Outcome {
        let texts = self.chaos_texts();
        // The routes are answered even before the cluster's records are complete: the nanny must not wait for the
        // records.
        if !self.view.has_synced() && self.query.lower() != ROUTES {
            return self.refused(&Cause::NotSynced, out);
        }
        if texts.is_empty() {
            self.bare(rcode::REFUSED, flag::RD, out);
            return self.because(&Cause::OtherClass, rcode::REFUSED, System::Auth, out);
        }
        let mut records = self.begin(Authority::cluster(self.view), out);
        records.chaos(&texts);
        records.message.finish(self.copied_flags() | AUTHORITATIVE, rcode::NOERROR);
        self.reply(System::Auth, rcode::NOERROR, false)
    }

    /// The TXT strings of a CHAOS name; empty for any other query.
    fn chaos_texts(&self) -> Vec<&str> {
        if self.query.qclass != class::CH || self.query.qtype != rtype::TXT {
            return Vec::new();
        }
        let name = self.query.lower();
        match name {
            b"\x07version\x04bind\x00" | b"\x07version\x06server\x00" => vec![&self.identity.version],
            ROUTES => self.view.zone().routes.iter().map(String::as_str).collect(),
            b"\x08hostname\x04bind\x00" | b"\x02id\x06server\x00" => vec!["localhost"],
            _ if name == b"\x07authors\x04bind\x00"
                || self.view.zone().domain_of(name).is_some_and(|domain| domain.wire() == name) =>
            {
                vec!["Erik St. Martin", "Brian Ketelsen", "Miek Gieben", "Michael Crosby"]
            }
            _ => Vec::new(),
        }
    }

    fn reverse(&self, address: IpAddr, authority: Option<Authority<'_>>, out: &mut Vec<u8>) -> Outcome {
        if !self.view.has_synced() {
            // The address may belong to the cluster, so an upstream must not answer the query.
            return self.refused(&Cause::NotSynced, out);
        }
        let start = out.len();
        let mut records = self.begin(Authority::cluster(self.view), out);
        match records.pointers(address) {
            Answered::Missing => {
                out.truncate(start);
                self.named(authority, out)
            }
            Answered::Empty | Answered::Written => {
                let truncated = records.truncated();
                let flags = self.copied_flags() | flag::RA | truncation(truncated, self.query);
                records.message.finish(flags, rcode::NOERROR);
                self.reply(System::Reverse, rcode::NOERROR, truncated)
            }
            Answered::Failed | Answered::Unknown => self.bare(rcode::SERVFAIL, flag::RD, out),
        }
    }

    #[expect(
        clippy::redundant_closure_for_method_calls,
        reason = "the method is not general enough over lifetimes"
    )]
    fn authoritative(&self, authority: Authority<'_>, out: &mut Vec<u8>) -> Outcome {
        self.settle(authority, out, |answer| answer.authoritative())
    }

    /// Answers for an own name, or for the address of an own name.
    fn own(&self, own: &OwnNames, out: &mut Vec<u8>) -> Option<Outcome> {
        let name = self.query.lower();
        if self.query.qtype == rtype::PTR
            && let Some(names) = reverse::address(name).and_then(|address| own.names_of(address))
        {
            return Some(self.own_pointers(names, out));
        }
        Some(match own.find(name)? {
            OwnTarget::Unresolvable => self.servfail(&Cause::Alias, out),
            OwnTarget::Addresses(addresses) => {
                self.settle(Authority::cluster(self.view), out, |answer| answer.host(addresses))
            }
            OwnTarget::Name(target) => self.alias(&target, out),
        })
    }

    fn own_pointers(&self, names: &[Name], out: &mut Vec<u8>) -> Outcome {
        let mut answer = self.begin(Authority::cluster(self.view), out);
        answer.own_pointers(names);
        let truncated = answer.truncated();
        let flags = self.copied_flags() | AUTHORITATIVE | truncation(truncated, self.query);
        answer.message.finish(flags, rcode::NOERROR);
        self.reply(System::Reverse, rcode::NOERROR, truncated)
    }

    /// Answers for an own-name alias with the records of its target. The alias is the owner of the records.
    fn alias(&self, target: &Name, out: &mut Vec<u8>) -> Outcome {
        match Authority::of(self.view, target.wire()) {
            None => self.settle(Authority::cluster(self.view), out, |answer| answer.external_alias(target)),
            Some(authority) if authority.records.has_synced() => {
                self.settle(authority, out, |answer| answer.target(target))
            }
            Some(authority) if authority.further.is_some() => self.servfail(&Cause::ZoneNotLoaded, out),
            Some(_) => self.servfail(&Cause::NotSynced, out),
        }
    }

    /// Answers with the records that `find` writes.
    fn settle<'q>(
        &'q self,
        authority: Authority<'q>,
        out: &mut Vec<u8>,
        find: impl FnOnce(&mut Answer<'q, '_, V>) -> Answered,
    ) -> Outcome {
        let mut answer = self.begin(authority, out);
        let found = find(&mut answer);
        if answer.exhausted() {
            return Outcome::Expensive;
        }
        let needs = std::mem::take(&mut answer.needs);
        if !needs.is_empty() {
            return Outcome::NeedsExternal(needs);
        }
        let missing = found == Answered::Missing && !answer.is_own();
        if missing && let Some(list) = self.list_of_client() {
            return Outcome::Search(list);
        }
        if missing && self.view.zone().falls_through(self.query.lower()) {
            let (_, stub) = self.view.zone().servers_for(self.query.lower());
            return Outcome::Forward(if stub.is_some() { System::Stub } else { System::Recursive });
        }
        let strict = answer.is_whole_zone();
        let (rcode, own) = match found {
            Answered::Written | Answered::Empty => (rcode::NOERROR, AUTHORITATIVE),
            Answered::Missing => (rcode::NXDOMAIN, if strict { AUTHORITATIVE } else { 0 }),
            Answered::Failed => (rcode::SERVFAIL, flag::RA),
            Answered::Unknown => (rcode::SERVFAIL, if strict { flag::RA } else { 0 }),
        };
        if matches!(found, Answered::Empty | Answered::Missing) {
            answer.negative();
        }
        let truncated = answer.truncated();
        let flags = self.copied_flags() | own | truncation(truncated, self.query);
        answer.message.finish(flags, rcode);
        match found {
            Answered::Failed => {
                let cause = self.external.failure().unwrap_or(&Cause::Alias);
                self.because(cause, rcode, System::Auth, out)
            }
            Answered::Unknown => self.because(&Cause::RegionUnknown, rcode, System::Auth, out),
            _ => self.reply(System::Auth, rcode, truncated),
        }
    }

    /// The client's search list, if the name is in the first domain of the list.
    fn list_of_client(&self) -> Option<SearchList> {
        let zone = self.view.zone();
        if !zone.search.as_ref().is_some_and(|search| search.is_autopath()) {
            return None;
        }
        let namespace = self.view.namespace_of(self.asker.client?.to_canonical())?;
        zone.search_list_of_client(self.query.name, namespace)
    }

    fn reply(&self, system: System, rcode: u16, truncated: bool) -> Outcome {
        Outcome::Reply(Reply { system, qtype: self.query.qtype, rcode, truncated, zone: None })
    }
}

/// The TC flag of a truncated answer. TC asks the client to retry over TCP, so an answer over TCP never has TC.
pub(crate) fn truncation(truncated: bool, query: &Query<'_>) -> u16 {
    if truncated && query.transport == Transport::Udp { flag::TC } else { 0 }
}
