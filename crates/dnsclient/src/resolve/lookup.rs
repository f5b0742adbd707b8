//! A single lookup of a name.
//!
//! hickory-resolver queries one server, sends a lost packet again, retries over TCP after
//! truncation, and follows CNAME records. This module sets the order of names and servers, as in
//! resolv.conf(5). A hickory resolver with several servers would stop at the first server that
//! answers REFUSED or SERVFAIL, and would have one timeout for all servers together. So each server
//! has a resolver of its own.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use hickory_net::{DnsError, NetError};
use hickory_proto::op::ResponseCode;
use hickory_proto::rr::{Name, Record, RecordType};
use hickory_resolver::config::{
    ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig, ServerOrderingStrategy,
};
use hickory_resolver::lookup::Lookup;
use wire::Nameserver;

use crate::resolv_conf::ResolvConf;
use crate::sockets::ServerSockets;
use crate::{TIMEOUT, hosts};

/// Maximum number of addresses that a lookup in DNS returns.
const MAX_ADDRESSES: usize = 16;
/// Lifetime of an entry of the hosts file.
const HOSTS_LIFE: Duration = Duration::from_secs(30);
/// Maximum number of servers of resolv.conf that are queried.
const MAX_SERVERS: usize = 3;

type HickoryResolver = hickory_resolver::Resolver<ServerSockets>;

/// Where names are looked up, apart from the servers in resolv.conf.
#[derive(Debug, Clone)]
pub struct LookupSources {
    /// kubedns, for names in the cluster domains.
    pub kubedns: Nameserver,
    /// The cluster domains, and other domains that kubedns serves, without a trailing dot.
    pub cluster_domains: Vec<String>,
    /// The hosts file.
    pub hosts: PathBuf,
}

/// Result of a lookup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LookupOutcome {
    /// The addresses of the name. `life` is the shortest TTL, or 30 seconds for the hosts file.
    Addresses {
        addresses: Vec<IpAddr>,
        life: Duration,
    },
    /// For each of the names tried, a server reported that the name does not exist or has no
    /// address, or the name is not a valid DNS name.
    Absent,
    /// No addresses were found, and for at least one of the names tried, no server gave a usable
    /// answer. Holds the reason.
    Failed(String),
}

impl LookupSources {
    /// Whether kubedns resolves the name.
    pub(super) fn is_cluster_name(&self, name: &str) -> bool {
        self.cluster_domains.iter().any(|domain| {
            let below = name.strip_suffix(domain.as_str());
            below.is_some_and(|below| below.is_empty() || below.ends_with('.'))
        })
    }

    pub(super) async fn look_up(&self, name: &str, resolv_conf: &ResolvConf) -> LookupOutcome {
        if self.is_cluster_name(name) {
            return query_servers(&[self.kubedns], name).await;
        }

        // The hosts file comes before DNS, as in other resolvers.
        let addresses = hosts::lookup_addresses(&self.hosts, name);
        if !addresses.is_empty() {
            return LookupOutcome::Addresses {
                addresses,
                life: HOSTS_LIFE,
            };
        }

        // If a candidate fails and none has addresses, the outcome is `Failed`. With `Absent`, the
        // caller would discard the addresses of its previous lookup.
        let mut last = LookupOutcome::Absent;
        for candidate in search_candidates(name, resolv_conf) {
            match query_servers(&resolv_conf.nameservers, &candidate).await {
                LookupOutcome::Absent => {}
                found @ LookupOutcome::Addresses { .. } => return found,
                failed @ LookupOutcome::Failed(_) => last = failed,
            }
        }
        last
    }
}

/// The names to try, in the order of resolv.conf(5).
fn search_candidates(name: &str, resolv_conf: &ResolvConf) -> Vec<String> {
    let mut candidates: Vec<String> = resolv_conf
        .search
        .iter()
        .map(|domain| format!("{name}.{domain}"))
        .collect();

    // A name with enough dots is tried first as it is, and then with the search list.
    let first = name.matches('.').count() >= resolv_conf.ndots;
    let position = if first { 0 } else { candidates.len() };
    candidates.insert(position, name.to_owned());
    candidates
}

/// Queries the servers in order until one of them gives a usable answer.
async fn query_servers(servers: &[Nameserver], name: &str) -> LookupOutcome {
    let Ok(name) = Name::from_ascii(format!("{name}.")) else {
        return LookupOutcome::Absent;
    };

    let mut reason = "no server to query".to_owned();
    for server in servers.iter().take(MAX_SERVERS) {
        match query_families(*server, &name).await {
            Ok(outcome) => return outcome,
            // As in resolv.conf(5), the next server is queried.
            Err(failure) => reason = format!("{server}: {failure}"),
        }
    }
    LookupOutcome::Failed(reason)
}

