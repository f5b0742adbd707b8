//! Walks through search lists: each name of the list is looked up like a query of its own.

use std::sync::Arc;

use wire::Query;

use super::ask::Ask;
use super::search_walk::SearchWalk;
use super::waiting::AdmittedAsk;
use super::{Resolver, append_cause};
use crate::backend::{Backend, View};
use crate::cause::Cause;
use crate::engine::{Progress, Reply};
use crate::metrics::Completion;
use crate::search::SearchList;

impl<B: Backend> Resolver<B> {
    /// Walks a search list. If a lookup needs an upstream or much work, the error is the list.
    pub(super) fn search_at_once(
        &self,
        ask: Ask<'_, B::View>,
        list: SearchList,
        out: &mut Vec<u8>,
    ) -> Result<Reply, SearchList> {
        let mut walk = SearchWalk::new(ask.query, list, ask.view.zone());
        let mut response = Vec::new();
        while let Some(question) = walk.question(ask.query) {
            response.clear();
            let Some(candidate) = parse_candidate(&question, ask) else {
                walk.fail();
                continue;
            };
            match self.try_candidate(
                Ask {
                    query: &candidate,
                    ..ask
                },
                &mut response,
            ) {
                Progress::Reply(reply) => walk.take(&response, reply.system),
                Progress::Pending(_) => return Err(walk.into_list()),
            }
        }
        Ok(self.end_walk(walk, ask, out))
    }

    /// Walks the search list, one name after the other, and waits for each answer. Usually an early
    /// name exists, or no name except the last.
    pub(super) async fn search(
        self: &Arc<Self>,
        late: AdmittedAsk<'_, B::View>,
        list: SearchList,
        out: &mut Vec<u8>,
    ) -> Reply {
        let ask = late.ask();
        let mut walk = SearchWalk::new(ask.query, list, ask.view.zone());
        while let Some(question) = walk.question(ask.query) {
            let mut response = Vec::new();
            let Some(candidate) = parse_candidate(&question, ask) else {
                walk.fail();
                continue;
            };
            let late = AdmittedAsk {
                query: &candidate,
                ..late
            };

            let reply = match self.try_candidate(late.ask(), &mut response) {
                Progress::Reply(reply) => reply,
                Progress::Pending(pending) => self.complete(late, pending, &mut response).await,
            };
            walk.take(&response, reply.system);
        }
        self.end_walk(walk, ask, out)
    }

    fn end_walk(&self, walk: SearchWalk, ask: Ask<'_, B::View>, out: &mut Vec<u8>) -> Reply {
        let steps = walk.steps();
        let start = out.len();

        let (reply, completion) = walk.finish(ask.query, out);
        if completion == Completion::Failed {
            append_cause(ask, &Cause::Completion, start, out);
        }
        self.shard.completed(completion, steps);
        reply
    }
}

/// Parses the query message of one name of the list; `None` if the message is malformed, which the
/// walk prevents.
fn parse_candidate<'q, V: View>(question: &'q [u8], ask: Ask<'_, V>) -> Option<Query<'q>> {
    let mut query = Query::parse(question, ask.query.transport).ok()?;
    query.max_udp = ask.query.max_udp;
    Some(query)
}
