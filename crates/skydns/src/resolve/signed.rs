//! Queries of secondaries: signed queries, and transfer queries over UDP.

use std::net::IpAddr;
use std::sync::Arc;

use super::{AnswerAttempt, Ask, Resolver, append_servfail};
use crate::backend::Backend;
use crate::cause::Cause;
use crate::engine::Reply;
use crate::engine::System;
use crate::serial;
use crate::transfer::{ResponseSigner, ZoneTransfers};
use wire::{Query, Transport, rcode, rtype};

impl<B: Backend> Resolver<B> {
    /// Adds zone transfers to the resolver.
    #[must_use]
    pub(crate) fn with_transfers(self, transfers: Option<Arc<ZoneTransfers<B::View>>>) -> Self {
        Self { transfers, ..self }
    }

    /// Zone transfers; `None` without `--transfer-to`.
    pub(crate) fn transfers(&self) -> Option<&Arc<ZoneTransfers<B::View>>> {
        self.transfers.as_ref()
    }

    /// Answers a transfer query over UDP. Over TCP, nothing is appended: the task of the client's
    /// connection sends the response.
    pub(super) fn attempt_transfer(
        &self,
        ask: &Ask<'_, B::View>,
        out: &mut Vec<u8>,
    ) -> AnswerAttempt<B::View> {
        let query = ask.query;
        if query.transport == Transport::Tcp {
            return AnswerAttempt::Transfer;
        }

        let transfers = self.transfers.as_ref();
        let answered = transfers
            .and_then(|transfers| transfers.answer_over_udp(query.message, ask.client, out));
        let reply = match answered {
            Some(rcode) => authoritative_reply(query, rcode),
            None => append_servfail(ask, System::Auth, &Cause::ZoneNotLoaded, out),
        };
        AnswerAttempt::Answered(reply)
    }

    /// Verifies the signature of a query, if it has one, and attempts to answer the query. A
    /// resolver with zone transfers calls this function for every well-formed query, because a
    /// secondary signs not only its transfer queries. For example, it also signs queries for the
    /// SOA.
    pub(super) fn attempt_signed(
        &self,
        transfers: &ZoneTransfers<B::View>,
        query: &Query<'_>,
        client: IpAddr,
        view: B::Guard,
        out: &mut Vec<u8>,
    ) -> AnswerAttempt<B::View> {
        let signer = match transfers.response_signer(query) {
            Ok(signer) => signer,
            Err(refusal) => {
                if matches!(query.qtype, rtype::AXFR | rtype::IXFR) {
                    transfers.count_refusal();
                }
                refusal.append_response(query.message, query.question_end(), out);
                return AnswerAttempt::Answered(authoritative_reply(query, refusal.rcode()));
            }
        };

        self.attempt_verified(query, client, view, signer, out)
    }
}

/// The properties of our own response to `query`.
fn authoritative_reply(query: &Query<'_>, rcode: u16) -> Reply {
    Reply {
        system: System::Auth,
        qtype: query.qtype,
        rcode,
        truncated: false,
        zone: None,
        reason: None,
    }
}

/// Signs the response that begins at `start` of `out`, if there is a signer. If the signature does
/// not fit, the response is truncated, and the returned reply says so.
pub(super) fn sign_reply(
    signer: Option<ResponseSigner>,
    start: usize,
    reply: Reply,
    out: &mut Vec<u8>,
) -> Reply {
    let Some(signer) = signer else {
        return reply;
    };
    if signer.sign_response(start, serial::now(), out) {
        // The signature does not fit: the response is truncated, and the client retries over TCP.
        return Reply {
            truncated: true,
            rcode: rcode::NOERROR,
            ..reply
        };
    }
    reply
}