/// Queries A and AAAA concurrently. If one query fails and the other returns addresses, the failure
/// is ignored.
async fn query_families(server: Nameserver, name: &Name) -> Result<LookupOutcome, NetError> {
    let resolver = resolver_of(server)?;
    let (v4, v6) = tokio::join!(
        resolver.lookup(name.clone(), RecordType::A),
        resolver.lookup(name.clone(), RecordType::AAAA),
    );

    let mut found = FoundAddresses::default();
    let mut failure = None;
    for family in [v4, v6] {
        match family {
            Ok(lookup) => found.extend(&lookup),
            Err(error) if is_absence(&error) => {}
            Err(error) => failure = failure.or(Some(error)),
        }
    }

    // If the query for one family failed, the name may have addresses of this family. So the name
    // must not be reported as absent.
    match failure {
        _ if !found.addresses.is_empty() => Ok(found.into_outcome()),
        None => Ok(LookupOutcome::Absent),
        Some(failure) => Err(failure),
    }
}

/// A resolver that queries one server, without a cache.
fn resolver_of(server: Nameserver) -> Result<HickoryResolver, NetError> {
    let address = server.socket_addr();
    let mut connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()];
    for connection in &mut connections {
        connection.port = address.port();
    }
    let server = NameServerConfig::new(address.ip(), true, connections.into());
    let config = ResolverConfig::from_parts(None, Vec::new(), vec![server]);

    let sockets = ServerSockets::new(address);
    let mut builder = HickoryResolver::builder_with_config(config, sockets);
    let options = builder.options_mut();
    options.timeout = TIMEOUT;
    // hickory-resolver must not repeat whole lookups, cache answers or read the hosts file:
    // `ServerNameResolver` repeats lookups and keeps addresses, and `look_up` reads the hosts file.
    options.attempts = 0;
    options.cache_size = 0;
    options.edns0 = false;
    options.os_port_selection = true;
    options.use_hosts_file = ResolveHosts::Never;
    options.server_ordering_strategy = ServerOrderingStrategy::UserProvidedOrder;
    builder.build()
}

/// Whether the server says that the name has no address: NXDOMAIN or NODATA.
fn is_absence(error: &NetError) -> bool {
    let NetError::Dns(DnsError::NoRecordsFound(absence)) = error else {
        return false;
    };
    // REFUSED and SERVFAIL say nothing about the name.
    matches!(
        absence.response_code,
        ResponseCode::NoError | ResponseCode::NXDomain
    )
}

/// The addresses in the answers of both families, and the shortest TTL of the records.
#[derive(Default)]
struct FoundAddresses {
    addresses: Vec<IpAddr>,
    ttl: Option<u32>,
}

impl FoundAddresses {
    fn extend(&mut self, lookup: &Lookup) {
        let records = lookup.answers();
        let mut addresses: Vec<IpAddr> = records
            .iter()
            .filter_map(|record| record.data.ip_addr())
            .collect();
        if addresses.is_empty() {
            return;
        }

        // Servers rotate the order of addresses. A different order must not be taken for a change.
        addresses.sort_unstable();
        addresses.dedup();
        self.addresses.append(&mut addresses);

        let shortest = records.iter().map(|record: &Record| record.ttl).min();
        self.ttl = self.ttl.min(shortest).or(shortest);
    }

    fn into_outcome(mut self) -> LookupOutcome {
        self.addresses.truncate(MAX_ADDRESSES);
        LookupOutcome::Addresses {
            addresses: self.addresses,
            life: Duration::from_secs(self.ttl.unwrap_or_default().into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cluster_name_ends_with_domain() {
        let sources = LookupSources {
            kubedns: "127.0.0.1:10053".parse().unwrap(),
            cluster_domains: vec!["k8s.test".to_owned(), "cluster.local".to_owned()],
            hosts: PathBuf::new(),
        };
        assert!(sources.is_cluster_name("ns.apps.svc.cluster.local"));
        assert!(sources.is_cluster_name("ns.apps.svc.k8s.test"));
        assert!(sources.is_cluster_name("cluster.local"));
        assert!(!sources.is_cluster_name("ns.mycluster.local"));
        assert!(!sources.is_cluster_name("ns.example"));
    }

    #[test]
    fn search_order_follows_ndots() {
        let file = ResolvConf::parse("search a.example b.example\noptions ndots:2");
        assert_eq!(
            search_candidates("ns", &file).join(" "),
            "ns.a.example ns.b.example ns"
        );
        assert_eq!(
            search_candidates("x.y.z", &file).join(" "),
            "x.y.z x.y.z.a.example x.y.z.b.example"
        );
        assert_eq!(search_candidates("ns", &ResolvConf::default()), ["ns"]);
    }
}
