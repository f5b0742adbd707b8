//! The kinds of queries, and their files for dnsperf.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use fastrand::Rng;
use serde::{Deserialize, Serialize};

use crate::cluster::{Cluster, SEED, Service};

/// Number of lines in a file. At the end of the file, dnsperf starts again.
const LINES: usize = 20_000;

/// A kind of query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The address of a Service.
    A,
    /// The named port of a Service.
    Srv,
    /// The three addresses of a headless Service.
    HeadlessA,
    /// The named port of a headless Service: three targets and their addresses.
    HeadlessSrv,
    /// An external name with a search domain of a pod appended. Most queries in a cluster are of
    /// this kind.
    Nxdomain,
    /// The IPv6 address of a Service without IPv6.
    Nodata,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 6] = [
        Self::A,
        Self::Srv,
        Self::HeadlessA,
        Self::HeadlessSrv,
        Self::Nxdomain,
        Self::Nodata,
    ];

    /// Heading, QTYPE, RCODE of the correct answer, and the value of [`Kind::goal`].
    fn traits(self) -> (&'static str, &'static str, &'static str, Option<f64>) {
        match self {
            Self::A => ("A", "A", "NOERROR", Some(1.25)),
            Self::Srv => ("SRV", "SRV", "NOERROR", Some(1.4)),
            Self::HeadlessA => ("headless A (3)", "A", "NOERROR", Some(1.4)),
            Self::HeadlessSrv => ("headless SRV (3)", "SRV", "NOERROR", None),
            Self::Nxdomain => ("NXDOMAIN", "A", "NXDOMAIN", Some(1.25)),
            Self::Nodata => ("AAAA nodata", "AAAA", "NOERROR", Some(1.25)),
        }
    }

    /// The heading in tables.
    pub fn title(self) -> &'static str {
        self.traits().0
    }

    /// QTYPE.
    pub fn rtype(self) -> &'static str {
        self.traits().1
    }

    /// The RCODE of the correct answer.
    pub fn rcode(self) -> &'static str {
        self.traits().2
    }

    /// The limit of CPU time per query, as a multiple of the CPU time of a UDP echo server; `None`
    /// for no limit.
    pub fn goal(self) -> Option<f64> {
        self.traits().3
    }

    /// The name to query for a Service.
    pub fn name(self, service: &Service) -> String {
        match self {
            Self::A | Self::HeadlessA | Self::Nodata => service.domain_name(),
            Self::Srv | Self::HeadlessSrv => service.port_name(),
            Self::Nxdomain => format!(
                "www.{}.example.com.{}",
                service.name,
                parent(&service.domain_name())
            ),
        }
    }

    fn services(self, cluster: &Cluster) -> Vec<&Service> {
        match self {
            Self::HeadlessA | Self::HeadlessSrv => cluster.headless().collect(),
            Self::A | Self::Srv | Self::Nxdomain | Self::Nodata => {
                cluster.with_cluster_ip().collect()
            }
        }
    }

    /// `count` names to query, of random Services.
    pub fn names(self, cluster: &Cluster, count: usize) -> Vec<String> {
        let services = self.services(cluster);
        let mut rng = Rng::with_seed(SEED);
        (0..count)
            .filter_map(|_| rng.choice(&services).map(|service| self.name(service)))
            .collect()
    }

    /// Writes a file of queries for dnsperf into `directory`.
    pub fn file(self, cluster: &Cluster, directory: &Path) -> anyhow::Result<PathBuf> {
        let mut lines = String::new();
        for name in self.names(cluster, LINES) {
            writeln!(lines, "{name} {}", self.rtype())?;
        }
        let path = directory.join(format!("{self:?}.queries"));
        std::fs::write(&path, lines).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }
}

fn parent(name: &str) -> &str {
    name.split_once('.').map_or(name, |(_, parent)| parent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_files_are_complete() {
        let cluster = Cluster::generate(20);
        let directory = tempfile::tempdir().unwrap();
        for kind in Kind::ALL {
            let path = kind.file(&cluster, directory.path()).unwrap();
            let text = std::fs::read_to_string(path).unwrap();
            assert_eq!(text.lines().count(), LINES);
            let end = format!(".cluster.local {}", kind.rtype());
            assert!(text.lines().all(|line| line.ends_with(&end)), "{kind:?}");
        }
        let service = &cluster.services[0];
        let outside = Kind::Nxdomain.name(service);
        assert_eq!(
            outside,
            format!(
                "www.{}.example.com.{}.svc.cluster.local",
                service.name, service.namespace
            )
        );
    }
}
