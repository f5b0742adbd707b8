//! Queries over TCP, each with its own connection.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{Exchange, Failure, judge};
use crate::forward::Reply;

/// Octets of the length field before each message (RFC 1035 section 4.2.2).
const LENGTH: usize = 2;

/// Queries over a new connection. The first message received must be the reply.
pub(super) async fn ask(exchange: Exchange<'_>) -> Result<Reply, Failure> {
    let id = rand::random();
    let connecting = TcpStream::connect(exchange.upstream.socket_addr());
    let stream = connecting.await.map_err(|error| Failure::from_connecting(&error))?;
    let message = talk(exchange, stream, id).await.map_err(|error| Failure::from_talking(&error))?;
    judge::over_stream(exchange, id, &message)
}

async fn talk(exchange: Exchange<'_>, mut stream: TcpStream, id: u16) -> std::io::Result<Vec<u8>> {
    let mut query = exchange.query.encode(id, LENGTH);
    let length = u16::try_from(query.len() - LENGTH).map_err(std::io::Error::other)?;
    if let Some(prefix) = query.first_chunk_mut() {
        *prefix = length.to_be_bytes();
    }
    stream.write_all(&query).await?;
    let length = stream.read_u16().await?;
    // Grows as octets arrive: a forged length alone reserves no memory.
    let mut message = Vec::new();
    stream.take(length.into()).read_to_end(&mut message).await?;
    if message.len() < usize::from(length) {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    Ok(message)
}
