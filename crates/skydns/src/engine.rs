//! The query engine: a pure, synchronous function that answers one query from one view. Query and
//! answer are in wire format.
//!
//! The engine routes a query (authoritative, reverse, CHAOS or forward) and sets the RCODE and
//! flags of the answer; [`crate::answer`] writes the records. The conformance vectors pin the
//! unusual behaviour that is kept from kube-dns. docs/differences.md lists the differences.

use std::net::IpAddr;

use wire::{
    Name, Query, QueryError, ResponseWriter, Transport, class, flag, rcode, reverse, rtype,
};

use crate::answer::{Answer, Answered};
use crate::backend::zones::{Authority, is_ours};
use crate::backend::{View, Zone};
use crate::cause::Cause;
use crate::external::{ExternalAnswers, ExternalQuery};
pub use crate::metrics::Reply;
use crate::metrics::System;
use crate::own_names::{OwnNames, OwnTarget};
use crate::search::SearchList;

/// Outcome of one message of a client.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The answer was appended to the buffer.
    Reply(Reply),
    /// The answer needs more than the view. Nothing was written.
    Pending(Pending),
    /// The name must be completed with a search list, see [`crate::search`]. Nothing was written.
    Search(SearchList),
    /// The query asks for a zone transfer, see [`crate::transfer`]. Nothing was written.
    Transfer,
    /// The message gets no response: it has no header, or is itself a response. No query has this
    /// outcome.
    Ignore,
}

/// Outcome of one name of a query, after search list and transfer have been decided.
///
/// The late path knows only these two. A query that waits can therefore neither be dropped nor
/// start over.
#[derive(Debug, PartialEq, Eq)]
pub enum Progress {
    /// The answer was appended to the buffer.
    Reply(Reply),
    /// The answer needs more than the view. Nothing was written.
    Pending(Pending),
}

/// The reason why an answer waits.
#[derive(Debug, PartialEq, Eq)]
pub enum Pending {
    /// The query is not for our names: forward it to an upstream unchanged.
    Forward(System),
    /// The answer needs external names. The caller gets the answers to these queries and calls the
    /// engine again.
    External(Vec<ExternalQuery>),
    /// The answer takes more steps than allowed.
    Expensive,
}

impl Pending {
    /// The part of the server that answers the query.
    pub(crate) fn system(&self) -> System {
        match self {
            Self::Forward(system) => *system,
            Self::External(_) | Self::Expensive => System::Auth,
        }
    }
}

impl From<Progress> for Outcome {
    fn from(progress: Progress) -> Self {
        match progress {
            Progress::Reply(reply) => Self::Reply(reply),
            Progress::Pending(pending) => Self::Pending(pending),
        }
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

/// Maximum work for one answer, in steps (see [`Records::records`](crate::Records::records)): about
/// 0.2 s. A wildcard in a cluster of 100,000 Services takes a third of these steps.
pub const MAX_STEPS: usize = 10_000_000;

/// Answers `message` from `view` and appends the answer to `out`. `external` holds the answers to
/// the external queries that an earlier call returned.
///
/// An answer takes at most [`MAX_STEPS`]. An answer that needs more is [`Pending::Expensive`].
pub fn answer<V: View>(
    view: &V,
    identity: &Identity,
    message: &[u8],
    transport: Transport,
    external: &ExternalAnswers,
    out: &mut Vec<u8>,
) -> Outcome {
    let mut query = match Query::parse(message, transport) {
        Ok(query) => query,
        Err(malformed) => {
            return answer_malformed(&malformed, message, out)
                .map_or(Outcome::Ignore, Outcome::Reply);
        }
    };
    query.max_udp = view.zone().max_udp();

    let asker = Asker {
        steps: MAX_STEPS,
        client: None,
        zone_data: false,
    };
    answer_query(asker, view, identity, &query, external, out)
}

/// Answers a message that is not a well-formed query with an error; `None` if the message must not
/// be answered.
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
            })
        }
    }
}

/// The client of a query, and the work that its answer may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asker {
    /// Maximum work in steps, see [`View::records`].
    pub(crate) steps: usize,
    /// The client whose search list completes the name; `None` to answer without a search list.
    pub(crate) client: Option<IpAddr>,
    /// Whether only the data of the name itself are answered, for zone transfers: aliases are not
    /// followed.
    pub(crate) zone_data: bool,
}

