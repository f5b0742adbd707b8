//! Answers to queries that wait: forwarded queries, queries that need external names, and expensive queries.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

use crate::backend::zones::is_ours;
use crate::backend::{Backend, View};
use crate::cause::Cause;
use crate::engine::{self, Asker, Identity, Outcome, Reply};
use crate::external::{ExternalAnswer, ExternalAnswers, ExternalQuery, ExternalRecord, MAX_ROUNDS};
use crate::forward::{self, FORWARDED_FLAGS, Forwarder};
use crate::lane::Lane;
use crate::metrics::{Completion, Shard, System, Took};
use crate::search::SearchList;
use crate::shares::{Share, Shares};
use crate::tap::{Answered, Tap};
use crate::top::{Sampler, Top};
use crate::transfer::Transfers;
use crate::wire::{HEADER, Message, Query, Section, Transport, Writer, class, flag, rcode, rtype};

mod fit;
mod signed;
pub mod walk;

pub use fit::fit;
use walk::Walk;

/// Maximum number of queries that wait for upstreams. Each query holds its message and a task: about 2 KiB.
const MAX_WAITING: usize = 16_384;
/// Maximum number of waiting queries of one client. The forwarder's limits on distinct queries are lower.
const MAX_WAITING_OF_CLIENT: usize = 2048;
/// Maximum work for an immediate answer over UDP, in steps (see [`Records::records`](crate::Records::records)): about
/// 0.2 ms. The addresses of a headless Service with thousands of pods take less, and so does a wildcard over 200
/// names.
const STEPS_OVER_UDP: usize = 8192;
/// Maximum work for an immediate answer over TCP, in steps. The threads for TCP have other work as well.
const STEPS_OVER_TCP: usize = 4096;
/// Maximum number of aliases to follow within an upstream's answer.
const MAX_CHAIN: usize = 16;
/// Time after which a query is answered with SERVFAIL. Clients retry after two seconds or later.
pub(crate) const BUDGET: Duration = Duration::from_millis(1950);

/// Answers queries from a backend, and from upstreams if needed. All transports share one resolver.
pub struct Resolver<B: Backend> {
    backend: Arc<B>,
    identity: Identity,
    forwarder: Arc<Forwarder>,
    /// Counts the answers of async tasks on all threads.
    shard: Arc<Shard>,
    waiting: Arc<Shares>,
    lane: Lane,
    /// Zone transfers; `None` without peers.
    transfers: Option<Arc<Transfers<B::View>>>,
    tasks: TaskTracker,
    runtime: Handle,
    tap: Arc<Tap>,
    top: Arc<Top>,
    /// Samples the answers of async tasks.
    sampler: Mutex<Sampler>,
}

impl<B: Backend> Resolver<B> {
    /// Creates a resolver whose tasks run on `runtime`. Any thread must be allowed to write to `shard`: use a
    /// [`shared_shard`](crate::metrics::Metrics::shared_shard).
    pub fn new(
        backend: Arc<B>,
        identity: Identity,
        forwarder: Arc<Forwarder>,
        shard: Arc<Shard>,
        runtime: Handle,
    ) -> Self {
        let waiting = Shares::new(MAX_WAITING, MAX_WAITING_OF_CLIENT);
        let (lane, tasks) = (Lane::new(), TaskTracker::new());
        let (tap, top) = (Arc::<Tap>::default(), Arc::<Top>::default());
        let sampler = Mutex::new(top.sampler());
        let transfers = None;
        Self {
            backend,
            identity,
            forwarder,
            shard,
            waiting,
            lane,
            transfers,
            tasks,
            runtime,
            tap,
            top,
            sampler,
        }
    }

    /// The tap, which copies answered queries to readers.
    pub fn tap(&self) -> &Arc<Tap> {
        &self.tap
    }

    /// The ranking of clients and names with the most queries.
    pub fn top(&self) -> &Arc<Top> {
        &self.top
    }

