//! The query engine: a synchronous function without I/O that answers one query from one [`View`].
//! Query and answer are in wire format.
//!
//! The engine decides how a query is answered: by the engine itself, by an upstream, with a search
//! list, or as a zone transfer. It sets the RCODE and flags of its own answers; [`crate::answer`]
//! writes the records. The tests in tests/conformance compare answers with recorded answers of
//! kube-dns, and docs/differences.md lists the differences.

mod chaos;
mod own_names;
mod reply;

use std::net::IpAddr;

use wire::{Query, Transport, class, flag, rcode, reverse, rtype};

use crate::answer::{AnswerStatus, AnswerWriter};
use crate::backend::zones::{Authority, is_ours};
use crate::backend::{ExternalRoute, View, Zone};
use crate::cause::Cause;
use crate::external::{ExternalAnswers, ExternalQuery};
use crate::external_rules::RuleKey;
use crate::search::SearchList;

use self::reply::reply_of_zone;
pub use self::reply::{AnswerReason, Reply, System};
pub(crate) use self::reply::{
    answer_malformed, append_rate_refusal, append_rule_answer, append_servfail, truncation_flag,
};

/// Outcome of one message of a client.
#[derive(Debug, PartialEq, Eq)]
pub enum EngineOutcome {
    /// The answer was appended to the buffer.
    Reply(Reply),
    /// The answer has to wait. Nothing was written.
    Pending(PendingAnswer),
    /// The name must be completed with a search list, see [`crate::search`]. Nothing was written.
    Search(SearchList),
    /// The query asks for a zone transfer, see [`crate::transfer`]. Nothing was written.
    Transfer,
    /// The message gets no response: it is shorter than a DNS header, or it is a response. Only
    /// [`answer_message`] returns this outcome.
    Ignore,
}

/// Outcome of answering for one name, without regard to search lists and zone transfers.
#[derive(Debug, PartialEq, Eq)]
pub enum NameProgress {
    /// The answer was appended to the buffer.
    Reply(Reply),
    /// The answer has to wait. Nothing was written.
    Pending(PendingAnswer),
}

/// The reason why an answer waits.
#[derive(Debug, PartialEq, Eq)]
pub enum PendingAnswer {
    /// The query must be forwarded to an upstream, whose reply is the answer.
    Forward(System),
    /// The answer needs the answers to these external queries. The caller must get these answers,
    /// and call the engine again with them.
    External(Vec<ExternalQuery>),
    /// The answer takes more steps than this call allows ([`AnswerContext::steps`]). Another call
    /// may allow more.
    Expensive,
}

impl PendingAnswer {
    /// The part of the server that answers the query.
    pub(crate) fn system(&self) -> System {
        match self {
            Self::Forward(system) => *system,
            Self::External(_) | Self::Expensive => System::Auth,
        }
    }
}

impl From<NameProgress> for EngineOutcome {
    fn from(progress: NameProgress) -> Self {
        match progress {
            NameProgress::Reply(reply) => Self::Reply(reply),
            NameProgress::Pending(pending) => Self::Pending(pending),
        }
    }
}

/// Identity of a server, for queries in class CHAOS.
#[derive(Debug, Clone)]
pub struct Identity {
    /// Answer to `version.bind` and `version.server`.
    pub version: String,
}

/// Flags of an authoritative answer, in addition to the flags that are copied from the query.
pub(crate) const AUTHORITATIVE: u16 = flag::AA | flag::RA;

/// Maximum work for one answer, in steps (see [`EntryVisit::steps`](crate::EntryVisit::steps)).
/// This work takes about 0.2 s. A query with a wildcard that matches 100,000 Services takes about a
/// third of these steps.
pub const MAX_STEPS: usize = 10_000_000;

/// Answers `message` from `view` and appends the answer to `out`. `external` holds the answers to
/// the external queries that an earlier call returned.
///
/// If the answer needs more than [`MAX_STEPS`], the outcome is [`PendingAnswer::Expensive`].
pub fn answer_message<V: View>(
    view: &V,
    identity: &Identity,
    message: &[u8],
    transport: Transport,
    external: &ExternalAnswers,
    out: &mut Vec<u8>,
) -> EngineOutcome {
    let mut query = match Query::parse(message, transport) {
        Ok(query) => query,
        Err(malformed) => {
            return answer_malformed(&malformed, message, out)
                .map_or(EngineOutcome::Ignore, EngineOutcome::Reply);
        }
    };
    // The maximum size of a UDP answer depends on `--strict-dns`, which the parser does not know.
    query.max_udp = view.zone().max_udp();

    let context = AnswerContext {
        steps: MAX_STEPS,
        client: None,
        zone_data: false,
    };
    answer_query(context, view, identity, &query, external, out)
}