/// Answers as [`answer`] does, for a parsed query of a client and with a work limit.
pub(crate) fn answer_query<V: View>(
    asker: Asker,
    view: &V,
    identity: &Identity,
    query: &Query<'_>,
    external: &ExternalAnswers,
    out: &mut Vec<u8>,
) -> Outcome {
    let start = out.len();
    let engine = Engine {
        view,
        identity,
        query,
        external,
        asker,
        start,
    };

    let outcome = engine.answer(out);
    if !matches!(outcome, Outcome::Reply(_)) {
        out.truncate(start);
    }
    outcome
}

/// Answers a query whose search list, if any, is walked by the caller. Transfers are not answered
/// either: AXFR and IXFR are ordinary types here. The query has passed the checks of
/// [`answer_query`] before.
pub(crate) fn answer_name<V: View>(
    steps: usize,
    view: &V,
    identity: &Identity,
    query: &Query<'_>,
    external: &ExternalAnswers,
    out: &mut Vec<u8>,
) -> Progress {
    let start = out.len();
    let asker = Asker {
        steps,
        client: None,
        zone_data: false,
    };
    let engine = Engine {
        view,
        identity,
        query,
        external,
        asker,
        start,
    };

    let progress = match engine.name(out) {
        Named::Progress(progress) => progress,
        Named::Missing(authority) => engine.missing(authority, out),
    };
    if !matches!(progress, Progress::Reply(_)) {
        out.truncate(start);
    }
    progress
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

/// Result of looking up the query name.
enum Named<'a> {
    /// The name was answered, or its answer waits.
    Progress(Progress),
    /// A zone of ours holds the name, and the name does not exist. Nothing usable was written.
    Missing(Authority<'a>),
}

impl From<Reply> for Named<'_> {
    fn from(reply: Reply) -> Self {
        Self::Progress(Progress::Reply(reply))
    }
}

impl<'a, V: View> Engine<'a, V> {
    fn answer(&self, out: &mut Vec<u8>) -> Outcome {
        if let Some(reply) = self.rejected(out) {
            return Outcome::Reply(reply);
        }
        if self.query.qclass != class::IN {
            return Outcome::Reply(self.other_class(out));
        }

        let zone = self.view.zone();
        if zone.serials.is_some() && matches!(self.query.qtype, rtype::AXFR | rtype::IXFR) {
            return Outcome::Transfer;
        }
        if zone
            .search
            .as_ref()
            .is_some_and(|search| search.holds(self.query.lower()))
        {
            return self.completed(out);
        }

        match self.name(out) {
            Named::Progress(progress) => progress.into(),
            Named::Missing(authority) => match self.list_of_client() {
                Some(list) => Outcome::Search(list),
                None => self.missing(authority, out).into(),
            },
        }
    }

    /// Answers a query that is rejected whatever its name.
    fn rejected(&self, out: &mut Vec<u8>) -> Option<Reply> {
        let zone = self.view.zone();
        if self.query.lax && zone.strict {
            self.bare(rcode::FORMERR, flag::RD, out);
            return Some(self.because(&Cause::Malformed, rcode::FORMERR, System::Auth, out));
        }
        if self
            .query
            .edns
            .as_ref()
            .is_some_and(|edns| edns.version != 0)
        {
            return Some(self.bare(rcode::BADVERS, flag::RD, out));
        }
        if self.query.qtype == rtype::ANY
            && (!zone.forwards_all || is_ours(self.view, self.query.lower()))
        {
            return Some(self.refused(&Cause::AnyType, out));
        }
        None
    }

    /// Completes a name below the search suffix.
    fn completed(&self, out: &mut Vec<u8>) -> Outcome {
        let any = self.query.qtype == rtype::ANY;
        match self.view.zone().search_list(self.query.name) {
            Some(list) if !any && self.view.has_synced() => Outcome::Search(list),
            _ if any => Outcome::Reply(self.refused(&Cause::AnyType, out)),
            _ => Outcome::Reply(self.refused(&Cause::NotSynced, out)),
        }
    }

