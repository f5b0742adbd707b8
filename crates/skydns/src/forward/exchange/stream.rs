//! Queries over persistent connections, TCP or TLS.

use wire::UpstreamProtocol;
use wire::frame_message;

use super::UpstreamExchange;
use super::reply_check::check_stream_reply;
use crate::forward::UpstreamReply;
use crate::forward::failure::UpstreamFailure;
use crate::forward::pool::AskError;

/// Maximum number of retries of a query after [`AskError::Unsent`].
const MAX_UNSENT: usize = 32;
/// Placeholder for the ID of a query, until the connection chooses the ID.
const CHOSEN_LATER: u16 = 0;

/// Sends a query over a connection of the pool. Over an encrypted connection, a query with an OPT
/// record is padded.
pub(super) async fn query_upstream(
    exchange: UpstreamExchange<'_>,
    edns: bool,
) -> Result<UpstreamReply, UpstreamFailure> {
    let padded = edns && exchange.upstream.protocol == UpstreamProtocol::Tls;
    let query = if padded {
        exchange.query.encode_padded()
    } else {
        exchange.query.encode(CHOSEN_LATER, edns)
    };
    send_query(exchange, &query).await
}

/// Sends the encoded `query`. If the connection closes before the reply, the query is sent once
/// more over another connection. A query that was not sent moves to another connection, at most
/// [`MAX_UNSENT`] times.
async fn send_query(
    exchange: UpstreamExchange<'_>,
    query: &[u8],
) -> Result<UpstreamReply, UpstreamFailure> {
    let query = frame_message(query);
    let mut unsent = 0;
    let mut broke = false;

    loop {
        // After a connection breaks, the other connections to the upstream may be broken, too. So a
        // new connection is preferred.
        let connection = exchange
            .pool
            .connection(exchange.upstream, exchange.metrics, broke)?;

        match connection.ask(query.clone()).await {
            Ok((id, message)) => return check_stream_reply(exchange, id, &message),
            Err(AskError::Unsent) if unsent < MAX_UNSENT => unsent += 1,
            Err(AskError::Failed(UpstreamFailure::Closed)) if !broke => broke = true,
            Err(AskError::Failed(failure)) => return Err(failure),
            Err(AskError::Unsent) => return Err(UpstreamFailure::Closed),
        }
    }
}
