//! `--search-suffix`, `--autopath` and `--search-domains`: the search list that kubedns walks.

use std::fmt;
use std::str::FromStr;

use skydns::search::MAX_DOMAINS;
use thiserror::Error;
use wire::Name;
use wire::reverse;

use super::{Domain, DomainError, Options, Topology};
use cluster::index::PodMode;

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
    /// The domain of a flag that allows one; `None` if the flag is not given.
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
        let name = |zone: &str| match zone {
            "." => Ok(Name::default()),
            zone => zone.parse().map(|domain: Domain| domain.name()),
        };
        zones.map(name).collect::<Result<_, _>>().map(Self)
    }
}

/// A zone that contains no cluster names.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "--fallthrough: no name of {domain} is in {zone}; {domain}, zones below it and . for all names are accepted"
)]
pub struct FallthroughError {
    zone: Name,
    domain: Domain,
}

/// The search list, and the clients that it applies to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchFlags {
    /// The suffix of `--search-suffix`: the search domain of a pod is its namespace and this
    /// suffix.
    pub suffix: Option<Name>,
    /// Whether kubedns walks the list for pods, which it identifies by their addresses.
    pub autopath: bool,
    /// The search domains after the cluster's; `None` for the search domains in resolv.conf.
    pub domains: Option<Vec<Name>>,
}

/// Contradictory flags of the search list.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SearchError {
    /// `--search-domains` without a search list.
    #[error(
        "--search-domains needs --search-suffix or --autopath, which walk the search list that they are a part of"
    )]
    Unused,
    /// `--autopath` without `--pods=verified`, so the namespaces of clients are unknown.
    #[error(
        "--autopath needs --pods=verified: the client's namespace is that of the pod with its address"
    )]
    UnknownPods,
    /// `--autopath` behind dnsmasq, so the addresses of clients are unknown.
    #[error(
        "--autopath needs --topology=direct or alone: behind dnsmasq kubedns does not see the addresses of its clients"
    )]
    UnseenClients,
    /// More than one suffix.
    #[error(transparent)]
    Several(#[from] SeveralDomains),
    /// The suffix overlaps cluster names.
    #[error(
        "--search-suffix {suffix} is taken by names of the cluster: use a domain that does not overlap {taken}"
    )]
    Taken {
        /// The suffix.
        suffix: Domain,
        /// The overlapped domain.
        taken: String,
    },
    /// A search domain is below the suffix.
    #[error(
        "--search-domains: {0} is below --search-suffix, where names are completed with this very list"
    )]
    Completed(Name),
    /// Too many search domains.
    #[error(
        "--search-domains has {0} domains; each may cost a query to an upstream, at most {MAX_DOMAINS} are accepted"
    )]
    Many(usize),
}

/// Labels directly below the cluster domain that contain cluster names.
const TAKEN: [&str; 4] = ["svc", "pod", "dns", "dns-version"];

impl Options {
    /// The cluster zones whose missing names are forwarded.
    ///
    /// # Errors
    ///
    /// When a zone contains no cluster names. Zones of reverse names are accepted without effect:
    /// missing reverse names are always forwarded.
    pub fn fallthrough(&self) -> Result<Vec<Name>, FallthroughError> {
        let domains = || self.domain.all().map(Domain::name);
        let above = |zone: &Name| {
            domains()
                .filter(|domain| domain.is_within(zone))
                .collect::<Vec<_>>()
        };
        let of_cluster = |zone: &Name| self.domain.hold(zone) || !above(zone).is_empty();
        let known = |zone: &Name| {
            of_cluster(zone) || reverse::reverse_trees().any(|tree| zone.is_within(&tree))
        };
        if let Some(zone) = self.fallthrough.0.iter().find(|zone| !known(zone)) {
            return Err(FallthroughError {
                zone: zone.clone(),
                domain: self.domain.first.clone(),
            });
        }
        let below = |zone: &Name| {
            if self.domain.hold(zone) {
                vec![zone.clone()]
            } else {
                above(zone)
            }
        };
        Ok(self.fallthrough.0.iter().flat_map(below).collect())
    }

    /// The search list, if `--search-suffix` or `--autopath` is given.
    ///
    /// # Errors
    ///
    /// When the flags contradict each other.
    pub fn search(&self) -> Result<Option<SearchFlags>, SearchError> {
        let suffix = self.search_suffix.only("--search-suffix")?;
        suffix.map_or(Ok(()), |suffix| self.check_suffix(suffix))?;
        self.check_autopath()?;
        let (suffix, domains) = (suffix.map(Domain::name), &self.search_domains.0);
        let domains: Vec<Name> = domains.iter().map(Domain::name).collect();
        match &suffix {
            None if !self.autopath && domains.is_empty() => return Ok(None),
            None if !self.autopath => return Err(SearchError::Unused),
            _ if domains.len() > MAX_DOMAINS => return Err(SearchError::Many(domains.len())),
            _ => {}
        }
        let completed = |domain: &&Name| {
            suffix
                .as_ref()
                .is_some_and(|suffix| domain.is_within(suffix))
        };
        if let Some(domain) = domains.iter().find(completed) {
            return Err(SearchError::Completed(domain.clone()));
        }
        let domains = (!domains.is_empty()).then_some(domains);
        Ok(Some(SearchFlags {
            suffix,
            autopath: self.autopath,
            domains,
        }))
    }

    fn check_autopath(&self) -> Result<(), SearchError> {
        match self.topology {
            _ if !self.autopath => Ok(()),
            Topology::DropIn | Topology::Cache => Err(SearchError::UnseenClients),
            Topology::Direct | Topology::Alone if self.pods != PodMode::Verified => {
                Err(SearchError::UnknownPods)
            }
            Topology::Direct | Topology::Alone => Ok(()),
        }
    }

    fn check_suffix(&self, suffix: &Domain) -> Result<(), SearchError> {
        let taken = |taken: &dyn fmt::Display| {
            Err(SearchError::Taken {
                suffix: suffix.clone(),
                taken: taken.to_string(),
            })
        };
        let name = suffix.name();
        if let Some(domain) = self
            .domain
            .all()
            .find(|domain| domain.name().is_within(&name))
        {
            return taken(domain);
        }
        let below = |domain| {
            TAKEN
                .into_iter()
                .filter_map(move |label| Name::parse(&format!("{label}.{domain}")).ok())
        };
        match self
            .domain
            .all()
            .flat_map(below)
            .find(|taken| name.is_within(taken))
        {
            Some(reserved) => taken(&reserved),
            None => Ok(()),
        }
    }
}
