//! The path of a query from a pod: through dnsmasq, or directly to kubedns.
//!
//! The nanny reports the options of dnsmasq; without a report, the options of the stock manifest
//! are assumed. With these stock options, dnsmasq forwards the cluster domain and both reverse
//! trees to kubedns, and does not cache negative answers. The nanny adds the stub domains and
//! upstream servers of the ConfigMap. With `-forward=kubedns`, or with rules for external names,
//! kubedns takes the place of all these servers. dnsmasq can query only servers of plain DNS over
//! UDP. If a stub domain has another server, such as one for DNS over TLS, kubedns takes the place
//! of all servers of this stub domain. The same applies to the upstream servers. This module
//! assumes that dnsmasq also forwards further zones (etcd, external, cluster set) to kubedns.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use dnsclient::hosts;
use dnsconfig::Config;
use wire::Name;
use wire::ServerAddr;
use wire::mnemonic::type_name;
use wire::{reverse, rtype};

use super::dnsmasq_arguments::{DnsmasqArguments, DomainAddresses, DomainDecision, DomainOptions};
use super::topology::DnsmasqTopology;
use crate::document::{AnswerRecord, DnsmasqAsks, DnsmasqPath, NameRoute, TypeAnswer};

/// The DNS server that pods query: dnsmasq or kubedns.
#[derive(Debug, Clone)]
pub(crate) struct DnsFront {
    /// The configuration, which the nanny passes to dnsmasq.
    pub(crate) config: Arc<Config>,
    pub(crate) topology: DnsmasqTopology,
    /// The hosts file of the pod. Without the option `--no-hosts`, dnsmasq reads this file.
    pub(crate) hosts: PathBuf,
    /// The options of dnsmasq; `None` if the nanny does not report them.
    pub(crate) arguments: Option<DnsmasqArguments>,
    /// Servers from dnsmasq's options, which dnsmasq queries for external names in addition to
    /// kubedns or the servers of the configuration. The nanny reports them.
    pub(crate) added_servers: Vec<String>,
}

impl DnsFront {
    /// Whether dnsmasq caches answers.
    pub(crate) fn has_cache(&self) -> bool {
        let arguments = self.arguments.as_ref();
        arguments.is_none_or(DnsmasqArguments::have_cache)
    }

    /// Whether dnsmasq caches NXDOMAIN and NODATA. If the arguments are unknown, those of the stock
    /// manifest are assumed, which include `--no-negcache`.
    pub(crate) fn caches_negative_answers(&self) -> bool {
        let arguments = self.arguments.as_ref();
        arguments.is_some_and(DnsmasqArguments::cache_negative_answers)
    }

    /// The answer that dnsmasq gives pods for `name` (in lower case) from the hosts file, if any.
    pub(crate) fn hosts_answer(&self, name: &Name, qtype: u16) -> Option<TypeAnswer> {
        let reads_hosts = self
            .arguments
            .as_ref()
            .is_none_or(DnsmasqArguments::reads_hosts);
        if !self.topology.is_behind_dnsmasq() || !reads_hosts {
            return None;
        }

        // dnsmasq answers a PTR query with the first name of the address, and an address query with
        // all addresses of the name.
        let owner = name.to_string();
        let data = match (qtype, reverse::address_of_name(name.wire())) {
            (rtype::PTR, Some(address)) => self.first_host_name(address).into_iter().collect(),
            (rtype::A | rtype::AAAA, _) => self.host_addresses(&owner, qtype == rtype::A),
            _ => Vec::new(),
        };
        if data.is_empty() {
            return None;
        }

        let mut records = Vec::with_capacity(data.len());
        for data in data {
            records.push(AnswerRecord {
                name: owner.clone(),
                rtype: type_name(qtype),
                data,
                ttl: 0,
            });
        }
        Some(TypeAnswer::from_hosts_file(qtype, records))
    }

