//! A scripted DNS server on loopback, over UDP and TCP: the upstream in tests.
//!
//! A handler decides the reaction to a packet: an answer (right or wrong), silence, a delay,
//! garbage, or a closed connection. The server counts and records the packets. Loop probes of
//! kubedns and the nanny are an exception: they get NXDOMAIN without the handler, and are neither
//! counted nor recorded, so that tests see only their own queries. A loop probe is a TXT or AAAA
//! query for a name with the label `forward-loop` after the first label. A server that was started
//! with [`Upstream::start_with_loop_probes`] treats loop probes like other packets.
//!
//! ```no_run
//! # async fn example() {
//! use testkit::reply::Reply;
//! use testkit::upstream::{Asked, Reaction, Upstream};
//!
//! let upstream = Upstream::start(|asked: &Asked| match asked.name().as_str() {
//!     "silent.test." => Reaction::silence(),
//!     name => Reply::to(&asked.packet).answer(&format!("{name} 60 IN A 198.51.100.1")).into(),
//! })
//! .await;
//! # let _ = upstream.addr();
//! # }
//! ```

mod reaction;
mod replay;
mod serve;
mod zone;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::net::{TcpListener, UdpSocket};
use tokio::task::JoinSet;

use crate::codes;
use crate::message::Question;
use crate::reply::Reply;

pub use reaction::{Act, Reaction};
pub use replay::{Exchange, Replay, repeat};
use wire::Transport;
pub use zone::Zone;

/// Maximum number of recorded packets. Later packets are only counted.
const REMEMBERED: usize = 100_000;

/// A packet that arrived at the upstream.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The transport.
    pub transport: Transport,
    /// The address of the sender.
    pub from: SocketAddr,
    /// The whole packet.
    pub packet: Vec<u8>,
    /// The first question, if there is one.
    pub question: Option<Question>,
}

impl Asked {
    /// The name in the question, with upper and lower case as sent; empty without a question.
    pub fn name(&self) -> String {
        self.question
            .as_ref()
            .map_or_else(String::new, |question| question.name.clone())
    }

    /// The type in the question, such as `AAAA`; empty without a question.
    pub fn rtype(&self) -> String {
        self.question
            .as_ref()
            .map_or_else(String::new, |question| codes::type_name(question.rtype))
    }

    /// Returns whether this is a loop probe of kubedns or the nanny.
    fn looks_for_loops(&self) -> bool {
        let is_probe = matches!(self.rtype().as_str(), "TXT" | "AAAA");
        is_probe && self.name().to_ascii_lowercase().contains(".forward-loop.")
    }
}

/// Decides the reaction to a packet.
pub trait Handler: Fn(&Asked) -> Reaction + Send + Sync + 'static {}

impl<F: Fn(&Asked) -> Reaction + Send + Sync + 'static> Handler for F {}

#[derive(Debug, Default)]
struct Log {
    packets: Vec<Asked>,
    count: usize,
}

/// State that the serving tasks share.
pub(crate) struct Shared {
    handler: Box<dyn Fn(&Asked) -> Reaction + Send + Sync>,
    /// Whether loop probes are given to the handler and recorded.
    has_loop_probes: bool,
    log: Mutex<Log>,
}

impl Shared {
    fn new(handler: impl Handler) -> Self {
        Self {
            handler: Box::new(handler),
            has_loop_probes: false,
            log: Mutex::default(),
        }
    }

    fn react(&self, asked: Asked) -> Reaction {
        if asked.looks_for_loops() && !self.has_loop_probes {
            return Reply::to(&asked.packet).rcode("NXDOMAIN").into();
        }
        let reaction = (self.handler)(&asked);
        let mut log = self.log.lock();
        log.count += 1;
        if log.packets.len() < REMEMBERED {
            log.packets.push(asked);
        }
        reaction
    }
}