    /// Answers `client` at once if the answer takes little work; see [`engine::answer`]. Forwarded queries are
    /// answered from the forwarder's cache if possible.
    pub fn answer(&self, message: &[u8], client: IpAddr, transport: Transport, out: &mut Vec<u8>) -> Outcome {
        match &self.transfers {
            Some(transfers) => self.answer_signed(transfers, message, client, transport, out),
            None => self.answer_unsigned(message, client, transport, out),
        }
    }

    /// Answers a query at once, without regard to a signature.
    fn answer_unsigned(
        &self,
        message: &[u8],
        client: IpAddr,
        transport: Transport,
        out: &mut Vec<u8>,
    ) -> Outcome {
        match self.answer_one(message, Some(client), transport, out) {
            Outcome::Search(list) => self.search_at_once(message, transport, list, out),
            outcome => outcome,
        }
    }

    /// Answers at once. If a search list completes the name for `client`, nothing is looked up and the outcome is the
    /// list. Without `client`, names are not completed.
    fn answer_one(
        &self,
        message: &[u8],
        client: Option<IpAddr>,
        transport: Transport,
        out: &mut Vec<u8>,
    ) -> Outcome {
        static NOTHING: ExternalAnswers = ExternalAnswers::none();
        match self.answer_at_once(message, client, transport, &NOTHING, out) {
            Outcome::Forward(system) => {
                let reply = self.answer_from_cache(message, transport, system, out);
                reply.map_or(Outcome::Forward(system), Outcome::Reply)
            }
            outcome => outcome,
        }
    }

    fn answer_from_cache(
        &self,
        message: &[u8],
        transport: Transport,
        system: System,
        out: &mut Vec<u8>,
    ) -> Option<Reply> {
        let cache = self.forwarder.cache()?;
        let mut query = Query::parse(message, transport).ok()?;
        let view = self.backend.view();
        query.max_udp = view.zone().max_udp();
        let found = cache.answer(&query, view.zone().servers_for(query.lower()).0)?;
        let start = out.len();
        found.append(query.name, query.edns.map(|edns| edns.dnssec_ok), out);
        let truncated = out.len() - start > query.limit() && {
            let whole = out.split_off(start);
            fit(&whole, &query, out)
        };
        if let Some(id) = out.get_mut(start..).and_then(<[u8]>::first_chunk_mut) {
            *id = query.header.id.to_be_bytes();
        }
        Some(Reply { system, qtype: query.qtype, rcode: found.rcode(), truncated, zone: None })
    }

    /// Walks a search list. If a lookup needs an upstream or much work, the outcome is the list.
    fn search_at_once(
        &self,
        message: &[u8],
        transport: Transport,
        list: SearchList,
        out: &mut Vec<u8>,
    ) -> Outcome {
        let Some((query, mut walk)) = self.walk(message, transport, list) else { return Outcome::Ignore };
        let mut response = Vec::new();
        while let Some(question) = walk.question(&query) {
            response.clear();
            let Outcome::Reply(reply) = self.answer_one(&question, None, transport, &mut response) else {
                return Outcome::Search(walk.into_list());
            };
            walk.take(&response, reply.system);
        }
        Outcome::Reply(self.end_walk(walk, &query, out))
    }

