//! `--clusterset-domain`: the zone of a cluster set (KEP-1645).

use cluster::clusterset::ClusterSetZone;
use thiserror::Error;

use super::{Domain, Options, SeveralDomains};

/// Invalid domain of the cluster set.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ClusterSetError {
    /// More than one domain.
    #[error(transparent)]
    Several(#[from] SeveralDomains),
    /// The domain is a cluster domain.
    #[error(
        "--clusterset-domain: {0} is a domain of the cluster itself; use another domain (usually clusterset.local)"
    )]
    Cluster(Domain),
    /// The domain is that of the external zone.
    #[error("--clusterset-domain: {0} is the domain of --external-zone")]
    External(Domain),
    /// The domain is a search suffix, or is below one.
    #[error(
        "--clusterset-domain must not be in {0}: names there are completed with the search list (--search-suffix)"
    )]
    Completed(Domain),
}

impl Options {
    /// The zone of the cluster set, with the TTLs of the cluster zone; `None` without the flag.
    ///
    /// # Errors
    ///
    /// When the flag has several domains, or when the domain is a cluster domain, the external
    /// zone, a search suffix or below a search suffix.
    pub fn clusterset(&self) -> Result<Option<ClusterSetZone>, ClusterSetError> {
        let Some(domain) = self.clusterset_domain.only("--clusterset-domain")? else {
            return Ok(None);
        };
        if self.domain.all().any(|own| own == domain) {
            return Err(ClusterSetError::Cluster(domain.clone()));
        }
        if self.external_zone.0.contains(domain) {
            return Err(ClusterSetError::External(domain.clone()));
        }
        let name = domain.name();
        // For names in the search suffix, kubedns walks a search list and does not look up the
        // queried name. So clients could not look up names of a cluster set in the suffix.
        for suffix in &self.search_suffix.0 {
            if name.is_within(&suffix.name()) {
                return Err(ClusterSetError::Completed(suffix.clone()));
            }
        }

        let usual = skydns::Zone::new(&name);
        let negative_ttl = self.negative_ttl.0.or(self.ttl.0);
        Ok(Some(ClusterSetZone {
            domain: name,
            ttl: self.ttl.0,
            negative_ttl: negative_ttl.unwrap_or(usual.negative_ttl),
        }))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[test]
    fn clusterset_zone_and_errors_follow_from_flags() {
        let read = |flags: &[&str]| {
            let options = Options::try_parse_from([&["kube-dns"], flags].concat()).unwrap();
            let zone = options.clusterset().map_err(|error| error.to_string())?;
            Ok(zone.map(|zone| (zone.domain.to_string(), zone.ttl, zone.negative_ttl)))
        };
        let zone =
            |ttl, negative_ttl| Ok(Some(("clusterset.local.".to_owned(), ttl, negative_ttl)));
        let wrong = |line: &str| Err(line.to_owned());
        let set = "--clusterset-domain=clusterset.local";
        let cases: [(&[&str], Result<_, String>); 9] = [
            (&[], Ok(None)),
            (&[set], zone(None, 60)),
            (&[set, "--ttl=5s"], zone(Some(5), 5)),
            (&[set, "--ttl=5s", "--negative-ttl=1s"], zone(Some(5), 1)),
            (&[set, "--search-suffix=search.local"], zone(None, 60)),
            (
                &["--clusterset-domain=a.local,b.local"],
                wrong("--clusterset-domain takes one domain, not 2"),
            ),
            (
                &["--clusterset-domain=cluster.local."],
                wrong(
                    "--clusterset-domain: cluster.local. is a domain of the cluster itself; use another domain (usually clusterset.local)",
                ),
            ),
            (
                &[set, "--external-zone=clusterset.local"],
                wrong("--clusterset-domain: clusterset.local. is the domain of --external-zone"),
            ),
            (
                &[
                    "--clusterset-domain=set.search.local",
                    "--search-suffix=search.local",
                ],
                wrong(
                    "--clusterset-domain must not be in search.local.: names there are completed with the search list (--search-suffix)",
                ),
            ),
        ];
        for (flags, expected) in cases {
            assert_eq!(read(flags), expected, "{flags:?}");
        }
    }
}
