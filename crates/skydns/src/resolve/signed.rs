//! Queries of secondaries: signed queries, and transfer queries over UDP.

use std::net::IpAddr;
use std::sync::Arc;

use super::{Ask, Attempt, Resolver};
use crate::backend::Backend;
use crate::cause::Cause;
use crate::engine::Reply;
use crate::metrics::System;
use crate::serial;
use crate::transfer::{Session, Transfers};
use crate::wire::{Query, Transport, Writer, flag};

impl<B: Backend> Resolver<B> {
    /// Adds zone transfers to the resolver.
    #[must_use]
    pub(crate) fn with_transfers(self, transfers: Option<Arc<Transfers<B::View>>>) -> Self {
        Self { transfers, ..self }
    }

    /// Zone transfers; `None` without peers.
    pub(crate) fn transfers(&self) -> Option<&Arc<Transfers<B::View>>> {
        self.transfers.as_ref()
    }

    /// Answers a transfer query over UDP. Over TCP the transport sends the zone.
    pub(super) fn transfer(&self, ask: Ask<'_, B::View>, out: &mut Vec<u8>) -> Attempt<B::View> {
        let query = ask.query;
        if query.transport == Transport::Tcp {
            return Attempt::Transfer;
        }

        let transfers = self.transfers.as_ref();
        let answered = transfers
            .and_then(|transfers| transfers.answer_over_udp(query.message, ask.client, out))
            .map(|rcode| Reply {
                system: System::Auth,
                qtype: query.qtype,
                rcode,
                truncated: false,
                zone: None,
            });
        Attempt::Answered(
            answered.unwrap_or_else(|| self.servfail(ask, System::Auth, &Cause::ZoneNotLoaded, out)),
        )
    }

    /// Answers a query. The answer to a signed query is signed: a secondary signs all its queries, for example for
    /// the SOA.
    pub(super) fn answer_signed(
        &self,
        transfers: &Transfers<B::View>,
        query: &Query<'_>,
        client: IpAddr,
        view: B::Guard,
        out: &mut Vec<u8>,
    ) -> Attempt<B::View> {
        let start = out.len();
        let session = match transfers.session(query.message, query.question_end()) {
            Ok(session) => session,
            Err(refusal) => {
                refusal.append(query.message, query.question_end(), out);
                let rcode = refusal.rcode();
                return Attempt::Answered(Reply {
                    system: System::Auth,
                    qtype: query.qtype,
                    rcode,
                    truncated: false,
                    zone: None,
                });
            }
        };

        let attempt = self.answer_unsigned(query, client, view, session.as_ref(), out);
        match (attempt, session) {
            (Attempt::Answered(reply), Some(session)) => {
                Attempt::Answered(sign(session, query, start, reply, out))
            }
            (attempt, _) => attempt,
        }
    }
}

/// Signs the response that begins at `start` of `out`. A response that is then too large is replaced by a truncated one,
/// which is signed, too.
pub(super) fn sign(
    mut session: Session,
    query: &Query<'_>,
    start: usize,
    mut reply: Reply,
    out: &mut Vec<u8>,
) -> Reply {
    if out.len() - start + session.room() > query.limit() {
        out.truncate(start);
        Writer::new(query, out).finish(flag::TC, reply.rcode);
        reply.truncated = true;
    }
    session.sign(start, serial::now(), out);
    reply
}
