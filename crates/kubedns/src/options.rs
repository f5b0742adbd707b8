//! Command line and environment: the flags and variables of the original kube-dns, and new flags.

mod client_rate;
mod clusterset;
mod daemon_set;
mod etcd;
mod exposition;
mod external;
mod pins;
mod prefer_zone;
mod record_source;
mod scope;
mod search;
mod transfer;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use daemon::flags::{GoDuration, GoPeriod, int};
use daemon::klog::LogFlags;
use dnsconfig::federation::{self, FederationError};
use skydns::Zone;
use skydns::forward::CacheLimits;
use skydns::transfer::TransferPeers;
use thiserror::Error;
use warp::http::Uri;
use wire::Name;

use cluster::connect::{Access, expand};
use cluster::index::{self, PodMode};
use cluster::records::{EndpointNames, RecordOptions};
use cluster::watch::endpoints::EndpointsChoice;
use cluster::watch::{Namespaces, Scope};

use skydns::forward::TlsTrust;

pub use crate::tap::dnstap::{DnstapOutput, DnstapReader, DnstapReaderError};
pub use client_rate::{ClientRateFlags, QueryLimit, QueryLimitError};
pub use cluster::domains::{ClusterDomains, ClusterDomainsError, Domain, DomainError};
pub use cluster::namespaces::{NamespaceList, NamespaceListError};
pub use clusterset::ClusterSetError;
pub use daemon_set::{DaemonSetName, DaemonSetNameError};
pub use etcd::{EtcdError, EtcdFlags, EtcdSource, EtcdZone, EtcdZoneError};
pub use explain::DnsmasqTopology;
pub use exposition::{Exposition, MetricsPort};
pub use external::ExternalZoneError;
pub use pins::{PinError, Pins};
pub use prefer_zone::{OwnNodeError, PreferZone, ZoneNameError};
pub use record_source::{EtcdAloneError, RecordSource};
pub use scope::{Selector, SelectorError};
pub use search::{Domains, FallthroughError, SearchError, SearchFlags, SeveralDomains, Zones};
pub use transfer::{TransferError, TransferTo};

/// Last lines of `--help`.
const COMMANDS: &str = "\
Commands:
  kube-dns explain NAME [TYPE]          explain how a name resolves, or why it does not
  kube-dns check config FILE|DIR|-      validate a ConfigMap before it is applied
  kube-dns check cluster                check a running kube-dns, with advice for each failure
  kube-dns tap                          follow queries and their answers live
  kube-dns top                          rank the busiest clients and the most queried names";

