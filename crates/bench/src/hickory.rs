//! hickory-server with a static map of the cluster's addresses. The results of this server show
//! what a DNS library alone costs.

use std::collections::HashMap;
use std::iter::empty;
use std::net::SocketAddr;

use anyhow::{Context as _, anyhow};
use async_trait::async_trait;
use hickory_proto::op::{Header, HeaderCounts, Metadata, ResponseCode};
use hickory_proto::rr::rdata::A;
use hickory_proto::rr::{LowerName, Name, RData, Record, RecordType};
use hickory_server::Server;
use hickory_server::net::runtime::Time;
use hickory_server::server::{Request, RequestHandler, ResponseHandler, ResponseInfo};
use hickory_server::zone_handler::MessageResponseBuilder;
use tokio::net::UdpSocket;

use crate::cluster::Cluster;

const TTL: u32 = 30;

/// Addresses by name.
struct Addresses(HashMap<LowerName, Vec<Record>>);

/// Serves `cluster` until the process ends.
pub async fn serve(address: SocketAddr, cluster: &Cluster) -> anyhow::Result<()> {
    let mut addresses = HashMap::new();
    for service in &cluster.services {
        let name = name(&service.domain_name())?;
        let record = |ip| Record::from_rdata(name.clone(), TTL, RData::A(A(ip)));
        let records = service.addresses().into_iter().map(record).collect();
        addresses.insert(LowerName::new(&name), records);
    }
    let mut server = Server::new(Addresses(addresses));
    let socket = UdpSocket::bind(address)
        .await
        .with_context(|| format!("cannot listen on {address}"))?;
    server.register_socket(socket);
    server
        .block_until_done()
        .await
        .map_err(|error| anyhow!("hickory-server ended: {error}"))
}

fn name(text: &str) -> anyhow::Result<Name> {
    Name::from_ascii(format!("{text}.")).with_context(|| format!("{text:?} is not a domain name"))
}

#[async_trait]
impl RequestHandler for Addresses {
    async fn handle_request<R: ResponseHandler, T: Time>(
        &self,
        request: &Request,
        mut reply: R,
    ) -> ResponseInfo {
        let mut metadata = Metadata::response_from_request(&request.metadata);
        let mut answers: &[Record] = &[];
        match request.request_info() {
            Ok(info) => match self.0.get(info.query.name()) {
                Some(records) if info.query.query_type() == RecordType::A => answers = records,
                Some(_) => {}
                None => metadata.response_code = ResponseCode::NXDomain,
            },
            Err(_) => metadata.response_code = ResponseCode::FormErr,
        }
        let message = MessageResponseBuilder::from_message_request(request);
        let message = message.build(metadata, answers, empty(), empty(), empty());
        let sent = reply.send_response(message).await;
        sent.unwrap_or_else(|_| {
            Header {
                metadata,
                counts: HeaderCounts::default(),
            }
            .into()
        })
    }
}