/// Answers A queries with `address`, and other types with NODATA. Names that end in `missing.test`
/// get NXDOMAIN.
pub fn answering(address: &'static str) -> impl Handler {
    move |asked: &Asked| {
        let (name, reply) = (asked.name(), Reply::to(&asked.packet));
        match asked.rtype().as_str() {
            _ if name.ends_with("missing.test.") => Reaction::from(reply.rcode("NXDOMAIN")),
            "A" => reply.answer(&format!("{name} 3600 IN A {address}")).into(),
            _ => reply.into(),
        }
    }
}

/// A running server. Its sockets close when this value is dropped.
pub struct Upstream {
    addr: SocketAddr,
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

impl Upstream {
    /// Starts a server on a free port of 127.0.0.1, the same port for UDP and TCP.
    pub async fn start(handler: impl Handler) -> Self {
        for _ in 0..100 {
            let udp = bind_udp((Ipv4Addr::LOCALHOST, 0).into()).await;
            let addr = udp
                .local_addr()
                .expect("a bound socket must have an address");
            if let Ok(tcp) = TcpListener::bind(addr).await {
                return Self::run(udp, Some(tcp), Shared::new(handler));
            }
        }
        panic!("no port is free for both UDP and TCP")
    }

    /// Starts a server that refuses TCP connections, and treats loop probes like other packets.
    pub async fn start_with_loop_probes(handler: impl Handler) -> Self {
        let shared = Shared {
            has_loop_probes: true,
            ..Shared::new(handler)
        };
        let udp = bind_udp((Ipv4Addr::LOCALHOST, 0).into()).await;
        Self::run(udp, None, shared)
    }

    /// Starts an upstream with the handler [`answering`].
    pub async fn answering(address: &'static str) -> Self {
        Self::start(answering(address)).await
    }

    /// Starts a server on a given address.
    pub async fn start_on(addr: SocketAddr, handler: impl Handler) -> Self {
        let udp = bind_udp(addr).await;
        let addr = udp
            .local_addr()
            .expect("a bound socket must have an address");
        let tcp = TcpListener::bind(addr)
            .await
            .unwrap_or_else(|error| panic!("cannot listen on TCP {addr}: {error}"));
        Self::run(udp, Some(tcp), Shared::new(handler))
    }

    /// Starts a server that refuses TCP connections.
    pub async fn start_udp_only(handler: impl Handler) -> Self {
        let udp = bind_udp((Ipv4Addr::LOCALHOST, 0).into()).await;
        Self::run(udp, None, Shared::new(handler))
    }

    fn run(udp: UdpSocket, tcp: Option<TcpListener>, shared: Shared) -> Self {
        let addr = udp
            .local_addr()
            .expect("a bound socket must have an address");
        let shared = Arc::new(shared);
        let mut tasks = JoinSet::new();
        tasks.spawn(serve::udp(udp, Arc::clone(&shared)));
        if let Some(tcp) = tcp {
            tasks.spawn(serve::tcp(tcp, Arc::clone(&shared)));
        }
        Self {
            addr,
            shared,
            _tasks: tasks,
        }
    }

    /// The address that the server listens on.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The recorded packets, in order of arrival.
    pub fn asked(&self) -> Vec<Asked> {
        self.shared.log.lock().packets.clone()
    }

    /// The number of packets since the start or the last [`Upstream::forget`].
    pub fn count(&self) -> usize {
        self.shared.log.lock().count
    }

    /// The number of recorded packets with this name (in any case) and type.
    pub fn count_of(&self, name: &str, rtype: &str) -> usize {
        let wanted =
            |asked: &&Asked| asked.name().eq_ignore_ascii_case(name) && asked.rtype() == rtype;
        self.shared.log.lock().packets.iter().filter(wanted).count()
    }

    /// Deletes the recorded packets, and resets the count.
    pub fn forget(&self) {
        *self.shared.log.lock() = Log::default();
    }
}

async fn bind_udp(addr: SocketAddr) -> UdpSocket {
    UdpSocket::bind(addr)
        .await
        .unwrap_or_else(|error| panic!("cannot bind UDP {addr}: {error}"))
}
