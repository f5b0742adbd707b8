//! Answers to queries that wait: forwarded queries, queries that need external names, and expensive
//! queries.
//!
//! Every function here returns an answer. A query that fails, or waits for too long, gets SERVFAIL.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use tokio::time::Instant as Deadline;
use wire::{HEADER, Query, rcode};

use super::ask::{Ask, WaitingWork};
use super::external_lookup::ExternalLookup;
use super::{
    BUDGET, Resolver, WaitingQuery, append_cause, limit_negative_ttls, servfail, sign,
    steps_at_once,
};
use crate::backend::{Backend, View};
use crate::cause::Cause;
use crate::client_shares::ClientShare;
use crate::engine::{self, MAX_STEPS, Pending, Progress, Reply};
use crate::external::{ExternalAnswer, ExternalAnswers, ExternalQuery, MAX_ROUNDS};
use crate::forward::{self, ForwardError};
use crate::metrics::{System, Took};
use crate::tap::AnsweredQuery;

/// A place among the queries that wait. Dropping this value frees the place.
#[derive(Debug)]
pub(crate) struct WaitingPlace {
    /// Frees the place when dropped.
    _place: ClientShare,
    /// Whether the place is one in the queue of expensive queries.
    in_lane: bool,
    deadline: Deadline,
}

impl<B: Backend> Resolver<B> {
    /// Admits a query to those that wait for upstreams, or to the queue of expensive queries.
    /// `None` if the client has used its share, or no place is free.
    pub(crate) fn admit(&self, waiting: &WaitingQuery<B::View>) -> Option<WaitingPlace> {
        let in_lane = waiting.is_expensive();
        let place = if in_lane {
            self.lane.admit(waiting.client)
        } else {
            self.waiting.take(waiting.client)
        };
        match place {
            Some(place) => Some(WaitingPlace {
                _place: place,
                in_lane,
                deadline: Deadline::now() + BUDGET,
            }),
            None if in_lane => {
                self.shard.expensive(false);
                None
            }
            None => {
                let query = waiting.query.query();
                let question = query.message.get(HEADER..).unwrap_or_default();
                self.forwarder.count_rejected(question, waiting.client);
                None
            }
        }
    }

    /// Resolves the query in a new task and passes the answer to `send`. A query that is not
    /// admitted is the error.
    pub(crate) fn resolve_later(
        self: &Arc<Self>,
        waiting: Box<WaitingQuery<B::View>>,
        client: SocketAddr,
        send: impl FnOnce(&[u8]) + Send + 'static,
    ) -> Result<(), Box<WaitingQuery<B::View>>> {
        let Some(admitted) = self.admit(&waiting) else {
            return Err(waiting);
        };
        let this = Arc::clone(self);
        let task = async move { send(&this.resolve(waiting, client, admitted).await) };
        self.tasks.spawn_on(task, &self.runtime);
        Ok(())
    }

    /// Answers SERVFAIL to a query that was not admitted.
    pub(crate) fn reject(&self, waiting: &WaitingQuery<B::View>, client: SocketAddr) -> Vec<u8> {
        let mut out = Vec::new();
        let reply = waiting.fail(&waiting.cause_of_rejection(), &mut out);

        let query = waiting.query.query();
        let transport = query.transport;
        let took = Took::AtOnce(Duration::ZERO);
        self.record(&AnsweredQuery {
            client,
            transport,
            query: query.message,
            response: &out,
            reply,
            took,
        });
        out
    }

    /// Answers a query that waits. `client` is the sender, for the copies of answered queries.
    pub(crate) async fn resolve(
        self: &Arc<Self>,
        waiting: Box<WaitingQuery<B::View>>,
        client: SocketAddr,
        admitted: WaitingPlace,
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
        let late = AdmittedAsk {
            query: &query,
            client: host,
            view: &view,
            admitted: &admitted,
        };

        let mut out = Vec::new();
        let mut reply = match work {
            WaitingWork::Name(pending) => self.complete(late, pending, &mut out).await,
            WaitingWork::Search(list) => self.search(late, list, &mut out).await,
        };
        if let Some(signer) = signer {
            reply = sign(signer, 0, reply, &mut out);
        }

        let took = Took::Waited(started.elapsed());
        let transport = query.transport;
        self.record(&AnsweredQuery {
            client,
            transport,
            query: query.message,
            response: &out,
            reply,
            took,
        });
        out
    }