    /// Starts a walk through `list` for `message`; `None` if the message is not a query.
    fn walk<'m>(
        &self,
        message: &'m [u8],
        transport: Transport,
        list: SearchList,
    ) -> Option<(Query<'m>, Walk)> {
        let mut query = Query::parse(message, transport).ok()?;
        let view = self.backend.view();
        query.max_udp = view.zone().max_udp();
        let walk = Walk::new(&query, list, view.zone());
        Some((query, walk))
    }

    fn end_walk(&self, walk: Walk, query: &Query<'_>, out: &mut Vec<u8>) -> Reply {
        let (steps, start) = (walk.steps(), out.len());
        let (reply, completion) = walk.finish(query, out);
        if completion == Completion::Failed {
            self.explain(query.message, query.transport, &Cause::Completion, start, out);
        }
        self.shard.completed(completion, steps);
        reply
    }

    fn answer_at_once(
        &self,
        message: &[u8],
        client: Option<IpAddr>,
        transport: Transport,
        external: &ExternalAnswers,
        out: &mut Vec<u8>,
    ) -> Outcome {
        let steps = match transport {
            Transport::Udp => STEPS_OVER_UDP,
            Transport::Tcp => STEPS_OVER_TCP,
        };
        let asker = Asker { steps, client, zone_data: false };
        engine::answer_for(asker, &*self.backend.view(), &self.identity, message, transport, external, out)
    }

    /// Admits `message` to the queries that wait for upstreams, or to the queue of expensive queries. `None` if
    /// `client` has used its share, or no place is free.
    pub(crate) fn admit(&self, client: IpAddr, message: &[u8], outcome: &Outcome) -> Option<Share> {
        if *outcome == Outcome::Expensive {
            let share = self.lane.admit(client);
            if share.is_none() {
                self.shard.expensive(false);
            }
            return share;
        }
        let share = self.waiting.take(client);
        if share.is_none() {
            self.forwarder.count_rejected(message.get(HEADER..).unwrap_or_default(), client);
        }
        share
    }

    /// Answers a query, and waits for upstreams if `outcome` requires that. `None` if no response is sent.
    pub(crate) async fn resolve(
        self: &Arc<Self>,
        message: &[u8],
        transport: Transport,
        outcome: Outcome,
        asker: SocketAddr,
        share: Share,
    ) -> Option<Vec<u8>> {
        let started = Instant::now();
        let (mut out, client) = (Vec::new(), share.client());
        let reply = match outcome {
            Outcome::Search(list) => self.search(message, transport, list, client, &mut out).await?,
            outcome => self.settle(message, transport, outcome, client, &mut out).await?,
        };
        let took = Took::Waited(started.elapsed());
        self.record(&Answered { client: asker, transport, query: message, response: &out, reply, took });
        Some(out)
    }

    /// Answers a query without a search list.
    async fn settle(
        self: &Arc<Self>,
        message: &[u8],
        transport: Transport,
        outcome: Outcome,
        client: IpAddr,
        out: &mut Vec<u8>,
    ) -> Option<Reply> {
        match outcome {
            Outcome::Reply(reply) => Some(reply),
            Outcome::Ignore | Outcome::Search(_) | Outcome::Transfer => None,
            Outcome::Forward(system) => self.forward(message, transport, system, client, out).await,
            Outcome::NeedsExternal(_) | Outcome::Expensive => {
                self.resolve_rounds(message, transport, outcome, client, out).await
            }
        }
    }

    /// Walks the search list, one name after the other. Usually an early name exists, or no name except the last.
    async fn search(
        self: &Arc<Self>,
        message: &[u8],
        transport: Transport,
        list: SearchList,
        client: IpAddr,
        out: &mut Vec<u8>,
    ) -> Option<Reply> {
        let deadline = tokio::time::Instant::now() + BUDGET;
        let (query, mut walk) = self.walk(message, transport, list)?;
        while let Some(question) = walk.question(&query) {
            let mut response = Vec::new();
            let outcome = self.answer_one(&question, None, transport, &mut response);
            let settled = self.settle(&question, transport, outcome, client, &mut response);
            match tokio::time::timeout_at(deadline, settled).await {
                Ok(Some(reply)) => walk.take(&response, reply.system),
                Ok(None) | Err(_) => walk.fail(),
            }
        }
        Some(self.end_walk(walk, &query, out))
    }

    /// Counts an answer of an async task. Passes the answer to the [`Tap`], and to the ranking [`Top`] if the answer
    /// is sampled.
    pub(crate) fn record(&self, answered: &Answered<'_>) {
        let Answered { transport, response, reply, took, .. } = *answered;
        self.shard.record(reply, transport, took, response.len());
        // If another task holds the lock, the answer is not sampled.
        if let Some(mut sampler) = self.sampler.try_lock()
            && sampler.is_due()
        {
            sampler.take(answered, Instant::now());
        }
        if self.tap.is_on() {
            self.tap.copy(answered);
        }
    }

    /// Answers SERVFAIL to a query that was not admitted.
    pub(crate) fn refuse(
        &self,
        message: &[u8],
        transport: Transport,
        outcome: &Outcome,
        client: SocketAddr,
    ) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        let cause = outcome.refusal();
        let reply = self.fail(message, transport, outcome.system(), &cause, &mut out)?;
        let took = Took::AtOnce(Duration::ZERO);
        self.record(&Answered { client, transport, query: message, response: &out, reply, took });
        Some(out)
    }

    /// Answers SERVFAIL to a query that cannot be resolved or was not admitted.
    pub(crate) fn fail(
        &self,
        message: &[u8],
        transport: Transport,
        system: System,
        cause: &Cause,
        out: &mut Vec<u8>,
    ) -> Option<Reply> {
        let start = out.len();
        let reply = servfail(message, transport, system, out)?;
        self.explain(message, transport, cause, start, out);
        Some(reply)
    }

    /// Adds the cause to the response that begins at `start` of `out`, if extended errors are enabled.
    fn explain(&self, message: &[u8], transport: Transport, cause: &Cause, start: usize, out: &mut Vec<u8>) {
        let view = self.backend.view();
        if view.zone().extended_errors
            && let Ok(mut query) = Query::parse(message, transport)
            // An upstream may send an OPT record although the client sent none.
            && query.edns.is_some()
        {
            query.max_udp = view.zone().max_udp();
            cause.append(start, query.limit(), out);
        }
    }

    /// Resolves the query in a new task and passes the answer to `send`. Returns true if the query was not admitted.
    pub(crate) fn resolve_later(
        self: &Arc<Self>,
        message: &[u8],
        transport: Transport,
        outcome: Outcome,
        client: SocketAddr,
        send: impl FnOnce(&[u8]) + Send + 'static,
    ) -> bool {
        let Some(share) = self.admit(client.ip(), message, &outcome) else { return true };
        let (this, message): (_, Box<[u8]>) = (Arc::clone(self), message.into());
        let task = async move {
            if let Some(answer) = this.resolve(&message, transport, outcome, client, share).await {
                send(&answer);
            }
        };
        self.tasks.spawn_on(task, &self.runtime);
        false
    }

    /// Number of queries that wait for upstreams, and of expensive queries that wait or run.
    pub fn waiting(&self) -> usize {
        self.waiting.taken() + self.lane.waiting()
    }

    /// Waits for the tasks that answer UDP queries.
    pub async fn drain(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    async fn forward(
        &self,
        message: &[u8],
        transport: Transport,
        system: System,
        client: IpAddr,
        out: &mut Vec<u8>,
    ) -> Option<Reply> {
        let mut query = Query::parse(message, transport).ok()?;
        let servers = {
            let view = self.backend.view();
            query.max_udp = view.zone().max_udp();
            Arc::clone(view.zone().servers_for(query.lower()).0)
        };
        match self.forwarder.exchange(forwarded(&query), servers, client).await {
            Ok(upstream) => {
                let start = out.len();
                let truncated = fit(&upstream.message, &query, out);
                if matches!(upstream.rcode, rcode::SERVFAIL | rcode::REFUSED) {
                    let cause = Cause::Reply(upstream.upstream.clone(), upstream.rcode);
                    self.explain(message, transport, &cause, start, out);
                }
                Some(Reply { system, qtype: query.qtype, rcode: upstream.rcode, truncated, zone: None })
            }
            Err(error) => self.fail(message, transport, system, &Cause::from(&error), out),
        }
    }

    /// Answers a query that needs external names or takes too much work for an immediate answer.
    async fn resolve_rounds(
        self: &Arc<Self>,
        message: &[u8],
        transport: Transport,
        mut outcome: Outcome,
        client: IpAddr,
        out: &mut Vec<u8>,
    ) -> Option<Reply> {
        let deadline = tokio::time::Instant::now() + BUDGET;
        let (mut external, mut rounds) = (ExternalAnswers::none(), 0);
        loop {
            match outcome {
                Outcome::Reply(reply) => return Some(reply),
                Outcome::NeedsExternal(questions) if rounds < MAX_ROUNDS => {
                    self.resolve_external(questions, &mut external, client, deadline).await;
                    rounds += 1;
                    if rounds == MAX_ROUNDS {
                        external.close();
                    }
                    outcome = self.answer_at_once(message, None, transport, &external, out);
                }
                Outcome::Expensive => {
                    let work = self.expensive_work(message, transport, external);
                    let done = tokio::time::timeout_at(deadline, self.lane.run(client, work)).await;
                    let done = done.ok().flatten().filter(|(outcome, ..)| *outcome != Outcome::Expensive);
                    self.shard.expensive(done.is_some());
                    // Differs from kube-dns, which does any amount of work for an answer and serves no other client
                    // meanwhile.
                    let Some(done) = done else {
                        return self.fail(message, transport, System::Auth, &Cause::Expensive, out);
                    };
                    (outcome, external, *out) = done;
                }
                Outcome::NeedsExternal(_) => {
                    return self.fail(message, transport, System::Auth, &Cause::Alias, out);
                }
                Outcome::Forward(_) | Outcome::Search(_) | Outcome::Transfer | Outcome::Ignore => {
                    return None;
                }
            }
        }
    }

    /// Prepares one answer with the full limit of [`engine::MAX_STEPS`]. The result includes `external`.
    fn expensive_work(
        self: &Arc<Self>,
        message: &[u8],
        transport: Transport,
        external: ExternalAnswers,
    ) -> impl FnOnce() -> (Outcome, ExternalAnswers, Vec<u8>) + Send + 'static {
        let (this, message) = (Arc::clone(self), message.to_vec());
        move || {
            let mut out = Vec::new();
            let (view, identity) = (this.backend.view(), &this.identity);
            let outcome = engine::answer(&*view, identity, &message, transport, &external, &mut out);
            (outcome, external, out)
        }
    }

    /// Resolves external names and adds the answers to `external`.
    async fn resolve_external(
        &self,
        mut questions: Vec<ExternalQuery>,
        external: &mut ExternalAnswers,
        client: IpAddr,
        deadline: tokio::time::Instant,
    ) {
        questions.dedup();
        let asked = questions.iter().map(|question| self.look_up(question, client, deadline));
        for (question, answer) in questions.iter().zip(join_all(asked).await) {
            let answer = answer.unwrap_or_else(|cause| {
                external.fail(cause);
                ExternalAnswer::Failed
            });
            external.insert(question.clone(), answer);
        }
    }

    async fn look_up(
        &self,
        question: &ExternalQuery,
        client: IpAddr,
        deadline: tokio::time::Instant,
    ) -> Result<ExternalAnswer, Cause> {
        let lower = question.name.to_lowercase();
        let servers = Arc::clone(self.backend.view().zone().servers_for(lower.wire()).0);
        let query = forward::Query::new(question.name.wire(), question.qtype);
        let asked = self.forwarder.exchange(query.clone(), Arc::clone(&servers), client);
        // In a later round less time may be left than the forwarder's own budget.
        let asked = tokio::time::timeout_at(deadline, asked).await;
        let reply = asked.unwrap_or_else(|_| self.forwarder.kept(query, servers));
        let reply = reply.map_err(|error| Cause::from(&error))?;
        let view = self.backend.view();
        let is_ours = |name: &[u8]| is_ours(&*view, name);
        match external_answer(question, is_ours, &reply.message, reply.rcode) {
            ExternalAnswer::Failed => Err(Cause::Reply(reply.upstream.clone(), reply.rcode)),
            // A truncated reply may lack all addresses.
            answer @ ExternalAnswer::Records(_) if reply.truncated && !has_addresses(&answer) => {
                Ok(ExternalAnswer::Failed)
            }
            answer @ ExternalAnswer::Records(_) => Ok(answer),
        }
    }
}

