//! What `GET /explain` answers, as JSON. The command line reads it back and prints it as text.
//!
//! Names are absolute, with a dot at the end; times are RFC 3339 in UTC. `code` fields are for programs and stay what
//! they are; `text` fields are for people and may be reworded.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use crate::moment::Moment;

/// Everything that is known of one name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// What was asked.
    pub question: Question,
    /// When it was answered.
    pub at: Moment,
    /// The answer in a line.
    pub verdict: Verdict,
    /// What makes this answer, or the whole server, less trustworthy.
    pub warnings: Vec<Note>,
    /// The names that a resolver makes of the one asked for, in the order in which it asks for them.
    pub tried: Vec<Tried>,
    /// The one of them that answers first or, if none does, the one that tells most about the reason.
    pub detail: Detail,
    /// Names that exist and look like what was meant, the most likely first; eight at most.
    pub near: Vec<NearMiss>,
    /// The server that answered this.
    pub server: Server,
}

/// What was asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// The name as it was typed.
    pub name: String,
    /// The record types.
    pub types: Vec<String>,
    /// The namespace of the pod whose search list it is, if that is where the list comes from.
    pub namespace: Option<String>,
    /// The search list; empty when the name is not subject to one.
    pub search: Vec<String>,
    /// Names with fewer dots go through the search list first (`options ndots` of resolv.conf).
    pub ndots: u8,
}

/// The answer in a line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// What a resolver ends up with.
    pub outcome: Outcome,
    /// The same for people, to be read behind the name.
    pub text: String,
}

/// What becomes of one name, over all types asked for: at kubedns, if it is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// There are records.
    Answered,
    /// The name exists, without records of the types asked for.
    NoData,
    /// The name does not exist.
    NxDomain,
    /// Other servers are asked, by kubedns or, in its place, by dnsmasq. What they answer is not known here.
    Forwarded,
    /// The server cannot tell, or not what addresses there are.
    ServFail,
    /// The server does not tell.
    Refused,
}

impl Outcome {
    /// The RCODE in the notation of the DNS, or where the answer comes from.
    pub fn label(self) -> &'static str {
        match self {
            Self::Answered => "answers",
            Self::NoData => "NODATA",
            Self::NxDomain => "NXDOMAIN",
            Self::Forwarded => "forwarded",
            Self::ServFail => "SERVFAIL",
            Self::Refused => "REFUSED",
        }
    }
}

/// A remark.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// For programs; docs/explain.md lists them.
    pub code: String,
    /// For people.
    pub text: String,
}

impl Note {
    /// A remark.
    pub fn new(code: &str, text: impl Into<String>) -> Self {
        Self { code: code.to_owned(), text: text.into() }
    }
}

/// One name that a resolver asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tried {
    /// The name.
    pub name: String,
    /// What becomes of it.
    pub outcome: Outcome,
    /// False when an earlier one answers, so that it is never asked for.
    pub asked: bool,
    /// Its records or the reason in a few words.
    pub summary: String,
}

/// One name in full.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Detail {
    /// The name.
    pub name: String,
    /// Who is responsible for it.
    pub route: Route,
    /// What its labels mean.
    pub place: Place,
    /// What kubedns answers, by type.
    pub answers: Vec<Answer>,
    /// Why there is not what was asked for, and what is odd about it.
    pub reasons: Vec<Note>,
    /// The objects that its records are made of, or would be.
    pub objects: Vec<Object>,
    /// How many more there are; a wildcard can match thousands.
    pub more_objects: usize,
    /// What dnsmasq does with it.
    pub dnsmasq: Dnsmasq,
}

