//! `--etcd-zone`, and the flags for access to etcd.

use std::path::PathBuf;
use std::str::FromStr;

use ::etcd::{EtcdAccess, EtcdLogin, EtcdTlsFiles};
use thiserror::Error;
use warp::http::Uri;
use wire::Name;

use super::{Domain, Options, RecordSource, given, http_url};

/// Prefix of the keys for a URL without a path.
const DEFAULT_PATH: &str = "/skydns";
/// Maximum number of zones. Each zone has a connection and a task.
const MAX_ZONES: usize = 32;

/// The zones from etcd, and the access to it.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct EtcdFlags {
    /// zone with records from etcd in the format of SkyDNS, given as ZONE=http(s)://HOST:PORT/PATH;
    /// the default path is /skydns; repeat the flag for further zones, or for further members of
    /// one etcd
    #[arg(long, value_name = "string")]
    pub etcd_zone: Vec<EtcdZone>,
    /// file of the CA certificates (PEM) that verify etcd; the default is the system's CA
    /// certificates
    #[arg(long, value_name = "string", default_value = "")]
    pub etcd_ca_file: String,
    /// file of the client certificate (PEM) for etcd
    #[arg(long, value_name = "string", default_value = "")]
    pub etcd_cert_file: String,
    /// file of the key of the client certificate (PEM) for etcd
    #[arg(long, value_name = "string", default_value = "")]
    pub etcd_key_file: String,
    /// user of etcd
    #[arg(long, value_name = "string", default_value = "")]
    pub etcd_user: String,
    /// file with the password of --etcd-user
    #[arg(long, value_name = "string", default_value = "")]
    pub etcd_password_file: String,
}

/// One `--etcd-zone`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdZone {
    /// The zone.
    pub zone: Domain,
    /// The member of etcd: scheme, host and port.
    pub member: Uri,
    /// Prefix of all keys.
    pub path: String,
}

/// Invalid `--etcd-zone`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "must be ZONE=http://HOST:PORT/PATH or ZONE=https://HOST:PORT/PATH, where ZONE is a domain, and the URL has neither a user (see --etcd-user) nor a query"
)]
pub struct EtcdZoneError;

impl FromStr for EtcdZone {
    type Err = EtcdZoneError;

    fn from_str(text: &str) -> Result<Self, EtcdZoneError> {
        let (zone, url) = text.split_once('=').ok_or(EtcdZoneError)?;
        // `Domain` rejects upper-case letters, but this flag accepts them.
        let zone = zone.to_ascii_lowercase();
        let zone = zone.parse().map_err(|_| EtcdZoneError)?;

        // A user in the URL is rejected, because the user has a separate flag.
        let url = http_url(url).ok_or(EtcdZoneError)?;
        let authority = url.authority();
        let has_user = authority.is_some_and(|authority| authority.as_str().contains('@'));
        if has_user || url.query().is_some() {
            return Err(EtcdZoneError);
        }

        let path = url.path().trim_end_matches('/');
        let path = if path.is_empty() { DEFAULT_PATH } else { path }.to_owned();
        let mut parts = url.into_parts();
        parts.path_and_query = Some(warp::http::uri::PathAndQuery::from_static("/"));
        Ok(Self {
            zone,
            member: Uri::from_parts(parts).map_err(|_| EtcdZoneError)?,
            path,
        })
    }
}

/// A zone, and access to all members of its etcd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdSource {
    /// The zone, in lower case.
    pub zone: Name,
    /// Prefix of all keys.
    pub path: String,
    /// Access to etcd.
    pub access: EtcdAccess,
}

