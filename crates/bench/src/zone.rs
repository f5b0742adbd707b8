//! Zone files for the authoritative servers NSD and Knot DNS, which are used if they are installed.
//! One zone has the records of the cluster, and the other has names outside of the cluster.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::cluster::{Cluster, DOMAIN};

/// Domain of the external names.
pub(crate) const OUTSIDE: &str = "outside.test";

/// A zone file.
#[derive(Debug)]
pub(crate) struct ZoneFile {
    /// Name of the zone, with a dot at the end.
    pub(crate) origin: String,
    text: String,
}

impl ZoneFile {
    /// A zone with the records of `cluster` that the benchmark queries.
    pub(crate) fn of_cluster(cluster: &Cluster) -> anyhow::Result<Self> {
        Ok(Self {
            origin: format!("{DOMAIN}."),
            text: cluster_zone_text(cluster)?,
        })
    }

    /// A zone with the same address for every name below [`OUTSIDE`].
    pub(crate) fn of_outside() -> Self {
        let origin = format!("{OUTSIDE}.");
        let text = format!(
            "$ORIGIN {origin}\n$TTL 3600\n@ SOA ns hostmaster 1 28800 7200 604800 60\n@ NS ns\n\
             ns A 127.0.0.1\n* A 192.0.2.1\n"
        );
        Self { origin, text }
    }
}

/// The path of a program in the usual directories; `None` if it is in none of them.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let directories = ["/usr/sbin", "/usr/local/sbin", "/usr/bin", "/usr/local/bin"];
    directories
        .iter()
        .map(|directory| Path::new(directory).join(name))
        .find(|program| program.is_file())
}

/// A name server that serves zone files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Server {
    /// NSD.
    Nsd,
    /// Knot DNS.
    Knot,
}

impl Server {
    /// All servers.
    pub(crate) const ALL: [Self; 2] = [Self::Nsd, Self::Knot];

    /// Name of the server in the results.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Nsd => "nsd",
            Self::Knot => "knot",
        }
    }

    /// The path of the program, if installed.
    pub(crate) fn program(self) -> Option<PathBuf> {
        find_program(if self == Self::Nsd { "nsd" } else { "knotd" })
    }

    /// Writes `zone` and a configuration into a subdirectory of `directory`. With this
    /// configuration, the server listens at `address`, and answers UDP queries with `threads`
    /// processes (NSD) or threads (Knot DNS). Returns the arguments for a run in the foreground.
    pub(crate) fn configure(
        self,
        directory: &Path,
        zone: &ZoneFile,
        address: SocketAddr,
        threads: usize,
    ) -> anyhow::Result<Vec<String>> {
        let directory = directory.join(self.name());
        std::fs::create_dir_all(&directory)?;
        std::fs::write(directory.join("zone"), &zone.text).context("cannot write the zone")?;
        let ZoneFile { origin, .. } = zone;
        let (ip, port, at) = (address.ip(), address.port(), directory.display());
        let text = match self {
            Self::Nsd => format!(
                "server:\n ip-address: {ip}@{port}\n server-count: {threads}\n username: \"\"\n chroot: \"\"\n zonesdir: \"{at}\"\n \
                 database: \"\"\n zonelistfile: \"{at}/list\"\n xfrdfile: \"{at}/xfrd\"\n pidfile: \"{at}/pid\"\n \
                 minimal-responses: yes\n rrl-ratelimit: 0\nremote-control:\n control-enable: no\n\
                 zone:\n name: {origin}\n zonefile: \"{at}/zone\"\n"
            ),
            Self::Knot => format!(
                "server:\n  listen: {ip}@{port}\n  udp-workers: {threads}\n  rundir: \"{at}\"\n\
                 database:\n  storage: \"{at}\"\ntemplate:\n  - id: default\n    storage: \"{at}\"\n    \
                 zonefile-sync: -1\n    journal-content: none\nzone:\n  - domain: {origin}\n    file: zone\n"
            ),
        };
        let configuration = directory.join("conf");
        std::fs::write(&configuration, text).context("cannot write the configuration")?;
        let configuration = configuration.display().to_string();
        Ok(match self {
            Self::Nsd => vec!["-d".to_owned(), "-c".to_owned(), configuration],
            Self::Knot => vec!["-c".to_owned(), configuration],
        })
    }
}

/// The text of a zone file with the records of `cluster` that the benchmark queries. The three pods
/// of a headless Service have hostnames. Each of their SRV records has the weight 33, a third of
/// 100.
fn cluster_zone_text(cluster: &Cluster) -> anyhow::Result<String> {
    let mut text = format!(
        "$ORIGIN {DOMAIN}.\n$TTL 30\n@ SOA ns.dns hostmaster 1 28800 7200 604800 60\n@ NS ns.dns\nns.dns A 127.0.0.1\n"
    );
    for service in &cluster.services {
        let (name, port) = (service.domain_name(), service.port_name());
        for ip in service.addresses() {
            writeln!(text, "{name}. A {ip}")?;
        }
        if service.cluster_ip.is_some() {
            writeln!(text, "{port}. SRV 10 100 80 {name}.")?;
            continue;
        }
        for pod in &service.pods {
            let target = format!("{}.{name}.", pod.hostname.as_deref().unwrap_or_default());
            writeln!(
                text,
                "{target} A {}\n{port}. SRV 10 33 8080 {target}",
                pod.ip
            )?;
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zone_has_records_of_all_services() {
        let zone = cluster_zone_text(&Cluster::generate(11)).unwrap();
        let records = |rtype: &str| {
            zone.lines()
                .filter(|line| line.contains(&format!(" {rtype} ")))
                .count()
        };
        // `ns.dns` and nine Services with a cluster IP have one address each. Each of the two
        // headless Services has three pods. The address of a pod is at the name of the Service and
        // at the name of the pod.
        let count = (records("A"), records("SRV"));
        assert_eq!(count, (1 + 9 + 2 * 6, 9 + 2 * 3), "{zone}");
    }
}