/// Command line of kubedns. Flags of the original kube-dns have their original help texts, except
/// `--profiling`.
#[derive(Clone, Debug, clap::Parser)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
#[command(after_help = COMMANDS)]
pub struct Options {
    /// domain under which to create names
    #[arg(long, value_name = "string", default_value = "cluster.local.")]
    pub domain: ClusterDomains,
    /// List of ip:port, separated by commas of nameservers to forward queries to. If set, overrides
    /// upstream servers taken from the nameserver option in /etc/resolv.conf. Example:
    /// 8.8.8.8:53,8.8.4.4 (default port is 53)
    #[arg(long, value_name = "string", default_value = "")]
    pub nameservers: String,
    /// Location of kubecfg file for access to kubernetes master service; --kube-master-url
    /// overrides the URL part of this; if this is not provided, defaults to service account tokens
    #[arg(long, value_name = "string", default_value = "")]
    pub kubecfg_file: String,
    /// context in the kubecfg file to use instead of its current context
    #[arg(long, value_name = "string", default_value = "")]
    pub kubecfg_context: String,
    /// URL to reach kubernetes master. Env variables in this flag will be expanded.
    #[arg(long, verbatim_doc_comment, value_name = "string")]
    pub kube_master_url: Option<MasterUrl>,
    /// port on which to serve a kube-dns HTTP readiness probe.
    #[arg(long, verbatim_doc_comment, value_name = "int", default_value = "8081", value_parser = int::<u16>)]
    pub healthz_port: u16,
    /// address on which to serve DNS requests.
    #[arg(
        long,
        verbatim_doc_comment,
        value_name = "string",
        default_value = "0.0.0.0"
    )]
    pub dns_bind_address: String,
    /// port on which to serve DNS requests.
    #[arg(long, verbatim_doc_comment, value_name = "int", default_value = "53", value_parser = int::<u16>)]
    pub dns_port: u16,
    /// a comma separated list of the federation names and their corresponding domain names to which
    /// this cluster belongs
    #[arg(long, value_name = "string", default_value = "", hide = true)]
    pub federations: Federations,
    /// namespace for the config-map
    #[arg(long, value_name = "string", default_value = "kube-system")]
    pub config_map_namespace: String,
    /// config-map name. If empty, then the config-map will not used. Cannot be used in conjunction with federations or config-dir flag. config-map contains dynamically adjustable configuration.
    #[arg(long, verbatim_doc_comment, value_name = "string", default_value = "")]
    pub config_map: String,
    /// directory to read config values from. Cannot be used in conjunction with federations or config-map flag.
    #[arg(long, verbatim_doc_comment, value_name = "string", default_value = "")]
    pub config_dir: String,
    /// period at which to check for updates in config-dir.
    #[arg(
        long,
        verbatim_doc_comment,
        value_name = "duration",
        default_value = "10s"
    )]
    pub config_period: GoPeriod,
    /// address on which to serve the status and the metrics over HTTP
    #[arg(long, value_name = "string", default_value = "0.0.0.0")]
    pub http_bind_address: String,
    /// Timeout for initial resource sync.
    #[arg(
        long,
        verbatim_doc_comment,
        value_name = "duration",
        default_value = "1m0s"
    )]
    pub initial_sync_timeout: GoDuration,
    /// accepted without effect: there is no profiling over HTTP
    #[arg(long)]
    pub profiling: bool,
    /// source of the endpoints of Services: auto (endpointslices where they can be read), endpoints
    /// or endpointslices
    #[arg(long, value_name = "string", value_enum, default_value_t)]
    pub endpoints_source: EndpointsChoice,
    /// directory of the snapshot file, whose records are served after a restart until the API
    /// server can be reached
    #[arg(long, value_name = "string", default_value = "")]
    pub snapshot_dir: String,
    /// names of endpoints without a hostname, in A, AAAA, SRV and PTR records: hash (as in
    /// kube-dns), address (as in CoreDNS: 10-0-0-1) or pod (the name of the pod)
    #[arg(long, value_name = "string", value_enum, default_value_t)]
    pub endpoint_names: EndpointNames,
    /// answer NXDOMAIN for Services with a cluster IP while none of their endpoints is ready
    #[arg(long)]
    pub ignore_empty_services: bool,
    /// namespaces to serve, separated by commas; each has its own watches, so a Role in each is
    /// enough; empty for all
    #[arg(long, value_name = "string", default_value = "")]
    pub namespaces: NamespaceList,
    /// label selector of the namespaces to serve; cannot be used together with --namespaces
    #[arg(long, value_name = "string", default_value = "")]
    pub namespace_selector: Selector,
    /// label selector of the Services to serve
    #[arg(long, value_name = "string", default_value = "")]
    pub selector: Selector,
    /// names of pods: insecure (resolve to the address in the name, as in kube-dns), disabled (do
    /// not exist), verified (as insecure, but only for addresses of pods in the namespace; watches
    /// pods) or node (as insecure; watches the pods of this node, so that --autopath and the
    /// command top recognize clients)
    #[arg(long, value_name = "string", value_enum, default_value_t)]
    pub pods: PodMode,
    /// topology zone to prefer in answers for headless Services: if at least three addresses are in
    /// the zone, only these are returned. The value is the name of a zone, auto (the zone of this
    /// node) or hints (as auto, but only for Services whose EndpointSlices have hints, see
    /// trafficDistribution). Needs endpointslices
    #[arg(long, value_name = "string", default_value = "")]
    pub prefer_zone: PreferZone,
    /// serve names of headless Services by zone, as the option zonal of CoreDNS does:
    /// ZONE.pin._zone.NAME has only the addresses in the zone, and ZONE.prefer._zone.NAME has the
    /// same, or all addresses if none are in the zone; needs endpointslices
    #[arg(long)]
    pub zonal_names: bool,
    /// DaemonSet of this pod, as NAMESPACE/NAME: if several pods of the DaemonSet are not ready,
    /// this pod waits for a random time before its first lists; needs the permission to get the
    /// DaemonSet
    #[arg(long, value_name = "string", default_value = "")]
    pub daemonset: DaemonSetName,
    /// domain for the external addresses of Services: name.namespace.DOMAIN has the addresses of
    /// load balancers and the external IPs
    #[arg(long, value_name = "string", default_value = "")]
    pub external_zone: Domains,
    /// serve headless Services in the external zone too, with the addresses of their endpoints
    #[arg(long)]
    pub external_headless: bool,
    /// follow the RFCs where kube-dns does not
    #[arg(long)]
    pub strict_dns: bool,
    /// report why a query is not answered, to clients that sent EDNS (RFC 8914)
    #[arg(long)]
    pub extended_errors: bool,
    /// zones, separated by commas, whose names are forwarded if kubedns does not have them; the
    /// zone . stands for all names
    #[arg(long, value_name = "string", default_value = "")]
    pub fallthrough: Zones,
    /// TTL of the answers for cluster names, and for hosts and aliases of the configuration, from
    /// 0s to 1h; 30s unless given
    #[arg(long, value_name = "string", default_value = "")]
    pub ttl: ZoneTtl,
    /// TTL of the negative answers for cluster names, and for hosts, aliases and rules of the
    /// configuration, from 0s to 1h; unless given, the value of --ttl, or 1m without --ttl
    #[arg(long, value_name = "string", default_value = "")]
    pub negative_ttl: ZoneTtl,
    /// domain for pods whose only search domain is NAMESPACE.DOMAIN: for names below it, kubedns
    /// walks the usual search list of a pod in NAMESPACE; empty for none
    #[arg(long, value_name = "string", default_value = "")]
    pub search_suffix: Domains,
    /// walk the search list for pods, recognized by their addresses: a name that does not exist in
    /// the pod's namespace is answered from the rest of the list; needs --pods=verified or
    /// --pods=node, and --topology=direct or --topology=alone
    #[arg(long)]
    pub autopath: bool,
    /// search domains that follow those of the cluster, for --search-suffix and --autopath,
    /// separated by commas; unless given, the search domains in the file of --resolv-conf
    #[arg(long, value_name = "string", default_value = "")]
    pub search_domains: Domains,
    /// domain of the cluster set, such as clusterset.local, whose service imports are watched and
    /// served (KEP-1645); empty for none
    #[arg(long, value_name = "string", default_value = "")]
    pub clusterset_domain: Domains,
    /// position of dnsmasq: drop-in (it forwards names of the cluster to kubedns), cache (it
    /// forwards all names to kubedns, see -forward of the nanny), direct (kubedns forwards to
    /// dnsmasq, its only nameserver) or alone (no dnsmasq, clients query kubedns)
    #[arg(long, value_name = "string", value_enum, default_value_t)]
    pub topology: DnsmasqTopology,
    /// http URL of the nanny's status, from which explain takes the arguments of the dnsmasq that
    /// forwards to kubedns; empty for none
    #[arg(
        long,
        value_name = "string",
        default_value = "http://127.0.0.1:10056/status"
    )]
    pub nanny_status: String,
    /// time to keep answering after SIGTERM; readiness fails after 4s, or after half of this time
    /// if that is less
    #[arg(long, value_name = "duration", default_value = "5s")]
    pub lameduck: GoDuration,
    /// after a crash or a hang, restart kubedns at once within its container, unless kubedns ran
    /// for less than 10s
    #[arg(long)]
    pub restart_after_crash: bool,
    /// maximum number of cached upstream responses; 0 means no cache; with --serve-stale,
    /// --search-suffix or --autopath, 0 means 10000
    #[arg(long, value_name = "int", default_value = "0")]
    pub cache_size: CacheSize,
    /// time for which a cached response is served after its TTL while the upstream servers fail; 0
    /// for never
    #[arg(long, value_name = "duration", default_value = "0s")]
    pub serve_stale: GoDuration,
    /// file with the upstream servers to use when neither --nameservers nor the configuration names
    /// any
    #[arg(long, value_name = "string", default_value = "/etc/resolv.conf")]
    pub resolv_conf: PathBuf,
    /// file of the CA certificates (PEM) that verify upstream servers over TLS; those of the system
    /// unless given
    #[arg(long, value_name = "string", default_value = "")]
    pub upstream_ca_file: String,
    /// pinned keys of upstream servers over TLS, checked in addition to the CA: NAME=BASE64,
    /// separated by commas; BASE64 is the SHA-256 of a public key of the server NAME
    #[arg(long, value_name = "string", default_value = "")]
    pub upstream_tls_pin: Pins,
    /// time without a usable answer (NOERROR, NXDOMAIN) after which an upstream server is probed; 0
    /// to probe only after failed queries
    #[arg(long, value_name = "duration", default_value = "5s")]
    pub upstream_probe_period: GoPeriod,
    /// external name for probes of upstream servers: the probes query this name and the NS records
    /// of the root in turn, because some servers refuse queries for the root
    #[arg(long, value_name = "string", default_value = "example.com", value_parser = Name::parse)]
    pub upstream_probe_name: Name,
    /// The limit on the queries of each client.
    #[command(flatten)]
    pub client_rate: ClientRateFlags,
    /// dnstap reader that receives each query and its response, `unix:///PATH` or
    /// `tcp://HOST:PORT`; empty for none
    #[arg(long, value_name = "string", default_value = "")]
    pub dnstap: DnstapOutput,
    /// Zones from etcd.
    #[command(flatten)]
    pub etcd: EtcdFlags,
    /// secondaries that may transfer the zones (AXFR, IXFR), separated by commas: IP, IP:port or
    /// [IPv6]:port, which are notified of changes, or a network such as 10.0.0.0/8; empty for none
    #[expect(
        rustdoc::broken_intra_doc_links,
        reason = "the text is the help of the flag"
    )]
    #[arg(long, value_name = "string", default_value = "")]
    pub transfer_to: TransferPeers,
    /// file of the TSIG key that the secondaries in --transfer-to must sign with, as tsig-keygen
    /// writes it
    #[arg(long, value_name = "string", default_value = "")]
    pub transfer_key: String,
    /// Logging.
    #[command(flatten)]
    pub log: LogFlags,
}