/// Invalid flags for etcd.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum EtcdError {
    /// A flag for etcd without a zone.
    #[error("{0} is for the zones of --etcd-zone, which is not given")]
    NoZone(&'static str),
    /// One of two flags that need each other.
    #[error("{0} and {1} need each other: only one of them is given")]
    Half(&'static str, &'static str),
    /// The zone is a domain of the cluster.
    #[error(
        "--etcd-zone {zone}: its names are those of the cluster (--domain); use a zone below this domain, or another domain"
    )]
    Cluster {
        /// The zone.
        zone: Domain,
    },
    /// Another flag already uses the names of the zone.
    #[error("--etcd-zone {zone} is taken by {flag}={domain}: use {allowed}")]
    Taken {
        /// The zone.
        zone: Domain,
        /// The other flag.
        flag: &'static str,
        /// The domain of the other flag.
        domain: Domain,
        /// The domains that are allowed instead.
        allowed: String,
    },
    /// A zone of reverse names. The reverse names of each etcd are served without such a zone.
    #[error(
        "--etcd-zone {zone}: no reverse zone is accepted, because reverse names are looked up below PATH/arpa for every zone of etcd"
    )]
    Reverse {
        /// The zone.
        zone: Domain,
    },
    /// Members of one etcd with different paths.
    #[error(
        "--etcd-zone {zone}: the paths {first} and {second} are given, but a zone has only one path"
    )]
    Paths {
        /// The zone.
        zone: Domain,
        /// The first path.
        first: String,
        /// The second path.
        second: String,
    },
    /// Too many zones.
    #[error("--etcd-zone is given for {0} zones; at most {MAX_ZONES} are accepted")]
    Many(usize),
}

impl Options {
    /// The zones whose records come from etcd. `source` tells whether kubedns also serves the
    /// cluster.
    ///
    /// # Errors
    ///
    /// When a flag or a combination of flags is not accepted, see [`EtcdError`].
    pub fn etcd_sources(&self, source: RecordSource) -> Result<Vec<EtcdSource>, EtcdError> {
        let access = self.etcd.access_without_members()?;
        let cluster_domains = self.cluster_domains(source);
        let mut sources: Vec<EtcdSource> = Vec::new();
        for flag in &self.etcd.etcd_zone {
            if cluster_domains.contains(&flag.zone) {
                let zone = flag.zone.clone();
                return Err(EtcdError::Cluster { zone });
            }
            self.check_etcd_zone(&flag.zone)?;

            // A repeated zone adds a member to the etcd of the zone.
            let zone = flag.zone.name();
            if let Some(known) = sources.iter_mut().find(|known| known.zone == zone) {
                flag.add_member_to(known)?;
            } else {
                sources.push(EtcdSource {
                    zone,
                    path: flag.path.clone(),
                    access: EtcdAccess {
                        members: vec![flag.member.clone()],
                        ..access.clone()
                    },
                });
            }
        }

        if sources.len() > MAX_ZONES {
            return Err(EtcdError::Many(sources.len()));
        }
        Ok(sources)
    }

    fn check_etcd_zone(&self, zone: &Domain) -> Result<(), EtcdError> {
        // Reverse names are looked up below PATH/arpa for each zone, without a zone of their own.
        // Other names below `arpa` can be zones, such as `home.arpa` (RFC 8375).
        let name = zone.name();
        let labels = name.labels();
        let is_reverse = match labels.as_slice() {
            [.., above, last] if last == "arpa" => above == "in-addr" || above == "ip6",
            [only] => only == "arpa",
            _ => false,
        };
        if is_reverse {
            return Err(EtcdError::Reverse { zone: zone.clone() });
        }

        let Some((flag, domain, allowed)) = self.taken_by_other(zone) else {
            return Ok(());
        };
        Err(EtcdError::Taken {
            zone: zone.clone(),
            flag,
            domain: domain.clone(),
            allowed,
        })
    }

    /// The other flag that already uses the names of `zone`, the domain of that flag, and the
    /// domains that are allowed instead.
    fn taken_by_other(&self, zone: &Domain) -> Option<(&'static str, &Domain, String)> {
        for (flag, domains) in [
            ("--external-zone", &self.external_zone),
            ("--clusterset-domain", &self.clusterset_domain),
        ] {
            if let Some(domain) = domains.0.iter().find(|domain| *domain == zone) {
                return Some((flag, domain, "another domain".to_owned()));
            }
        }

        // For a name within a search suffix, kubedns walks the search list instead of looking for
        // the name in a zone.
        let name = zone.name();
        let mut suffixes = self.search_suffix.0.iter();
        let suffix = suffixes.find(|suffix| name.is_within(&suffix.name()))?;
        Some((
            "--search-suffix",
            suffix,
            format!("a domain outside of {suffix}"),
        ))
    }
}