    /// The addresses of `name` (in lower case) in the arguments of dnsmasq, if pods query dnsmasq.
    /// `None` if dnsmasq uses no address of this type for `name`. `domain` is the zone of kubedns
    /// that contains `name`, or the cluster domain if there is no such zone.
    pub(crate) fn arguments_answer(
        &self,
        name: &Name,
        domain: &Name,
        qtype: u16,
    ) -> Option<TypeAnswer> {
        let arguments = self.arguments.as_ref()?;
        let mut addresses = arguments.host_addresses(name);
        if addresses.is_empty() {
            addresses = self.domain_addresses(name, domain)?.addresses;
        }
        addresses.retain(|address| match qtype {
            rtype::A => address.is_ipv4(),
            rtype::AAAA => address.is_ipv6(),
            _ => false,
        });
        if addresses.is_empty() || !self.topology.is_behind_dnsmasq() {
            return None;
        }

        let records = addresses.into_iter().map(|address| AnswerRecord {
            name: name.to_string(),
            rtype: type_name(qtype),
            data: address.to_string(),
            ttl: 0,
        });
        Some(TypeAnswer::from_arguments(qtype, records.collect()))
    }

    /// The addresses that the arguments of dnsmasq give for a domain which contains `name`. `None`
    /// if a longer domain takes precedence: a domain of kubedns, a stub domain, or a domain for
    /// which the arguments of dnsmasq set servers or deny answers ([`DomainOptions`]).
    fn domain_addresses(&self, name: &Name, domain: &Name) -> Option<DomainAddresses> {
        let arguments = self.arguments.as_ref()?;
        let found = arguments.domain_addresses(name)?;
        let domains = [
            self.kubedns_domain(name, domain),
            self.stub_domain(name).map(|stub| stub.domain),
            arguments.domain_options(name).map(|options| options.domain),
        ];
        let longest = domains.iter().flatten().map(Name::label_count).max();
        longest
            .is_none_or(|longest| found.domain.label_count() >= longest)
            .then_some(found)
    }

    /// The first name of an address in the hosts file.
    fn first_host_name(&self, address: IpAddr) -> Option<String> {
        let name = hosts::lookup_names(&self.hosts, address)
            .into_iter()
            .next()?;
        Some(name + ".")
    }

    /// The IPv4 or the IPv6 addresses of a name in the hosts file.
    fn host_addresses(&self, name: &str, ipv4: bool) -> Vec<String> {
        hosts::lookup_addresses(&self.hosts, name.trim_end_matches('.'))
            .into_iter()
            .filter(|address| address.is_ipv4() == ipv4)
            .map(|address| address.to_string())
            .collect()
    }

    /// The path of a query for `name` (in lower case). `domain` is the zone of kubedns that
    /// contains `name`, or the cluster domain if there is no such zone. The caller sets
    /// `keeps_seconds`, which depends on the answer.
    pub(crate) fn query_path(&self, name: &Name, domain: &Name, route: &NameRoute) -> DnsmasqPath {
        if !self.topology.is_behind_dnsmasq() {
            return path_without_dnsmasq(route);
        }

        let path = self.forwarding_path(name, domain);
        let Some(DomainAddresses { texts, .. }) = self.domain_addresses(name, domain) else {
            return path;
        };
        let others = path.arguments.unwrap_or_default();
        DnsmasqPath {
            arguments: Some([texts, others].concat()),
            ..path
        }
    }

    /// The path of a query that dnsmasq forwards.
    fn forwarding_path(&self, name: &Name, domain: &Name) -> DnsmasqPath {
        let kubedns_domain = self.kubedns_domain(name, domain);
        let options = self.arguments.as_ref();
        if let Some(options) = options.and_then(|arguments| arguments.domain_options(name))
            && let Some(path) = self.path_by_domain(name, options, kubedns_domain.as_ref())
        {
            return path;
        }

        // dnsmasq selects the servers of the longest matching domain. If the same domain belongs to
        // kubedns and to a stub domain, dnsmasq uses the servers of both.
        match (kubedns_domain, self.stub_domain(name)) {
            (Some(domain), Some(stub)) if domain == stub.domain && self.queries_itself(&stub) => {
                self.with_options(
                    name,
                    dnsmasq_path(
                        DnsmasqAsks::KubednsAndStubDomain,
                        Some(&stub.domain),
                        stub.servers,
                    ),
                )
            }
            (Some(domain), stub)
                if stub
                    .as_ref()
                    .is_none_or(|stub| domain.is_within(&stub.domain)) =>
            {
                self.with_options(name, path_to_kubedns(Some(&domain)))
            }
            (_, Some(stub)) => {
                let domain = Some(&stub.domain);
                let path = if self.queries_itself(&stub) {
                    dnsmasq_path(DnsmasqAsks::StubDomain, domain, stub.servers)
                } else {
                    path_to_kubedns(domain)
                };
                self.with_options(name, path)
            }
            _ => self.path_to_upstreams(name),
        }
    }

