//! The accept loop, which limits the number and the duration of connections.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::pin;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::sync::CancellationToken;
use warp::http::{Request, StatusCode};
use warp::reply::Response;

use super::reply::plain_error;
use super::{ClientAddr, HttpLimits};

/// Time for a request in progress to finish when the server stops, or when the connection has
/// existed for [`HttpLimits::life`].
const FINISHING: Duration = Duration::from_secs(2);
/// Maximum number of headers of a request.
const HEADERS: usize = 64;

/// Accepts connections until `stop` is cancelled.
pub(super) async fn serve<S, F>(
    listener: TcpListener,
    limits: HttpLimits,
    service: S,
    stop: CancellationToken,
) where
    TowerToHyperService<S>: Service<Request<Incoming>, Response = Response, Error = Infallible, Future = F>
        + Clone
        + Send
        + Sync
        + 'static,
    F: Future<Output = Result<Response, Infallible>> + Send + 'static,
    S: Clone,
{
    let service = TowerToHyperService::new(service);
    let mut connections = JoinSet::new();
    let mut oldest: VecDeque<AbortHandle> = VecDeque::new();

    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            Some(_) = connections.join_next() => oldest.retain(|connection| !connection.is_finished()),
            accepted = listener.accept() => match accepted {
                Ok((stream, client)) => {
                    // At the limit, the oldest connection is closed. Otherwise idle connections
                    // could keep a probe out.
                    if oldest.len() >= limits.connections.max(1)
                        && let Some(oldest) = oldest.pop_front()
                    {
                        oldest.abort();
                    }
                    let client = ClientAddr(client);
                    let task = serve_connection(stream, client, limits, service.clone(), stop.clone());
                    oldest.push_back(connections.spawn(task));
                }
                Err(error) => pause_after_failed_accept(&error).await,
            },
        }
    }

    // New clients are turned away at once, while requests in progress finish.
    drop(listener);
    let _ = tokio::time::timeout(FINISHING, async {
        while connections.join_next().await.is_some() {}
    })
    .await;
}

/// Logs an accept error and waits. The usual cause is a lack of file descriptors, which become free
/// when connections close.
async fn pause_after_failed_accept(error: &std::io::Error) {
    tracing::warn!(
        error = error as &dyn std::error::Error,
        "cannot accept an HTTP connection"
    );
    tokio::time::sleep(Duration::from_millis(100)).await;
}

async fn serve_connection<S, F>(
    stream: TcpStream,
    client: ClientAddr,
    limits: HttpLimits,
    service: S,
    stop: CancellationToken,
) where
    S: Service<Request<Incoming>, Response = Response, Error = Infallible, Future = F>,
    F: Future<Output = Result<Response, Infallible>>,
{
    let bounded = hyper::service::service_fn(|mut request: Request<Incoming>| {
        request.extensions_mut().insert(client);
        // The body of the request is never read.
        let reply = service.call(request);
        async move {
            match tokio::time::timeout(limits.handler_time, reply).await {
                Ok(reply) => reply,
                Err(_) => Ok(plain_error(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "the request took too long\n",
                )),
            }
        }
    });

    // The limits keep a slow or silent client from holding memory and a connection.
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.head_time)
            .max_buf_size(limits.head_size.max(8192))
            .max_headers(HEADERS)
            .title_case_headers(true)
            .serve_connection(TokioIo::new(stream), bounded)
    );
    let ended = tokio::select! {
        ended = connection.as_mut() => Some(ended),
        () = stop.cancelled() => None,
        () = tokio::time::sleep(limits.life) => None,
    };

    // A request in progress may take up to `FINISHING` longer.
    let ended = if let Some(ended) = ended {
        Ok(ended)
    } else {
        connection.as_mut().graceful_shutdown();
        tokio::time::timeout(FINISHING, connection).await
    };

    if let Ok(Err(error)) = ended {
        tracing::debug!(
            error = &error as &dyn std::error::Error,
            "HTTP connection ended early"
        );
    }
}