impl EtcdZone {
    fn add_member_to(&self, source: &mut EtcdSource) -> Result<(), EtcdError> {
        if source.path != self.path {
            return Err(EtcdError::Paths {
                zone: self.zone.clone(),
                first: source.path.clone(),
                second: self.path.clone(),
            });
        }
        source.access.members.push(self.member.clone());
        Ok(())
    }
}

impl EtcdFlags {
    /// Access to etcd, with an empty list of members.
    fn access_without_members(&self) -> Result<EtcdAccess, EtcdError> {
        self.check_zone_is_given()?;
        Ok(EtcdAccess {
            members: Vec::new(),
            tls: EtcdTlsFiles {
                ca: given(&self.etcd_ca_file).map(PathBuf::from),
                client: self.client_files()?,
            },
            login: self.login()?,
        })
    }

    fn check_zone_is_given(&self) -> Result<(), EtcdError> {
        for (flag, value) in [
            ("--etcd-ca-file", &self.etcd_ca_file),
            ("--etcd-cert-file", &self.etcd_cert_file),
            ("--etcd-key-file", &self.etcd_key_file),
            ("--etcd-user", &self.etcd_user),
            ("--etcd-password-file", &self.etcd_password_file),
        ] {
            // Without a zone there is no connection to etcd, so the flag would have no effect.
            if !value.is_empty() && self.etcd_zone.is_empty() {
                return Err(EtcdError::NoZone(flag));
            }
        }
        Ok(())
    }

    /// The files of the client certificate and its key.
    fn client_files(&self) -> Result<Option<(PathBuf, PathBuf)>, EtcdError> {
        match (given(&self.etcd_cert_file), given(&self.etcd_key_file)) {
            (Some(certificate), Some(key)) => Ok(Some((certificate.into(), key.into()))),
            (None, None) => Ok(None),
            _ => Err(EtcdError::Half("--etcd-cert-file", "--etcd-key-file")),
        }
    }

    fn login(&self) -> Result<Option<EtcdLogin>, EtcdError> {
        match (given(&self.etcd_user), given(&self.etcd_password_file)) {
            (Some(user), Some(password_file)) => Ok(Some(EtcdLogin {
                user: user.to_owned(),
                password_file: password_file.into(),
            })),
            (None, None) => Ok(None),
            _ => Err(EtcdError::Half("--etcd-user", "--etcd-password-file")),
        }
    }
}

#[cfg(test)]
mod tests {
    use daemon::flags::{Style, parse};

    use super::*;

    fn etcd(line: &str) -> Result<Vec<EtcdSource>, String> {
        let words = line.split_whitespace().map(std::ffi::OsString::from);
        let options: Options =
            parse("kube-dns", Style::Pflag, words).map_err(|exit| exit.stderr)?;
        let sources = options.etcd_sources(RecordSource::ApiServer);
        sources.map_err(|error| error.to_string())
    }

    #[test]
    fn reverse_zones_are_rejected_and_home_arpa_is_accepted() {
        for (zone, is_accepted) in [
            ("home.arpa", true),
            ("a.home.arpa", true),
            ("arpa", false),
            ("in-addr.arpa", false),
            ("8.b.d.0.1.0.0.2.ip6.arpa", false),
        ] {
            let sources = etcd(&format!("--etcd-zone={zone}=http://e:1"));
            assert_eq!(sources.is_ok(), is_accepted, "{zone}: {sources:?}");
        }
    }

