//! The JSON of `GET /explain`, which `kube-dns explain` reads back and prints as text.
//!
//! Names are absolute, with a dot at the end; times are RFC 3339 in UTC. `code` fields are stable, for programs; `text`
//! fields are for people and may be reworded. docs/explain.md lists both.

use std::fmt;
use std::net::IpAddr;

use cluster::objects::ObjectKey;
use serde::{Deserialize, Serialize};

use crate::moment::Moment;

/// Everything that is known of one name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Explanation {
    pub(crate) question: Question,
    pub(crate) at: Moment,
    pub(crate) verdict: Verdict,
    /// Reasons to distrust this answer, or the whole server.
    pub(crate) warnings: Vec<Note>,
    /// The names that a resolver queries for this name, in order.
    pub(crate) tried: Vec<Tried>,
    /// The first name with an answer, or else the name that tells most about the reason.
    pub(crate) detail: Detail,
    /// Similar names that exist, the most likely first; eight at most.
    pub(crate) near: Vec<NearMiss>,
    pub(crate) server: Server,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Question {
    /// The name as it was typed.
    pub(crate) name: String,
    /// The name in the text, without URL, port or `svc/`.
    pub(crate) meant: String,
    pub(crate) types: Vec<String>,
    /// The namespace of the pod whose search list is used; `None` if the list was given.
    pub(crate) namespace: Option<String>,
    /// Empty when no search list is applied.
    pub(crate) search: Vec<String>,
    /// Whether kubedns walks the search list for the pods of this namespace (autopath).
    #[serde(default)]
    pub(crate) autopath: bool,
    pub(crate) ndots: u8,
}

/// The answer in a line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Verdict {
    /// The result of the resolver's search.
    pub(crate) outcome: Outcome,
    /// The result as text, to follow the name in a sentence.
    pub(crate) text: String,
}

/// The answer to one name, over all types asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    /// There are records.
    Answered,
    /// The name exists, without records of the types asked for.
    NoData,
    NxDomain,
    /// kubedns, or dnsmasq in its place, forwards the query; the answer is unknown here.
    Forwarded,
    /// The server fails, at least for addresses.
    ServFail,
    Refused,
}

/// A remark.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Note {
    pub(crate) code: String,
    pub(crate) text: String,
}

/// One name that a resolver queries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tried {
    pub(crate) name: String,
    pub(crate) outcome: Outcome,
    /// False when an earlier name answers, so that this name is not queried.
    pub(crate) asked: bool,
    /// The records, or the reason, in a few words.
    pub(crate) summary: String,
}

/// One name in full.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Detail {
    pub(crate) name: String,
    pub(crate) route: Route,
    #[serde(rename = "place")]
    pub(crate) kind: NameKind,
    /// The answers of kubedns, by type.
    pub(crate) answers: Vec<Answer>,
    /// Reasons for a missing answer, and remarks about an unexpected one.
    pub(crate) reasons: Vec<Note>,
    /// The objects that the records are made of, or would be.
    pub(crate) objects: Vec<Object>,
    /// The number of objects left out; a wildcard can match thousands.
    pub(crate) more_objects: usize,
    pub(crate) dnsmasq: Dnsmasq,
}

/// The servers responsible for a name, as kubedns chooses them: itself for the cluster domain, zones beside it and the
/// names of the `ConfigMap`; itself or others for addresses; none for names of one label, which are not forwarded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Route {
    ClusterDomain { domain: String },
    Reverse { address: IpAddr, servers: Vec<String> },
    StubDomain { domain: String, servers: Vec<String> },
    Upstreams { servers: Vec<String> },
    SingleLabel,
    Zone { domain: String },
    OwnName,
}

