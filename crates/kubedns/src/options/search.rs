//! `--search-suffix`, `--autopath` and `--search-domains`: the search list that kubedns walks.
//! `--fallthrough`: the zones whose missing names are forwarded.
//!
//! Other flags with domains use [`Domains`], too.

use std::str::FromStr;

use skydns::search::MAX_DOMAINS;
use thiserror::Error;
use wire::Name;
use wire::reverse;

use super::{DnsmasqTopology, Domain, DomainError, Options};

/// Domains separated by commas; empty text means none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Domains(pub Vec<Domain>);

impl FromStr for Domains {
    type Err = DomainError;

    fn from_str(text: &str) -> Result<Self, DomainError> {
        let domains = text
            .split(',')
            .map(str::trim)
            .filter(|domain| !domain.is_empty());
        domains.map(str::parse).collect::<Result<_, _>>().map(Self)
    }
}

/// More than one domain for a flag that takes one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{0} takes one domain, not {1}")]
pub struct SeveralDomains(&'static str, usize);

impl Domains {
    /// The domain of a flag that takes at most one domain; `None` if the flag has none.
    pub(super) fn only(&self, flag: &'static str) -> Result<Option<&Domain>, SeveralDomains> {
        match self.0.as_slice() {
            [] => Ok(None),
            [domain] => Ok(Some(domain)),
            several => Err(SeveralDomains(flag, several.len())),
        }
    }
}

/// Zones separated by commas, `.` for all names; empty text means none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Zones(pub Vec<Name>);

impl FromStr for Zones {
    type Err = DomainError;

    fn from_str(text: &str) -> Result<Self, DomainError> {
        let zones = text
            .split(',')
            .map(str::trim)
            .filter(|zone| !zone.is_empty());
        zones.map(parse_zone).collect::<Result<_, _>>().map(Self)
    }
}

fn parse_zone(text: &str) -> Result<Name, DomainError> {
    if text == "." {
        return Ok(Name::default());
    }
    text.parse().map(|domain: Domain| domain.name())
}

/// A zone that contains no names of the domains that are served.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "--fallthrough: no name of {domain} is in {zone}; use {domain}, a zone below it, or \".\" for all names"
)]
pub struct FallthroughError {
    zone: Name,
    domain: Domain,
}

/// The search list, and the clients that it applies to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchFlags {
    /// The suffix of `--search-suffix`: the search domain of a pod is its namespace followed by
    /// this suffix.
    pub suffix: Option<Name>,
    /// Whether kubedns walks the list for pods, which it identifies by their addresses.
    pub autopath: bool,
    /// The search domains that follow those of the cluster. If `None`, the search domains of
    /// resolv.conf follow.
    pub domains: Option<Vec<Name>>,
}

/// Invalid or contradictory flags of the search list.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SearchError {
    /// `--search-domains` without a search list.
    #[error(
        "--search-domains needs --search-suffix or --autopath: without these flags, no search list is used"
    )]
    Unused,
    /// `--autopath` without a watch of pods, so the namespaces of clients are unknown.
    #[error(
        "--autopath needs --pods=verified or --pods=node: kubedns learns a client's namespace from the pod that has the client's address"
    )]
    UnknownPods,
    /// `--autopath` behind dnsmasq, so the addresses of clients are unknown.
    #[error(
        "--autopath needs --topology=direct or --topology=alone: behind dnsmasq kubedns does not see the addresses of its clients"
    )]
    UnseenClients,
    /// More than one suffix.
    #[error(transparent)]
    Several(#[from] SeveralDomains),
    /// The suffix contains a cluster domain, or is in a domain with a reserved label, such as
    /// `svc.cluster.local`.
    #[error("--search-suffix {suffix} is taken by names of the cluster: use a domain {allowed}")]
    Taken {
        /// The suffix.
        suffix: Domain,
        /// The domains that are allowed instead.
        allowed: String,
    },
    /// A search domain is within the suffix.
    #[error(
        "--search-domains: {0} has no effect, because it is within --search-suffix: when kubedns walks a search list, it skips names within the suffix"
    )]
    Completed(Name),
    /// Too many search domains.
    #[error(
        "--search-domains has {0} domains, but at most {MAX_DOMAINS} are accepted: each may cost a query to an upstream"
    )]
    Many(usize),
}

/// The domains with these labels, directly below the cluster domain, contain cluster names.
const RESERVED: [&str; 4] = ["svc", "pod", "dns", "dns-version"];

