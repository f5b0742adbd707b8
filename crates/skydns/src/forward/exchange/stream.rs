//! Queries over persistent connections, TCP or TLS.

use dnsconfig::Protocol;

use super::{Exchange, judge};
use crate::forward::Reply;
use crate::forward::failure::Failure;
use crate::forward::pool::AskError;
use crate::wire::framed;

/// Maximum number of retries after a connection ended before the query was sent.
const MAX_UNSENT: usize = 32;
/// The connection chooses the ID of a query.
const CHOSEN_LATER: u16 = 0;

/// Queries over a connection of the pool. Over an encrypted connection, a query with an OPT record
/// is padded.
pub(super) async fn ask(exchange: Exchange<'_>, edns: bool) -> Result<Reply, Failure> {
    let padded = edns && exchange.upstream.protocol == Protocol::Tls;
    let query = if padded {
        exchange.query.encode_padded()
    } else {
        exchange.query.encode(CHOSEN_LATER, edns)
    };
    send(exchange, &query).await
}

/// Sends this query. If the connection closes before the reply, the query is sent once more over
/// another connection.
async fn send(exchange: Exchange<'_>, query: &[u8]) -> Result<Reply, Failure> {
    let query = framed(query);
    let (mut unsent, mut broke) = (0, false);
    loop {
        let connection = exchange
            .pool
            .connection(exchange.upstream, exchange.metrics, broke)?;
        match connection.ask(query.clone()).await {
            Ok((id, message)) => return judge::over_stream(exchange, id, &message),
            Err(AskError::Unsent) if unsent < MAX_UNSENT => unsent += 1,
            Err(AskError::Failed(Failure::Closed)) if !broke => broke = true,
            Err(AskError::Failed(failure)) => return Err(failure),
            Err(AskError::Unsent) => return Err(Failure::Closed),
        }
    }
}
