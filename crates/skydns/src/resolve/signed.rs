//! Queries of secondaries: signed queries, and transfer queries over UDP.

use std::net::IpAddr;
use std::sync::Arc;

use super::Resolver;
use crate::backend::Backend;
use crate::engine::{Outcome, Reply};
use crate::metrics::System;
use crate::serial;
use crate::transfer::Transfers;
use crate::wire::{Query, Transport, rcode};

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

    /// Answers a transfer query over UDP.
    pub(crate) fn transfer_over_udp(
        &self,
        message: &[u8],
        client: IpAddr,
        out: &mut Vec<u8>,
    ) -> Option<Reply> {
        let query = Query::parse(message, Transport::Udp).ok()?;
        let rcode = self.transfers.as_ref()?.answer_over_udp(message, client, out)?;
        Some(Reply { system: System::Auth, qtype: query.qtype, rcode, truncated: false, zone: None })
    }

    /// Answers a query. The answer to a signed query is signed: a secondary signs all its queries, for example for
    /// the SOA. Answers that wait for an upstream are not signed.
    pub(super) fn answer_signed(
        &self,
        transfers: &Transfers<B::View>,
        message: &[u8],
        client: IpAddr,
        transport: Transport,
        out: &mut Vec<u8>,
    ) -> Outcome {
        let Ok(query) = Query::parse(message, transport) else {
            return self.answer_unsigned(message, client, transport, out);
        };
        let signer = match transfers.response_signer(&query) {
            Ok(None) => return self.answer_unsigned(message, client, transport, out),
            Ok(Some(signer)) => signer,
            Err(refusal) => {
                refusal.append(message, query.question_end(), out);
                return Outcome::Reply(Reply {
                    system: System::Auth,
                    qtype: query.qtype,
                    rcode: refusal.rcode(),
                    truncated: false,
                    zone: None,
                });
            }
        };

        let start = out.len();
        let mut outcome = self.answer_unsigned(message, client, transport, out);
        if let Outcome::Reply(reply) = &mut outcome
            && signer.sign(start, serial::now(), out)
        {
            reply.truncated = true;
            reply.rcode = rcode::NOERROR;
        }
        outcome
    }
}
