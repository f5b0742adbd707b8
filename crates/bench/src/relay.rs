//! A TCP relay that counts the octets from the server.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context as _;
use tokio::io::copy_bidirectional_with_sizes;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::io::InspectReader;

/// Size of the copy buffers in octets.
const PIECE: usize = 64 << 10;

/// A relay on loopback. The relay stops when this value is dropped.
#[derive(Debug)]
pub(crate) struct Relay {
    address: SocketAddr,
    sent: Arc<AtomicU64>,
    _task: JoinSet<()>,
}

impl Relay {
    /// Starts a relay that connects each client to `port` of `host`.
    pub(crate) async fn start(host: String, port: u16) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .context("cannot start a relay")?;
        let (address, sent) = (listener.local_addr()?, Arc::new(AtomicU64::new(0)));
        let (mut task, counter) = (JoinSet::new(), Arc::clone(&sent));
        task.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let (host, counter) = (host.clone(), Arc::clone(&counter));
                // An error closes both connections, so the client notices the error.
                connections.spawn(async move { drop(relay(client, &host, port, &counter).await) });
                while connections.try_join_next().is_some() {}
            }
        });
        Ok(Self {
            address,
            sent,
            _task: task,
        })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Octets from the server so far.
    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}

async fn relay(
    mut client: TcpStream,
    host: &str,
    port: u16,
    counter: &AtomicU64,
) -> std::io::Result<()> {
    let server = TcpStream::connect((host, port)).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let mut server = InspectReader::new(server, |octets| {
        counter.fetch_add(
            u64::try_from(octets.len()).unwrap_or_default(),
            Ordering::Relaxed,
        );
    });
    copy_bidirectional_with_sizes(&mut client, &mut server, PIECE, PIECE).await?;
    Ok(())
}