/// The client of a query, the work that its answer may take, and whether the answer has only the
/// data of the name itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AnswerContext {
    /// Maximum work in steps, see [`EntryVisit::steps`](crate::EntryVisit::steps).
    pub(crate) steps: usize,
    /// The client. The namespace of its pod selects the search list of autopath. `None` to answer
    /// without autopath.
    pub(crate) client: Option<IpAddr>,
    /// Whether the answer has only the data of the name itself, as in a zone transfer: aliases are
    /// not followed, and there are no additional records.
    pub(crate) zone_data: bool,
}

/// Answers as [`answer_message`] does, but takes a parsed query and a context.
pub(crate) fn answer_query<V: View>(
    context: AnswerContext,
    view: &V,
    identity: &Identity,
    query: &Query<'_>,
    external: &ExternalAnswers,
    out: &mut Vec<u8>,
) -> EngineOutcome {
    let start = out.len();
    let engine = Engine {
        view,
        identity,
        query,
        external,
        context,
        start,
    };

    let outcome = engine.route_query(out);
    // Only a reply leaves octets in `out`: the engine may have written a part of an answer before.
    if !matches!(outcome, EngineOutcome::Reply(_)) {
        out.truncate(start);
    }
    outcome
}

/// Answers for the query name, without regard to search lists and zone transfers. For a search
/// list, the caller calls this function with the names of the list, one after the other. The
/// client's query must have passed the checks of [`answer_query`] before.
pub(crate) fn answer_name<V: View>(
    steps: usize,
    view: &V,
    identity: &Identity,
    query: &Query<'_>,
    external: &ExternalAnswers,
    out: &mut Vec<u8>,
) -> NameProgress {
    let start = out.len();
    let context = AnswerContext {
        steps,
        client: None,
        zone_data: false,
    };
    let engine = Engine {
        view,
        identity,
        query,
        external,
        context,
        start,
    };

    let progress = match engine.route_name(out) {
        NameResult::Progress(progress) => progress,
        NameResult::Missing(authority) => engine.forward_or_nxdomain(authority, out),
    };
    // As in `answer_query`, only a reply leaves octets in `out`.
    if !matches!(progress, NameProgress::Reply(_)) {
        out.truncate(start);
    }
    progress
}

/// The part of the server that forwards queries for a name (wire format, lower case).
pub(crate) fn system_of_servers(zone: &Zone, name: &[u8]) -> System {
    let (_, stub) = zone.servers_for(name);
    if stub.is_some() {
        System::Stub
    } else {
        System::Recursive
    }
}

struct Engine<'a, V> {
    view: &'a V,
    identity: &'a Identity,
    query: &'a Query<'a>,
    external: &'a ExternalAnswers,
    context: AnswerContext,
    /// Offset in the output at which the answer starts.
    start: usize,
}

/// Result of looking up the query name.
enum NameResult<'a> {
    /// The name was answered, or its answer waits.
    Progress(NameProgress),
    /// The name is in a zone of ours, but does not exist. The output may end with a part of an
    /// answer, which must be removed.
    Missing(Authority<'a>),
}

impl From<Reply> for NameResult<'_> {
    fn from(reply: Reply) -> Self {
        Self::Progress(NameProgress::Reply(reply))
    }
}

impl<'a, V: View> Engine<'a, V> {
    /// Decides who answers the query.
    fn route_query(&self, out: &mut Vec<u8>) -> EngineOutcome {
        if let Some(reply) = self.reject_query(out) {
            return EngineOutcome::Reply(reply);
        }
        // A client must not get data of a class that it did not query.
        if self.query.qclass != class::IN {
            return EngineOutcome::Reply(self.answer_other_class(out));
        }

        let zone = self.view.zone();
        if zone.serials.is_some() && matches!(self.query.qtype, rtype::AXFR | rtype::IXFR) {
            return EngineOutcome::Transfer;
        }
        // Names in the search suffix are handled before the zones. The suffix may be in the cluster
        // domain, whose zone would answer NXDOMAIN for these names.
        let search = zone.search.as_deref();
        if search.is_some_and(|search| search.holds(self.query.lower())) {
            return self.route_search_name(out);
        }

        match self.route_name(out) {
            NameResult::Progress(progress) => progress.into(),
            NameResult::Missing(authority) => match self.autopath_list() {
                Some(list) => EngineOutcome::Search(list),
                None => self.forward_or_nxdomain(authority, out).into(),
            },
        }
    }

