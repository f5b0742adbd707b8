//! A query over UDP, and again over TCP if the answer is truncated.
//!
//! hickory-net sends the queries. Over UDP, it repeats a query that gets no answer, and ignores
//! packets whose ID or question is not that of the query. Over TCP, it ignores messages whose ID is
//! not that of the query. A reply with any RCODE, even SERVFAIL, is an answer and not an error.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use hickory_net::NetError;
use hickory_net::tcp::TcpClientStream;
use hickory_net::udp::UdpClientStream;
use hickory_net::xfer::{DnsExchange, DnsHandle as _, FirstAnswer as _};
use hickory_proto::op::{DnsRequestOptions, Query};
use thiserror::Error;
use wire::ServerAddr;

use crate::DnsAnswer;
use crate::exchange::first_address;
use crate::sockets::ServerSockets;

/// Error of a query.
#[derive(Debug, Error)]
pub enum QueryError {
    /// The server's name could not be resolved, or the server does not use plain DNS.
    #[error("lookup {server}: {reason}")]
    Lookup {
        /// The server.
        server: String,
        /// Cause of the error.
        reason: String,
    },
    /// The exchange failed, for example because no answer arrived in time.
    #[error("{server}: {reason}")]
    Exchange {
        /// The server.
        server: SocketAddr,
        /// Cause of the error.
        reason: NetError,
    },
}

/// Sends a query over UDP, and again over TCP if the answer is truncated. `timeout` applies
/// separately to the lookup of the server's name, to the query over UDP and to the query over TCP.
pub async fn query_with_tcp_retry(
    server: &ServerAddr,
    query: &Query,
    timeout: Duration,
) -> Result<DnsAnswer, QueryError> {
    let address = resolve_within(server, timeout).await?;
    let exchange_error = |reason| QueryError::Exchange {
        server: address,
        reason,
    };

    let answer = query_over_udp(address, query, timeout)
        .await
        .map_err(exchange_error)?;
    if !answer.message.metadata.truncation {
        return Ok(answer);
    }

    // hickory applies the timeout to the connection and to the answer separately. The outer timeout
    // bounds both together.
    tokio::time::timeout(timeout, query_over_tcp(address, query, timeout))
        .await
        .unwrap_or(Err(NetError::Timeout))
        .map_err(exchange_error)
}

async fn resolve_within(server: &ServerAddr, timeout: Duration) -> Result<SocketAddr, QueryError> {
    let reason = match tokio::time::timeout(timeout, first_address(server)).await {
        Ok(Ok(address)) => return Ok(address),
        Ok(Err(error)) => error.to_string(),
        Err(_) => NetError::Timeout.to_string(),
    };
    Err(QueryError::Lookup {
        server: server.to_string(),
        reason,
    })
}

async fn query_over_udp(
    server: SocketAddr,
    query: &Query,
    timeout: Duration,
) -> Result<DnsAnswer, NetError> {
    let exchange = UdpClientStream::builder(server, ServerSockets::new(server))
        .with_timeout(Some(timeout))
        .with_os_port_selection(true)
        .exchange();
    first_answer(&exchange, query).await
}

async fn query_over_tcp(
    server: SocketAddr,
    query: &Query,
    timeout: Duration,
) -> Result<DnsAnswer, NetError> {
    // The task of the connection ends when the last clone of `sockets` is dropped.
    let sockets = ServerSockets::new(server);
    let connecting = TcpClientStream::exchange(server, None, timeout, None, sockets.clone());
    let exchange = connecting.await?;

    let answer = first_answer(&exchange, query).await;
    drop(sockets);
    answer
}

async fn first_answer(
    exchange: &DnsExchange<ServerSockets>,
    query: &Query,
) -> Result<DnsAnswer, NetError> {
    // EDNS is not needed. Without EDNS, an answer over UDP is truncated if it is longer than 512
    // octets. `query_with_tcp_retry` then queries over TCP.
    let mut options = DnsRequestOptions::default();
    options.use_edns = false;

    let start = Instant::now();
    let response = exchange
        .lookup(query.clone(), options)
        .first_answer()
        .await?;
    Ok(DnsAnswer {
        message: response.into_message(),
        latency: start.elapsed(),
    })
}

#[cfg(test)]
mod tests;