impl daemon::Options for Options {
    fn log(&self) -> &LogFlags {
        &self.log
    }

    fn lameduck(&self) -> Duration {
        self.lameduck.into()
    }

    fn restarts_after_crash(&self) -> bool {
        self.restart_after_crash
    }
}

/// Flags that exclude each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("cannot use both --config-map and --config-dir: the configuration comes from one place")]
pub struct BothConfigs;

/// A context without a kubeconfig file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("--kubecfg-context needs --kubecfg-file, the file that has the context")]
pub struct ContextWithoutFile;

/// Namespaces that are both named and selected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "cannot use both --namespaces and --namespace-selector: name the namespaces, or select them by their labels"
)]
pub struct BothNamespaces;

/// Source of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigFrom {
    /// A directory, and the period of its checks.
    Directory(PathBuf, Duration),
    /// A `ConfigMap`: namespace and name.
    ConfigMap(String, String),
    /// Only the flags.
    Flags,
}

impl Options {
    /// Address of the API server, and the credentials for it.
    ///
    /// # Errors
    ///
    /// When a context is given without a kubeconfig file.
    pub fn access(&self) -> Result<Access, ContextWithoutFile> {
        let kubeconfig = given(&self.kubecfg_file).map(PathBuf::from);
        let context = given(&self.kubecfg_context).map(str::to_owned);
        if context.is_some() && kubeconfig.is_none() {
            return Err(ContextWithoutFile);
        }

        Ok(Access {
            kubeconfig,
            context,
            master_url: self.kube_master_url.as_ref().map(|url| url.0.clone()),
        })
    }