/// The meaning of a name's labels. Namespace and name of a Service may be the wildcard `*`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum NameKind {
    /// The cluster domain itself.
    Apex,
    /// `SERVICE.NAMESPACE.svc`.
    Service(ObjectKey),
    /// `_PORT._PROTOCOL.SERVICE.NAMESPACE.svc`, a name below it, or `_PROTOCOL.SERVICE.NAMESPACE.svc` without a port.
    /// The fields have no underscore.
    Port {
        #[serde(flatten)]
        key: ObjectKey,
        port: String,
        protocol: String,
    },
    /// `LABEL.SERVICE.NAMESPACE.svc`: one address of a Service, by its hostname or the label made of it.
    Member {
        #[serde(flatten)]
        key: ObjectKey,
        label: String,
    },
    /// `svc` or `NAMESPACE.svc`: above all Services.
    Namespace {
        namespace: Option<String>,
    },
    /// `A-B-C-D.NAMESPACE.pod`, with the address if it is valid.
    Pod {
        namespace: String,
        address: Option<IpAddr>,
    },
    /// `SERVICE.NAMESPACE.FEDERATION.svc`.
    Federation {
        federation: String,
        domain: String,
        #[serde(flatten)]
        key: ObjectKey,
    },
    /// `dns-version`, `ns.dns`: names that exist without a Service.
    WellKnown,
    /// A name in the cluster domain that has none of these forms.
    Formless,
    Reverse {
        address: IpAddr,
    },
    /// A name in a zone beside the cluster's; `synced` once its first content is in.
    Zone {
        domain: String,
        synced: bool,
        /// The Service of the name, in the external zone.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        service: Option<ObjectKey>,
    },
    /// A name of the `ConfigMap` (`hosts`, `aliases`); `target` is the end of the alias chain, if it is an alias.
    OwnName {
        target: Option<String>,
    },
    /// An external name.
    #[serde(rename = "outside")]
    External,
}

/// The answer of kubedns to one question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Answer {
    #[serde(rename = "type")]
    pub(crate) qtype: String,
    /// `None` when the query is forwarded.
    pub(crate) rcode: Option<String>,
    /// The answer section in a fixed order; 32 records at most.
    pub(crate) records: Vec<Record>,
    pub(crate) more_records: usize,
    /// Whether the answer exceeds 512 octets: over UDP without EDNS it is truncated, and clients retry over TCP.
    pub(crate) truncated: bool,
    /// External names that are resolved upstream for this answer, as `NAME TYPE`. Their records are not shown.
    pub(crate) asks: Vec<String>,
    /// Whether dnsmasq answers from the pod's /etc/hosts, without asking a server.
    pub(crate) from_hosts: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) name: String,
    #[serde(rename = "type")]
    pub(crate) rtype: String,
    /// In presentation format.
    pub(crate) data: String,
    /// Seconds.
    pub(crate) ttl: u32,
}