    /// The path according to the options for a domain. `None` if these options do not apply,
    /// because there is a longer stub domain, or a domain of kubedns that is at least as long.
    fn path_by_domain(
        &self,
        name: &Name,
        options: DomainOptions,
        kubedns_domain: Option<&Name>,
    ) -> Option<DnsmasqPath> {
        let labels = options.domain.label_count();
        // dnsmasq's options for `kubedns_domain` itself are assumed to name kubedns as the server,
        // as in the stock manifest.
        if kubedns_domain.is_some_and(|domain| domain.label_count() >= labels) {
            return None;
        }
        let stub = self.stub_domain(name);
        let stub = stub.filter(|stub| stub.domain.label_count() >= labels);
        if stub
            .as_ref()
            .is_some_and(|stub| stub.domain != options.domain)
        {
            return None;
        }

        let DomainOptions {
            domain,
            texts,
            servers,
            decision,
        } = options;
        let path = match (decision, stub) {
            (DomainDecision::Standard, _) => self.path_to_upstreams(name),
            // In the next two cases, dnsmasq queries `servers`, too: besides kubedns, or besides
            // the servers of the stub domain.
            (DomainDecision::Servers, Some(stub)) if !self.queries_itself(&stub) => {
                let path = dnsmasq_path(DnsmasqAsks::Kubedns, Some(&domain), &servers);
                self.with_options(name, path)
            }
            (DomainDecision::Servers, Some(stub)) => {
                let of_stub = stub.servers.iter().map(ToString::to_string);
                let all: Vec<String> = of_stub.chain(servers).collect();
                self.with_options(
                    name,
                    dnsmasq_path(DnsmasqAsks::StubDomain, Some(&domain), &all),
                )
            }
            (DomainDecision::Servers, None) if !servers.is_empty() => {
                let path = dnsmasq_path(DnsmasqAsks::Arguments, Some(&domain), &servers);
                self.with_options(name, path)
            }
            (DomainDecision::Servers, None) | (DomainDecision::Denied, _) => {
                dnsmasq_path(DnsmasqAsks::Arguments, Some(&domain), &[""; 0])
            }
        };
        let about_answers = path.arguments.unwrap_or_default();
        Some(DnsmasqPath {
            arguments: Some([texts, about_answers].concat()),
            ..path
        })
    }

    /// The path with the options of dnsmasq that change the answers of its servers, if any.
    fn with_options(&self, name: &Name, path: DnsmasqPath) -> DnsmasqPath {
        let arguments = self.arguments.as_ref();
        let options = arguments.map(|arguments| arguments.about_answers(name));
        DnsmasqPath {
            arguments: options.filter(|options| !options.is_empty()),
            ..path
        }
    }

    /// The path of external names. Its `arguments` also contain the options that concern only these
    /// names.
    fn path_to_upstreams(&self, name: &Name) -> DnsmasqPath {
        let upstreams = &self.config.upstream_nameservers;
        let path = match &self.arguments {
            // If one of the upstreams is not plain DNS over UDP, dnsmasq cannot query it. The nanny
            // then makes kubedns the server for external names.
            _ if self.forwards_all_to_kubedns()
                || upstreams.iter().any(|server| server.plain().is_none()) =>
            {
                dnsmasq_path(DnsmasqAsks::Kubedns, None, &self.added_servers)
            }
            _ if !upstreams.is_empty() => dnsmasq_path(DnsmasqAsks::Upstreams, None, upstreams),
            Some(arguments) if !arguments.reads_resolv_conf() => {
                dnsmasq_path(DnsmasqAsks::Arguments, None, &arguments.servers())
            }
            _ => dnsmasq_path(DnsmasqAsks::NodeResolvConf, None, &[""; 0]),
        };
        let arguments = self.arguments.as_ref();
        DnsmasqPath {
            arguments: arguments.map(|arguments| arguments.about_forwarded_name(name, path.asks)),
            ..path
        }
    }

