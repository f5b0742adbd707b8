//! The path of a query from its transport to its answer.
//!
//! The documentation of the crate has a diagram of the layers. The message is parsed once, and the
//! [`View`] of the records is taken from the backend once: an [`Ask`] carries both through all
//! layers. The work that is left to do for a waiting query is a [`WaitingWork`]. When this work is
//! done, the query has an answer.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

use crate::backend::zones::{negative_ttl_limit, rule_for_reply};
use crate::backend::{Backend, View, Zone};
use crate::cause::Cause;
use crate::client_rates::{ClientRate, ClientRates};
use crate::client_shares::ClientShares;
use crate::engine::{
    self, AnswerContext, EngineOutcome, Identity, NameProgress, PendingAnswer, Reply, System,
};
use crate::expensive_queue::ExpensiveQueue;
use crate::external::ExternalAnswers;
use crate::forward::Forwarder;
use crate::metrics::Shard;
use crate::tap::{AnsweredQuery, QueryTap};
use crate::transfer::{ResponseSigner, ZoneTransfers};
use wire::top::{AnswerSampler, TopQueries};
use wire::{Query, Transport};

mod ask;
mod external_lookup;
mod negative;
mod search;
pub mod search_walk;
mod signed;
mod waiting;

pub use ask::{AnswerAttempt, WaitingQuery};
use ask::{Ask, WaitingWork};
pub use external_lookup::extract_external_answer;
use signed::sign_reply;

/// Maximum number of queries that wait for upstreams. Each query holds its message and a task:
/// about 2 KiB.
const MAX_WAITING: usize = 16_384;
/// Maximum number of waiting queries of one client. The forwarder has lower limits, but counts
/// identical queries only once.
const MAX_WAITING_OF_CLIENT: usize = 2048;
/// Maximum work for an immediate answer over UDP, in steps (see
/// [`EntryVisit::steps`](crate::EntryVisit::steps)): about 0.2 ms. The addresses of a headless
/// Service with thousands of pods take fewer steps. A wildcard that matches 200 names also takes
/// fewer steps.
const STEPS_OVER_UDP: usize = 8192;
/// Maximum work for an immediate answer over TCP, in steps. It is less than over UDP, because the
/// threads for TCP have other work as well.
const STEPS_OVER_TCP: usize = 4096;
/// Time after which a waiting query gets a stale answer from the cache, or SERVFAIL. Clients retry
/// after two seconds or later.
pub(crate) const BUDGET: Duration = Duration::from_millis(1950);
/// The external answers of a query that has not waited for upstreams.
static NO_EXTERNAL_ANSWERS: ExternalAnswers = ExternalAnswers::none();

/// Answers queries from a backend, and from upstreams if needed. All transports share one resolver.
pub struct Resolver<B: Backend> {
    backend: Arc<B>,
    identity: Identity,
    forwarder: Arc<Forwarder>,
    /// Counts the answers of async tasks on all threads.
    shard: Arc<Shard>,
    /// The limit on the queries per second from each client; `None` without a limit.
    client_rates: Option<ClientRates>,
    waiting: Arc<ClientShares>,
    expensive_queue: ExpensiveQueue,
    /// Zone transfers; `None` without `--transfer-to`.
    transfers: Option<Arc<ZoneTransfers<B::View>>>,
    tasks: TaskTracker,
    runtime: Handle,
    tap: Arc<QueryTap>,
    top: Arc<TopQueries>,
    /// Samples the answers of async tasks.
    sampler: Mutex<AnswerSampler>,
}

impl<B: Backend> Resolver<B> {
    /// Creates a resolver whose tasks run on `runtime`. Any thread must be allowed to write to
    /// `shard`: use a [`shared_shard`](crate::metrics::Metrics::shared_shard).
    pub fn new(
        backend: Arc<B>,
        identity: Identity,
        forwarder: Arc<Forwarder>,
        shard: Arc<Shard>,
        runtime: Handle,
    ) -> Self {
        let top = Arc::<TopQueries>::default();
        let sampler = Mutex::new(top.add_sampler());

        Self {
            backend,
            identity,
            forwarder,
            shard,
            client_rates: None,
            waiting: ClientShares::new(MAX_WAITING, MAX_WAITING_OF_CLIENT),
            expensive_queue: ExpensiveQueue::new(),
            transfers: None,
            tasks: TaskTracker::new(),
            runtime,
            tap: Arc::default(),
            top,
            sampler,
        }
    }

    /// The runtime of the tasks. A thread that runs tasks itself must enter this runtime.
    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Limits the queries per second from each client.
    pub(crate) fn limit_clients(&mut self, rate: ClientRate) {
        self.client_rates = Some(ClientRates::new(rate));
    }

