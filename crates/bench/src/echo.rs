//! A UDP server that sends every datagram back after setting the QR bit. The results of the echo
//! server show what the operating system alone costs.

use std::io::{IoSlice, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd as _;

use anyhow::Context as _;
use nix::sys::socket::{MsgFlags, MultiHeaders, SockaddrStorage, recvmmsg, sendmmsg};
use socket2::{Domain, Protocol, Socket, Type};

/// Maximum number of datagrams per system call with `--batched`.
const BATCH: usize = 32;
/// Maximum size of a datagram in octets.
const SIZE: usize = 512;
/// The QR bit in the third octet of a message, which marks a response (RFC 1035 section 4.1.1).
const QR: u8 = 0x80;

/// Serves on `sockets` sockets of one port, with a thread for each socket, until the process ends.
pub fn serve(address: SocketAddr, sockets: u32, batched: bool) -> anyhow::Result<()> {
    let sockets: Vec<UdpSocket> = (0..sockets)
        .map(|_| bind(address))
        .collect::<Result<_, _>>()
        .with_context(|| format!("cannot listen on {address}"))?;
    std::thread::scope(|scope| {
        let threads: Vec<_> = sockets
            .iter()
            .map(|socket| {
                scope.spawn(|| {
                    if batched {
                        in_batches(socket)
                    } else {
                        one_by_one(socket)
                    }
                })
            })
            .collect();
        threads
            .into_iter()
            .try_for_each(|thread| match thread.join() {
                Ok(ended) => ended.context("cannot receive datagrams"),
                Err(_) => anyhow::bail!("a thread panicked"),
            })
    })
}

fn bind(address: SocketAddr) -> std::io::Result<UdpSocket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::DGRAM.cloexec(),
        Some(Protocol::UDP),
    )?;
    socket.set_reuse_port(true)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// Echoes each datagram with one system call to receive and one to send.
fn one_by_one(socket: &UdpSocket) -> std::io::Result<()> {
    let mut buffer = [0; SIZE];
    loop {
        let (length, peer) = socket.recv_from(&mut buffer)?;
        buffer[2] |= QR;
        // An echo may be lost, like any datagram.
        let _ = socket.send_to(buffer.get(..length).unwrap_or_default(), peer);
    }
}

/// Receives up to `BATCH` datagrams with one system call, and echoes them with another.
fn in_batches(socket: &UdpSocket) -> std::io::Result<()> {
    let mut receiving = MultiHeaders::<SockaddrStorage>::preallocate(BATCH, None);
    let mut sending = MultiHeaders::<SockaddrStorage>::preallocate(BATCH, None);
    let mut buffers = [[0; SIZE]; BATCH];
    loop {
        let mut received = [(0, None); BATCH];
        let mut count = 0;
        {
            let mut slices = buffers.each_mut().map(|buffer| [IoSliceMut::new(buffer)]);
            let flags = MsgFlags::MSG_WAITFORONE;
            for message in recvmmsg(socket.as_raw_fd(), &mut receiving, &mut slices, flags, None)? {
                received[count] = (message.bytes, message.address);
                count += 1;
            }
        }
        for buffer in &mut buffers[..count] {
            buffer[2] |= QR;
        }
        let slices: [_; BATCH] = std::array::from_fn(|at| {
            [IoSlice::new(
                buffers[at].get(..received[at].0).unwrap_or_default(),
            )]
        });
        let peers = received.map(|(_, peer)| peer);
        let flags = MsgFlags::empty();
        let _ = sendmmsg(
            socket.as_raw_fd(),
            &mut sending,
            &slices[..count],
            &peers[..count],
            [],
            flags,
        );
    }
}
