//! Responses of the API server to lists and watches.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cluster::connect::Connection;
use cluster::index::Index;
use cluster::objects::{
    Change, EndpointSlice, Endpoints, EndpointsSource, Event, FromApi, Kind, Node, Service,
};
use cluster::snapshot::Published;
use cluster::watch::{Collection, CollectionFeed, WatchMetrics, WatchTiming};
use futures::stream::{self, BoxStream, StreamExt as _};
use http_body_util::StreamBody;
use hyper::body::Frame;
use hyper::{Request, Response, StatusCode};
use kube::Client;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tower::service_fn;

use crate::{example, memory, watch};

/// Pause of the API server before a piece that ends with an octet 2 (see [`feed`]).
const PAUSE: Duration = Duration::from_secs(20);
/// Maximum time for one response and the backoff after it, without the pauses of the API server.
/// The longest watch takes 300 s, and the longest backoff takes 20 s.
const ATTEMPT: Duration = Duration::from_secs(330);

/// The Services that the API server lists in the end.
const SERVICES: [&str; 2] = [
    r#"{"metadata":{"name":"db","namespace":"apps","resourceVersion":"7"},"spec":{"clusterIP":"None"}}"#,
    r#"{"metadata":{"name":"web","namespace":"apps"},"spec":{"clusterIP":"10.96.0.7","ports":[{"port":80}]}}"#,
];
const ENDPOINTS: [&str; 2] = [
    r#"{"metadata":{"name":"db","namespace":"apps","resourceVersion":"7"},"subsets":[{"addresses":[{"ip":"10.0.0.1"}]}]}"#,
    r#"{"metadata":{"name":"web","namespace":"apps"},"subsets":null}"#,
];
const SLICES: [&str; 2] = [
    r#"{"metadata":{"name":"db-1","namespace":"apps","labels":{"kubernetes.io/service-name":"db"}},"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.1"]}]}"#,
    r#"{"metadata":{"name":"db-2","namespace":"apps","labels":{"kubernetes.io/service-name":"db"}},"addressType":"IPv6","endpoints":[{"addresses":["fd00::1"]}]}"#,
];
const NODES: [&str; 2] = [
    r#"{"metadata":{"name":"n1","labels":{"topology.kubernetes.io/zone":"z","topology.kubernetes.io/region":"r"}}}"#,
    r#"{"metadata":{"name":"n2"}}"#,
];

/// The API server may send any responses to a [`CollectionFeed`], and may split them or break them
/// off at any octet. The feed retries until the API server recovers, with bounded time and memory.
/// Then the feed reports exactly the listed objects.
///
/// The first octet selects the kind of objects. The responses to the first requests follow, in
/// order; a zero octet ends each response. The first octet of a response selects its form (see
/// `respond`). The rest is the body, which is sent in pieces: an octet 1 or 2 ends a piece. The
/// API server pauses before a piece that ends with an octet 2.
pub fn feed(input: &[u8]) {
    // Seeds the jitter of the backoff, so that results are reproducible.
    fastrand::seed(input.len() as u64);
    let (choice, responses) = input.split_first().unwrap_or((&0, &[]));
    match choice & 3 {
        0 => follow::<Service>(responses, Event::Service, SERVICES),
        1 => follow::<Endpoints>(responses, Event::Endpoints, ENDPOINTS),
        2 => follow::<EndpointSlice>(responses, Event::EndpointSlice, SLICES),
        _ => follow::<Node>(responses, Event::Node, NODES),
    }
}

/// Watches objects of type `T` at an API server that first sends `responses`, and then lists
/// `listed`.
fn follow<T: FromApi + Send + 'static>(
    responses: &[u8],
    wrap: fn(Change<T>) -> Event,
    listed: [&str; 2],
) {
    let script: Vec<Vec<u8>> = responses
        .split(|octet| *octet == 0)
        .filter(|response| !response.is_empty())
        .map(Vec::from)
        .collect();
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let pauses = responses.split(|octet| *octet == 2).count();
    let patience = ATTEMPT * (count(script.len()) + 4) + PAUSE * count(pauses);

    // The paused clock jumps to the next timer when all tasks are idle, so timeouts take no real
    // time.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    let runtime = runtime.unwrap_or_else(|error| unreachable!("{error}"));
    let (mut index, published) = others(T::KIND);
    memory::bounded(responses.len(), 256, || {
        let told = tell(ApiServer::new(script, listed), wrap, &mut index);
        let told = runtime.block_on(async { tokio::time::timeout(patience, told).await });
        assert!(
            told.is_ok(),
            "the feed has not recovered after {patience:?}"
        );
    });
    index.publish();

    let (mut fresh, expected) = others(T::KIND);
    apply(&mut fresh, wrap, listed);
    fresh.publish();
    assert_eq!(
        watch::visible(&published),
        watch::visible(&expected),
        "the feed does not report exactly the listed objects"
    );
}

fn apply<T: FromApi>(index: &mut Index, wrap: fn(Change<T>) -> Event, objects: [&str; 2]) {
    for object in objects {
        let parsed = T::from_api(object).unwrap_or_else(|error| unreachable!("{error}"));
        index.apply(wrap(Change::Apply(parsed.object)));
    }
}

