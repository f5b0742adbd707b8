//! The DNS server of kubedns with Services of one kind, a real dnsmasq in front of this server, and
//! an upstream of both.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use skydns::Search;
use skydns::engine::Identity;
use skydns::forward::{ForwardLimits, ForwardMetrics, Forwarder};
use skydns::metrics::Metrics;
use skydns::server::{DnsServer, ServerConfig};
use testkit::message::Message;
use testkit::ports::free_port;
use testkit::process::{Process, Program};
use testkit::query::Query;
use testkit::reply::Reply;
use testkit::upstream::{Asked, Reaction, Upstream};
use testkit::{client, eventually};
use tokio::net::UdpSocket;
use tokio::task::JoinSet;
use tokio_util::sync::{CancellationToken, DropGuard};
use wire::Name;

use crate::engine::published_with;
use crate::kinds::{Kind, SUFFIX};

const PATIENCE: Duration = Duration::from_mins(1);
/// Maximum number of queries in flight.
const WINDOW: usize = 64;
/// If no answer arrives for this time, the unanswered queries are sent again.
const ATTEMPT: Duration = Duration::from_secs(3);

/// The three servers. Dropping the value stops them.
pub(crate) struct Behind {
    kubedns: SocketAddr,
    dnsmasq: SocketAddr,
    _stop: DropGuard,
    _tasks: JoinSet<std::io::Result<()>>,
    _process: Process,
    _upstream: Upstream,
}

/// Answers A and AAAA queries for every name with one address of the queried type.
fn outside(asked: &Asked) -> Reaction {
    let (reply, name) = (Reply::to(&asked.packet), asked.name());
    match asked.rtype().as_str() {
        "A" => reply.answer(&format!("{name} 60 IN A 198.51.100.1")).into(),
        "AAAA" => reply
            .answer(&format!("{name} 60 IN AAAA 2001:db8::1"))
            .into(),
        _ => reply.into(),
    }
}

impl Behind {
    /// Starts kubedns' server with the objects of `kind` in `count` namespaces, and dnsmasq with
    /// further `flags`.
    pub(crate) async fn start(kind: &Kind, count: usize, flags: &[&str]) -> Self {
        let upstream = Upstream::start(outside).await;
        let numbers = 0..u32::try_from(count).expect("the number must fit into 32 bits");
        let objects = numbers.flat_map(|n| (kind.objects)(&format!("n{n}"), n));
        let published = published_with(objects, |zone| {
            zone.upstreams = Arc::new([upstream.addr().into()]);
            let suffix = Name::parse(SUFFIX).expect("the suffix must be a domain");
            zone.search = Some(Arc::new(Search::new(Some(&suffix), false, [])));
        });
        let config = ServerConfig {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            udp_sockets: NonZeroUsize::MIN,
            identity: Identity {
                version: "test".to_owned(),
            },
            forwarder: Arc::new(Forwarder::new(
                ForwardLimits::default(),
                ForwardMetrics::new(&prometheus::Registry::new())
                    .expect("the metrics must be valid"),
            )),
            metrics: Metrics::new("skydns", "skydns"),
            client_rate: None,
        };
        let server = DnsServer::bind(config, published).expect("the server must be bound");
        let (kubedns, stop) = (server.local_addr(), CancellationToken::new());
        let mut tasks = JoinSet::new();
        tasks.spawn(server.run(stop.clone()));
        let dnsmasq = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let process = dnsmasq_on(dnsmasq.port(), kubedns.port(), upstream.addr(), flags);
        eventually(PATIENCE, async || {
            let canary = Query::new("canary.outside.test.", "A").wire();
            client::udp(dnsmasq, &canary, Duration::from_millis(300))
                .await
                .is_ok()
        })
        .await;
        let stop = stop.drop_guard();
        Self {
            kubedns,
            dnsmasq,
            _stop: stop,
            _tasks: tasks,
            _process: process,
            _upstream: upstream,
        }
    }

    /// The answers of kubedns itself.
    pub(crate) async fn fresh(&self, queries: &[Query]) -> Vec<String> {
        ask_all(self.kubedns, queries).await
    }

    /// The answers of dnsmasq, some from its cache.
    pub(crate) async fn cached(&self, queries: &[Query]) -> Vec<String> {
        ask_all(self.dnsmasq, queries).await
    }
}

/// Starts dnsmasq, which forwards cluster names and names in `in-addr.arpa` to kubedns, and other
/// names to the upstream. The cache is large enough for all names.
fn dnsmasq_on(port: u16, kubedns: u16, upstream: SocketAddr, flags: &[&str]) -> Process {
    let own = [
        "--keep-in-foreground".to_owned(),
        "--conf-file=/dev/null".to_owned(),
        "--pid-file=".to_owned(),
        "--log-facility=-".to_owned(),
        "--no-resolv".to_owned(),
        "--no-hosts".to_owned(),
        "--listen-address=127.0.0.1".to_owned(),
        "--bind-interfaces".to_owned(),
        "--cache-size=50000".to_owned(),
        "--dns-forward-max=1000".to_owned(),
        format!("--port={port}"),
        format!("--server=/cluster.local/127.0.0.1#{kubedns}"),
        format!("--server=/in-addr.arpa/127.0.0.1#{kubedns}"),
        format!("--server={}#{}", upstream.ip(), upstream.port()),
    ];
    Program::at(Path::new("dnsmasq"))
        .args(own)
        .args(flags)
        .start()
}

/// Sends all queries over UDP, and returns the answers in the order of the queries. Repeats queries
/// without an answer.
async fn ask_all(server: SocketAddr, queries: &[Query]) -> Vec<String> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))
        .await
        .expect("the socket must be bound");
    socket
        .connect(server)
        .await
        .expect("the socket must be connected");
    let mut answers = Vec::with_capacity(queries.len());
    for some in queries.chunks(WINDOW) {
        let wire: Vec<Vec<u8>> = some
            .iter()
            .zip(0..)
            .map(|(query, id)| query.clone().id(id).wire())
            .collect();
        let mut known: HashMap<u16, String> = HashMap::new();
        while known.len() < some.len() {
            for (packet, _) in wire
                .iter()
                .zip(0..)
                .filter(|(_, id)| !known.contains_key(id))
            {
                socket.send(packet).await.expect("the query must be sent");
            }
            receive(&socket, &mut known, some.len()).await;
        }
        answers.extend((0..).take(some.len()).filter_map(|id| known.remove(&id)));
    }
    answers
}

/// Receives answers until `known` has `all` of them, or until no answer arrives for [`ATTEMPT`].
async fn receive(socket: &UdpSocket, known: &mut HashMap<u16, String>, all: usize) {
    let mut buffer = vec![0; 65_535];
    while known.len() < all {
        let Ok(received) = tokio::time::timeout(ATTEMPT, socket.recv(&mut buffer)).await else {
            return;
        };
        let packet = buffer
            .get(..received.expect("a packet must arrive"))
            .unwrap_or_default();
        let message = Message::parse(packet).expect("the packet must be a whole message");
        known.insert(message.id, outline(&message));
    }
}

/// The RCODE and the answer records as text, sorted and without TTL: a cache changes order and TTL.
fn outline(message: &Message) -> String {
    let line = |record: &testkit::record::Record| {
        let rtype = testkit::codes::type_name(record.rtype);
        format!("{} {rtype} {}", record.name, record.data)
    };
    let mut lines: Vec<String> = message.answer.iter().map(line).collect();
    lines.sort();
    format!("{} [{}]", message.rcode_name(), lines.join("; "))
}