    /// The tap, which copies answered queries to readers.
    pub fn tap(&self) -> &Arc<QueryTap> {
        &self.tap
    }

    /// The ranking of clients and names with the most queries.
    pub fn top(&self) -> &Arc<TopQueries> {
        &self.top
    }

    /// Answers `message` from `client` at once if the answer takes little work, and appends the
    /// answer to `out`. Queries for external names are answered from the forwarder's cache if
    /// possible.
    pub fn attempt_query(
        &self,
        message: &[u8],
        client: IpAddr,
        transport: Transport,
        out: &mut Vec<u8>,
    ) -> AnswerAttempt<B::View> {
        let mut query = match Query::parse(message, transport) {
            Ok(query) => query,
            Err(malformed) => {
                let reply = engine::answer_malformed(&malformed, message, out);
                return reply.map_or(AnswerAttempt::Ignored, AnswerAttempt::Answered);
            }
        };

        let view = self.backend.view();
        query.max_udp = view.zone().max_udp();

        // TSIG keys are configured only for zone transfers. Without zone transfers, signatures are
        // not checked.
        match &self.transfers {
            Some(transfers) => self.attempt_signed(transfers, &query, client, view, out),
            None => self.attempt_verified(&query, client, view, None, out),
        }
    }

    /// Attempts to answer a query whose signature, if any, has been verified or needs no check.
    /// `signer` signs the answer, even if the query has to wait.
    fn attempt_verified(
        &self,
        query: &Query<'_>,
        client: IpAddr,
        view: B::Guard,
        signer: Option<ResponseSigner>,
        out: &mut Vec<u8>,
    ) -> AnswerAttempt<B::View> {
        let start = out.len();
        if let Some(reply) = self.reject_at_once(query, client, view.zone(), out) {
            return AnswerAttempt::Answered(sign_reply(signer, start, reply, out));
        }

        let ask = Ask {
            query,
            client,
            view: &*view,
        };
        let work = match self.try_authority(&ask, out) {
            EngineOutcome::Reply(reply) => {
                return AnswerAttempt::Answered(sign_reply(signer, start, reply, out));
            }
            EngineOutcome::Ignore => return AnswerAttempt::Ignored,
            EngineOutcome::Transfer => return self.attempt_transfer(&ask, out),
            EngineOutcome::Pending(pending) => WaitingWork::Name(pending),
            EngineOutcome::Search(list) => WaitingWork::Search(list),
        };

        // The transport reuses the buffer of the message, so the query is copied.
        AnswerAttempt::Waits(Box::new(WaitingQuery {
            query: query.to_owned(),
            client,
            view: B::keep(view),
            work,
            signer,
        }))
    }

    /// Answers a query that gets no lookup: our own loop probe, or a query of a client over its
    /// rate limit.
    fn reject_at_once(
        &self,
        query: &Query<'_>,
        client: IpAddr,
        zone: &Zone,
        out: &mut Vec<u8>,
    ) -> Option<Reply> {
        // Probes come first: no limit, record or rule may hide that an upstream is in a loop.
        if self.forwarder.record_returned_probe(query.lower()) {
            let system = engine::system_of_servers(zone, query.lower());
            let reply = engine::append_servfail(zone, query, system, &Cause::Loop, out);
            return Some(reply);
        }

        let is_admitted = self.admits_query(client);
        (!is_admitted).then(|| engine::append_rate_refusal(zone, query, out))
    }

    /// Whether a query of `client` is within its limit.
    fn admits_query(&self, client: IpAddr) -> bool {
        let Some(rates) = &self.client_rates else {
            return true;
        };

        let now = Instant::now();
        let is_admitted = rates.admits_query(client, now);
        if !is_admitted {
            rates.warn_of_limited(client, now);
        }
        is_admitted
    }

    /// Answers from our own records, and continues with the search list or the cache if the name
    /// needs them.
    fn try_authority(&self, ask: &Ask<'_, B::View>, out: &mut Vec<u8>) -> EngineOutcome {
        let context = AnswerContext {
            steps: steps_at_once(ask.query.transport),
            client: Some(ask.client),
            zone_data: false,
        };
        let external = &NO_EXTERNAL_ANSWERS;

        match engine::answer_query(context, ask.view, &self.identity, ask.query, external, out) {
            EngineOutcome::Pending(pending) => self.try_cache(ask, pending, out).into(),
            EngineOutcome::Search(list) => match self.try_search(ask, list, out) {
                Ok(reply) => EngineOutcome::Reply(reply),
                Err(list) => EngineOutcome::Search(list),
            },
            outcome => outcome,
        }
    }

