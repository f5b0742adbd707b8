//! Asking over a connection that is kept, TCP or TLS.

use dnsconfig::Protocol;

use super::{Exchange, Failure, judge};
use crate::forward::Reply;
use crate::forward::pool::AskError;
use crate::wire::{framed, rcode};

/// Connections that may end before the question is sent, until no other is tried.
const MAX_UNSENT: usize = 32;

/// Asks over a connection of the pool, padded if nobody else sees what is asked.
pub(super) async fn ask(exchange: Exchange<'_>) -> Result<Reply, Failure> {
    if exchange.upstream.protocol == Protocol::Tls {
        let reply = send(exchange, &exchange.query.encode_padded()).await?;
        // A server may be older than the OPT record that the padding needs (RFC 6891, section 7).
        if reply.rcode != rcode::FORMERR || exchange.query.edns.is_some() {
            return Ok(reply);
        }
    }
    send(exchange, &exchange.query.encode(0, 0)).await
}

/// Asks with this query. On a connection that breaks it is asked once more, on a new one.
async fn send(exchange: Exchange<'_>, query: &[u8]) -> Result<Reply, Failure> {
    let query = framed(query);
    let (mut unsent, mut broke) = (0, false);
    loop {
        let connection = exchange.pool.connection(exchange.upstream, exchange.metrics, broke)?;
        match connection.ask(query.clone()).await {
            Ok((id, message)) => return judge::over_stream(exchange, id, &message),
            Err(AskError::Unsent) if unsent < MAX_UNSENT => unsent += 1,
            Err(AskError::Failed(Failure::Closed)) if !broke => broke = true,
            Err(AskError::Failed(failure)) => return Err(failure),
            Err(AskError::Unsent) => return Err(Failure::Closed),
        }
    }
}
