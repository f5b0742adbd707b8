//! The JSON document of `GET /explain`. `kube-dns explain` parses the document and prints it as
//! text.
//!
//! Names are absolute, with a dot at the end, unless they are copied from the request, an object or
//! a flag. Times are RFC 3339 in UTC. `code` fields are stable identifiers for programs. `text`
//! fields are sentences, whose wording may change. docs/explain.md lists the fields and the codes.

use std::fmt;
use std::net::IpAddr;

use cluster::objects::ObjectKey;
use reports::kubedns::NodeReport;
use serde::{Deserialize, Serialize};

use crate::moment::Moment;
use wire::rcode;

/// The explanation of one name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Explanation {
    pub(crate) question: QuestionReport,
    pub(crate) at: Moment,
    pub(crate) verdict: AnswerSummary,
    /// Reasons why the explanation may be outdated, incomplete or wrong.
    pub(crate) warnings: Vec<CodedNote>,
    /// The candidates of the search list for the given name, in the resolver's order.
    pub(crate) tried: Vec<TriedName>,
    /// The first name with an answer. If no name has an answer, the name that was most probably
    /// meant.
    pub(crate) detail: NameDetail,
    /// Similar names that exist, the most similar first; eight at most.
    pub(crate) near: Vec<SimilarName>,
    pub(crate) server: ServerReport,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct QuestionReport {
    /// The name as given, before parsing.
    pub(crate) name: String,
    /// The name without the URL, port or `svc/` around it.
    pub(crate) meant: String,
    pub(crate) types: Vec<String>,
    /// The namespace of the pod whose search list is used; `None` if the list was given, or if the
    /// name is absolute.
    pub(crate) namespace: Option<String>,
    /// The search domains; empty if the name is absolute.
    pub(crate) search: Vec<String>,
    /// Whether kubedns walks the search list for the pods of this namespace (autopath).
    #[serde(default)]
    pub(crate) autopath: bool,
    pub(crate) ndots: u8,
}

/// The answer in one line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AnswerSummary {
    /// The outcome of the resolver's search.
    pub(crate) outcome: LookupOutcome,
    /// The outcome as the rest of a sentence that begins with the name.
    pub(crate) text: String,
}

/// The outcome of the queries for one name, over all requested types.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LookupOutcome {
    /// There are records, or the answer needs records from upstream servers, see
    /// [`TypeAnswer::asks`].
    Answered,
    /// NOERROR without records of the requested types. Also used for an alias without addresses.
    NoData,
    NxDomain,
    /// kubedns or dnsmasq forwards the query, so the answer is unknown here. If dnsmasq itself
    /// rejects the query (see [`DnsmasqPath::denial`]), the verdict counts the query as forwarded,
    /// but the entry in `tried` has the outcome `NxDomain` or `Refused`.
    Forwarded,
    ServFail,
    Refused,
}

/// A reason, remark or warning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CodedNote {
    pub(crate) code: String,
    pub(crate) text: String,
}

/// One candidate of the search list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TriedName {
    pub(crate) name: String,
    pub(crate) outcome: LookupOutcome,
    /// False for the names after the first name with an answer: the resolver does not query them.
    pub(crate) asked: bool,
    /// The records in a few words, the servers that a query is forwarded to, or the reason why
    /// there are no records.
    pub(crate) summary: String,
}

/// One name with all its records, reasons and objects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NameDetail {
    pub(crate) name: String,
    pub(crate) route: NameRoute,
    #[serde(rename = "place")]
    pub(crate) kind: NameKind,
    /// The answers, by type.
    pub(crate) answers: Vec<TypeAnswer>,
    /// Reasons for a missing answer, or remarks on an answer that may be unexpected.
    pub(crate) reasons: Vec<CodedNote>,
    /// The Services and endpoints that the records come from. For a missing name, the Service that
    /// the name denotes; for an address without a PTR record, the Services that have the address.
    pub(crate) objects: Vec<ServiceObjects>,
    /// The number of objects left out; a wildcard can match thousands.
    pub(crate) more_objects: usize,
    pub(crate) dnsmasq: DnsmasqPath,
}