/// An index without objects of `kind`, but with objects of another kind: Endpoints if `kind` is
/// Service, otherwise Services.
fn others(kind: Kind) -> (Index, Arc<Published>) {
    let (mut index, published) = example::index(example::zone(false));
    let source = match kind {
        Kind::EndpointSlice => EndpointsSource::EndpointSlices,
        _ => EndpointsSource::Endpoints,
    };
    index.apply(Event::EndpointsFrom(source));
    if kind == Kind::Service {
        apply(&mut index, Event::Endpoints, ENDPOINTS);
    } else {
        apply(&mut index, Event::Service, SERVICES);
    }
    (index, published)
}

/// Runs a feed and applies its events until the feed starts a watch after a complete list.
async fn tell<T: FromApi>(server: ApiServer, wrap: fn(Change<T>) -> Event, index: &mut Index) {
    let (stop, server) = (server.over.clone(), Arc::new(Mutex::new(server)));
    let client = Client::new(
        service_fn(move |request: Request<kube::client::Body>| {
            let mut server = server.lock();
            let answer = server.answer(request.uri().query().unwrap_or_default());
            async {
                match answer {
                    Some(answer) => answer,
                    None => std::future::pending().await,
                }
            }
        }),
        "default",
    );
    let metrics =
        daemon::metrics::Metrics::new("fuzz").and_then(|metrics| WatchMetrics::new(&metrics));
    let metrics = metrics.unwrap_or_else(|error| unreachable!("{error}"));
    let (sink, mut events) = mpsc::channel(4);
    let feed = CollectionFeed::new(
        Arc::new(Connection::through(client)),
        Collection::all(T::KIND),
        WatchTiming::default(),
        metrics.feed(T::KIND),
        sink,
        wrap,
    );
    let taking = async {
        while let Some(received) = events.recv().await {
            index.apply(received.event);
        }
    };
    tokio::join!(feed.run(stop), taking);
}

/// An API server whose first responses come from the input.
struct ApiServer {
    /// The responses from the input, in reverse order.
    script: Vec<Vec<u8>>,
    /// The list that the API server returns after the responses from the input.
    list: Vec<u8>,
    /// Whether a complete list has been sent.
    listed: bool,
    /// Cancelled when the feed requests a watch after a complete list.
    over: CancellationToken,
}

impl ApiServer {
    fn new(mut script: Vec<Vec<u8>>, listed: [&str; 2]) -> Self {
        script.reverse();
        let list = format!(
            r#"{{"kind":"SomeList","metadata":{{"resourceVersion":"9"}},"items":[{}]}}"#,
            listed.join(",")
        );
        Self {
            script,
            list: list.into(),
            listed: false,
            over: CancellationToken::new(),
        }
    }

    /// The response to the next request; `None` if the API server never responds.
    fn answer(&mut self, query: &str) -> Option<io::Result<Response<Body>>> {
        if let Some(response) = self.script.pop() {
            return respond(&response);
        }
        let asked = |wanted: &str| {
            query
                .split('&')
                .any(|parameter| parameter.starts_with(wanted))
        };
        if !asked("watch=") {
            // To begin a new list, the feed requests the whole list from the watch cache
            // (`resourceVersion=`), or a first page of 500 objects. Other pages do not count. For
            // example, the feed requests a page of one object only to check that etcd was not wiped
            // or restored from a backup.
            self.listed |= !asked("continue=") && (asked("limit=500") || asked("resourceVersion="));
            return respond(&[b"l", self.list.as_slice()].concat());
        }
        if self.listed {
            self.over.cancel();
        }
        // The feed may have the resourceVersion of a response from the input. 410 Gone makes the
        // feed list again.
        respond(br#"l{"type":"ERROR","object":{"code":410,"reason":"Expired"}}"#)
    }
}

type Body = StreamBody<BoxStream<'static, io::Result<Frame<Bytes>>>>;

/// The response whose form the first octet selects. `n`: the connection is reset. `w`: the API
/// server never responds (`None`). `1`, `3`, `4`, `5`: status 401, 403, 410, 500. `b`: the
/// connection is reset at the end of the body. `s`: the body never ends. Any other octet: a
/// complete response with status 200.
fn respond(response: &[u8]) -> Option<io::Result<Response<Body>>> {
    let (course, octets) = response.split_first().unwrap_or((&b'l', &[]));
    let broken = || io::Error::from(io::ErrorKind::ConnectionReset);
    let status = match course {
        b'n' => return Some(Err(broken())),
        b'w' => return None,
        b'1' => StatusCode::UNAUTHORIZED,
        b'3' => StatusCode::FORBIDDEN,
        b'4' => StatusCode::GONE,
        b'5' => StatusCode::INTERNAL_SERVER_ERROR,
        _ => StatusCode::OK,
    };
    let end = match course {
        b'b' => stream::iter([Err(broken())]).boxed(),
        b's' => stream::pending().boxed(),
        _ => stream::empty().boxed(),
    };
    let pieces: Vec<(bool, Bytes)> = octets
        .split_inclusive(|octet| [1, 2].contains(octet))
        .map(|piece| match piece {
            [piece @ .., 2] => (true, Bytes::copy_from_slice(piece)),
            [piece @ .., 1] | piece => (false, Bytes::copy_from_slice(piece)),
        })
        .collect();
    let pieces = stream::iter(pieces).then(|(pause, piece)| async move {
        if pause {
            tokio::time::sleep(PAUSE).await;
        }
        Ok(Frame::data(piece))
    });
    let mut response = Response::new(StreamBody::new(pieces.chain(end).boxed()));
    *response.status_mut() = status;
    Some(Ok(response))
}