    /// Answers a query that is rejected because of its form, its EDNS version or the type ANY.
    /// `None` for any other query.
    fn reject_query(&self, out: &mut Vec<u8>) -> Option<Reply> {
        let zone = self.view.zone();
        // kube-dns tolerates the faults of a lax query (see `Query::lax`), so such a query is
        // rejected only with `--strict-dns`.
        if self.query.lax && zone.strict {
            self.append_empty(rcode::FORMERR, flag::RD, out);
            return Some(self.append_cause(&Cause::Malformed, rcode::FORMERR, System::Auth, out));
        }

        // The response to an unknown EDNS version has the RCODE BADVERS (RFC 6891, section 6.1.3).
        let edns = self.query.edns.as_ref();
        if edns.is_some_and(|edns| edns.version != 0) {
            return Some(self.append_empty(rcode::BADVERS, flag::RD, out));
        }

        // kube-dns refuses all queries of type ANY. With `forwards_all`, this check refuses only
        // those for names of ours (see `is_ours`).
        if self.query.qtype == rtype::ANY
            && (!zone.forwards_all || is_ours(self.view, self.query.lower()))
        {
            return Some(self.refuse_query(&Cause::AnyType, out));
        }
        None
    }

    /// Returns the search list of a name in the search suffix, or refuses the query.
    fn route_search_name(&self, out: &mut Vec<u8>) -> EngineOutcome {
        // With `forwards_all`, `reject_query` accepts queries of type ANY for names in a search
        // suffix outside our zones.
        if self.query.qtype == rtype::ANY {
            return EngineOutcome::Reply(self.refuse_query(&Cause::AnyType, out));
        }

        match self.view.zone().search_list(self.query.name) {
            Some(list) if self.view.has_synced() => EngineOutcome::Search(list),
            // Every name in the search suffix has a list, so this case means that the view has not
            // synced.
            _ => EngineOutcome::Reply(self.refuse_query(&Cause::NotSynced, out)),
        }
    }

    /// Answers for the name without regard to search lists.
    fn route_name(&self, out: &mut Vec<u8>) -> NameResult<'a> {
        let name = self.query.lower();
        // The `hosts` and `aliases` of the configuration override all domains, so they come before
        // the zones.
        if let Some(own) = self.view.zone().own_names.as_deref()
            && let Some(progress) = self.answer_own_name(own, out)
        {
            return NameResult::Progress(progress);
        }