/// Where the answer of kubedns for a name comes from. `servers` are the upstreams for queries that
/// kubedns forwards. For `Zone`, the name is in a further zone: a zone of etcd, that of
/// `--external-zone`, or that of the cluster set. For `OwnName`, the name is in `hosts` or
/// `aliases` of the `ConfigMap`. For `SingleLabel`, the name is the root or an external name of one
/// label, and kubedns does not forward it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum NameRoute {
    ClusterDomain {
        domain: String,
    },
    Reverse {
        address: IpAddr,
        servers: Vec<String>,
    },
    StubDomain {
        domain: String,
        servers: Vec<String>,
    },
    Upstreams {
        servers: Vec<String>,
    },
    SingleLabel,
    Zone {
        domain: String,
    },
    OwnName,
}

/// The kind of a name. Namespace and name of a Service may be the wildcard `*`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum NameKind {
    /// The cluster domain itself.
    Apex,
    /// `SERVICE.NAMESPACE.svc`.
    Service(ObjectKey),
    /// `_PORT._PROTOCOL.SERVICE.NAMESPACE.svc`, or a name with one more label in front. Also
    /// `_PROTOCOL.SERVICE.NAMESPACE.svc`; then `port` is empty. `port` and `protocol` are stored
    /// without the underscore.
    Port {
        #[serde(flatten)]
        key: ObjectKey,
        port: String,
        protocol: String,
    },
    /// `LABEL.SERVICE.NAMESPACE.svc`: the addresses of a Service that have this label. The label is
    /// a hostname, which several addresses can share, or is derived from an address.
    Member {
        #[serde(flatten)]
        key: ObjectKey,
        label: String,
    },
    /// `ZONE.pin._zone.SERVICE.NAMESPACE.svc` or `ZONE.prefer._zone...`: the addresses of a
    /// headless Service in a topology zone (`--zonal-names`). With `prefer`, the name has all
    /// addresses of the Service if none is in this topology zone.
    Zonal {
        #[serde(flatten)]
        key: ObjectKey,
        zone: String,
        prefer: bool,
    },
    /// `svc` (without `namespace`) or `NAMESPACE.svc`: a domain above the names of Services.
    Namespace {
        namespace: Option<String>,
    },
    /// `A-B-C-D.NAMESPACE.pod`; `address` is `None` if the first label is not an address, if the
    /// namespace is the wildcard `*`, or if one of the two labels contains a dot.
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
    /// A name in the cluster domain that has none of the forms above.
    Formless,
    Reverse {
        address: IpAddr,
    },
    /// A name in a further zone: a zone of etcd, that of `--external-zone`, or that of the cluster
    /// set. `synced` is true once the content of the zone is loaded.
    Zone {
        domain: String,
        synced: bool,
        /// The Service that the name denotes in the zone of `--external-zone`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        service: Option<ObjectKey>,
    },
    /// A name in `hosts` or `aliases` of the `ConfigMap`; `target` is the end of its alias chain,
    /// `None` for a host.
    OwnName {
        target: Option<String>,
    },
    /// Any other name: kubedns has no zone for it.
    #[serde(rename = "outside")]
    External,
}

/// The answer to one query. dnsmasq gives the answer if `from_hosts` or `from_arguments` is true.
/// Otherwise, it is the answer of kubedns, even if dnsmasq does not ask kubedns for the name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TypeAnswer {
    #[serde(rename = "type")]
    pub(crate) qtype: String,
    /// The RCODE; `None` if kubedns itself gives no answer, for example because it forwards the
    /// query.
    pub(crate) rcode: Option<String>,
    /// The records of the answer section in a fixed order; 32 at most.
    pub(crate) records: Vec<AnswerRecord>,
    pub(crate) more_records: usize,
    /// Whether kubedns would truncate the answer over UDP without EDNS. A client would then retry
    /// over TCP.
    pub(crate) truncated: bool,
    /// Queries for external names, as `NAME TYPE`. When kubedns answers a client, it sends these
    /// queries to upstream servers and adds the records to the answer. These records are not in
    /// `records`.
    pub(crate) asks: Vec<String>,
    /// The key of the `ConfigMap` whose rule for external names gives this answer (see
    /// docs/configmap.md); `None` if no such rule gives it. If the name is an alias, the rule can
    /// be for its target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) rule: Option<String>,
    /// Whether dnsmasq answers from the DNS pod's /etc/hosts without forwarding the query.
    pub(crate) from_hosts: bool,
    /// Whether the answer is an address that the arguments of dnsmasq set for the name.
    #[serde(default)]
    pub(crate) from_arguments: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct AnswerRecord {
    pub(crate) name: String,
    #[serde(rename = "type")]
    pub(crate) rtype: String,
    /// The record data in presentation format.
    pub(crate) data: String,
    /// The TTL in seconds.
    pub(crate) ttl: u32,
}

