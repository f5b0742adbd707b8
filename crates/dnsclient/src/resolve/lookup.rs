//! A single lookup of a name.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use hickory_proto::op::{Message, Query, ResponseCode};
use hickory_proto::rr::{Name, RData, RecordType};
use wire::{Nameserver, ServerAddr};

use crate::hosts;
use crate::resolv_conf::ResolvConf;
use crate::{TIMEOUT, ask_with_retry};

/// Maximum number of addresses of a name.
const MAX_ADDRESSES: usize = 16;
/// Lifetime of an entry of the hosts file.
const HOSTS_LIFE: Duration = Duration::from_secs(30);
/// Maximum number of servers of resolv.conf that are queried.
const MAX_SERVERS: usize = 3;

/// Servers and files that names are resolved with.
#[derive(Debug, Clone)]
pub struct Sources {
    /// kubedns, for names under the cluster domain.
    pub kubedns: Nameserver,
    /// The cluster domain, without a trailing dot.
    pub cluster_domain: String,
    /// The hosts file.
    pub hosts: PathBuf,
}

/// Result of a lookup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Found {
    /// The name has these addresses for the time `life`.
    Addresses {
        addresses: Vec<IpAddr>,
        life: Duration,
    },
    /// A server reported that the name does not exist or has no address.
    Absent,
    /// No server gave a usable answer. Holds the reason.
    Failed(String),
}

impl Sources {
    /// Whether kubedns resolves the name.
    pub(super) fn is_cluster_name(&self, name: &str) -> bool {
        let below = name.strip_suffix(self.cluster_domain.as_str());
        !self.cluster_domain.is_empty()
            && below.is_some_and(|below| below.is_empty() || below.ends_with('.'))
    }

    pub(super) async fn look_up(&self, name: &str, resolv_conf: &ResolvConf) -> Found {
        if self.is_cluster_name(name) {
            return ask_servers(&[self.kubedns], name).await;
        }
        let addresses = hosts::addresses(&self.hosts, name);
        if !addresses.is_empty() {
            return Found::Addresses {
                addresses,
                life: HOSTS_LIFE,
            };
        }
        let mut last = Found::Absent;
        for candidate in candidates(name, resolv_conf) {
            match ask_servers(&resolv_conf.nameservers, &candidate).await {
                Found::Absent => {}
                found @ Found::Addresses { .. } => return found,
                failed @ Found::Failed(_) => last = failed,
            }
        }
        last
    }
}

/// The names to try, in the order of resolv.conf(5).
fn candidates(name: &str, resolv_conf: &ResolvConf) -> Vec<String> {
    let completed = resolv_conf
        .search
        .iter()
        .map(|domain| format!("{name}.{domain}"));
    let as_is = std::iter::once(name.to_owned());
    if name.matches('.').count() >= resolv_conf.ndots {
        as_is.chain(completed).collect()
    } else {
        completed.chain(as_is).collect()
    }
}

/// Queries the servers in order until one of them gives a usable answer.
async fn ask_servers(servers: &[Nameserver], name: &str) -> Found {
    let Ok(name) = Name::from_ascii(format!("{name}.")) else {
        return Found::Absent;
    };
    let mut reason = "no server to query".to_owned();
    for server in servers.iter().take(MAX_SERVERS) {
        match ask_both(*server, &name).await {
            Ok(found) => return found,
            Err(failure) => reason = failure,
        }
    }
    Found::Failed(reason)
}

/// Queries A and AAAA concurrently. If one query fails and the other returns addresses, the failure
/// is ignored.
async fn ask_both(server: Nameserver, name: &Name) -> Result<Found, String> {
    let (v4, v6) = tokio::join!(
        ask_one(server, name, RecordType::A),
        ask_one(server, name, RecordType::AAAA),
    );
    let failure = v4.as_ref().err().or(v6.as_ref().err()).cloned();
    let mut addresses = Vec::new();
    let mut life = Duration::MAX;
    for (some, lives) in [v4, v6].into_iter().flatten() {
        addresses.extend(some);
        life = life.min(lives);
    }
    addresses.truncate(MAX_ADDRESSES);
    match failure {
        _ if !addresses.is_empty() => Ok(Found::Addresses { addresses, life }),
        None => Ok(Found::Absent),
        Some(failure) => Err(failure),
    }
}

async fn ask_one(
    server: Nameserver,
    name: &Name,
    record_type: RecordType,
) -> Result<(Vec<IpAddr>, Duration), String> {
    let query = Query::query(name.clone(), record_type);
    let server = ServerAddr::from(server);
    let answer = ask_with_retry(&server, &query, TIMEOUT)
        .await
        .map_err(|error| error.to_string())?;
    read(&answer.message).map_err(|code| format!("{server} answered {code}"))
}

/// The addresses in an answer, and the shortest TTL of its records. No addresses for NXDOMAIN and
/// NODATA.
fn read(answer: &Message) -> Result<(Vec<IpAddr>, Duration), ResponseCode> {
    match answer.metadata.response_code {
        ResponseCode::NoError => {}
        ResponseCode::NXDomain => return Ok((Vec::new(), Duration::MAX)),
        code => return Err(code),
    }
    let mut addresses: Vec<IpAddr> = answer
        .answers
        .iter()
        .filter_map(|record| match record.data {
            RData::A(ip) => Some(IpAddr::V4(ip.0)),
            RData::AAAA(ip) => Some(IpAddr::V6(ip.0)),
            _ => None,
        })
        .collect();
    // Servers rotate the order of addresses. A different order must not count as a change.
    addresses.sort_unstable();
    addresses.dedup();
    let life = if addresses.is_empty() {
        Duration::MAX
    } else {
        let ttl = answer.answers.iter().map(|record| record.ttl).min();
        Duration::from_secs(u64::from(ttl.unwrap_or_default()))
    };
    Ok((addresses, life))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(cluster_domain: &str) -> Sources {
        Sources {
            kubedns: "127.0.0.1:10053".parse().unwrap(),
            cluster_domain: cluster_domain.to_owned(),
            hosts: PathBuf::new(),
        }
    }

    #[test]
    fn cluster_names_end_with_the_domain_at_a_dot() {
        let sources = sources("cluster.local");
        assert!(sources.is_cluster_name("ns.apps.svc.cluster.local"));
        assert!(sources.is_cluster_name("cluster.local"));
        assert!(!sources.is_cluster_name("ns.mycluster.local"));
        assert!(!sources.is_cluster_name("ns.example"));
    }

    #[test]
    fn order_of_search() {
        let file = ResolvConf::parse("search a.example b.example\noptions ndots:2");
        assert_eq!(
            candidates("ns", &file).join(" "),
            "ns.a.example ns.b.example ns"
        );
        assert_eq!(
            candidates("x.y.z", &file).join(" "),
            "x.y.z x.y.z.a.example x.y.z.b.example"
        );
        assert_eq!(candidates("ns", &ResolvConf::default()), ["ns"]);
    }
}