    /// Source of the configuration.
    ///
    /// # Errors
    ///
    /// When two sources are given.
    pub fn config_from(&self) -> Result<ConfigFrom, BothConfigs> {
        let directory = given(&self.config_dir);
        let name = given(&self.config_map);
        if directory.is_some() && name.is_some() {
            return Err(BothConfigs);
        }

        Ok(if let Some(path) = directory {
            ConfigFrom::Directory(path.into(), self.config_period.duration())
        } else if let Some(name) = name {
            ConfigFrom::ConfigMap(self.config_map_namespace.clone(), name.to_owned())
        } else {
            ConfigFrom::Flags
        })
    }

    /// The part of the cluster that is served.
    ///
    /// # Errors
    ///
    /// When namespaces are both named and selected.
    pub fn scope(&self) -> Result<Scope, BothNamespaces> {
        let namespaces = match (self.namespaces.served(), given(&self.namespace_selector.0)) {
            (Namespaces::All, Some(selector)) => Namespaces::Selected(selector.to_owned()),
            (_, Some(_)) => return Err(BothNamespaces),
            (named, None) => named,
        };

        Ok(Scope {
            namespaces,
            services: given(&self.selector.0).map(str::to_owned),
        })
    }

    /// Identity of a snapshot file: the first cluster domain, and the given flags that change the
    /// content of the file.
    pub fn snapshot_identity(&self) -> String {
        let has_pod_names = self.endpoint_names == EndpointNames::Pod;
        let pods = match self.pods {
            PodMode::Insecure | PodMode::Disabled => "",
            PodMode::Verified => "verified",
            PodMode::Node => "node",
        };
        let has_external = !self.external_zone.0.is_empty();
        let namespaces = self.namespaces.0.join(",");
        // A file that was written with other choices has other records than these flags request.
        let choices = [
            ("namespaces", namespaces.as_str()),
            ("namespace-selector", &self.namespace_selector.0),
            ("selector", &self.selector.0),
            ("endpoint-names", if has_pod_names { "pod" } else { "" }),
            ("pods", pods),
            ("prefer-zone", if self.reads_zones() { "any" } else { "" }),
            ("external-zone", if has_external { "any" } else { "" }),
        ];

        // Defaults are left out. So a file stays valid when a new version of kubedns adds a flag.
        let mut identity = self.domain.first.to_string();
        for (flag, choice) in choices {
            if !choice.is_empty() {
                identity = format!("{identity} --{flag}={choice}");
            }
        }
        identity
    }