/// A Service and its endpoints; either may be missing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ServiceObjects {
    #[serde(flatten)]
    pub(crate) key: ObjectKey,
    pub(crate) service: Option<ShownService>,
    pub(crate) endpoints: Option<ShownEndpoints>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ShownService {
    pub(crate) kind: ShownServiceKind,
    pub(crate) cluster_ips: Vec<IpAddr>,
    pub(crate) external_name: Option<String>,
    pub(crate) ports: Vec<ShownPort>,
    pub(crate) publish_not_ready_addresses: bool,
    pub(crate) created: Option<Moment>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ShownServiceKind {
    #[serde(rename = "ClusterIP")]
    ClusterIp,
    Headless,
    ExternalName,
    /// A Service that has no cluster IP yet, served like a headless Service.
    #[serde(rename = "WithoutIP")]
    WithoutIp,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ShownPort {
    /// Empty for a port without a name, which has no SRV records.
    pub(crate) name: String,
    /// The protocol as Kubernetes writes it, such as TCP.
    pub(crate) protocol: String,
    #[serde(rename = "port")]
    pub(crate) number: u16,
}

/// The endpoints of a Service. Each list has at most eight entries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ShownEndpoints {
    /// The kind of the objects: `Endpoints` or `EndpointSlice`.
    pub(crate) kind: String,
    /// The names of the objects.
    pub(crate) objects: Vec<String>,
    pub(crate) object_count: usize,
    /// The number of all ready addresses, including those omitted from `ready_addresses`.
    pub(crate) ready: usize,
    pub(crate) not_ready: usize,
    pub(crate) ready_addresses: Vec<ShownAddress>,
    pub(crate) not_ready_addresses: Vec<ShownAddress>,
    /// The ports of the endpoints, which may differ from the ports of the Service.
    pub(crate) ports: Vec<ShownPort>,
    /// Whether the control plane truncated the Endpoints object to 1000 addresses.
    pub(crate) over_capacity: bool,
    /// The time of the newest pod or Service change that triggered an update of these objects
    /// (annotation `endpoints.kubernetes.io/last-change-trigger-time`).
    pub(crate) changed: Option<Moment>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ShownAddress {
    pub(crate) ip: IpAddr,
    pub(crate) hostname: Option<String>,
}

/// The path of a query through dnsmasq. If the nanny does not report the options of dnsmasq, the
/// options of the stock manifest are assumed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DnsmasqPath {
    pub(crate) asks: DnsmasqAsks,
    /// The domain by which dnsmasq selects the servers. `None` if dnsmasq uses the servers that are
    /// given without a domain, or if pods query kubedns directly.
    pub(crate) domain: Option<String>,
    /// The servers other than kubedns that dnsmasq asks. The servers of the node's resolv.conf are
    /// unknown here, and not listed. If pods query kubedns directly, the list has the servers to
    /// which kubedns forwards an external name.
    pub(crate) servers: Vec<String>,
    /// The options of dnsmasq that affect the name. `None` or empty if no such option is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) arguments: Option<Vec<String>>,
    /// Seconds for which dnsmasq caches the answer of kubedns. 0 if dnsmasq does not cache the
    /// answer: with `--cache-size=0`, with a TTL of 0, for SERVFAIL and REFUSED, and for negative
    /// answers with `--no-negcache`. `None` if the time is unknown. It is unknown if the answer may
    /// come from a server other than kubedns, or from dnsmasq itself, and for a negative answer
    /// that dnsmasq caches. The time is also unknown in two cases in which dnsmasq may cache the
    /// answers of different types for different times, or not at all: if A and AAAA get only a
    /// CNAME record, and if A and AAAA get SERVFAIL but another type has records.
    pub(crate) keeps_seconds: Option<u32>,
}

/// The server that dnsmasq asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DnsmasqAsks {
    Kubedns,
    StubDomain,
    /// kubedns and the servers of a stub domain: dnsmasq has both for the same domain, and uses the
    /// first answer.
    KubednsAndStubDomain,
    /// The servers of `upstreamNameservers`.
    Upstreams,
    NodeResolvConf,
    /// The servers in the arguments of dnsmasq. If the arguments have no servers for the name,
    /// dnsmasq itself rejects the query, see [`DnsmasqPath::denial`].
    Arguments,
    /// dnsmasq is not in front: pods query kubedns directly. kubedns may forward to dnsmasq.
    NotInFront,
}