impl Options {
    /// The cluster zones whose missing names are forwarded.
    ///
    /// # Errors
    ///
    /// When a zone contains no cluster names. Zones of reverse names are accepted without effect:
    /// missing reverse names are always forwarded.
    pub fn fallthrough(&self) -> Result<Vec<Name>, FallthroughError> {
        let domains: Vec<Domain> = self.domain.all().cloned().collect();
        self.fallthrough_within(&domains)
    }

    /// The zones within `domains` whose missing names are forwarded.
    pub(super) fn fallthrough_within(
        &self,
        domains: &[Domain],
    ) -> Result<Vec<Name>, FallthroughError> {
        let mut zones = Vec::new();
        for zone in &self.fallthrough.0 {
            let ours = zones_within(zone, domains);
            let is_reverse = reverse::is_reverse_name(zone);
            if let ([], false, Some(domain)) = (ours.as_slice(), is_reverse, domains.first()) {
                return Err(FallthroughError {
                    zone: zone.clone(),
                    domain: domain.clone(),
                });
            }
            zones.extend(ours);
        }
        Ok(zones)
    }

    /// The search list, if `--search-suffix` or `--autopath` is given.
    ///
    /// # Errors
    ///
    /// When the flags are invalid or contradict each other.
    pub fn search(&self) -> Result<Option<SearchFlags>, SearchError> {
        let suffix = self.search_suffix.only("--search-suffix")?;
        if let Some(suffix) = suffix {
            self.check_suffix(suffix)?;
        }
        self.check_autopath()?;

        let domains: Vec<Name> = self.search_domains.0.iter().map(Domain::name).collect();
        // Without `--search-suffix` or `--autopath`, the search domains have no effect, so giving
        // `--search-domains` is a mistake.
        if suffix.is_none() && !self.autopath {
            return if domains.is_empty() {
                Ok(None)
            } else {
                Err(SearchError::Unused)
            };
        }
        if domains.len() > MAX_DOMAINS {
            return Err(SearchError::Many(domains.len()));
        }

        // When kubedns walks a search list, it does not look up names within the suffix. So a
        // search domain within the suffix has no effect.
        let suffix = suffix.map(Domain::name);
        for domain in &domains {
            if suffix
                .as_ref()
                .is_some_and(|suffix| domain.is_within(suffix))
            {
                return Err(SearchError::Completed(domain.clone()));
            }
        }
        Ok(Some(SearchFlags {
            suffix,
            autopath: self.autopath,
            domains: (!domains.is_empty()).then_some(domains),
        }))
    }

    fn check_autopath(&self) -> Result<(), SearchError> {
        match self.topology {
            _ if !self.autopath => Ok(()),
            DnsmasqTopology::DropIn | DnsmasqTopology::Cache => Err(SearchError::UnseenClients),
            DnsmasqTopology::Direct | DnsmasqTopology::Alone if !self.pods.watches_pods() => {
                Err(SearchError::UnknownPods)
            }
            DnsmasqTopology::Direct | DnsmasqTopology::Alone => Ok(()),
        }
    }

    fn check_suffix(&self, suffix: &Domain) -> Result<(), SearchError> {
        let name = suffix.name();
        let mut allowed = None;
        for domain in self.domain.all() {
            // A query for a name below the suffix makes kubedns walk the search list. So no cluster
            // domain may be the suffix or below it.
            if domain.name().is_within(&name) {
                allowed = Some(format!(
                    "such as search.{domain}, but neither {domain} nor a domain above it"
                ));
                break;
            }
            if let Some(reserved) = reserved_domain_above(&name, domain) {
                allowed = Some(format!("outside of {reserved}"));
                break;
            }
        }

        match allowed {
            Some(allowed) => Err(SearchError::Taken {
                suffix: suffix.clone(),
                allowed,
            }),
            None => Ok(()),
        }
    }
}

/// The part of `zone` that is in `domains`: `zone` itself, or the domains below it.
fn zones_within(zone: &Name, domains: &[Domain]) -> Vec<Name> {
    let domains = domains.iter().map(Domain::name);
    if domains.clone().any(|domain| zone.is_within(&domain)) {
        return vec![zone.clone()];
    }
    domains.filter(|domain| domain.is_within(zone)).collect()
}

/// The domain below `domain` that has a [`RESERVED`] label and contains `name`.
fn reserved_domain_above(name: &Name, domain: &Domain) -> Option<Name> {
    let labels = RESERVED.into_iter();
    let mut reserved = labels.filter_map(|label| Name::parse(&format!("{label}.{domain}")).ok());
    reserved.find(|reserved| name.is_within(reserved))
}