        let authority = Authority::of(self.view, name);
        // The PTR records of the cluster's addresses take precedence over a zone in the reverse
        // tree, unless this zone is a cluster domain.
        if self.query.qtype == rtype::PTR
            && authority.is_none_or(|authority| authority.further.is_some())
            && let Some(address) = reverse::address_of_name(name)
        {
            return self.answer_reverse(address, authority, out);
        }
        self.answer_from_zone(authority, out)
    }

    /// Answers from the zone that holds the name, or forwards the query.
    #[expect(
        clippy::redundant_closure_for_method_calls,
        reason = "the method is not general enough over lifetimes"
    )]
    fn answer_from_zone(
        &self,
        authority: Option<Authority<'a>>,
        out: &mut Vec<u8>,
    ) -> NameResult<'a> {
        let Some(authority) = authority else {
            return NameResult::Progress(self.forward_query(out));
        };

        // Names whose records are not loaded may exist, so they are neither denied nor forwarded.
        if !authority.records.has_synced() {
            let reply = match authority.further {
                Some(_) => self.append_servfail(&Cause::ZoneNotLoaded, out),
                None => self.refuse_query(&Cause::NotSynced, out),
            };
            return reply_of_zone(reply, authority).into();
        }

        match self.write_answer(authority, out, |answer| answer.write_zone_answer()) {
            Some(NameProgress::Reply(reply)) => reply_of_zone(reply, authority).into(),
            Some(progress) => NameResult::Progress(progress),
            None => NameResult::Missing(authority),
        }
    }

    /// Answers for a name that does not exist in its zone. If the name falls through
    /// (`--fallthrough`), forwards the query. Otherwise, answers NXDOMAIN.
    fn forward_or_nxdomain(&self, authority: Authority<'a>, out: &mut Vec<u8>) -> NameProgress {
        if authority.falls_through(self.view.zone(), self.query.lower()) {
            return NameProgress::Pending(PendingAnswer::Forward(system_of_servers(
                self.view.zone(),
                self.query.lower(),
            )));
        }

        // The lookup may have written a part of an answer, which NXDOMAIN must not contain.
        out.truncate(self.start);
        let mut answer = self.begin_answer(authority, out);
        answer.write_negative_soa();
        NameProgress::Reply(reply_of_zone(self.finish_nxdomain(answer), authority))
    }

    /// Finishes the answer with NXDOMAIN and the flags of its zone.
    pub(super) fn finish_nxdomain(&self, answer: AnswerWriter<'_, '_, V>) -> Reply {
        // Without `--strict-dns`, the cluster's zone answers as kube-dns does: NXDOMAIN has neither
        // AA nor RA.
        let own_flags = if answer.is_whole_zone() {
            AUTHORITATIVE
        } else {
            0
        };

        let flags = self.copied_flags() | own_flags;
        answer.message.finish(flags, rcode::NXDOMAIN);
        self.new_reply(System::Auth, rcode::NXDOMAIN, false)
    }

    pub(super) fn begin_answer<'q, 'b>(
        &'q self,
        authority: Authority<'q>,
        out: &'b mut Vec<u8>,
    ) -> AnswerWriter<'q, 'b, V> {
        AnswerWriter::new(
            self.view,
            authority,
            self.query,
            self.external,
            self.context,
            out,
        )
    }

    /// Answers SERVFAIL for a name of ours.
    pub(super) fn append_servfail(&self, cause: &Cause, out: &mut Vec<u8>) -> Reply {
        append_servfail(self.view.zone(), self.query, System::Auth, cause, out)
    }

    /// Answers without records. `copied` are the flags to copy from the query; CD is always copied.
    pub(super) fn append_empty(&self, rcode: u16, copied: u16, out: &mut Vec<u8>) -> Reply {
        let flags = self.query.header.flags & (copied | flag::CD);
        wire::ResponseWriter::new(self.query, out).finish(flags, rcode);
        self.new_reply(System::Auth, rcode, false)
    }

    /// Answers REFUSED. RD is copied only with `--strict-dns`: kube-dns does not copy RD, contrary
    /// to RFC 1035, section 4.1.1.
    pub(super) fn refuse_query(&self, cause: &Cause, out: &mut Vec<u8>) -> Reply {
        let copied = if self.view.zone().strict { flag::RD } else { 0 };
        self.append_empty(rcode::REFUSED, copied, out);
        self.append_cause(cause, rcode::REFUSED, System::Auth, out)
    }

    /// Adds the cause to the written answer, if extended errors are enabled. Returns the reply.
    pub(super) fn append_cause(
        &self,
        cause: &Cause,
        rcode: u16,
        system: System,
        out: &mut Vec<u8>,
    ) -> Reply {
        cause.append_if_enabled(self.view.zone(), self.query, self.start, out);
        self.new_reply(system, rcode, false)
    }

    pub(super) fn copied_flags(&self) -> u16 {
        self.query.header.flags & (flag::RD | flag::CD)
    }

    /// Forwards a query for an external name, or answers it without an upstream; see
    /// [`ExternalRoute`].
    fn forward_query(&self, out: &mut Vec<u8>) -> NameProgress {
        let zone = self.view.zone();
        let system = system_of_servers(zone, self.query.lower());

        match zone.external_route(self.query.lower(), self.query.qtype) {
            ExternalRoute::Rule(mut rule) => {
                // NXDOMAIN means that a name has no records of any type, so it would be wrong for a
                // name that may have PTR records of ours.
                if rule.key == RuleKey::BogusPriv && self.may_have_pointers(out) {
                    rule.rcode = rcode::NOERROR;
                }
                let reply = append_rule_answer(zone, self.query, System::Auth, &rule, out);
                NameProgress::Reply(reply)
            }
            ExternalRoute::SingleLabel => {
                let reply = append_servfail(zone, self.query, system, &Cause::OneLabel, out);
                NameProgress::Reply(reply)
            }
            ExternalRoute::Localhost => self.answer_localhost(out),
            ExternalRoute::Forward => NameProgress::Pending(PendingAnswer::Forward(system)),
        }
    }

    /// Whether the query name has PTR records of ours, or may have some because the records of the
    /// cluster are not loaded yet. Nothing is added to `out`.
    fn may_have_pointers(&self, out: &mut Vec<u8>) -> bool {
        let Some(address) = reverse::address_of_name(self.query.lower()) else {
            return false;
        };
        let own = self.view.zone().own_names.as_deref();
        if !self.view.has_synced() || own.is_some_and(|own| own.names_of(address).is_some()) {
            return true;
        }

        let start = out.len();
        let mut answer = self.begin_answer(Authority::cluster(self.view), out);
        let status = answer.write_pointers(address);
        out.truncate(start);
        status != AnswerStatus::Missing
    }

    /// Answers with the PTR records of an address of ours. For another address, answers from the
    /// zone that holds the reverse name, or forwards the query.
    fn answer_reverse(
        &self,
        address: IpAddr,
        authority: Option<Authority<'a>>,
        out: &mut Vec<u8>,
    ) -> NameResult<'a> {
        if !self.view.has_synced() {
            // The address may belong to the cluster, so an upstream must not answer the query.
            return self.refuse_query(&Cause::NotSynced, out).into();
        }

        let start = out.len();
        let mut answer = self.begin_answer(Authority::cluster(self.view), out);
        match answer.write_pointers(address) {
            AnswerStatus::Missing => {
                out.truncate(start);
                self.answer_from_zone(authority, out)
            }
            AnswerStatus::Empty | AnswerStatus::Written => {
                let truncated = answer.truncated();
                let flags = self.copied_flags() | flag::RA | truncation_flag(truncated, self.query);
                answer.message.finish(flags, rcode::NOERROR);
                self.new_reply(System::Reverse, rcode::NOERROR, truncated)
                    .into()
            }
            AnswerStatus::Failed | AnswerStatus::Unknown => {
                self.append_empty(rcode::SERVFAIL, flag::RD, out).into()
            }
        }
    }

    /// Answers with the records that `write` writes; `None` if the name does not exist.
    pub(super) fn write_answer<'q>(
        &'q self,
        authority: Authority<'q>,
        out: &mut Vec<u8>,
        write: impl FnOnce(&mut AnswerWriter<'q, '_, V>) -> AnswerStatus,
    ) -> Option<NameProgress> {
        let mut answer = self.begin_answer(authority, out);
        let status = write(&mut answer);
        // If no steps are left, the message is incomplete, whatever `status` is.
        if answer.is_exhausted() {
            return Some(NameProgress::Pending(PendingAnswer::Expensive));
        }
        // All external names are looked up together. Then the engine runs again with the answers.
        let needs = std::mem::take(&mut answer.needs);
        if !needs.is_empty() {
            return Some(NameProgress::Pending(PendingAnswer::External(needs)));
        }

        let (rcode, own_flags) = match status {
            AnswerStatus::Missing => return None,
            AnswerStatus::Written | AnswerStatus::Empty => (rcode::NOERROR, AUTHORITATIVE),
            AnswerStatus::Failed => (rcode::SERVFAIL, flag::RA),
            AnswerStatus::Unknown if answer.is_whole_zone() => (rcode::SERVFAIL, flag::RA),
            // Without `--strict-dns`, the cluster's zone answers as kube-dns does: this SERVFAIL
            // does not have RA.
            AnswerStatus::Unknown => (rcode::SERVFAIL, 0),
        };
        if status == AnswerStatus::Empty {
            answer.write_negative_soa();
        }
        let truncated = answer.truncated();
        let flags = self.copied_flags() | own_flags | truncation_flag(truncated, self.query);
        answer.message.finish(flags, rcode);

        let reply = match status {
            AnswerStatus::Failed => {
                let cause = self.external.failure().unwrap_or(&Cause::Alias);
                self.append_cause(cause, rcode, System::Auth, out)
            }
            AnswerStatus::Unknown => {
                self.append_cause(&Cause::RegionUnknown, rcode, System::Auth, out)
            }
            _ => {
                if self.external.is_stale() {
                    Cause::Stale(rcode).append(self.start, self.query.limit(), out);
                }
                let reason = self.external.rule().map(AnswerReason::Rule);
                if let Some(reason) = reason {
                    self.append_cause(&reason.cause(), rcode, System::Auth, out);
                }
                Reply {
                    reason,
                    ..self.new_reply(System::Auth, rcode, truncated)
                }
            }
        };
        Some(NameProgress::Reply(reply))
    }

    /// The search list of autopath for the query name. `None` without autopath, if the namespace of
    /// the client's pod is not known, or if the name is not below the first search domain.
    fn autopath_list(&self) -> Option<SearchList> {
        let zone = self.view.zone();
        if !zone.search.as_ref()?.is_autopath() {
            return None;
        }

        // On a dual-stack socket, an IPv4 client appears as `::ffff:10.0.0.1`.
        let client = self.context.client?.to_canonical();
        let namespace = self.view.namespace_of(client)?;
        zone.search_list_of_client(self.query.name, namespace)
    }

    pub(super) fn new_reply(&self, system: System, rcode: u16, truncated: bool) -> Reply {
        Reply {
            system,
            qtype: self.query.qtype,
            rcode,
            truncated,
            zone: None,
            reason: None,
        }
    }
}
