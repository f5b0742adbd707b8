//! Queries over TCP with a new connection for each query.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{Exchange, judge};
use crate::forward::Reply;
use crate::forward::failure::Failure;
use crate::wire::framed;

/// Queries over a new connection. The first message received must be the reply.
pub(super) async fn ask(exchange: Exchange<'_>, edns: bool) -> Result<Reply, Failure> {
    let id = rand::random();
    let connecting = TcpStream::connect(exchange.upstream.socket_addr());
    let stream = connecting
        .await
        .map_err(|error| Failure::from_connecting(&error))?;
    let message = talk(exchange, stream, id, edns)
        .await
        .map_err(|error| Failure::from_talking(&error))?;
    judge::over_stream(exchange, id, &message)
}

async fn talk(
    exchange: Exchange<'_>,
    mut stream: TcpStream,
    id: u16,
    edns: bool,
) -> std::io::Result<Vec<u8>> {
    stream
        .write_all(&framed(&exchange.query.encode(id, edns)))
        .await?;
    let length = stream.read_u16().await?;
    // The buffer grows as octets arrive: a forged length alone reserves no memory.
    let mut message = Vec::new();
    stream.take(length.into()).read_to_end(&mut message).await?;
    if message.len() < usize::from(length) {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    Ok(message)
}
