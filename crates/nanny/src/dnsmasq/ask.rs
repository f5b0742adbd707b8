//! One DNS question to one server: over UDP, and over TCP when the answer did not fit.

use std::net::SocketAddr;
use std::time::Duration;

use futures::StreamExt as _;
use hickory_net::NetError;
use hickory_net::client::Client;
use hickory_net::runtime::TokioRuntimeProvider;
use hickory_net::tcp::TcpClientStream;
use hickory_net::udp::UdpClientStream;
use hickory_net::xfer::DnsHandle as _;
use hickory_proto::op::{DnsRequestOptions, DnsResponse, Query};
use tokio::time::timeout;

/// The longest an exchange may take over each transport.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// Nothing came in time.
    #[error("no answer from {0} in time")]
    Timeout(SocketAddr),
    /// The exchange failed.
    #[error("asking {server} failed: {reason}")]
    Failed {
        /// The server.
        server: SocketAddr,
        /// What failed.
        reason: String,
    },
}

/// Asks `server`, waiting up to `patience` per transport. Any response code is an answer.
pub async fn ask(server: SocketAddr, query: Query, patience: Duration) -> Result<DnsResponse, AskError> {
    let answer = within(server, patience, over_udp(server, query.clone(), patience)).await?;
    if !answer.metadata.truncation {
        return Ok(answer);
    }
    within(server, patience, over_tcp(server, query, patience)).await
}

async fn within(
    server: SocketAddr,
    patience: Duration,
    exchange: impl Future<Output = Result<DnsResponse, NetError>>,
) -> Result<DnsResponse, AskError> {
    match timeout(patience, exchange).await {
        Err(_) | Ok(Err(NetError::Timeout)) => Err(AskError::Timeout(server)),
        Ok(Err(error)) => Err(AskError::Failed { server, reason: error.to_string() }),
        Ok(Ok(answer)) => Ok(answer),
    }
}

async fn over_udp(server: SocketAddr, query: Query, patience: Duration) -> Result<DnsResponse, NetError> {
    let stream =
        UdpClientStream::builder(server, TokioRuntimeProvider::new()).with_timeout(Some(patience)).build();
    let (client, background) = Client::<TokioRuntimeProvider>::from_sender(stream);
    exchange(client, background, query).await
}

async fn over_tcp(server: SocketAddr, query: Query, patience: Duration) -> Result<DnsResponse, NetError> {
    let (stream, handle) = TcpClientStream::new(server, None, Some(patience), TokioRuntimeProvider::new());
    let (client, background) = Client::<TokioRuntimeProvider>::new(stream.await?, handle);
    exchange(client, background, query).await
}

/// Drives the client's background future for as long as the answer takes, so that nothing is left running.
async fn exchange(
    client: Client<TokioRuntimeProvider>,
    background: impl Future,
    query: Query,
) -> Result<DnsResponse, NetError> {
    let mut answers = client.lookup(query, DnsRequestOptions::default());
    let mut background = std::pin::pin!(background);
    let mut driven = true;
    loop {
        tokio::select! {
            answer = answers.next() => return answer.unwrap_or(Err(NetError::Timeout)),
            _ = &mut background, if driven => driven = false,
        }
    }
}

#[cfg(test)]
mod tests;
