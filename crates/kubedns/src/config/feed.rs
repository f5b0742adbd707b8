//! The source of the configuration, as the flags select it.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use cluster::connect::Connection;
use dnsclient::resolve::LookupSources;
use dnsconfig::{Config, ConfigSource};
use wire::Nameserver;

use crate::metrics::Metrics;
use crate::options::{ConfigFrom, Options};

use super::configmap::ConfigMapFeed;

/// The source of the configuration.
pub struct ConfigFeed {
    pub(super) content: ConfigSource,
    /// The watch that feeds `content`, if that is a `ConfigMap`.
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
            ConfigFrom::Directory(path, period) => {
                tracing::info!(path = %path.display(), ?period, "configuration comes from a directory");
                Self::fixed(ConfigSource::Directory { path, period })
            }
            ConfigFrom::ConfigMap(namespace, name) => {
                tracing::info!(namespace, name, "configuration comes from a ConfigMap");
                let (feed, content) = ConfigSource::api();
                let watch = ConfigMapFeed::new(&namespace, &name, feed, connection, metrics);
                Self {
                    content,
                    from_api: Some(watch),
                }
            }
            ConfigFrom::Flags => {
                tracing::info!("configuration comes from the flags alone");
                let config = Config {
                    federations: options.federations.0.clone(),
                    ..Config::default()
                };
                Self::fixed(ConfigSource::Fixed(Box::new(config)))
            }
        }
    }

    /// A source without the API server.
    fn fixed(content: ConfigSource) -> Self {
        Self {
            content,
            from_api: None,
        }
    }
}

/// Sources for the addresses of stub servers given by name. The nanny has the same sources; here
/// kubedns is this process.
pub(super) fn name_sources(options: &Options) -> LookupSources {
    let bound = options.dns_bind_address.parse::<IpAddr>().ok();
    // A server that is bound to all addresses is reached at the loopback address.
    let ip = bound
        .filter(|ip| !ip.is_unspecified())
        .unwrap_or(Ipv4Addr::LOCALHOST.into());

    LookupSources {
        kubedns: Nameserver::new(ip, options.dns_port),
        cluster_domain: options.domain.first.bare().to_owned(),
        hosts: dnsclient::hosts::FILE.into(),
    }
}
