//! Queries over TCP with a new connection for each query.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use wire::frame_message;

use super::UpstreamExchange;
use super::reply_check::check_stream_reply;
use crate::forward::UpstreamReply;
use crate::forward::failure::UpstreamFailure;

/// Sends a query over a new connection. The first message received must be the reply.
pub(super) async fn query_upstream(
    exchange: UpstreamExchange<'_>,
    edns: bool,
) -> Result<UpstreamReply, UpstreamFailure> {
    let id = rand::random();
    let query = exchange.query.encode(id, edns);

    let stream = TcpStream::connect(exchange.upstream.socket_addr())
        .await
        .map_err(|error| UpstreamFailure::from_io(&error))?;
    let message = exchange_message(stream, &query)
        .await
        .map_err(|error| UpstreamFailure::from_io(&error))?;

    check_stream_reply(exchange, id, &message)
}

/// Sends one message, and receives one.
async fn exchange_message(mut stream: TcpStream, query: &[u8]) -> std::io::Result<Vec<u8>> {
    stream.write_all(&frame_message(query)).await?;

    // Over TCP, the length of a message comes before the message (RFC 1035, section 4.2.2).
    let length = stream.read_u16().await?;
    // The buffer grows as octets arrive: a forged length alone reserves no memory.
    let mut message = Vec::new();
    stream.take(length.into()).read_to_end(&mut message).await?;

    if message.len() < usize::from(length) {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    Ok(message)
}
