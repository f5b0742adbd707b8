//! Answers to queries that wait: forwarded queries, queries that need external names, and expensive
//! queries.
//!
//! Every admitted query gets an answer. If its work fails or takes too long, the answer is a stale
//! one from the cache, or SERVFAIL.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use tokio::time::Instant as Deadline;

use super::ask::{Ask, NotAdmitted, WaitingWork};
use super::external_lookup::ExternalLookup;
use super::{
    BUDGET, Resolver, WaitingQuery, append_cause, append_servfail, limit_negative_ttls,
    replace_by_rule, sign_reply, steps_at_once,
};
use crate::backend::{Backend, View};
use crate::cause::Cause;
use crate::client_shares::ClientShare;
use crate::engine::System;
use crate::engine::{self, MAX_STEPS, NameProgress, PendingAnswer, Reply};
use crate::external::{ExternalAnswer, ExternalAnswers, ExternalQuery, MAX_ROUNDS};
use crate::forward::{self, ForwardError};
use crate::inline_tasks;
use crate::metrics::Took;
use crate::tap::AnsweredQuery;
use wire::Query;

/// A place among the queries that wait. Dropping this value frees the place.
#[derive(Debug)]
pub(crate) struct WaitingPlace {
    /// Frees the place when dropped.
    _share: ClientShare,
    /// Whether the place is in the queue of expensive queries.
    in_expensive_queue: bool,
    deadline: Deadline,
}

/// A query that was admitted to wait, with its place and its deadline.
#[derive(Debug)]
pub(super) struct AdmittedAsk<'a, V> {
    pub(super) ask: Ask<'a, V>,
    /// The view of `ask`, for work on other threads.
    shared_view: &'a Arc<V>,
    place: &'a WaitingPlace,
}

impl<'a, V> AdmittedAsk<'a, V> {
    /// The same place and deadline for another query, which looks up one name of a search list.
    pub(super) fn with_query<'c>(&self, query: &'c Query<'c>) -> AdmittedAsk<'c, V>
    where
        'a: 'c,
    {
        AdmittedAsk {
            ask: Ask { query, ..self.ask },
            ..*self
        }
    }
}

/// Result of the work for an expensive query.
struct ExpensiveResult {
    progress: NameProgress,
    /// The external answers that were passed to the work.
    external: ExternalAnswers,
    answer: Vec<u8>,
}

impl<B: Backend> Resolver<B> {
    /// Admits a query to those that wait for upstreams, or to the queue of expensive queries.
    /// `None` if the client has used its share, or no place is free.
    pub(crate) fn admit(&self, waiting: &WaitingQuery<B::View>) -> Option<WaitingPlace> {
        let is_expensive = waiting.is_expensive();
        let share = if is_expensive {
            self.expensive_queue.admit(waiting.client)
        } else {
            self.waiting.take_share(waiting.client)
        };

        if share.is_none() {
            self.count_not_admitted(waiting);
        }
        Some(WaitingPlace {
            _share: share?,
            in_expensive_queue: is_expensive,
            deadline: Deadline::now() + BUDGET,
        })
    }

    fn count_not_admitted(&self, waiting: &WaitingQuery<B::View>) {
        if waiting.is_expensive() {
            self.shard.expensive(false);
            return;
        }
        self.forwarder.report_overload(waiting.client);
    }

    /// Resolves the query in a new task, which begins on this thread, and passes the answer to
    /// `send`. Returns the query as the error if it is not admitted.
    pub(crate) fn spawn_resolve(
        self: &Arc<Self>,
        waiting: Box<WaitingQuery<B::View>>,
        client: SocketAddr,
        send: impl FnOnce(&[u8]) + Send + 'static,
    ) -> Result<(), NotAdmitted<B::View>> {
        let Some(place) = self.admit(&waiting) else {
            return Err(NotAdmitted(waiting));
        };

        let this = Arc::clone(self);
        let task = async move { send(&this.resolve_waiting(waiting, client, place).await) };
        inline_tasks::spawn(&self.tasks, &self.runtime, task);
        Ok(())
    }

