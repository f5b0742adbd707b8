//! `--external-zone` and `--external-headless`: names of Services with their external addresses.

use cluster::records::ExternalRecords;
use thiserror::Error;
use wire::Name;

use super::{Domain, Options, SeveralDomains};

/// Contradictory flags of the external zone.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ExternalZoneError {
    /// `--external-headless` without `--external-zone`.
    #[error("--external-headless needs --external-zone, in which headless Services are answered")]
    NoZone,
    /// More than one domain.
    #[error(transparent)]
    Several(#[from] SeveralDomains),
    /// Another flag already uses the names of the zone.
    #[error("--external-zone {zone} is taken by {taken}: use a domain outside of it")]
    Taken {
        /// The zone.
        zone: Domain,
        /// The other flag.
        taken: String,
    },
}

impl Options {
    /// The external zone, if there is one.
    ///
    /// # Errors
    ///
    /// When the flags contradict each other.
    pub fn external_zone(&self) -> Result<Option<Name>, ExternalZoneError> {
        let Some(zone) = self.external_zone.only("--external-zone")? else {
            return if self.external_headless {
                Err(ExternalZoneError::NoZone)
            } else {
                Ok(None)
            };
        };

        // The zone may hold other domains: of two zones that hold a name, the longer one answers.
        let name = zone.name();
        let domains = self.domain.all().map(|domain| ("--domain", domain));
        let suffixes = self.search_suffix.0.iter();
        let suffixes = suffixes.map(|suffix| ("--search-suffix", suffix));
        for (flag, domain) in domains.chain(suffixes) {
            // Names below these domains are already those of the cluster, or are completed.
            if name.is_within(&domain.name()) {
                return Err(ExternalZoneError::Taken {
                    zone: zone.clone(),
                    taken: format!("{flag}={domain}"),
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
    fn external_zone_within_other_domains_is_rejected() {
        let zone = |words: &[&str]| {
            options(words)
                .external_zone()
                .map_err(|error| error.to_string())
        };
        assert_eq!(zone(&[]), Ok(None));
        for good in ["k8s.example", "example.", "local"] {
            assert_eq!(
                zone(&["--external-zone", good]),
                Ok(Some(Name::parse(good).unwrap())),
                "{good}"
            );
        }
        let taken = |zone: &str, by: &str| {
            Err(format!(
                "--external-zone {zone} is taken by {by}: use a domain outside of it"
            ))
        };
        assert_eq!(
            zone(&["--external-zone=cluster.local"]),
            taken("cluster.local.", "--domain=cluster.local.")
        );
        assert_eq!(
            zone(&["--domain=a.x,b.x", "--external-zone=lb.b.x"]),
            taken("lb.b.x.", "--domain=b.x.")
        );
        assert_eq!(
            zone(&["--search-suffix=s.x", "--external-zone=lb.s.x"]),
            taken("lb.s.x.", "--search-suffix=s.x.")
        );
        assert_eq!(
            zone(&["--external-zone=a,b"]),
            Err("--external-zone takes one domain, not 2".to_owned())
        );
    }

    #[test]
    fn external_headless_needs_external_zone() {
        let error = options(&["--external-headless"])
            .external_zone()
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "--external-headless needs --external-zone, in which headless Services are answered"
        );
    }

    #[test]
    fn flags_select_the_external_records() {
        let records = |words: &[&str]| options(words).external_records();
        assert_eq!(records(&[]), ExternalRecords::Off);
        assert_eq!(records(&["--external-zone=x"]), ExternalRecords::Exposed);
        assert_eq!(
            records(&["--external-zone=x", "--external-headless"]),
            ExternalRecords::AndHeadless
        );
    }
}