/// Converts a query to the form that is forwarded to upstreams.
pub fn forwarded(query: &Query<'_>) -> forward::Query {
    forward::Query {
        name: query.name.into(),
        qtype: query.qtype,
        qclass: query.qclass,
        flags: query.header.flags & FORWARDED_FLAGS,
        edns: query.edns.map(|edns| edns.map(Box::from)),
        transport: query.transport,
    }
}

/// Writes SERVFAIL for a query that cannot be resolved or was not admitted.
pub(crate) fn servfail(
    message: &[u8],
    transport: Transport,
    system: System,
    out: &mut Vec<u8>,
) -> Option<Reply> {
    let query = Query::parse(message, transport).ok()?;
    let flags = query.header.flags & (flag::RD | flag::CD);
    Writer::new(&query, out).finish(flags | flag::RA, rcode::SERVFAIL);
    Some(Reply { system, qtype: query.qtype, rcode: rcode::SERVFAIL, truncated: false, zone: None })
}

/// Extracts the answer to `question` from the upstream's `message` with RCODE `code`. The answer is the chain of
/// aliases from the name in `question`, and the addresses of the names in the chain. The chain ends before a name
/// (wire format, lower case) that `is_ours`. Records of other names must not be passed on.
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
    let Ok(message) = Message::parse(message) else { return ExternalAnswer::Failed };
    let mut records = Vec::new();
    for record in message.section(Section::Answer) {
        if !matches!(record.rtype, rtype::A | rtype::AAAA | rtype::CNAME) || record.class != class::IN {
            continue;
        }
        let mut rdata = Vec::new();
        let (Ok(owner), Ok(())) = (record.owner(), record.append_data(&mut rdata)) else { continue };
        records.push(ExternalRecord { owner, rtype: record.rtype, rdata: rdata.into() });
    }
    let names = chain(question.name.wire(), is_ours, &records);
    records.retain(|record| names.iter().any(|name| record.owner.wire().eq_ignore_ascii_case(name)));
    ExternalAnswer::Records(records)
}

fn has_addresses(answer: &ExternalAnswer) -> bool {
    match answer {
        ExternalAnswer::Records(records) => records.iter().any(|record| record.rtype != rtype::CNAME),
        ExternalAnswer::Failed => false,
    }
}

/// `start`, and the names that its aliases among `records` lead to. The chain ends before one of our own names.
fn chain(start: &[u8], is_ours: impl Fn(&[u8]) -> bool, records: &[ExternalRecord]) -> Vec<Vec<u8>> {
    let alias = |name: &[u8]| {
        let mut aliases = records.iter().filter(|record| record.rtype == rtype::CNAME);
        // A length octet is never a letter, so the comparison may ignore case.
        let found = aliases.find(|record| record.owner.wire().eq_ignore_ascii_case(name))?;
        Some(found.rdata.to_vec())
    };
    let mut names = vec![start.to_vec()];
    while let Some(target) = names.last().and_then(|name| alias(name)) {
        let ours = is_ours(&target.to_ascii_lowercase());
        if ours || names.len() > MAX_CHAIN || names.iter().any(|name| name.eq_ignore_ascii_case(&target)) {
            break;
        }
        names.push(target);
    }
    names
}
