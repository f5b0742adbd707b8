//! A small HTTP/1.1 server for probes, metrics and status pages. The pages are warp filters.
//!
//! The number of connections is bounded. Beyond the bound, a new connection closes the oldest
//! connection, so that idle connections cannot block a probe. The size and the time of a request's
//! head, the time of a handler, and the life of a connection are also bounded. Bodies of requests
//! are never read. Responses have the headers of Go's `net/http`, as probes and dashboards expect.
//!
//! The functions [`get()`] and [`get_streaming`] are a client for such pages.

mod connections;
mod gate;
mod get;
mod reply;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};
use thiserror::Error;
use tokio::net::{TcpListener, TcpSocket};
use tokio_util::sync::CancellationToken;
use warp::Filter;

use crate::error_chain::without_number;
use crate::net::{listen_addr, without_brackets};

pub use self::gate::{NotLocal, local_only};
pub use self::get::{GetError, Page, StreamingPage, authority, get, get_streaming, request_target};
pub use self::reply::{json, not_found, plain_error, text, with_type};

/// A failure to listen.
#[derive(Debug, Error)]
#[error("cannot listen on {address}: {reason}")]
pub struct BindError {
    /// The requested address.
    pub address: String,
    /// The operating system's error text, without the error number.
    pub reason: String,
}

impl BindError {
    /// The failure to listen on `address`, with the text of `error`.
    pub fn new(address: &impl ToString, error: &io::Error) -> Self {
        Self {
            address: address.to_string(),
            reason: without_number(error),
        }
    }
}

/// The limits of a server.
#[derive(Clone, Copy, Debug)]
struct HttpLimits {
    /// Maximum number of connections; a further connection closes the oldest.
    connections: usize,
    /// Timeout of the head of a request and of an idle connection.
    head_time: Duration,
    /// Maximum size of the head of a request, in bytes. A value below 8192 counts as 8192.
    head_size: usize,
    /// Timeout of a handler, after which the client receives 503.
    handler_time: Duration,
    /// Time after which a connection ends. A request in progress may take up to two seconds longer.
    life: Duration,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            connections: 256,
            head_time: Duration::from_secs(30),
            head_size: 16 * 1024,
            handler_time: Duration::from_secs(10),
            life: Duration::from_mins(10),
        }
    }
}

/// A listening socket on which no connection is accepted yet.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    local: SocketAddr,
    limits: HttpLimits,
}

impl Server {
    /// Binds the port; port 0 selects a free port. `host` is an IP address or a name that the
    /// system resolves. As in Go, all forms of the wildcard address (empty, `0.0.0.0`, `::`) listen
    /// on both IP families, if the machine has both. A kubelet probes the pod's first address,
    /// which may be of either family.
    pub async fn bind(host: &str, port: u16) -> Result<Self, BindError> {
        // Errors show `host`, not the address that it resolves to. An IPv6 address is always shown
        // in brackets.
        let shown = match without_brackets(host) {
            host if host.contains(':') => format!("[{host}]:{port}"),
            host => format!("{host}:{port}"),
        };

        Self::bind_address(host, port)
            .await
            .map_err(|error| BindError::new(&shown, &error))
    }

    async fn bind_address(host: &str, port: u16) -> io::Result<Self> {
        let ip = listen_addr(host).await?;
        let listener = listen(ip, port)?;
        let local = listener.local_addr()?;
        Ok(Self {
            listener,
            local,
            limits: HttpLimits::default(),
        })
    }

    /// The local address of the listener.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Serves `filter` until `stop`, then waits up to two seconds for requests in progress.
    /// Rejections of the filter get the responses of Go's `net/http`.
    pub async fn run<F>(self, filter: F, stop: CancellationToken)
    where
        F: Filter<Error = warp::Rejection> + Clone + Send + Sync + 'static,
        F::Extract: warp::Reply + Send,
        F::Future: Send,
    {
        let filter = filter.recover(reply::rejected);
        connections::serve(self.listener, self.limits, warp::service(filter), stop).await;
    }
}

/// The backlog of the listener, the same as tokio's default.
const BACKLOG: u32 = 1024;

fn listen(ip: IpAddr, port: u16) -> io::Result<TcpListener> {
    let socket = if ip.is_ipv6() {
        TcpSocket::new_v6()?
    } else {
        TcpSocket::new_v4()?
    };
    if ip.is_ipv6() && ip.is_unspecified() {
        // By default, the socket would not accept IPv4 if `net.ipv6.bindv6only` is 1.
        setsockopt(&socket, sockopt::Ipv6V6Only, &false)?;
    }

    // With SO_REUSEADDR, a restart does not wait for connections in TIME_WAIT. tokio's own `bind`
    // also sets this option.
    socket.set_reuseaddr(true)?;
    socket.bind((ip, port).into())?;
    socket.listen(BACKLOG)
}

/// The address of the client of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientAddr(pub SocketAddr);

/// Matches a whole path with any method, as Go's mux does.
pub fn exact_path(
    path: &str,
) -> impl Filter<Extract = (), Error = warp::Rejection> + Clone + Send + Sync + 'static {
    let wanted: std::sync::Arc<str> = path.into();
    warp::path::full()
        .and_then(move |path: warp::path::FullPath| {
            let found = path.as_str() == &*wanted;
            async move {
                if found {
                    Ok(())
                } else {
                    Err(warp::reject::not_found())
                }
            }
        })
        .untuple_one()
}

#[cfg(test)]
mod tests;