/// Who is responsible for a name, as kubedns sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Route {
    /// kubedns itself: the name lies in the cluster domain.
    ClusterDomain {
        /// The cluster domain.
        domain: String,
    },
    /// kubedns itself if it knows the address, and else the servers.
    Reverse {
        /// The address.
        address: IpAddr,
        /// The servers for addresses that are not known.
        servers: Vec<SocketAddr>,
    },
    /// The servers of a stub domain.
    StubDomain {
        /// The stub domain.
        domain: String,
        /// Its servers.
        servers: Vec<SocketAddr>,
    },
    /// The upstream servers.
    Upstreams {
        /// The servers.
        servers: Vec<SocketAddr>,
    },
    /// Nobody: names of one label are not sent out.
    SingleLabel,
}

/// What the labels of a name mean.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Place {
    /// The cluster domain itself.
    Apex,
    /// `SERVICE.NAMESPACE.svc`; either may be the wildcard `*`.
    Service {
        /// The namespace.
        namespace: String,
        /// The name of the Service.
        name: String,
    },
    /// `_PORT._PROTOCOL.SERVICE.NAMESPACE.svc`, or something below or above it.
    Port {
        /// The namespace.
        namespace: String,
        /// The name of the Service.
        name: String,
        /// The name of the port without its underscore; empty when there is only a protocol.
        port: String,
        /// The protocol without its underscore.
        protocol: String,
    },
    /// `LABEL.SERVICE.NAMESPACE.svc`: one address of a Service.
    Member {
        /// The namespace.
        namespace: String,
        /// The name of the Service.
        name: String,
        /// Its hostname, or the label made of its address.
        label: String,
    },
    /// `svc` or `NAMESPACE.svc`: above all Services.
    Namespace {
        /// The namespace, if there is one in the name.
        namespace: Option<String>,
    },
    /// `A-B-C-D.NAMESPACE.pod`.
    Pod {
        /// The namespace.
        namespace: String,
        /// The address in the name, if it is one.
        address: Option<IpAddr>,
    },
    /// `SERVICE.NAMESPACE.FEDERATION.svc`.
    Federation {
        /// The federation.
        federation: String,
        /// Its domain.
        domain: String,
        /// The namespace.
        namespace: String,
        /// The name of the Service.
        name: String,
    },
    /// `dns-version`, `ns.dns`: names that exist without a Service.
    WellKnown,
    /// A name in the cluster domain that has none of these forms.
    Formless,
    /// The reverse name of an address.
    Reverse {
        /// The address.
        address: IpAddr,
    },
    /// A name outside the cluster domain.
    Outside,
}

/// What kubedns answers to one question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The record type that is asked for.
    #[serde(rename = "type")]
    pub qtype: String,
    /// The RCODE; none when upstream servers are asked.
    pub rcode: Option<String>,
    /// The records of the answer section in a fixed order; 32 at most.
    pub records: Vec<Record>,
    /// How many more there are.
    pub more_records: usize,
    /// It does not fit 512 octets: over plain UDP it is cut, and clients ask again over TCP.
    pub truncated: bool,
    /// Names outside the cluster that upstream servers are asked for before this is answered, as `NAME TYPE`. The
    /// records that come from there are not shown.
    pub asks: Vec<String>,
}

/// One record.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Record {
    /// The owner name.
    pub name: String,
    /// The type.
    #[serde(rename = "type")]
    pub rtype: String,
    /// The data in presentation format.
    pub data: String,
    /// Seconds.
    pub ttl: u32,
}

/// A Service and what is behind it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Object {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The Service, if there is one.
    pub service: Option<Service>,
    /// What is behind it, if there is anything. It may be there without a Service.
    pub endpoints: Option<Endpoints>,
}

/// A Service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Service {
    /// How it is reached.
    pub kind: ServiceKind,
    /// The cluster IPs.
    pub cluster_ips: Vec<IpAddr>,
    /// The name that an ExternalName Service stands for.
    pub external_name: Option<String>,
    /// The ports.
    pub ports: Vec<Port>,
    /// Addresses that are not ready are published too.
    pub publish_not_ready_addresses: bool,
    /// `metadata.creationTimestamp`.
    pub created: Option<Moment>,
}