    /// The zones that kubedns answers from its own records: the cluster domains, the external zone,
    /// the zone of the cluster set, and the zones from etcd.
    pub fn own_zones(&self) -> Vec<Name> {
        let etcd_zones = self.etcd.etcd_zone.iter().map(|flag| &flag.zone);
        self.domain
            .all()
            .chain(&self.external_zone.0)
            .chain(&self.clusterset_domain.0)
            .chain(etcd_zones)
            .map(Domain::name)
            .collect()
    }

    /// Options of the index. `own_node` is the name of this process's node, if a flag needs it.
    pub fn index_options(&self, scope: &Scope, own_node: Option<&str>) -> index::IndexOptions {
        let records = RecordOptions {
            endpoint_names: self.endpoint_names,
            ignore_empty_services: self.ignore_empty_services,
            preferred_zone: self.prefer_zone.named_zone(),
            preferred_node: own_node
                .filter(|_| self.prefer_zone.follows_node())
                .map(smol_str::SmolStr::new),
            zonal_names: self.zonal_names,
            external: self.external_records(),
        };

        index::IndexOptions {
            records,
            pods: self.pods,
            hints_only: self.prefer_zone == PreferZone::Hints,
            namespaces: scope.namespaces.clone(),
            external_zone: self.external_zone.0.first().map(Domain::name),
            // With an invalid cluster set domain, the start has already failed.
            clusterset: self.clusterset().ok().flatten(),
        }
    }

    /// Limits of the cache of upstream responses; `None` without a cache.
    pub fn cache_limits(&self) -> Option<CacheLimits> {
        let usual = CacheLimits {
            stale: self.serve_stale.into(),
            ..CacheLimits::default()
        };
        if let CacheSize(entries @ 1..) = self.cache_size {
            return Some(CacheLimits { entries, ..usual });
        }

        // Names completed with a search list are queried often, so their upstream responses need a
        // cache.
        let completes_names = !self.search_suffix.0.is_empty() || self.autopath;
        (completes_names || !usual.stale.is_zero()).then_some(usual)
    }

    /// The cluster zone according to the flags, without upstreams.
    ///
    /// # Errors
    ///
    /// When `--fallthrough` names a zone that contains no cluster names and is not a zone of
    /// reverse names.
    pub fn zone(&self) -> Result<Zone, FallthroughError> {
        Ok(Zone {
            other_domains: self.domain.other_names().into(),
            fallthrough: self.fallthrough()?.into(),
            ..self.zone_settings(&self.domain.first.name())
        })
    }