    /// Answers SERVFAIL to a query that was not admitted.
    pub(crate) fn servfail_not_admitted(
        &self,
        waiting: Box<WaitingQuery<B::View>>,
        client: SocketAddr,
    ) -> Vec<u8> {
        let not_admitted = NotAdmitted(waiting);
        let mut out = Vec::new();
        let reply = not_admitted.append_servfail(&mut out);

        // The query did not wait, so its duration counts as zero.
        let query = not_admitted.0.query.query();
        self.record_answer(&AnsweredQuery {
            client,
            transport: query.transport,
            query: query.message,
            response: &out,
            reply,
            took: Took::AtOnce(Duration::ZERO),
        });
        out
    }

    /// Answers a query that waits. `client` is the sender's address. Taps show it (see
    /// [`crate::tap`]), and it is counted for the list of the clients with the most queries.
    pub(crate) async fn resolve_waiting(
        self: &Arc<Self>,
        waiting: Box<WaitingQuery<B::View>>,
        client: SocketAddr,
        place: WaitingPlace,
    ) -> Vec<u8> {
        let started = Instant::now();
        let WaitingQuery {
            query,
            client: host,
            view,
            work,
            signer,
        } = *waiting;
        let query = query.query();
        let admitted = AdmittedAsk {
            ask: Ask {
                query: &query,
                client: host,
                view: &*view,
            },
            shared_view: &view,
            place: &place,
        };

        let mut out = Vec::new();
        let reply = match work {
            WaitingWork::Name(pending) => self.complete_name(&admitted, pending, &mut out).await,
            WaitingWork::Search(list) => self.complete_search(&admitted, list, &mut out).await,
        };

        // The signature covers the whole message, so it comes last.
        let reply = sign_reply(signer, 0, reply, &mut out);

        self.record_answer(&AnsweredQuery {
            client,
            transport: query.transport,
            query: query.message,
            response: &out,
            reply,
            took: Took::Waited(started.elapsed()),
        });
        out
    }

    /// Answers the query for one name. Looks up external names in at most [`MAX_ROUNDS`] rounds.
    pub(super) async fn complete_name(
        self: &Arc<Self>,
        admitted: &AdmittedAsk<'_, B::View>,
        mut pending: PendingAnswer,
        out: &mut Vec<u8>,
    ) -> Reply {
        let ask = &admitted.ask;
        let mut external = ExternalAnswers::none();
        let mut rounds = 0;

        loop {
            let progress = match pending {
                PendingAnswer::Forward(system) => {
                    return self.forward_query(admitted, system, out).await;
                }
                PendingAnswer::External(_) if rounds == MAX_ROUNDS => {
                    return append_servfail(ask, System::Auth, &Cause::Alias, out);
                }
                PendingAnswer::External(questions) => {
                    self.look_up_externals(admitted, questions, &mut external)
                        .await;
                    rounds += 1;
                    if rounds == MAX_ROUNDS {
                        external.close();
                    }
                    let steps = steps_at_once(ask.query.transport);
                    engine::answer_name(steps, ask.view, &self.identity, ask.query, &external, out)
                }
                PendingAnswer::Expensive => {
                    let result = self.queue_expensive(admitted, external).await;
                    self.shard.expensive(result.is_some());
                    // Differs from kube-dns, which does any amount of work for an answer and serves
                    // no other client meanwhile.
                    let Some(result) = result else {
                        return append_servfail(ask, System::Auth, &Cause::Expensive, out);
                    };
                    external = result.external;
                    *out = result.answer;
                    result.progress
                }
            };

            pending = match progress {
                NameProgress::Reply(reply) => return reply,
                NameProgress::Pending(pending) => pending,
            };
        }
    }

    /// Forwards a query to the upstreams of its name.
    async fn forward_query(
        &self,
        admitted: &AdmittedAsk<'_, B::View>,
        system: System,
        out: &mut Vec<u8>,
    ) -> Reply {
        let ask = &admitted.ask;
        let query = ask.query;
        let question = forward::UpstreamQuery::of_client(query);
        let upstream = match self.query_upstreams(admitted, question).await {
            Ok(upstream) => upstream,
            Err(error) => return append_servfail(ask, system, &Cause::from(&error), out),
        };

        let start = out.len();
        let truncated = upstream.append_answer(query, out);
        if let Some(reply) = replace_by_rule(ask, system, start, out) {
            return reply;
        }
        limit_negative_ttls(ask, start, out);

        // With extended errors, the client learns which upstream failed.
        if upstream.is_refusal() {
            let cause = Cause::Reply(upstream.upstream.clone(), upstream.rcode);
            append_cause(ask, &cause, start, out);
        }

        Reply {
            system,
            qtype: query.qtype,
            rcode: upstream.rcode,
            truncated,
            zone: None,
            reason: None,
        }
    }