/// How a Service is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ServiceKind {
    /// Through cluster IPs.
    #[serde(rename = "ClusterIP")]
    ClusterIp,
    /// Through the addresses of its endpoints.
    Headless,
    /// An alias.
    ExternalName,
    /// It was given no cluster IP yet, and is treated as if it were headless.
    #[serde(rename = "WithoutIP")]
    WithoutIp,
}

/// A port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Port {
    /// The name, empty if it has none: then there are no SRV records for it.
    pub name: String,
    /// TCP, UDP or SCTP.
    pub protocol: String,
    /// The number.
    pub port: u16,
}

/// What is behind a Service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoints {
    /// `Endpoints` or `EndpointSlice`.
    pub kind: String,
    /// The names of the objects; eight at most.
    pub objects: Vec<String>,
    /// How many objects there are.
    pub object_count: usize,
    /// How many addresses are ready.
    pub ready: usize,
    /// How many are not.
    pub not_ready: usize,
    /// Those that are ready; eight at most.
    pub ready_addresses: Vec<Address>,
    /// Those that are not; eight at most.
    pub not_ready_addresses: Vec<Address>,
    /// The ports of the pods; eight at most.
    pub ports: Vec<Port>,
    /// The control plane left addresses out, since there are more than 1000.
    pub over_capacity: bool,
    /// When the pod or Service changed that the control plane last changed this for.
    pub changed: Option<Moment>,
}

/// An address behind a Service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// The address.
    pub ip: IpAddr,
    /// The hostname, if it has one.
    pub hostname: Option<String>,
}

/// What dnsmasq does with a name, started as the stock manifest starts it and with the servers of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dnsmasq {
    /// Whom it asks.
    pub asks: DnsmasqAsks,
    /// The domain that decides so, if one does.
    pub domain: Option<String>,
    /// The servers; those of the node's resolv.conf are not known here.
    pub servers: Vec<String>,
    /// How many seconds it keeps what kubedns answers; 0 for not at all (it runs with `--no-negcache`), none when
    /// somebody else answers, or may, and when only some types have records.
    pub keeps_seconds: Option<u32>,
}

/// Whom dnsmasq asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DnsmasqAsks {
    /// kubedns.
    Kubedns,
    /// The servers of a stub domain.
    StubDomain,
    /// kubedns or the servers of a stub domain: it has both for the same domain, and takes the answer of either.
    KubednsAndStubDomain,
    /// The servers of `upstreamNameservers`.
    Upstreams,
    /// The servers of the node's resolv.conf.
    NodeResolvConf,
    /// Nobody: pods ask kubedns itself, and kubedns asks the servers, one of which may be dnsmasq.
    NotInFront,
}

impl Dnsmasq {
    /// Whether a pod's question comes to kubedns, or may.
    pub fn leads_to_kubedns(&self) -> bool {
        use DnsmasqAsks::{Kubedns, KubednsAndStubDomain, NodeResolvConf, NotInFront, StubDomain, Upstreams};
        match self.asks {
            Kubedns | KubednsAndStubDomain | NotInFront => true,
            StubDomain | Upstreams | NodeResolvConf => false,
        }
    }
}

/// A name that exists and may be what was meant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NearMiss {
    /// The name.
    pub name: String,
    /// What it has to do with the one asked for.
    pub why: Note,
}

/// The server that answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Server {
    /// Its version.
    pub version: String,
    /// The cluster domain.
    pub domain: String,
    /// Whether cluster names are answered at all.
    pub synced: bool,
    /// Where the records come from: `nowhere`, `snapshot_file` or `api_server`.
    pub records_from: String,
    /// Which objects tell what is behind Services, `Endpoints` or `EndpointSlice`; none before that is known.
    pub endpoints_from: Option<String>,
    /// The version of the configuration in force.
    pub config_version: String,
    /// Since when it is in force.
    pub config_loaded: Moment,
    /// Why the newest configuration is not in force, if so.
    pub config_rejected: Option<String>,
}