    /// Answers for the name without regard to search lists.
    fn name(&self, out: &mut Vec<u8>) -> Named<'a> {
        let name = self.query.lower();
        if let Some(own) = self.view.zone().own_names.as_deref()
            && let Some(progress) = self.own(own, out)
        {
            return Named::Progress(progress);
        }

        let authority = Authority::of(self.view, name);
        if self.query.qtype == rtype::PTR
            && authority.is_none_or(|authority| authority.further.is_some())
            && let Some(address) = reverse::address_of_name(name)
        {
            return self.reverse(address, authority, out);
        }
        self.named(authority, out)
    }

    /// Answers from the zone that holds the name, or forwards the query.
    #[expect(
        clippy::redundant_closure_for_method_calls,
        reason = "the method is not general enough over lifetimes"
    )]
    fn named(&self, authority: Option<Authority<'a>>, out: &mut Vec<u8>) -> Named<'a> {
        let Some(authority) = authority else {
            return Named::Progress(self.forward(out));
        };
        if !authority.records.has_synced() {
            let reply = match authority.further {
                Some(_) => self.servfail(&Cause::ZoneNotLoaded, out),
                None => self.refused(&Cause::NotSynced, out),
            };
            return of_zone(reply, authority).into();
        }

        match self.settle(authority, out, |answer| answer.authoritative()) {
            Some(Progress::Reply(reply)) => of_zone(reply, authority).into(),
            Some(progress) => Named::Progress(progress),
            None => Named::Missing(authority),
        }
    }

    /// Answers for a name that does not exist in its zone: forwards the query if the zone falls
    /// through, otherwise NXDOMAIN.
    fn missing(&self, authority: Authority<'a>, out: &mut Vec<u8>) -> Progress {
        if authority.falls_through(self.view.zone(), self.query.lower()) {
            return Progress::Pending(Pending::Forward(self.system_of_servers()));
        }

        out.truncate(self.start);
        let mut answer = self.begin(authority, out);
        answer.negative();
        Progress::Reply(of_zone(self.nxdomain(answer), authority))
    }

    fn nxdomain(&self, answer: Answer<'_, '_, V>) -> Reply {
        let own = if answer.is_whole_zone() {
            AUTHORITATIVE
        } else {
            0
        };
        answer
            .message
            .finish(self.copied_flags() | own, rcode::NXDOMAIN);
        self.reply(System::Auth, rcode::NXDOMAIN, false)
    }

    fn begin<'q, 'b>(
        &'q self,
        authority: Authority<'q>,
        out: &'b mut Vec<u8>,
    ) -> Answer<'q, 'b, V> {
        Answer::new(
            (self.view, authority),
            self.query,
            self.external,
            self.asker,
            out,
        )
    }

    /// The part of the server that forwards the name.
    fn system_of_servers(&self) -> System {
        let (_, stub) = self.view.zone().servers_for(self.query.lower());
        if stub.is_some() {
            System::Stub
        } else {
            System::Recursive
        }
    }

    /// Answers SERVFAIL for a name of ours.
    fn servfail(&self, cause: &Cause, out: &mut Vec<u8>) -> Reply {
        servfail(self.view.zone(), self.query, System::Auth, cause, out)
    }

    /// Answers without records. `copied` are the flags to copy from the query; CD is always copied.
    fn bare(&self, rcode: u16, copied: u16, out: &mut Vec<u8>) -> Reply {
        let flags = self.query.header.flags & (copied | flag::CD);
        ResponseWriter::new(self.query, out).finish(flags, rcode);
        self.reply(System::Auth, rcode, false)
    }

    /// Answers REFUSED. kube-dns does not copy RD here, against RFC 1035, section 4.1.1.
    fn refused(&self, cause: &Cause, out: &mut Vec<u8>) -> Reply {
        self.bare(
            rcode::REFUSED,
            if self.view.zone().strict { flag::RD } else { 0 },
            out,
        );
        self.because(cause, rcode::REFUSED, System::Auth, out)
    }

    /// Adds the cause to the written answer, if extended errors are enabled.
    fn because(&self, cause: &Cause, rcode: u16, system: System, out: &mut Vec<u8>) -> Reply {
        cause.append_if_enabled(self.view.zone(), self.query, self.start, out);
        self.reply(system, rcode, false)
    }

    fn copied_flags(&self) -> u16 {
        self.query.header.flags & (flag::RD | flag::CD)
    }

    /// Forwards the query. A query that [must not be
    /// forwarded](crate::backend::Zone::must_not_forward) gets SERVFAIL.
    fn forward(&self, out: &mut Vec<u8>) -> Progress {
        let system = self.system_of_servers();
        if self.view.zone().must_not_forward(self.query.lower()) {
            let zone = self.view.zone();
            return Progress::Reply(servfail(zone, self.query, system, &Cause::OneLabel, out));
        }
        Progress::Pending(Pending::Forward(system))
    }

    fn other_class(&self, out: &mut Vec<u8>) -> Reply {
        let texts = self.chaos_texts();
        // The routes are answered even before the cluster's records are complete: the nanny must
        // not wait for the records.
        if !self.view.has_synced() && self.query.lower() != ROUTES {
            return self.refused(&Cause::NotSynced, out);
        }
        if texts.is_empty() {
            self.bare(rcode::REFUSED, flag::RD, out);
            return self.because(&Cause::OtherClass, rcode::REFUSED, System::Auth, out);
        }
        let mut records = self.begin(Authority::cluster(self.view), out);
        records.chaos(&texts);
        records
            .message
            .finish(self.copied_flags() | AUTHORITATIVE, rcode::NOERROR);
        self.reply(System::Auth, rcode::NOERROR, false)
    }

    /// The TXT strings of a CHAOS name; empty for any other query.
    fn chaos_texts(&self) -> Vec<&str> {
        if self.query.qclass != class::CH || self.query.qtype != rtype::TXT {
            return Vec::new();
        }
        let name = self.query.lower();
        match name {
            b"\x07version\x04bind\x00" | b"\x07version\x06server\x00" => {
                vec![&self.identity.version]
            }
            ROUTES => self.view.zone().routes.iter().map(String::as_str).collect(),
            b"\x08hostname\x04bind\x00" | b"\x02id\x06server\x00" => vec!["localhost"],
            _ if name == b"\x07authors\x04bind\x00"
                || self
                    .view
                    .zone()
                    .domain_of(name)
                    .is_some_and(|domain| domain.wire() == name) =>
            {
                vec![
                    "Erik St. Martin",
                    "Brian Ketelsen",
                    "Miek Gieben",
                    "Michael Crosby",
                ]
            }
            _ => Vec::new(),
        }
    }

    fn reverse(
        &self,
        address: IpAddr,
        authority: Option<Authority<'a>>,
        out: &mut Vec<u8>,
    ) -> Named<'a> {
        if !self.view.has_synced() {
            // The address may belong to the cluster, so an upstream must not answer the query.
            return self.refused(&Cause::NotSynced, out).into();
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
                    .into()
            }
            Answered::Failed | Answered::Unknown => {
                self.bare(rcode::SERVFAIL, flag::RD, out).into()
            }
        }
    }

    /// Answers for an own name, or for the address of an own name; `None` for other names.
    fn own(&self, own: &OwnNames, out: &mut Vec<u8>) -> Option<Progress> {
        let name = self.query.lower();
        if self.query.qtype == rtype::PTR
            && let Some(names) =
                reverse::address_of_name(name).and_then(|address| own.names_of(address))
        {
            return Some(Progress::Reply(self.own_pointers(names, out)));
        }

        Some(match own.find(name)? {
            OwnTarget::Unresolvable => Progress::Reply(self.servfail(&Cause::Alias, out)),
            OwnTarget::Addresses(addresses) => {
                self.settle_own(Authority::cluster(self.view), out, |answer| {
                    answer.host(addresses)
                })
            }
            OwnTarget::Name(target) => self.alias(&target, out),
        })
    }

    /// Answers as [`settle`](Self::settle) does, and NXDOMAIN for an own name whose target does not
    /// exist. An own name is in no zone, so this NXDOMAIN has no SOA.
    fn settle_own<'q>(
        &'q self,
        authority: Authority<'q>,
        out: &mut Vec<u8>,
        find: impl FnOnce(&mut Answer<'q, '_, V>) -> Answered,
    ) -> Progress {
        self.settle(authority, out, find).unwrap_or_else(|| {
            out.truncate(self.start);
            Progress::Reply(self.nxdomain(self.begin(authority, out)))
        })
    }

    fn own_pointers(&self, names: &[Name], out: &mut Vec<u8>) -> Reply {
        let mut answer = self.begin(Authority::cluster(self.view), out);
        answer.own_pointers(names);
        let truncated = answer.truncated();
        let flags = self.copied_flags() | AUTHORITATIVE | truncation(truncated, self.query);
        answer.message.finish(flags, rcode::NOERROR);
        self.reply(System::Reverse, rcode::NOERROR, truncated)
    }

    /// Answers for an own-name alias with the records of its target. The alias is the owner of the
    /// records.
    fn alias(&self, target: &Name, out: &mut Vec<u8>) -> Progress {
        match Authority::of(self.view, target.wire()) {
            None => self.settle_own(Authority::cluster(self.view), out, |answer| {
                answer.external_alias(target)
            }),
            Some(authority) if authority.records.has_synced() => {
                self.settle_own(authority, out, |answer| answer.target(target))
            }
            Some(authority) => {
                let cause = if authority.further.is_some() {
                    Cause::ZoneNotLoaded
                } else {
                    Cause::NotSynced
                };
                Progress::Reply(self.servfail(&cause, out))
            }
        }
    }

    /// Answers with the records that `find` writes; `None` if the name does not exist.
    fn settle<'q>(
        &'q self,
        authority: Authority<'q>,
        out: &mut Vec<u8>,
        find: impl FnOnce(&mut Answer<'q, '_, V>) -> Answered,
    ) -> Option<Progress> {
        let mut answer = self.begin(authority, out);
        let found = find(&mut answer);
        if answer.exhausted() {
            return Some(Progress::Pending(Pending::Expensive));
        }
        let needs = std::mem::take(&mut answer.needs);
        if !needs.is_empty() {
            return Some(Progress::Pending(Pending::External(needs)));
        }

        let (rcode, own) = match found {
            Answered::Missing => return None,
            Answered::Written | Answered::Empty => (rcode::NOERROR, AUTHORITATIVE),
            Answered::Failed => (rcode::SERVFAIL, flag::RA),
            Answered::Unknown if answer.is_whole_zone() => (rcode::SERVFAIL, flag::RA),
            Answered::Unknown => (rcode::SERVFAIL, 0),
        };
        if found == Answered::Empty {
            answer.negative();
        }
        let truncated = answer.truncated();
        let flags = self.copied_flags() | own | truncation(truncated, self.query);
        answer.message.finish(flags, rcode);

        let reply = match found {
            Answered::Failed => {
                let cause = self.external.failure().unwrap_or(&Cause::Alias);
                self.because(cause, rcode, System::Auth, out)
            }
            Answered::Unknown => self.because(&Cause::RegionUnknown, rcode, System::Auth, out),
            _ => {
                if self.external.is_stale() {
                    Cause::Stale.append(self.start, self.query.limit(), out);
                }
                self.reply(System::Auth, rcode, truncated)
            }
        };
        Some(Progress::Reply(reply))
    }

    /// The client's search list, if the name is in the first domain of the list.
    fn list_of_client(&self) -> Option<SearchList> {
        let zone = self.view.zone();
        if !zone
            .search
            .as_ref()
            .is_some_and(|search| search.is_autopath())
        {
            return None;
        }
        let namespace = self.view.namespace_of(self.asker.client?.to_canonical())?;
        zone.search_list_of_client(self.query.name, namespace)
    }

    fn reply(&self, system: System, rcode: u16, truncated: bool) -> Reply {
        Reply {
            system,
            qtype: self.query.qtype,
            rcode,
            truncated,
            zone: None,
        }
    }
}

/// Answers SERVFAIL, with the cause if extended errors are enabled. RD and CD are copied from the
/// query.
pub(crate) fn servfail(
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
    }
}

/// The reply, counted for the further zone that holds the name.
fn of_zone(reply: Reply, authority: Authority<'_>) -> Reply {
    Reply {
        zone: authority.further.map(|further| further.number),
        ..reply
    }
}

/// The TC flag of a truncated answer. TC asks the client to retry over TCP, so an answer over TCP
/// never has TC.
pub(crate) fn truncation(truncated: bool, query: &Query<'_>) -> u16 {
    if truncated && query.transport == Transport::Udp {
        flag::TC
    } else {
        0
    }
}
