//! Walks through search lists. Each name of a list is looked up like a separate query.

use std::sync::Arc;

use wire::Query;

use super::ask::Ask;
use super::search_walk::SearchWalk;
use super::waiting::AdmittedAsk;
use super::{Resolver, append_cause};
use crate::backend::{Backend, View};
use crate::cause::Cause;
use crate::engine::{NameProgress, Reply};
use crate::metrics::Completion;
use crate::search::SearchList;

impl<B: Backend> Resolver<B> {
    /// Walks a search list without waiting. If a lookup needs an upstream or much work, returns the
    /// list as the error.
    pub(super) fn try_search(
        &self,
        ask: &Ask<'_, B::View>,
        list: SearchList,
        out: &mut Vec<u8>,
    ) -> Result<Reply, SearchList> {
        let mut walk = SearchWalk::new(ask.query, list, ask.view.zone());
        let mut message = Vec::new();
        let mut response = Vec::new();

        while let Some(candidate) = next_candidate(&mut walk, ask, &mut message) {
            let candidate = Ask {
                query: &candidate,
                ..*ask
            };
            response.clear();
            match self.try_candidate(&candidate, &mut response) {
                NameProgress::Reply(reply) => {
                    walk.take_response(&response, reply.system, reply.reason);
                }
                // The walk starts over once the query is admitted.
                NameProgress::Pending(_) => return Err(walk.into_list()),
            }
        }
        Ok(self.finish_walk(walk, ask, out))
    }

    /// Walks the search list, one name after the other, and waits for each answer.
    pub(super) async fn complete_search(
        self: &Arc<Self>,
        admitted: &AdmittedAsk<'_, B::View>,
        list: SearchList,
        out: &mut Vec<u8>,
    ) -> Reply {
        let ask = &admitted.ask;
        let mut walk = SearchWalk::new(ask.query, list, ask.view.zone());
        let mut message = Vec::new();
        let mut response = Vec::new();

        while let Some(candidate) = next_candidate(&mut walk, ask, &mut message) {
            // All lookups of the list share the deadline of the query, and its place among the
            // waiting queries.
            let candidate = admitted.with_query(&candidate);
            response.clear();
            let reply = match self.try_candidate(&candidate.ask, &mut response) {
                NameProgress::Reply(reply) => reply,
                NameProgress::Pending(pending) => {
                    self.complete_name(&candidate, pending, &mut response).await
                }
            };
            walk.take_response(&response, reply.system, reply.reason);
        }
        self.finish_walk(walk, ask, out)
    }

    fn finish_walk(&self, walk: SearchWalk, ask: &Ask<'_, B::View>, out: &mut Vec<u8>) -> Reply {
        let lookups = walk.lookups();
        let is_stale = walk.is_stale();
        let start = out.len();

        let (reply, completion) = walk.append_answer(ask.query, out);
        if completion == Completion::Failed {
            append_cause(ask, &Cause::Completion, start, out);
        } else if is_stale {
            Cause::Stale(reply.rcode).append(start, ask.query.limit(), out);
        } else if let Some(reason) = reply.reason {
            append_cause(ask, &reason.cause(), start, out);
        }
        self.shard.completed(completion, lookups);
        reply
    }
}

/// Writes the query of the next lookup to `message` and parses the query; `None` at the end of the
/// walk.
fn next_candidate<'q, V: View>(
    walk: &mut SearchWalk,
    ask: &Ask<'_, V>,
    message: &'q mut Vec<u8>,
) -> Option<Query<'q>> {
    *message = walk.next_question(ask.query)?;

    // The walk never writes a malformed message. If it did, the query would fail here.
    let Ok(mut candidate) = Query::parse(message, ask.query.transport) else {
        walk.fail();
        return None;
    };
    candidate.max_udp = ask.query.max_udp;
    Some(candidate)
}
