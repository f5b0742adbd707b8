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
use cluster::watch::{Collection, Feed, WatchMetrics, WatchTiming};
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

/// The pause that one octet of input makes the API server take.
const PAUSE: Duration = Duration::from_secs(20);
/// Timeout of a request and all that follows from its response, apart from such pauses: a watch that stays silent beyond its
/// end, and the longest wait before the next attempt.
const ATTEMPT: Duration = Duration::from_secs(330);

/// The final list of each kind.
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

/// After any responses of the API server, split or broken off anywhere, the feed retries until the API server recovers,
/// within bounded time and memory. Then it reports exactly the listed objects.
///
/// The first octet selects the kind of objects. Responses follow for the requests in their order, each ended by a zero
/// octet. The first octet of a response selects its form (see [`respond`]); the others are its body, which is split into
/// pieces at each octet 1 or 2. Before a piece that an octet 2 ends, there is a pause.
pub fn feed(input: &[u8]) {
    // The seed of the jitter in pauses.
    fastrand::seed(input.len() as u64);
    let (choice, responses) = input.split_first().unwrap_or((&0, &[]));
    match choice & 3 {
        0 => follow::<Service>(responses, Event::Service, SERVICES),
        1 => follow::<Endpoints>(responses, Event::Endpoints, ENDPOINTS),
        2 => follow::<EndpointSlice>(responses, Event::EndpointSlice, SLICES),
        _ => follow::<Node>(responses, Event::Node, NODES),
    }
}

/// Follows objects of type `T` at an API server that first gives the responses, and then has `listed`.
fn follow<T: FromApi + Send + 'static>(responses: &[u8], wrap: fn(Change<T>) -> Event, listed: [&str; 2]) {
    let script: Vec<Vec<u8>> =
        responses.split(|octet| *octet == 0).filter(|response| !response.is_empty()).map(Vec::from).collect();
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let pauses = responses.split(|octet| *octet == 2).count();
    let patience = ATTEMPT * (count(script.len()) + 4) + PAUSE * count(pauses);

    // The paused clock advances when all tasks wait for it, so waiting takes no time.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.unwrap_or_else(|error| unreachable!("{error}"));
    let (mut index, published) = others(T::KIND);
    memory::bounded(responses.len(), 256, || {
        let told = tell(ApiServer::new(script, listed), wrap, &mut index);
        let told = runtime.block_on(async { tokio::time::timeout(patience, told).await });
        assert!(told.is_ok(), "the feed has not come back after {patience:?}");
    });
    index.publish();

    let (mut fresh, expected) = others(T::KIND);
    apply(&mut fresh, wrap, listed);
    fresh.publish();
    assert_eq!(watch::visible(&published), watch::visible(&expected), "not exactly the listed objects");
}

fn apply<T: FromApi>(index: &mut Index, wrap: fn(Change<T>) -> Event, objects: [&str; 2]) {
    for object in objects {
        let parsed = T::from_api(object).unwrap_or_else(|error| unreachable!("{error}"));
        index.apply(wrap(Change::Apply(parsed.object)));
    }
}

/// An index that has listed the other kinds, so that the objects of `kind` become visible.
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

/// Applies the events of a feed until `server` has no more responses.
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
    let metrics = daemon::metrics::Metrics::new("fuzz").and_then(|metrics| WatchMetrics::new(&metrics));
    let metrics = metrics.unwrap_or_else(|error| unreachable!("{error}"));
    let (sink, mut events) = mpsc::channel(4);
    let feed = Feed::new(
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

/// An API server with faulty responses at first.
struct ApiServer {
    /// The first responses, the last one first.
    script: Vec<Vec<u8>>,
    /// The list of existing objects.
    list: Vec<u8>,
    /// A complete list has been sent.
    listed: bool,
    /// Cancelled when a watch was requested after such a list.
    over: CancellationToken,
}

impl ApiServer {
    fn new(mut script: Vec<Vec<u8>>, listed: [&str; 2]) -> Self {
        script.reverse();
        let list = format!(
            r#"{{"kind":"SomeList","metadata":{{"resourceVersion":"9"}},"items":[{}]}}"#,
            listed.join(",")
        );
        Self { script, list: list.into(), listed: false, over: CancellationToken::new() }
    }

    /// The response to the next request; `None` for one that never comes.
    fn answer(&mut self, query: &str) -> Option<io::Result<Response<Body>>> {
        if let Some(response) = self.script.pop() {
            return respond(&response);
        }
        let asked = |wanted: &str| query.split('&').any(|parameter| parameter.starts_with(wanted));
        if !asked("watch=") {
            // The rest of an earlier list does not count, nor a list of only the first object.
            self.listed |= !asked("continue=") && (asked("limit=500") || asked("resourceVersion="));
            return respond(&[b"l", self.list.as_slice()].concat());
        }
        if self.listed {
            self.over.cancel();
        }
        // A version from an earlier, faulty response is expired, so that the feed lists again.
        respond(br#"l{"type":"ERROR","object":{"code":410,"reason":"Expired"}}"#)
    }
}

type Body = StreamBody<BoxStream<'static, io::Result<Frame<Bytes>>>>;

/// A response selected by its first octet: `n` none, the connection breaks; `w` none, without an end; `1`, `3`, `4`, `5` an
/// error; `b` a body that breaks off, `s` a body that falls silent; else a complete response.
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
