//! A TCP relay in front of etcd. Closing the relay closes all its connections.

use std::net::SocketAddr;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    to: SocketAddr,
    tasks: JoinSet<()>,
}

impl Relay {
    pub(crate) async fn open(to: SocketAddr) -> Self {
        let port = testkit::ports::free_port();
        let mut relay = Self { address: ([127, 0, 0, 1], port).into(), to, tasks: JoinSet::new() };
        relay.reopen().await;
        relay
    }

    pub(crate) async fn close(&mut self) {
        self.tasks.shutdown().await;
    }

    pub(crate) async fn reopen(&mut self) {
        self.close().await;
        let (listener, to) = (TcpListener::bind(self.address).await.unwrap(), self.to);
        self.tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                connections.spawn(async move {
                    if let Ok(mut server) = TcpStream::connect(to).await {
                        // Either side may close the connection at any time.
                        let _ = copy_bidirectional(&mut stream, &mut server).await;
                    }
                });
                while connections.try_join_next().is_some() {}
            }
        });
    }
}
