//! A query that is being answered, with its client and the view that answers it. Each layer of the
//! server passes these three to the next layer.
//!
//! A view is the state of the records and settings at one moment. The message is parsed once, and
//! the view is read from the backend once. Both stay the same until the answer, so that no two
//! parts of an answer can come from different records or settings.

use std::net::IpAddr;
use std::sync::Arc;

use super::{append_servfail, sign_reply};
use crate::backend::View;
use crate::cause::Cause;
use crate::engine::{PendingAnswer, Reply, System};
use crate::search::SearchList;
use crate::transfer::ResponseSigner;
use wire::{OwnedQuery, Query};

/// A query that is being answered, with its client and its view.
#[derive(Debug)]
pub(crate) struct Ask<'a, V> {
    pub(crate) query: &'a Query<'a>,
    pub(crate) client: IpAddr,
    pub(crate) view: &'a V,
}

/// Result of the attempt to answer a message at once.
#[derive(Debug)]
pub enum AnswerAttempt<V> {
    /// The answer was appended to the buffer.
    Answered(Reply),
    /// The answer takes longer. Nothing was appended.
    Waits(Box<WaitingQuery<V>>),
    /// The query came over TCP and asks for a zone transfer. Nothing was appended.
    Transfer,
    /// The message gets no response: its header is incomplete, or it is itself a response.
    Ignored,
}

/// A query whose answer takes longer, with everything that the answer needs. The query always gets
/// an answer: see [`Resolver::resolve_waiting`](super::Resolver).
#[derive(Debug)]
pub struct WaitingQuery<V> {
    pub(crate) query: OwnedQuery,
    pub(crate) client: IpAddr,
    pub(crate) view: Arc<V>,
    pub(crate) work: WaitingWork,
    /// Signs the answer to a signed query (RFC 8945, section 5.3).
    pub(crate) signer: Option<ResponseSigner>,
}

/// The work left to do for a query.
#[derive(Debug)]
pub(crate) enum WaitingWork {
    /// Answer the query name itself, without a search list.
    Name(PendingAnswer),
    /// Walk the search list, from its first name.
    Search(SearchList),
}

/// A query that is not allowed to wait for its answer, because too many queries wait already, in
/// total or from the same client.
#[derive(Debug)]
pub(crate) struct NotAdmitted<V>(pub(crate) Box<WaitingQuery<V>>);

impl<V> WaitingQuery<V> {
    /// The part of the server that answers the query.
    pub(crate) fn system(&self) -> System {
        match &self.work {
            WaitingWork::Name(pending) => pending.system(),
            WaitingWork::Search(_) => System::Auth,
        }
    }

    /// Whether the query goes to the queue of expensive queries.
    pub(crate) fn is_expensive(&self) -> bool {
        matches!(self.work, WaitingWork::Name(PendingAnswer::Expensive))
    }

    /// Appends a SERVFAIL response instead of waiting: the query was not admitted, or the server is
    /// stopping.
    pub(crate) fn append_servfail(&self, cause: &Cause, out: &mut Vec<u8>) -> Reply
    where
        V: View,
    {
        let query = self.query.query();
        let start = out.len();
        let ask = Ask {
            query: &query,
            client: self.client,
            view: &*self.view,
        };

        let reply = append_servfail(&ask, self.system(), cause, out);

        // A secondary that signs its queries discards a response without a signature.
        sign_reply(self.signer.clone(), start, reply, out)
    }
}

impl<V: View> NotAdmitted<V> {
    /// Appends the SERVFAIL response to the query.
    pub(crate) fn append_servfail(&self, out: &mut Vec<u8>) -> Reply {
        let Self(waiting) = self;
        let cause = if waiting.is_expensive() {
            Cause::Expensive
        } else {
            Cause::Overloaded
        };
        waiting.append_servfail(&cause, out)
    }
}
