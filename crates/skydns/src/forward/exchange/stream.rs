//! Asking over a connection that is kept, TCP or TLS.

use dnsconfig::Protocol;

use super::{Exchange, Failure, judge};
use crate::forward::Reply;
use crate::forward::pool::AskError;
use crate::wire::framed;

/// Connections that may end before the question is sent, until no other is tried.
const MAX_UNSENT: usize = 32;

/// Asks over a connection of the pool. A question on a connection that breaks is asked once more, on a new one.
pub(super) async fn ask(exchange: Exchange<'_>) -> Result<Reply, Failure> {
    let query = match exchange.upstream.protocol {
        Protocol::Tls => exchange.query.encode_padded(),
        Protocol::Udp | Protocol::Tcp => exchange.query.encode(0, 0),
    };
    let query = framed(&query);
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
