//! The path of a query from a pod: through dnsmasq with the flags of the stock manifest, or
//! directly to kubedns.
//!
//! dnsmasq is another process, so kubedns does not know its command line. With the stock flags,
//! dnsmasq forwards the cluster domain and both reverse trees to kubedns, and does not cache
//! negative answers. The nanny adds the stub domains and upstream servers of the ConfigMap, or
//! kubedns as the only server (`-forward=kubedns`). This module assumes that dnsmasq also forwards
//! further zones (etcd, external, cluster set) to kubedns.

use std::path::PathBuf;
use std::sync::Arc;

use dnsclient::hosts;
use dnsconfig::Config;
use wire::Name;
use wire::mnemonic::type_name;
use wire::{reverse, rtype};

use crate::Topology;
use crate::document::{Answer, Dnsmasq, DnsmasqAsks, Record, Route};

/// The DNS server that pods query: dnsmasq or kubedns.
#[derive(Debug, Clone)]
pub(crate) struct Front {
    /// The configuration, which the nanny passes to dnsmasq.
    pub(crate) config: Arc<Config>,
    pub(crate) topology: Topology,
    /// The hosts file of the pod, which dnsmasq also reads.
    pub(crate) hosts: PathBuf,
}

impl Front {
    /// Whether pods query dnsmasq, not kubedns itself.
    fn is_asked_first(&self) -> bool {
        self.topology.is_behind_dnsmasq()
    }

    /// The records of `name` (in lower case) in the hosts file, if pods query dnsmasq.
    pub(crate) fn answers(&self, name: &Name, qtype: u16) -> Option<Answer> {
        if !self.is_asked_first() {
            return None;
        }
        let text = name.to_string();
        let data: Vec<String> = match (qtype, reverse::address_of_name(name.wire())) {
            (rtype::PTR, Some(address)) => {
                let names = hosts::lookup_names(&self.hosts, address).into_iter();
                names.take(1).map(|name| name + ".").collect()
            }
            (rtype::A | rtype::AAAA, _) => {
                let of_family =
                    hosts::lookup_addresses(&self.hosts, text.trim_end_matches('.')).into_iter();
                of_family
                    .filter(|ip| ip.is_ipv4() == (qtype == rtype::A))
                    .map(|ip| ip.to_string())
                    .collect()
            }
            _ => Vec::new(),
        };
        let record = |data| Record {
            name: text.clone(),
            rtype: type_name(qtype),
            data,
            ttl: 0,
        };
        let records: Vec<Record> = data.into_iter().map(record).collect();
        (!records.is_empty()).then(|| Answer::from_hosts(qtype, records))
    }

    /// The path of a query for `name` (in lower case); kubedns answers names in `domain`. The
    /// caller sets `keeps_seconds`, which depends on the answer.
    pub(crate) fn way(&self, name: &Name, domain: &Name, route: &Route) -> Dnsmasq {
        if !self.is_asked_first() {
            return behind(route);
        }
        let own = self
            .config
            .own_names()
            .filter_map(|name| Name::parse(name).ok());
        let ours = reverse::reverse_trees()
            .chain([domain.clone()])
            .chain(own)
            .filter(|ours| name.is_within(ours));
        let ours = ours.max_by_key(Name::label_count);
        if self.topology == Topology::Cache {
            return way(DnsmasqAsks::Kubedns, ours.as_ref(), &[""; 0]);
        }
        let is_own = |stub: &str| self.config.own_names().any(|name| name == stub);
        let stub_domains = self.config.stub_domains.iter();
        let stub_domains =
            stub_domains.filter(|(stub, servers)| !servers.is_empty() && !is_own(stub));
        let stub = stub_domains
            .filter_map(|(stub, servers)| Some((Name::parse(stub).ok()?.to_lowercase(), servers)))
            .filter(|(stub, _)| name.is_within(stub))
            .max_by_key(|(stub, _)| stub.label_count());
        // dnsmasq selects the servers of the longest matching domain. If the same domain belongs to
        // kubedns and to a stub domain, dnsmasq uses the servers of both.
        match (ours, stub) {
            (Some(ours), Some((stub, servers))) if ours == stub => {
                way(DnsmasqAsks::KubednsAndStubDomain, Some(&stub), servers)
            }
            (Some(ours), stub) if stub.as_ref().is_none_or(|(stub, _)| ours.is_within(stub)) => {
                way(DnsmasqAsks::Kubedns, Some(&ours), &[""; 0])
            }
            (_, Some((stub, servers))) => way(DnsmasqAsks::StubDomain, Some(&stub), servers),
            _ if self.config.upstream_nameservers.is_empty() => {
                way(DnsmasqAsks::NodeResolvConf, None, &[""; 0])
            }
            _ => way(
                DnsmasqAsks::Upstreams,
                None,
                &self.config.upstream_nameservers,
            ),
        }
    }
}

/// The path of a query if pods query kubedns directly. The servers may include dnsmasq.
fn behind(route: &Route) -> Dnsmasq {
    match route {
        Route::Upstreams { servers } | Route::StubDomain { servers, .. } => {
            way(DnsmasqAsks::NotInFront, None, servers)
        }
        Route::ClusterDomain { .. }
        | Route::Reverse { .. }
        | Route::SingleLabel
        | Route::Zone { .. }
        | Route::OwnName => way(DnsmasqAsks::NotInFront, None, &[""; 0]),
    }
}

fn way(asks: DnsmasqAsks, domain: Option<&Name>, servers: &[impl ToString]) -> Dnsmasq {
    let (domain, servers) = (
        domain.map(ToString::to_string),
        servers.iter().map(ToString::to_string),
    );
    Dnsmasq {
        asks,
        domain,
        servers: servers.collect(),
        keeps_seconds: None,
    }
}
