//! The main source of records: an API server, or etcd alone.

use cluster::index::PodMode;
use cluster::records::EndpointNames;
use cluster::watch::endpoints::EndpointsChoice;
use skydns::Zone;
use thiserror::Error;

use super::{Domain, EtcdSource, FallthroughError, Options, PreferZone};

/// The main source of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordSource {
    /// An API server. Zones of etcd are served in addition to the cluster.
    ApiServer,
    /// The zones of `--etcd-zone`, without Kubernetes.
    EtcdAlone,
}

/// The reason why a flag is rejected without an API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum EtcdAloneError {
    /// A flag about records of the cluster.
    #[error(
        "{0} needs an API server, and none is given; leave {0} out to serve only the zones of --etcd-zone, or give --kubecfg-file or --kube-master-url"
    )]
    OfCluster(&'static str),
    /// A configuration that the API server stores.
    #[error(
        "--config-map names a ConfigMap of the API server, and no API server is given; use --config-dir to serve the zones of --etcd-zone alone, or give --kubecfg-file or --kube-master-url"
    )]
    ConfigMap,
}

impl Options {
    /// The main source of records. `service_host` is the variable `KUBERNETES_SERVICE_HOST`, which
    /// every pod has.
    ///
    /// # Errors
    ///
    /// When a flag needs an API server, and only zones of etcd are given.
    pub fn record_source(
        &self,
        service_host: Option<&str>,
    ) -> Result<RecordSource, EtcdAloneError> {
        let has_api_server = service_host.is_some() || self.names_api_server();
        if has_api_server || self.etcd.etcd_zone.is_empty() {
            return Ok(RecordSource::ApiServer);
        }

        match self.flag_of_cluster() {
            Some(flag) => Err(EtcdAloneError::OfCluster(flag)),
            None => Ok(RecordSource::EtcdAlone),
        }
    }

    /// Whether a flag names an API server, a kubeconfig file, or a context of a kubeconfig file.
    pub fn names_api_server(&self) -> bool {
        self.kube_master_url.is_some()
            || !self.kubecfg_file.is_empty()
            || !self.kubecfg_context.is_empty()
    }

    /// A given flag that has no meaning without a cluster.
    fn flag_of_cluster(&self) -> Option<&'static str> {
        // A flag with its default value is like a flag that is not given.
        let flags = [
            ("--federations", !self.federations.0.is_empty()),
            (
                "--endpoints-source",
                self.endpoints_source != EndpointsChoice::default(),
            ),
            ("--snapshot-dir", !self.snapshot_dir.is_empty()),
            (
                "--endpoint-names",
                self.endpoint_names != EndpointNames::default(),
            ),
            ("--ignore-empty-services", self.ignore_empty_services),
            ("--namespaces", !self.namespaces.0.is_empty()),
            (
                "--namespace-selector",
                !self.namespace_selector.0.is_empty(),
            ),
            ("--selector", !self.selector.0.is_empty()),
            ("--pods", self.pods != PodMode::default()),
            ("--prefer-zone", self.prefer_zone != PreferZone::Off),
            ("--zonal-names", self.zonal_names),
            ("--daemonset", self.daemonset.0.is_some()),
            ("--external-zone", !self.external_zone.0.is_empty()),
            ("--external-headless", self.external_headless),
            ("--search-suffix", !self.search_suffix.0.is_empty()),
            ("--autopath", self.autopath),
            ("--search-domains", !self.search_domains.0.is_empty()),
            ("--clusterset-domain", !self.clusterset_domain.0.is_empty()),
        ];
        let given = flags.into_iter().find(|(_, is_given)| *is_given);
        given.map(|(flag, _)| flag)
    }

    /// The cluster domains that are served.
    pub fn cluster_domains(&self, source: RecordSource) -> Vec<Domain> {
        match source {
            RecordSource::ApiServer => self.domain.all().cloned().collect(),
            RecordSource::EtcdAlone => Vec::new(),
        }
    }

    /// The settings of a server that serves only the zones `sources`. The settings do not include
    /// the upstreams. The domain is that of the first zone.
    ///
    /// # Errors
    ///
    /// When `--fallthrough` names a zone that contains no names of these zones. A zone of reverse
    /// names is accepted.
    pub fn etcd_alone_zone(&self, sources: &[EtcdSource]) -> Result<Zone, FallthroughError> {
        let mut domains: Vec<Domain> = Vec::new();
        for flag in &self.etcd.etcd_zone {
            if !domains.contains(&flag.zone) {
                domains.push(flag.zone.clone());
            }
        }

        let first = sources.first().map(|source| source.zone.clone());
        Ok(Zone {
            fallthrough: self.fallthrough_within(&domains)?.into(),
            ..self.zone_settings(&first.unwrap_or_default())
        })
    }
}