    /// A zone with the settings that do not depend on the source of the records.
    fn zone_settings(&self, domain: &Name) -> Zone {
        let usual = Zone::new(domain);
        let negative_ttl = self.negative_ttl.0.or(self.ttl.0);
        Zone {
            strict: self.strict_dns,
            extended_errors: self.extended_errors,
            forwards_all: self.topology.forwards_all(),
            ttl: self.ttl.0,
            negative_ttl: negative_ttl.unwrap_or(usual.negative_ttl),
            ..usual
        }
    }

    /// CA file and pins for upstream servers over TLS.
    pub fn tls_trust(&self) -> TlsTrust {
        let ca_file = given(&self.upstream_ca_file).map(PathBuf::from);
        TlsTrust {
            ca_file,
            pins: self.upstream_tls_pin.0.clone(),
        }
    }

    /// Directory of the snapshot file; `None` if no snapshot is kept.
    pub fn snapshot_dir(&self) -> Option<PathBuf> {
        given(&self.snapshot_dir).map(PathBuf::from)
    }
}

/// The value of a flag; `None` if the value is empty, because the flag then counts as not given.
fn given(flag: &str) -> Option<&str> {
    (!flag.is_empty()).then_some(flag)
}

/// `--ttl` and `--negative-ttl`: a TTL in whole seconds, from 0 to an hour; `None` for the default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ZoneTtl(pub Option<u32>);

/// Not a valid TTL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("must be whole seconds, such as 30s, from 0s to 1h0m0s")]
pub struct ZoneTtlError;

/// The longest TTL in seconds, as in CoreDNS.
const MAX_ZONE_TTL: u64 = 3600;

impl FromStr for ZoneTtl {
    type Err = ZoneTtlError;

    fn from_str(text: &str) -> Result<Self, ZoneTtlError> {
        if text.is_empty() {
            return Ok(Self(None));
        }
        let GoDuration(ttl) = text.parse().map_err(|_| ZoneTtlError)?;
        if ttl.subsec_nanos() != 0 || ttl.as_secs() > MAX_ZONE_TTL {
            return Err(ZoneTtlError);
        }

        let seconds = u32::try_from(ttl.as_secs()).map_err(|_| ZoneTtlError)?;
        Ok(Self(Some(seconds)))
    }
}

/// `--cache-size`: the maximum number of entries. The same number limits their total size in KiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheSize(pub usize);

/// Too many entries, or not a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("must be a number of entries from 0 to {MAX_CACHE_SIZE}")]
pub struct CacheSizeError;

/// Maximum number of entries, which take up to a GiB of memory.
const MAX_CACHE_SIZE: usize = 1_000_000;

impl FromStr for CacheSize {
    type Err = CacheSizeError;

    fn from_str(text: &str) -> Result<Self, CacheSizeError> {
        let entries = int(text).map_err(|_| CacheSizeError)?;

        if entries <= MAX_CACHE_SIZE {
            Ok(Self(entries))
        } else {
            Err(CacheSizeError)
        }
    }
}

/// `--kube-master-url`, with its environment variables expanded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MasterUrl(String);

/// Not a URL with the scheme http or https and a host. The message is that of kube-dns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("invalid kube-master-url specified")]
pub struct MasterUrlError;

impl FromStr for MasterUrl {
    type Err = MasterUrlError;

    fn from_str(text: &str) -> Result<Self, MasterUrlError> {
        let expanded = expand(text, |name| std::env::var(name).ok());
        http_url(&expanded).ok_or(MasterUrlError)?;
        Ok(Self(expanded))
    }
}

/// Parses a URL with the scheme http or https and a host; `None` if `text` is not such a URL.
fn http_url(text: &str) -> Option<Uri> {
    let url: Uri = text.parse().ok()?;
    let has_host = url.host().is_some_and(|host| !host.is_empty());
    (matches!(url.scheme_str(), Some("http" | "https")) && has_host).then_some(url)
}

/// `--federations`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Federations(pub BTreeMap<String, String>);

impl FromStr for Federations {
    type Err = FederationError;

    fn from_str(text: &str) -> Result<Self, FederationError> {
        federation::parse(text).map(Self)
    }
}

#[cfg(test)]
mod tests;