    /// Answers one name, in as many rounds as its external names need.
    pub(super) async fn complete(
        self: &Arc<Self>,
        late: AdmittedAsk<'_, B::View>,
        mut pending: Pending,
        out: &mut Vec<u8>,
    ) -> Reply {
        let ask = late.ask();
        let mut external = ExternalAnswers::none();
        let mut rounds = 0;
        loop {
            let progress = match pending {
                Pending::Forward(system) => return self.forward(late, system, out).await,
                Pending::External(_) if rounds == MAX_ROUNDS => {
                    return servfail(ask, System::Auth, &Cause::Alias, out);
                }
                Pending::External(questions) => {
                    self.resolve_external(late, questions, &mut external).await;
                    rounds += 1;
                    if rounds == MAX_ROUNDS {
                        external.close();
                    }
                    let steps = steps_at_once(ask.query.transport);
                    engine::answer_name(steps, ask.view, &self.identity, ask.query, &external, out)
                }
                Pending::Expensive => {
                    let done = self.answer_in_lane(late, external).await;
                    self.shard.expensive(done.is_some());
                    // Differs from kube-dns, which does any amount of work for an answer and serves
                    // no other client meanwhile.
                    let Some((progress, answers, answer)) = done else {
                        return servfail(ask, System::Auth, &Cause::Expensive, out);
                    };
                    external = answers;
                    *out = answer;
                    progress
                }
            };
            pending = match progress {
                Progress::Reply(reply) => return reply,
                Progress::Pending(pending) => pending,
            };
        }
    }

    /// Forwards a query to the upstreams of its name.
    async fn forward(
        &self,
        late: AdmittedAsk<'_, B::View>,
        system: System,
        out: &mut Vec<u8>,
    ) -> Reply {
        let ask = late.ask();
        let query = ask.query;
        let upstream = match self
            .exchange(late, forward::UpstreamQuery::of_client(query))
            .await
        {
            Ok(upstream) => upstream,
            Err(error) => return servfail(ask, system, &Cause::from(&error), out),
        };

        let start = out.len();
        let truncated = upstream.append_answer(query, out);
        limit_negative_ttls(ask, start, out);
        if matches!(upstream.rcode, rcode::SERVFAIL | rcode::REFUSED) {
            let cause = Cause::Reply(upstream.upstream.clone(), upstream.rcode);
            append_cause(ask, &cause, start, out);
        }
        Reply {
            system,
            qtype: query.qtype,
            rcode: upstream.rcode,
            truncated,
            zone: None,
        }
    }

    /// Queries the upstreams of the question's name, until the deadline. After other waits less
    /// time may be left than the forwarder's own budget.
    pub(super) async fn exchange(
        &self,
        late: AdmittedAsk<'_, B::View>,
        question: forward::UpstreamQuery,
    ) -> Result<Arc<forward::UpstreamReply>, ForwardError> {
        let servers = Arc::clone(late.view.zone().servers_for(question.name()).0);
        let transport = late.query.transport;

        let exchange = self.forwarder.exchange(
            question.clone(),
            Arc::clone(&servers),
            late.client,
            transport,
        );
        let exchanged = tokio::time::timeout_at(late.admitted.deadline, exchange).await;
        exchanged.unwrap_or_else(|_| self.forwarder.cached_reply(question, servers))
    }

    /// Prepares an answer in the queue of expensive queries, with the full limit of [`MAX_STEPS`].
    /// `None` if the queue has no place or no time left, or if the answer takes more work than
    /// that.
    async fn answer_in_lane(
        self: &Arc<Self>,
        late: AdmittedAsk<'_, B::View>,
        external: ExternalAnswers,
    ) -> Option<(Progress, ExternalAnswers, Vec<u8>)> {
        // A query that was admitted to wait for an upstream has no place in the queue yet.
        let _place = if late.admitted.in_lane {
            None
        } else {
            Some(self.lane.admit(late.client)?)
        };
        let this = Arc::clone(self);
        let view = Arc::clone(late.view);
        let query = late.query.to_owned();
        let work = move || {
            let mut out = Vec::new();
            let query = query.query();
            let progress = engine::answer_name(
                MAX_STEPS,
                &*view,
                &this.identity,
                &query,
                &external,
                &mut out,
            );
            (progress, external, out)
        };

        let done =
            tokio::time::timeout_at(late.admitted.deadline, self.lane.run(late.client, work)).await;
        done.ok()
            .flatten()
            .filter(|(progress, ..)| *progress != Progress::Pending(Pending::Expensive))
    }

    /// Resolves external names and adds the answers to `external`.
    async fn resolve_external(
        &self,
        late: AdmittedAsk<'_, B::View>,
        mut questions: Vec<ExternalQuery>,
        external: &mut ExternalAnswers,
    ) {
        questions.dedup();
        let lookups = questions
            .iter()
            .map(|question| self.look_up(late, question));
        for (question, looked_up) in questions.iter().zip(join_all(lookups).await) {
            let answer = match looked_up {
                Ok(ExternalLookup { answer, stale }) => {
                    if stale {
                        external.set_stale();
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

/// A query that waits, with its place and its deadline.
#[derive(Debug)]
pub(super) struct AdmittedAsk<'a, V> {
    pub(super) query: &'a Query<'a>,
    pub(super) client: IpAddr,
    pub(super) view: &'a Arc<V>,
    pub(super) admitted: &'a WaitingPlace,
}

// Derived, these would require that the view can be copied.
impl<V> Clone for AdmittedAsk<'_, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V> Copy for AdmittedAsk<'_, V> {}

impl<'a, V> AdmittedAsk<'a, V> {
    pub(super) fn ask(self) -> Ask<'a, V> {
        Ask {
            query: self.query,
            client: self.client,
            view: self.view,
        }
    }
}