#[cfg(test)]
mod tests {
    use daemon::flags::{Style, parse};

    use super::*;

    fn parse_line(line: &str) -> Options {
        let words = line.split_whitespace().map(std::ffi::OsString::from);
        parse("kube-dns", Style::Pflag, words).unwrap()
    }

    #[test]
    fn api_server_is_source_unless_only_etcd_is_given() {
        const ETCD: &str = "--etcd-zone=skydns.local=http://e:1";
        let cases = [
            ("", None, RecordSource::ApiServer),
            (ETCD, None, RecordSource::EtcdAlone),
            (ETCD, Some("10.96.0.1"), RecordSource::ApiServer),
        ];
        for (line, service_host, expected) in cases {
            let source = parse_line(line).record_source(service_host);
            assert_eq!(source, Ok(expected), "{line} {service_host:?}");
        }

        // If an API server is given, it is used, and flags about the cluster are accepted.
        for flag in [
            "--kubecfg-file=/k",
            "--kube-master-url=http://a:1",
            "--kubecfg-context=c",
        ] {
            let options = parse_line(&format!("{ETCD} {flag} --pods=verified"));
            let source = options.record_source(None);
            assert_eq!(source, Ok(RecordSource::ApiServer), "{flag}");
        }
    }

    #[test]
    fn flag_of_cluster_is_refused_without_api_server() {
        let flags = [
            "--federations=fed=fed.example",
            "--endpoints-source=endpoints",
            "--snapshot-dir=/s",
            "--endpoint-names=pod",
            "--ignore-empty-services",
            "--namespaces=a",
            "--namespace-selector=a=b",
            "--selector=a=b",
            "--pods=verified",
            "--prefer-zone=a",
            "--zonal-names",
            "--daemonset=a/b",
            "--external-zone=lb.example",
            "--external-headless",
            "--search-suffix=search.local",
            "--autopath",
            "--search-domains=a.example",
            "--clusterset-domain=clusterset.local",
        ];
        for flag in flags {
            let line = format!("--etcd-zone=skydns.local=http://e:1 {flag}");
            let error = parse_line(&line).record_source(None).unwrap_err();
            let name = flag.split('=').next().unwrap();
            let expected = format!(
                "{name} needs an API server, and none is given; leave {name} out to serve only the zones of --etcd-zone, or give --kubecfg-file or --kube-master-url"
            );
            assert_eq!(error.to_string(), expected);
        }
    }

    /// Even without a cluster, `--ttl` applies to the records of the keys `hosts` and `aliases` of
    /// the configuration. `--negative-ttl` applies to negative answers for names in `hosts` and
    /// `aliases`. It also applies to the answers that kubedns gives for external names because of
    /// keys such as `deniedNames`.
    #[test]
    fn ttl_flags_apply_without_api_server() {
        let options = parse_line("--etcd-zone=b.example=http://e:1 --ttl=5s --negative-ttl=7s");
        let source = options.record_source(None);
        assert_eq!(source, Ok(RecordSource::EtcdAlone));

        let sources = options.etcd_sources(RecordSource::EtcdAlone).unwrap();
        let zone = options.etcd_alone_zone(&sources).unwrap();
        assert_eq!((zone.ttl, zone.negative_ttl), (Some(5), 7));
    }

    #[test]
    fn etcd_alone_may_serve_cluster_domain_and_limits_fallthrough() {
        let options = parse_line(
            "--etcd-zone=cluster.local=http://e:1 --etcd-zone=b.example=http://e:1 --fallthrough=.",
        );
        let in_cluster = options.etcd_sources(RecordSource::ApiServer);
        assert!(in_cluster.is_err(), "{in_cluster:?}");

        let sources = options.etcd_sources(RecordSource::EtcdAlone).unwrap();
        let zone = options.etcd_alone_zone(&sources).unwrap();
        assert_eq!(zone.domain.to_string(), "cluster.local.");
        let fallthrough: Vec<String> = zone.fallthrough.iter().map(ToString::to_string).collect();
        assert_eq!(fallthrough, ["cluster.local.", "b.example."]);

        let options = parse_line("--etcd-zone=b.example=http://e:1 --fallthrough=cluster.local");
        let sources = options.etcd_sources(RecordSource::EtcdAlone).unwrap();
        let error = options.etcd_alone_zone(&sources).unwrap_err().to_string();
        assert_eq!(
            error,
            "--fallthrough: no name of b.example. is in cluster.local.; use b.example., a zone below it, or \".\" for all names"
        );
    }
}
