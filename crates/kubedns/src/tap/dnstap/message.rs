//! The dnstap messages that kubedns sends (<https://dnstap.info/Architecture/>, `dnstap.proto`).

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use prost::Message as _;
use skydns::tap::TapRecord;
use wire::Transport;

/// `Dnstap.Type.MESSAGE`
const MESSAGE: i32 = 1;
/// `Message.Type.CLIENT_QUERY`
pub(super) const CLIENT_QUERY: i32 = 5;
/// `Message.Type.CLIENT_RESPONSE`
pub(super) const CLIENT_RESPONSE: i32 = 6;

/// The message `Dnstap`: the content of a data frame.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct DnstapFrame {
    /// The host name of the sender: the name of the pod or, with `hostNetwork`, the name of its
    /// node.
    #[prost(bytes = "vec", optional, tag = "1")]
    pub(super) identity: Option<Vec<u8>>,
    #[prost(bytes = "vec", optional, tag = "2")]
    pub(super) version: Option<Vec<u8>>,
    #[prost(message, optional, tag = "14")]
    pub(super) message: Option<DnstapMessage>,
    #[prost(int32, required, tag = "15")]
    pub(super) kind: i32,
}

/// A message about one query, or about one response.
#[allow(clippy::struct_field_names, reason = "the names of dnstap.proto")]
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct DnstapMessage {
    #[prost(int32, required, tag = "1")]
    pub(super) kind: i32,
    /// 1 for IPv4, 2 for IPv6.
    #[prost(int32, optional, tag = "2")]
    pub(super) socket_family: Option<i32>,
    /// 1 for UDP, 2 for TCP.
    #[prost(int32, optional, tag = "3")]
    pub(super) socket_protocol: Option<i32>,
    #[prost(bytes = "vec", optional, tag = "4")]
    pub(super) query_address: Option<Vec<u8>>,
    #[prost(uint32, optional, tag = "6")]
    pub(super) query_port: Option<u32>,
    #[prost(uint64, optional, tag = "8")]
    pub(super) query_time_sec: Option<u64>,
    #[prost(fixed32, optional, tag = "9")]
    pub(super) query_time_nsec: Option<u32>,
    #[prost(bytes = "vec", optional, tag = "10")]
    pub(super) query_message: Option<Vec<u8>>,
    #[prost(uint64, optional, tag = "12")]
    pub(super) response_time_sec: Option<u64>,
    #[prost(fixed32, optional, tag = "13")]
    pub(super) response_time_nsec: Option<u32>,
    #[prost(bytes = "vec", optional, tag = "14")]
    pub(super) response_message: Option<Vec<u8>>,
}

/// Encodes messages with the identity of this process.
pub(super) struct MessageEncoder {
    identity: Vec<u8>,
    version: Vec<u8>,
}

impl MessageEncoder {
    pub(super) fn new(version: String) -> Self {
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Self {
            identity: name.trim().as_bytes().to_vec(),
            version: version.into_bytes(),
        }
    }

    /// Encodes a query and its response; `None` if the record has no copies of these messages.
    pub(super) fn messages(&self, record: &TapRecord) -> Option<[Vec<u8>; 2]> {
        let messages = record.messages.as_ref()?;
        // A dual-stack socket shows IPv4 clients as IPv4-mapped IPv6 addresses.
        let (family, address) = match record.client.ip().to_canonical() {
            IpAddr::V4(ip) => (1, ip.octets().to_vec()),
            IpAddr::V6(ip) => (2, ip.octets().to_vec()),
        };
        let socket_protocol = match record.transport {
            Transport::Udp => 1,
            Transport::Tcp => 2,
        };
        let asked = since_1970(record.time.checked_sub(record.took).unwrap_or(record.time));
        let answered = since_1970(record.time);

        let common = DnstapMessage {
            kind: CLIENT_QUERY,
            socket_family: Some(family),
            socket_protocol: Some(socket_protocol),
            query_address: Some(address),
            query_port: Some(record.client.port().into()),
            query_time_sec: Some(asked.as_secs()),
            query_time_nsec: Some(asked.subsec_nanos()),
            query_message: None,
            response_time_sec: None,
            response_time_nsec: None,
            response_message: None,
        };
        let response = DnstapMessage {
            kind: CLIENT_RESPONSE,
            response_time_sec: Some(answered.as_secs()),
            response_time_nsec: Some(answered.subsec_nanos()),
            response_message: Some(messages.response.to_vec()),
            ..common.clone()
        };
        let query = DnstapMessage {
            query_message: Some(messages.query.to_vec()),
            ..common
        };
        Some([self.encode(query), self.encode(response)])
    }

    fn encode(&self, message: DnstapMessage) -> Vec<u8> {
        let frame = DnstapFrame {
            identity: Some(self.identity.clone()),
            version: Some(self.version.clone()),
            message: Some(message),
            kind: MESSAGE,
        };
        frame.encode_to_vec()
    }
}

fn since_1970(time: SystemTime) -> Duration {
    time.duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
}