/// A Service and its endpoints, either of which may be missing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Object {
    #[serde(flatten)]
    pub(crate) key: ObjectKey,
    pub(crate) service: Option<Service>,
    pub(crate) endpoints: Option<Endpoints>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Service {
    pub(crate) kind: ServiceKind,
    pub(crate) cluster_ips: Vec<IpAddr>,
    pub(crate) external_name: Option<String>,
    pub(crate) ports: Vec<Port>,
    pub(crate) publish_not_ready_addresses: bool,
    pub(crate) created: Option<Moment>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ServiceKind {
    #[serde(rename = "ClusterIP")]
    ClusterIp,
    Headless,
    ExternalName,
    /// A Service without a cluster IP yet, treated as headless.
    #[serde(rename = "WithoutIP")]
    WithoutIp,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Port {
    /// Empty if the port has no name, and so no SRV records.
    pub(crate) name: String,
    /// TCP, UDP or SCTP.
    pub(crate) protocol: String,
    #[serde(rename = "port")]
    pub(crate) number: u16,
}

/// The endpoints of a Service. Each list has eight entries at most.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Endpoints {
    /// `Endpoints` or `EndpointSlice`.
    pub(crate) kind: String,
    /// The names of the objects.
    pub(crate) objects: Vec<String>,
    pub(crate) object_count: usize,
    /// The number of ready addresses.
    pub(crate) ready: usize,
    pub(crate) not_ready: usize,
    pub(crate) ready_addresses: Vec<Address>,
    pub(crate) not_ready_addresses: Vec<Address>,
    /// The ports of the pods.
    pub(crate) ports: Vec<Port>,
    /// Whether the control plane truncated the addresses to 1000.
    pub(crate) over_capacity: bool,
    /// Time of the pod or Service change that the control plane last applied here.
    pub(crate) changed: Option<Moment>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Address {
    pub(crate) ip: IpAddr,
    pub(crate) hostname: Option<String>,
}

/// The path of a query through dnsmasq with the flags of the stock manifest and the servers of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Dnsmasq {
    pub(crate) asks: DnsmasqAsks,
    /// The domain that selects the servers, if one does.
    pub(crate) domain: Option<String>,
    /// The servers; those of the node's resolv.conf are unknown here.
    pub(crate) servers: Vec<String>,
    /// Seconds for which dnsmasq caches the answer of kubedns; 0 if it does not (`--no-negcache`). `None` if dnsmasq
    /// does not ask kubedns alone, or answers from the hosts file, and if only some types have records.
    pub(crate) keeps_seconds: Option<u32>,
}

/// The server that dnsmasq asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DnsmasqAsks {
    Kubedns,
    StubDomain,
    /// kubedns or the servers of a stub domain: dnsmasq has both for the same domain, and takes the answer of either.
    KubednsAndStubDomain,
    /// The servers of `upstreamNameservers`.
    Upstreams,
    NodeResolvConf,
    /// None: pods ask kubedns directly, and kubedns asks the servers, one of which may be dnsmasq.
    NotInFront,
}

/// A name that exists and may have been meant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NearMiss {
    pub(crate) name: String,
    /// The similarity to the name asked for.
    pub(crate) why: Note,
}

/// The server that answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Server {
    pub(crate) version: String,
    /// The cluster domain.
    pub(crate) domain: String,
    /// Whether cluster names are answered at all.
    pub(crate) synced: bool,
    /// `nowhere`, `snapshot_file` or `api_server`.
    pub(crate) records_from: String,
    /// `Endpoints` or `EndpointSlice`; `None` before it is known.
    pub(crate) endpoints_from: Option<String>,
    pub(crate) config_version: String,
    pub(crate) config_loaded: Moment,
    /// The reason if the newest configuration is rejected.
    pub(crate) config_rejected: Option<String>,
}

impl Outcome {
    /// The outcome in a word, RCODEs in the notation of the DNS.
    pub(crate) fn label(self) -> &'static str {
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

impl Note {
    pub(crate) fn new(code: &str, text: impl Into<String>) -> Self {
        Self { code: code.to_owned(), text: text.into() }
    }
}

impl NameKind {
    /// The Service of the name, unless its labels are wildcards.
    pub(crate) fn service(&self) -> Option<&ObjectKey> {
        match self {
            Self::Service(key)
            | Self::Port { key, .. }
            | Self::Member { key, .. }
            | Self::Federation { key, .. } => {
                Some(key).filter(|key| key.namespace != treecache::ANY && key.name != treecache::ANY)
            }
            Self::Zone { service, .. } => service.as_ref(),
            _ => None,
        }
    }
}

impl Dnsmasq {
    /// Whether a pod's query reaches kubedns, or may reach it.
    pub(crate) fn leads_to_kubedns(&self) -> bool {
        use DnsmasqAsks::{Kubedns, KubednsAndStubDomain, NotInFront};
        matches!(self.asks, Kubedns | KubednsAndStubDomain | NotInFront)
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.name.is_empty() { "(no name)" } else { &self.name };
        write!(f, "{name} {}/{}", self.number, self.protocol)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.hostname {
            Some(hostname) => write!(f, "{} ({hostname})", self.ip),
            None => self.ip.fmt(f),
        }
    }
}