/// An existing name that is similar to the given one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SimilarName {
    pub(crate) name: String,
    /// The kind of similarity.
    pub(crate) why: CodedNote,
}

/// The kubedns that gave the explanation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ServerReport {
    pub(crate) version: String,
    /// The cluster domain.
    pub(crate) domain: String,
    /// Whether kubedns answers cluster names.
    pub(crate) synced: bool,
    /// Source of the records: `nowhere`, `snapshot_file` or `api_server`.
    pub(crate) records_from: String,
    /// The kind of the endpoints, `Endpoints` or `EndpointSlice`; `None` until the first lists are
    /// complete or a snapshot file is restored.
    pub(crate) endpoints_from: Option<String>,
    pub(crate) config_version: String,
    pub(crate) config_loaded: Moment,
    /// The reason why the newest configuration was rejected; `None` if it was accepted.
    pub(crate) config_rejected: Option<String>,
    /// The node of the server, in a cluster with a DNS pod on each node.
    #[serde(default)]
    pub(crate) node: Option<NodeReport>,
}

impl LookupOutcome {
    /// The outcome as one word. RCODEs are in DNS notation, such as NXDOMAIN.
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

impl CodedNote {
    pub(crate) fn new(code: &str, text: impl Into<String>) -> Self {
        Self {
            code: code.to_owned(),
            text: text.into(),
        }
    }
}

impl NameKind {
    /// The Service that the name denotes; `None` for wildcards and for names without a Service.
    pub(crate) fn service(&self) -> Option<&ObjectKey> {
        match self {
            Self::Service(key)
            | Self::Port { key, .. }
            | Self::Member { key, .. }
            | Self::Zonal { key, .. }
            | Self::Federation { key, .. } => Some(key)
                .filter(|key| key.namespace != treecache::ANY && key.name != treecache::ANY),
            Self::Zone { service, .. } => service.as_ref(),
            _ => None,
        }
    }
}

impl DnsmasqPath {
    /// Whether kubedns may receive a pod's query for the name.
    pub(crate) fn leads_to_kubedns(&self) -> bool {
        use DnsmasqAsks::{Kubedns, KubednsAndStubDomain, NotInFront};
        matches!(self.asks, Kubedns | KubednsAndStubDomain | NotInFront)
    }

    /// The RCODE with which dnsmasq itself answers if its arguments give the name no server:
    /// NXDOMAIN if an argument has [`domain`](Self::domain) without an address or a server, REFUSED
    /// if `domain` is `None`.
    pub(crate) fn denial(&self) -> Option<u16> {
        if self.asks != DnsmasqAsks::Arguments || !self.servers.is_empty() {
            return None;
        }
        Some(match self.domain {
            Some(_) => rcode::NXDOMAIN,
            None => rcode::REFUSED,
        })
    }
}

impl fmt::Display for ShownPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.name.is_empty() {
            "(no name)"
        } else {
            &self.name
        };
        write!(f, "{name} {}/{}", self.number, self.protocol)
    }
}

impl fmt::Display for ShownAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.hostname {
            Some(hostname) => write!(f, "{} ({hostname})", self.ip),
            None => self.ip.fmt(f),
        }
    }
}