    #[test]
    fn etcd_zones_gather_their_members() {
        assert_eq!(etcd(""), Ok(Vec::new()));
        let sources = etcd(
            "--etcd-zone=SkyDNS.local=http://10.0.0.1:2379 --etcd-zone skydns.local=http://10.0.0.2:2379/skydns/ \
             --etcd-zone=example.org=https://etcd:2379/dns/x --etcd-ca-file=/ca --etcd-cert-file=/c --etcd-key-file=/k \
             --etcd-user=u --etcd-password-file=/p",
        )
        .unwrap();
        let shown: Vec<String> = sources
            .iter()
            .map(|source| {
                format!(
                    "{} {} {:?}",
                    source.zone, source.path, source.access.members
                )
            })
            .collect();
        assert_eq!(
            shown,
            [
                "skydns.local. /skydns [http://10.0.0.1:2379/, http://10.0.0.2:2379/]",
                "example.org. /dns/x [https://etcd:2379/]"
            ]
        );
        let access = &sources[1].access;
        assert_eq!(access.tls.ca, Some("/ca".into()));
        assert_eq!(access.tls.client, Some(("/c".into(), "/k".into())));
        assert_eq!(
            access.login,
            Some(EtcdLogin {
                user: "u".to_owned(),
                password_file: "/p".into()
            })
        );
    }

    #[test]
    fn mistake_in_etcd_flags_is_reported() {
        let many: Vec<String> = (0..33)
            .map(|zone| format!("--etcd-zone=z{zone}=http://e:1"))
            .collect();
        let many = many.join(" ");
        let cases = [
            (
                "--etcd-user=u",
                "--etcd-user is for the zones of --etcd-zone, which is not given",
            ),
            (
                "--etcd-zone=a=http://e:1 --etcd-user=u",
                "--etcd-user and --etcd-password-file need each other: only one of them is given",
            ),
            (
                "--etcd-zone=a=http://e:1 --etcd-key-file=k",
                "--etcd-cert-file and --etcd-key-file need each other: only one of them is given",
            ),
            (
                "--etcd-zone=cluster.local=http://e:1",
                "--etcd-zone cluster.local.: its names are those of the cluster (--domain); use a zone below this domain, or another domain",
            ),
            (
                "--etcd-zone=10.in-addr.arpa=http://e:1",
                "--etcd-zone 10.in-addr.arpa.: no reverse zone is accepted, because reverse names are looked up below PATH/arpa for every zone of etcd",
            ),
            (
                "--etcd-zone=a=http://e:1/x --etcd-zone=a=http://f:1/y",
                "--etcd-zone a.: the paths /x and /y are given, but a zone has only one path",
            ),
            (
                "--etcd-zone=Lb.example=http://e:1 --external-zone=lb.example",
                "--etcd-zone lb.example. is taken by --external-zone=lb.example.: use another domain",
            ),
            (
                "--etcd-zone=clusterset.local=http://e:1 --clusterset-domain=clusterset.local",
                "--etcd-zone clusterset.local. is taken by --clusterset-domain=clusterset.local.: use another domain",
            ),
            (
                "--etcd-zone=search.local=http://e:1 --search-suffix=search.local",
                "--etcd-zone search.local. is taken by --search-suffix=search.local.: use a domain outside of search.local.",
            ),
            (
                "--etcd-zone=a.search.local=http://e:1 --search-suffix=search.local",
                "--etcd-zone a.search.local. is taken by --search-suffix=search.local.: use a domain outside of search.local.",
            ),
            (
                &many,
                "--etcd-zone is given for 33 zones; at most 32 are accepted",
            ),
        ];
        for (line, expected) in cases {
            assert_eq!(etcd(line).unwrap_err(), expected, "{line}");
        }
        for wrong in [
            "a",
            "a=",
            "a=etcd:2379",
            "=http://e:1",
            "a=ftp://e:1",
            "a=http://u:p@e:1",
            "a=http://e:1/x?y",
        ] {
            let error = etcd(&format!("--etcd-zone={wrong}")).unwrap_err();
            let line = error.lines().last().unwrap_or_default();
            assert!(
                line.contains("must be ZONE=http://HOST:PORT/PATH or ZONE=https://HOST:PORT/PATH"),
                "{line}"
            );
        }
    }
}
