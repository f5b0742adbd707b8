//! The example upstream: a DNS server on loopback with a few names of `acme.example`. With this
//! server, stub domains and `ExternalName` targets work without a network.
//!
//! Without `--offline`, queries for names outside `acme.example` get REFUSED. With `--offline`,
//! this server is the upstream for external names, so these queries get NXDOMAIN.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hickory_proto::rr::rdata::{A, AAAA, CNAME, SOA, TXT};
use hickory_proto::rr::{LowerName, Name, RData, Record};
use hickory_server::Server;
use hickory_server::net::NetError;
use hickory_server::net::runtime::{Time, TokioRuntimeProvider};
use hickory_server::server::{Request, RequestHandler, ResponseHandler, ResponseInfo};
use hickory_server::store::in_memory::InMemoryZoneHandler;
use hickory_server::zone_handler::{AxfrPolicy, Catalog, MessageResponse, ZoneType};
use tokio::net::{TcpListener, UdpSocket};
use tokio_util::sync::CancellationToken;

use crate::ports::Sockets;

/// The name of the zone. The manifests of the example cluster configure a stub domain of this name.
pub const APEX: &str = "acme.example";

/// TTL of all records, in seconds.
const TTL: u32 = 10;
/// The time within which a TCP client must send its next query.
const PATIENCE: Duration = Duration::from_secs(5);
/// Maximum number of responses that wait to be sent on one TCP connection.
const MAX_PENDING: usize = 16;

/// A bound upstream that does not run yet.
pub struct Upstream {
    zones: Catalog,
    udp: UdpSocket,
    tcp: TcpListener,
}

impl Upstream {
    /// Creates the upstream from bound sockets. Must be called within a tokio runtime. Queries for
    /// names outside the zone get REFUSED, or NXDOMAIN with `offline`.
    pub fn on(sockets: Sockets, offline: bool) -> io::Result<Self> {
        sockets.udp.set_nonblocking(true)?;
        sockets.tcp.set_nonblocking(true)?;
        Ok(Self {
            zones: zones(offline),
            udp: UdpSocket::from_std(sockets.udp)?,
            tcp: TcpListener::from_std(sockets.tcp)?,
        })
    }

    /// The bound address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    /// Serves until cancelled.
    pub async fn run(self, token: CancellationToken) -> Result<(), NetError> {
        let mut server = Server::new(Resolver { zones: self.zones });
        server.register_socket(self.udp);
        server.register_listener(self.tcp, PATIENCE, MAX_PENDING);
        token
            .run_until_cancelled(server.block_until_done())
            .await
            .unwrap_or(Ok(()))
    }
}

fn zones(offline: bool) -> Catalog {
    let v4 = |last| RData::A(A(Ipv4Addr::new(192, 0, 2, last)));
    let v6 = |last| RData::AAAA(AAAA(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last)));
    let about = "answered by localpod's example upstream".to_owned();
    let mut zones = Catalog::new();
    let records = [
        (under_apex(&[]), RData::TXT(TXT::new(vec![about]))),
        (under_apex(&["payments"]), v4(80)),
        (under_apex(&["payments"]), v6(0x80)),
        (under_apex(&["git"]), v4(22)),
        (
            under_apex(&["www"]),
            RData::CNAME(CNAME(under_apex(&["payments"]))),
        ),
    ];
    add_zone(&mut zones, &under_apex(&[]), records);
    if offline {
        add_zone(&mut zones, &Name::root(), []);
    }
    zones
}

fn add_zone(zones: &mut Catalog, apex: &Name, records: impl IntoIterator<Item = (Name, RData)>) {
    let mut zone = InMemoryZoneHandler::<TokioRuntimeProvider>::empty(
        apex.clone(),
        ZoneType::Primary,
        AxfrPolicy::Deny,
    );
    // The last argument is the negative caching TTL (RFC 2308).
    let soa = SOA::new(
        under_apex(&["ns"]),
        under_apex(&["hostmaster"]),
        1,
        3600,
        600,
        86400,
        TTL,
    );
    zone.upsert_mut(Record::from_rdata(apex.clone(), TTL, RData::SOA(soa)), 1);
    for (name, data) in records {
        zone.upsert_mut(Record::from_rdata(name, TTL, data), 1);
    }
    zones.upsert(LowerName::new(apex), vec![Arc::new(zone)]);
}

/// The name with these labels in front of [`APEX`]. All labels are fixed and valid, so no error is
/// possible.
fn under_apex(labels: &[&str]) -> Name {
    let labels = labels.iter().copied().chain(APEX.split('.'));
    let mut name = Name::from_labels(labels.map(str::as_bytes)).unwrap_or_default();
    name.set_fqdn(true);
    name
}

/// Answers from the zones, and sets RA in the responses as a resolver does: dnsmasq warns about an
/// upstream without RA.
struct Resolver {
    zones: Catalog,
}

#[async_trait]
impl RequestHandler for Resolver {
    async fn handle_request<R: ResponseHandler, T: Time>(
        &self,
        request: &Request,
        reply: R,
    ) -> ResponseInfo {
        self.zones
            .handle_request::<_, T>(request, WithRa { reply })
            .await
    }
}

/// Sets RA in responses.
#[derive(Clone)]
struct WithRa<R> {
    reply: R,
}

#[async_trait]
impl<R: ResponseHandler> ResponseHandler for WithRa<R> {
    async fn send_response<'a>(
        &mut self,
        mut response: MessageResponse<
            '_,
            'a,
            impl Iterator<Item = &'a Record> + Send + 'a,
            impl Iterator<Item = &'a Record> + Send + 'a,
            impl Iterator<Item = &'a Record> + Send + 'a,
            impl Iterator<Item = &'a Record> + Send + 'a,
        >,
    ) -> Result<ResponseInfo, NetError> {
        response.metadata_mut().recursion_available = true;
        self.reply.send_response(response).await
    }
}

#[cfg(test)]
mod tests;
