//! The sockets of the scripted upstream.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::JoinSet;

use super::{Act, Asked, Reaction, Shared, Transport};
use crate::message::Message;

/// Maximum number of concurrent reactions over UDP, and of open TCP connections. At the limit, the
/// server waits until one ends.
const UNDER_WAY: usize = 20_000;

pub(super) async fn udp(socket: UdpSocket, shared: Arc<Shared>) {
    let socket = Arc::new(socket);
    let mut reactions = JoinSet::new();
    let mut buffer = vec![0; 65_535];
    loop {
        let Ok((length, from)) = socket.recv_from(&mut buffer).await else {
            continue;
        };
        let packet = buffer.get(..length).unwrap_or_default();
        let reaction = shared.react(asked(Transport::Udp, from, packet));
        make_room(&mut reactions).await;
        reactions.spawn(send_datagrams(Arc::clone(&socket), from, reaction));
    }
}

async fn send_datagrams(socket: Arc<UdpSocket>, to: SocketAddr, reaction: Reaction) {
    for act in reaction.acts {
        match act {
            Act::Wait(delay) => tokio::time::sleep(delay).await,
            Act::Send(packet) | Act::Raw(packet) => {
                // The client may be gone.
                let _ = socket.send_to(&packet, to).await;
            }
            Act::Close => {}
        }
    }
}

pub(super) async fn tcp(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, from)) = listener.accept().await else {
            continue;
        };
        make_room(&mut connections).await;
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            // An error ends only this connection, and is expected when the client closes it.
            let _ = serve_connection(stream, from, &shared).await;
        });
    }
}

async fn serve_connection(
    mut stream: TcpStream,
    from: SocketAddr,
    shared: &Shared,
) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    loop {
        let mut packet = vec![0; usize::from(stream.read_u16().await?)];
        stream.read_exact(&mut packet).await?;
        for act in shared.react(asked(Transport::Tcp, from, &packet)).acts {
            match act {
                Act::Wait(delay) => tokio::time::sleep(delay).await,
                Act::Send(packet) => {
                    let length =
                        u16::try_from(packet.len()).expect("the message must be below 64 KiB");
                    stream
                        .write_all(&[&length.to_be_bytes()[..], &packet].concat())
                        .await?;
                }
                Act::Raw(octets) => stream.write_all(&octets).await?,
                Act::Close => return Ok(()),
            }
        }
    }
}

fn asked(transport: Transport, from: SocketAddr, packet: &[u8]) -> Asked {
    let question = Message::read(packet).0.questions.into_iter().next();
    Asked {
        transport,
        from,
        packet: packet.to_vec(),
        question,
    }
}

async fn make_room(tasks: &mut JoinSet<()>) {
    while tasks.try_join_next().is_some() {}
    if tasks.len() >= UNDER_WAY {
        let _ = tasks.join_next().await;
    }
}