    /// Queries the upstreams of the question's name, until the deadline. If the query has waited
    /// before, less time may be left than the forwarder's own budget.
    pub(super) async fn query_upstreams(
        &self,
        admitted: &AdmittedAsk<'_, B::View>,
        question: forward::UpstreamQuery,
    ) -> Result<Arc<forward::UpstreamReply>, ForwardError> {
        let ask = &admitted.ask;
        let servers = Arc::clone(ask.view.zone().servers_for(question.name()).0);

        let exchange = self.forwarder.exchange(
            question.clone(),
            Arc::clone(&servers),
            ask.client,
            ask.query.transport,
        );
        // The forwarder keeps to its own budget, so a timer is needed only if less time is left.
        let deadline = admitted.place.deadline;
        if Deadline::now() + self.forwarder.limits().budget <= deadline {
            return exchange.await;
        }
        let exchanged = tokio::time::timeout_at(deadline, exchange).await;

        // At the deadline, a stale answer is better than none.
        exchanged.unwrap_or_else(|_| self.forwarder.cached_reply(question, servers))
    }

    /// Prepares an answer in the queue of expensive queries, with the full limit of [`MAX_STEPS`].
    /// `None` if the client gets no place in the queue, if there is no result before the deadline,
    /// or if the answer takes more work than the limit.
    async fn queue_expensive(
        self: &Arc<Self>,
        admitted: &AdmittedAsk<'_, B::View>,
        external: ExternalAnswers,
    ) -> Option<ExpensiveResult> {
        let client = admitted.ask.client;
        // A query that was admitted to wait for an upstream has no place in the queue yet.
        let _place = if admitted.place.in_expensive_queue {
            None
        } else {
            Some(self.expensive_queue.admit(client)?)
        };

        let this = Arc::clone(self);
        let view = Arc::clone(admitted.shared_view);
        let query = admitted.ask.query.to_owned();
        let run = self.expensive_queue.run_in_turn(client, move || {
            this.answer_expensive(&view, &query.query(), external)
        });

        let result = tokio::time::timeout_at(admitted.place.deadline, run).await;
        result
            .ok()
            .flatten()
            .filter(|result| result.progress != NameProgress::Pending(PendingAnswer::Expensive))
    }

    fn answer_expensive(
        &self,
        view: &B::View,
        query: &Query<'_>,
        external: ExternalAnswers,
    ) -> ExpensiveResult {
        let mut answer = Vec::new();
        let progress = engine::answer_name(
            MAX_STEPS,
            view,
            &self.identity,
            query,
            &external,
            &mut answer,
        );
        ExpensiveResult {
            progress,
            external,
            answer,
        }
    }

    /// Looks up external names and adds the answers to `external`.
    async fn look_up_externals(
        &self,
        admitted: &AdmittedAsk<'_, B::View>,
        questions: Vec<ExternalQuery>,
        external: &mut ExternalAnswers,
    ) {
        let lookups = questions
            .iter()
            .map(|question| self.look_up_external(admitted, question));
        let results = join_all(lookups).await;

        for (question, result) in questions.iter().zip(results) {
            let answer = match result {
                Ok(ExternalLookup {
                    answer,
                    stale,
                    rule,
                }) => {
                    if stale {
                        external.set_stale();
                    }
                    // A rule of the configuration can leave an external name without records of one
                    // type. The rule is noted only if this is the type of the client's query. For
                    // an SRV query, the addresses are only additional records, so the answer does
                    // not depend on the rule.
                    if let Some(rule) = rule
                        && question.qtype == admitted.ask.query.qtype
                    {
                        external.set_rule(rule);
                    }
                    answer
                }
                Err(cause) => {
                    external.fail(cause);
                    ExternalAnswer::Failed
                }
            };
            external.insert(question.clone(), answer);
        }
    }
}