    /// Whether dnsmasq is only a cache, or there are rules for external names. The nanny then gives
    /// dnsmasq no server but kubedns.
    fn forwards_all_to_kubedns(&self) -> bool {
        self.topology == DnsmasqTopology::Cache || self.config.has_external_rules()
    }

    /// Whether dnsmasq queries the servers of the stub domain itself. Otherwise the nanny makes
    /// dnsmasq forward the domain to kubedns.
    fn queries_itself(&self, stub: &StubDomain<'_>) -> bool {
        stub.servers.iter().all(ServerAddr::is_plain) && !self.forwards_all_to_kubedns()
    }

    /// The longest domain that contains `name`, among the reverse trees, `domain`, and the domains
    /// of the names in the keys `hosts` and `aliases` of the configuration. dnsmasq forwards these
    /// domains to kubedns.
    fn kubedns_domain(&self, name: &Name, domain: &Name) -> Option<Name> {
        let own_names = self
            .config
            .own_domains()
            .filter_map(|name| Name::parse(name).ok());
        reverse::reverse_trees()
            .chain([domain.clone()])
            .chain(own_names)
            .filter(|domain| name.is_within(domain))
            .max_by_key(Name::label_count)
    }

    /// The longest stub domain that contains `name`. Stub domains without servers are ignored, and
    /// so are those in [`Config::own_domains`].
    fn stub_domain(&self, name: &Name) -> Option<StubDomain<'_>> {
        let mut longest: Option<StubDomain<'_>> = None;
        for (domain, servers) in &self.config.stub_domains {
            let is_own_name = self.config.own_domains().any(|own| own == domain);
            if servers.is_empty() || is_own_name {
                continue;
            }
            let Ok(domain) = Name::parse(domain) else {
                continue;
            };
            let domain = domain.to_lowercase();
            let is_longest = longest
                .as_ref()
                .is_none_or(|known| domain.label_count() >= known.domain.label_count());
            if is_longest && name.is_within(&domain) {
                longest = Some(StubDomain { domain, servers });
            }
        }
        longest
    }
}

/// A stub domain of the configuration, and its servers.
struct StubDomain<'c> {
    domain: Name,
    servers: &'c [ServerAddr],
}

/// The path of a query if pods query kubedns directly. Its servers are those to which kubedns
/// forwards the name.
fn path_without_dnsmasq(route: &NameRoute) -> DnsmasqPath {
    match route {
        NameRoute::Upstreams { servers } | NameRoute::StubDomain { servers, .. } => {
            dnsmasq_path(DnsmasqAsks::NotInFront, None, servers)
        }
        NameRoute::ClusterDomain { .. }
        | NameRoute::Reverse { .. }
        | NameRoute::SingleLabel
        | NameRoute::Zone { .. }
        | NameRoute::OwnName => dnsmasq_path(DnsmasqAsks::NotInFront, None, &[""; 0]),
    }
}

fn path_to_kubedns(domain: Option<&Name>) -> DnsmasqPath {
    dnsmasq_path(DnsmasqAsks::Kubedns, domain, &[""; 0])
}

fn dnsmasq_path(
    asks: DnsmasqAsks,
    domain: Option<&Name>,
    servers: &[impl ToString],
) -> DnsmasqPath {
    DnsmasqPath {
        asks,
        domain: domain.map(ToString::to_string),
        servers: servers.iter().map(ToString::to_string).collect(),
        arguments: None,
        keeps_seconds: None,
    }
}
