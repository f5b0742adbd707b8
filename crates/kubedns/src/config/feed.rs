//! The source of the configuration, as the flags select it.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cluster::connect::Connection;
use dnsclient::resolve::LookupSources;
use dnsconfig::{Config, ConfigSource};
use wire::Nameserver;

use crate::metrics::Metrics;
use crate::options::{ConfigFrom, EtcdAloneError, Options};

use super::configmap::ConfigMapFeed;
use super::in_force::ConfigFlags;

/// The source of the configuration.
pub struct ConfigFeed {
    pub(super) content: ConfigSource,
    /// The watch that feeds `content`; `None` if `content` does not come from the API server.
    pub(super) from_api: Option<ConfigMapFeed>,
}

impl ConfigFeed {
    /// Selects the source. A `ConfigMap` is watched over `connection`.
    pub fn open(
        options: &Options,
        from: ConfigFrom,
        connection: &Arc<Connection>,
        metrics: &Metrics,
    ) -> Self {
        match from {
            ConfigFrom::Directory(path, period) => Self::directory(path, period),
            ConfigFrom::ConfigMap(namespace, name) => {
                tracing::info!(namespace, name, "configuration comes from a ConfigMap");
                let (feed, content) = ConfigSource::api();
                let watch = ConfigMapFeed::new(&namespace, &name, feed, connection, metrics);
                Self {
                    content,
                    from_api: Some(watch),
                }
            }
            ConfigFrom::Flags => Self::flags(options),
        }
    }

    /// Selects a source that needs no API server.
    ///
    /// # Errors
    ///
    /// When the source is a `ConfigMap`.
    pub fn without_api_server(options: &Options, from: ConfigFrom) -> Result<Self, EtcdAloneError> {
        match from {
            ConfigFrom::Directory(path, period) => Ok(Self::directory(path, period)),
            ConfigFrom::ConfigMap(_, _) => Err(EtcdAloneError::ConfigMap),
            ConfigFrom::Flags => Ok(Self::flags(options)),
        }
    }

    fn directory(path: PathBuf, period: Duration) -> Self {
        tracing::info!(path = %path.display(), ?period, "configuration comes from a directory");
        Self::fixed(ConfigSource::Directory { path, period })
    }

    fn flags(options: &Options) -> Self {
        tracing::info!("configuration comes only from the flags");
        let config = Config {
            federations: options.federations.0.clone(),
            ..Config::default()
        };
        Self::fixed(ConfigSource::Fixed(Box::new(config)))
    }

    /// A source without the API server.
    fn fixed(content: ConfigSource) -> Self {
        Self {
            content,
            from_api: None,
        }
    }
}

/// The sources in which the names of stub servers are looked up. Names in the cluster domains are
/// looked up at this kubedns.
pub(super) fn name_sources(options: &Options, flags: &ConfigFlags) -> LookupSources {
    let bound = options.dns_bind_address.parse::<IpAddr>().ok();
    // A server that is bound to all addresses is reached at the loopback address.
    let ip = bound
        .filter(|ip| !ip.is_unspecified())
        .unwrap_or(Ipv4Addr::LOCALHOST.into());

    let cluster_domains = flags.domains.iter().map(|domain| domain.bare().to_owned());
    LookupSources {
        kubedns: Nameserver::new(ip, options.dns_port),
        cluster_domains: cluster_domains.collect(),
        hosts: dnsclient::hosts::FILE.into(),
    }
}