    /// Answers one name of a search list, from our own records or the cache.
    fn try_candidate(&self, ask: &Ask<'_, B::View>, out: &mut Vec<u8>) -> NameProgress {
        let steps = steps_at_once(ask.query.transport);
        let external = &NO_EXTERNAL_ANSWERS;

        match engine::answer_name(steps, ask.view, &self.identity, ask.query, external, out) {
            NameProgress::Pending(pending) => self.try_cache(ask, pending, out),
            reply @ NameProgress::Reply(_) => reply,
        }
    }

    /// Answers a query for an external name from the cache of the forwarder.
    fn try_cache(
        &self,
        ask: &Ask<'_, B::View>,
        pending: PendingAnswer,
        out: &mut Vec<u8>,
    ) -> NameProgress {
        match pending {
            PendingAnswer::Forward(system) => match self.copy_cached_answer(ask, system, out) {
                Some(reply) => NameProgress::Reply(reply),
                None => NameProgress::Pending(PendingAnswer::Forward(system)),
            },
            pending => NameProgress::Pending(pending),
        }
    }

    /// Appends the cached answer to `out`; `None` if the cache has no answer.
    fn copy_cached_answer(
        &self,
        ask: &Ask<'_, B::View>,
        system: System,
        out: &mut Vec<u8>,
    ) -> Option<Reply> {
        let query = ask.query;
        let cache = self.forwarder.cache()?;
        let cached = cache.find_answer(query, ask.view.zone().servers_for(query.lower()).0)?;

        let start = out.len();
        let truncated = cached.append_answer(query, out);
        if let Some(reply) = replace_by_rule(ask, system, start, out) {
            return Some(reply);
        }
        // A name that was forwarded because our zones lack it may be created in our zones at any
        // time. So clients must not keep the negative answer for long.
        limit_negative_ttls(ask, start, out);

        Some(Reply {
            system,
            qtype: query.qtype,
            rcode: cached.rcode(),
            truncated,
            zone: None,
            reason: None,
        })
    }

    /// Counts a TCP connection that is closed because the client's host already has as many
    /// connections as one host may have.
    pub(crate) fn count_rejected_connection(&self) {
        self.shard.rejected_connection();
    }

    /// Counts an answer of an async task. Passes the answer to the [`QueryTap`], and to the ranking
    /// [`TopQueries`] if the answer is sampled.
    pub(crate) fn record_answer(&self, answered: &AnsweredQuery<'_>) {
        let AnsweredQuery {
            transport,
            response,
            reply,
            took,
            ..
        } = *answered;
        self.shard.record(reply, transport, took, response.len());

        // If another task holds the lock, the answer is not sampled.
        if let Some(mut sampler) = self.sampler.try_lock()
            && sampler.is_due()
        {
            sampler.take_sample(answered.sample(), Instant::now());
        }
        if self.tap.is_on() {
            self.tap.copy_to_watches(answered);
        }
    }

    /// Number of queries that wait for upstreams, and of expensive queries that wait or run.
    pub fn waiting_count(&self) -> usize {
        self.waiting.taken() + self.expensive_queue.waiting_count()
    }

    /// Waits for the tasks that answer UDP queries.
    pub async fn drain_tasks(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// Appends a SERVFAIL response to `out`.
fn append_servfail<V: View>(
    ask: &Ask<'_, V>,
    system: System,
    cause: &Cause,
    out: &mut Vec<u8>,
) -> Reply {
    engine::append_servfail(ask.view.zone(), ask.query, system, cause, out)
}

fn append_cause<V: View>(ask: &Ask<'_, V>, cause: &Cause, start: usize, out: &mut Vec<u8>) {
    cause.append_if_enabled(ask.view.zone(), ask.query, start, out);
}

/// Replaces an upstream's answer that begins at `start` of `out`, if a rule of the configuration
/// rejects it. If the configuration has no rules, the answer is not parsed.
fn replace_by_rule<V: View>(
    ask: &Ask<'_, V>,
    system: System,
    start: usize,
    out: &mut Vec<u8>,
) -> Option<Reply> {
    let zone = ask.view.zone();
    let message = out.get(start..).unwrap_or_default();
    let answer = rule_for_reply(ask.view, message, ask.query.lower())?;

    out.truncate(start);
    Some(engine::append_rule_answer(
        zone, ask.query, system, &answer, out,
    ))
}

/// Limits the negative TTL of an upstream's answer that begins at `start` of `out`.
fn limit_negative_ttls<V: View>(ask: &Ask<'_, V>, start: usize, out: &mut [u8]) {
    if let Some(limit) = negative_ttl_limit(ask.view, ask.query.lower()) {
        negative::limit_ttls(out.get_mut(start..).unwrap_or_default(), limit);
    }
}

/// Maximum work for an immediate answer, in steps.
fn steps_at_once(transport: Transport) -> usize {
    match transport {
        Transport::Udp => STEPS_OVER_UDP,
        Transport::Tcp => STEPS_OVER_TCP,
    }
}
