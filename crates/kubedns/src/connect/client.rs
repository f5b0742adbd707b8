//! The client itself: kube's layers on a connection of our own.
//!
//! kube's ready-made stack logs every failed request as an error, and does not notice peers that vanished; our
//! watchers tell failures themselves, once, and idle connections are probed by TCP.

use std::time::Duration;

use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ConfigExt as _};
use kube::{Client, Config, Error};
use tower::{BoxError, ServiceBuilder};

/// How long a TCP connection may take to be set up.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// After how much idleness a connection is probed, and how often then.
const KEEPALIVE: Duration = Duration::from_secs(20);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_RETRIES: u32 = 3;
/// Idle connections that are kept, and for how long.
const MAX_IDLE: usize = 2;
const IDLE: Duration = Duration::from_mins(1);

/// A client that speaks HTTP/1.1: each watch has a connection of its own, which can be judged by itself.
///
/// Reads certificates and runs an exec plugin, so it may block. Must be called in a tokio runtime.
pub(super) fn build(config: &Config) -> Result<Client, Error> {
    if let Some(proxy) = &config.proxy_url {
        return Err(Error::ProxyProtocolUnsupported { proxy_url: Box::new(proxy.clone()) });
    }
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
    connector.set_keepalive(Some(KEEPALIVE));
    connector.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
    connector.set_keepalive_retries(Some(KEEPALIVE_RETRIES));
    let connector = config.rustls_https_connector_with_connector(connector)?;
    let http = legacy::Client::builder(TokioExecutor::new())
        .pool_idle_timeout(IDLE)
        .pool_max_idle_per_host(MAX_IDLE)
        .build::<_, Body>(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(http);
    Ok(Client::new(service, config.default_namespace.clone()))
}
