//! Asking over TCP: one connection a question.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::judge::{Verdict, judge};
use super::{Exchange, Failure};
use crate::forward::Reply;
use crate::wire::rcode;

/// Octets of the length before each message (RFC 1035 section 4.2.2).
const LENGTH: usize = 2;

/// Asks over a connection of its own. The first message that comes must be the reply.
pub(super) async fn ask(exchange: Exchange<'_>) -> Result<Reply, Failure> {
    let id = rand::random();
    let connecting = TcpStream::connect(exchange.upstream.socket_addr());
    let stream = connecting.await.map_err(|error| Failure::from_connecting(&error))?;
    let message = talk(exchange, stream, id).await.map_err(|error| Failure::from_talking(&error))?;
    match judge(exchange.query, id, exchange.upstream, &message) {
        // Over TCP there is nothing left to try: one that hides the answer here too has none to give.
        Verdict::Reply(reply) if reply.truncated && reply.rcode == rcode::NOERROR && reply.answers == 0 => {
            Err(Failure::Garbage)
        }
        Verdict::Reply(reply) => Ok(reply),
        Verdict::NotOurs => {
            exchange.metrics.mismatch();
            Err(Failure::Garbage)
        }
        Verdict::Garbage => Err(Failure::Garbage),
    }
}

async fn talk(exchange: Exchange<'_>, mut stream: TcpStream, id: u16) -> std::io::Result<Vec<u8>> {
    let mut query = exchange.query.encode(id, LENGTH);
    let length = u16::try_from(query.len() - LENGTH).map_err(std::io::Error::other)?;
    if let Some(prefix) = query.first_chunk_mut() {
        *prefix = length.to_be_bytes();
    }
    stream.write_all(&query).await?;
    let length = stream.read_u16().await?;
    // Grows as octets arrive: a length alone costs the sender nothing.
    let mut message = Vec::new();
    stream.take(length.into()).read_to_end(&mut message).await?;
    if message.len() < usize::from(length) {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    Ok(message)
}
