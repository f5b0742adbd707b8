//! `--external-zone`: names of Services with their external addresses. `--external-headless`: names
//! of headless Services in the same zone, with the addresses of their endpoints.

use cluster::records::ExternalRecords;
use thiserror::Error;
use wire::Name;

use super::{Domain, Options, SeveralDomains};

/// Invalid flags of the external zone.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ExternalZoneError {
    /// `--external-headless` without `--external-zone`.
    #[error("--external-headless needs --external-zone, because it adds names to that zone")]
    NoZone,
    /// More than one domain.
    #[error(transparent)]
    Several(#[from] SeveralDomains),
    /// Another flag already uses the names of the zone.
    #[error("--external-zone {zone} is taken by {flag}={domain}: use a domain outside of {domain}")]
    Taken {
        /// The zone.
        zone: Domain,
        /// The other flag.
        flag: &'static str,
        /// The domain of the other flag.
        domain: Domain,
    },
}

impl Options {
    /// The external zone, if there is one.
    ///
    /// # Errors
    ///
    /// When the flags are invalid, see [`ExternalZoneError`].
    pub fn external_zone(&self) -> Result<Option<Name>, ExternalZoneError> {
        let Some(zone) = self.external_zone.only("--external-zone")? else {
            return if self.external_headless {
                Err(ExternalZoneError::NoZone)
            } else {
                Ok(None)
            };
        };

        // The zone may contain other domains, because a name in several zones is answered from the
        // most specific zone.
        let name = zone.name();
        let domains = self.domain.all().map(|domain| ("--domain", domain));
        let suffixes = self.search_suffix.0.iter();
        let suffixes = suffixes.map(|suffix| ("--search-suffix", suffix));
        for (flag, domain) in domains.chain(suffixes) {
            // Names below `--domain` are cluster names. For names below `--search-suffix`, kubedns
            // walks the search list.
            if name.is_within(&domain.name()) {
                return Err(ExternalZoneError::Taken {
                    zone: zone.clone(),
                    flag,
                    domain: domain.clone(),
                });
            }
        }
        Ok(Some(name))
    }

    /// The content of the external zone.
    pub(super) fn external_records(&self) -> ExternalRecords {
        match (self.external_zone.0.is_empty(), self.external_headless) {
            (true, _) => ExternalRecords::Off,
            (false, false) => ExternalRecords::Exposed,
            (false, true) => ExternalRecords::AndHeadless,
        }
    }
}

#[cfg(test)]
mod tests {
    use daemon::flags::{Style, parse};

    use super::*;

    fn options(words: &[&str]) -> Options {
        parse(
            "kube-dns",
            Style::Pflag,
            words.iter().map(std::ffi::OsString::from),
        )
        .unwrap()
    }

    #[test]
    fn external_zone_is_one_domain_outside_other_domains() {
        let zone = |words: &[&str]| {
            let zone = options(words).external_zone();
            zone.map_err(|error| error.to_string())
        };
        assert_eq!(zone(&[]), Ok(None));
        for good in ["k8s.example", "example.", "local"] {
            let name = Name::parse(good).unwrap();
            assert_eq!(zone(&["--external-zone", good]), Ok(Some(name)), "{good}");
        }
        for (other, name, flag, domain) in [
            ("--v=2", "cluster.local", "--domain", "cluster.local."),
            ("--domain=a.x,b.x", "lb.b.x", "--domain", "b.x."),
            ("--search-suffix=s.x", "lb.s.x", "--search-suffix", "s.x."),
        ] {
            let error = zone(&[other, "--external-zone", name]).unwrap_err();
            let taken = format!("--external-zone {name}. is taken by {flag}={domain}");
            assert_eq!(error, format!("{taken}: use a domain outside of {domain}"));
        }
        let error = zone(&["--external-zone=a,b"]).unwrap_err();
        assert_eq!(error, "--external-zone takes one domain, not 2");
    }

    #[test]
    fn external_headless_needs_external_zone() {
        let zone = options(&["--external-headless"]).external_zone();
        let expected =
            "--external-headless needs --external-zone, because it adds names to that zone";
        assert_eq!(zone.unwrap_err().to_string(), expected);
    }

    #[test]
    fn flags_select_the_external_records() {
        let records = |words: &[&str]| options(words).external_records();
        assert_eq!(records(&[]), ExternalRecords::Off);
        assert_eq!(records(&["--external-zone=x"]), ExternalRecords::Exposed);
        let both = records(&["--external-zone=x", "--external-headless"]);
        assert_eq!(both, ExternalRecords::AndHeadless);
    }
}
