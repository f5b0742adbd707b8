//! The client of the API server: the layers of the crate `kube` on HTTP connections that this
//! module configures.
//!
//! kube's own HTTP stack logs every failed request as an error and does not detect dead peers.
//! Here, the watchers report a failure once, and TCP keepalive detects dead peers.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::header::{HeaderValue, USER_AGENT};
use http::{Request, Uri};
use hyper_rustls::{FixedServerNameResolver, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::legacy::connect::{Connection, HttpConnector};
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ConfigExt as _};
use kube::{Client, Config};
use percent_encoding::percent_decode_str;
use rustls::ClientConfig;
use thiserror::Error;
use tower::filter::AsyncFilterLayer;
use tower::{BoxError, Service, ServiceBuilder};

use super::AuthorizeError;
use super::credentials::{Credentials, CredentialsError};

/// Timeout of setting up a TCP connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// TCP keepalive: idle time before the first probe, interval between probes, and number of probes.
const KEEPALIVE: Duration = Duration::from_secs(20);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_RETRIES: u32 = 3;
/// Maximum number of idle connections, and the time after which an idle connection is closed.
const MAX_IDLE: usize = 2;
const IDLE: Duration = Duration::from_mins(1);
/// Maximum number of octets per read. hyper's default of 400 KB makes lists no faster, and such
/// large buffers fragment the heap.
const READ: usize = 64 << 10;
/// Default port of a SOCKS proxy.
const SOCKS_PORT: u16 = 1080;

/// A failure to build the client.
#[derive(Debug, Error)]
pub(super) enum BuildError {
    #[error(transparent)]
    Kube(#[from] kube::Error),
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    #[error(
        "a proxy-url of scheme {0:?} is not supported; accepted: http://HOST:PORT and socks5://HOST:PORT"
    )]
    Proxy(String),
    #[error("tls-server-name {0:?} is neither a host name nor an address")]
    ServerName(String),
}

/// Builds a client that speaks HTTP/1.1, not HTTP/2. Each watch then has its own connection, and a
/// dead connection affects only one watch.
///
/// May block, because certificates and tokens are read from files. Must be called within a tokio
/// runtime.
pub(super) fn build_client(mut config: Config) -> Result<Client, BuildError> {
    // The credentials are removed from the configuration before kube gets it. kube would read a
    // client certificate only once, and would wait for credential plugins without a timeout.
    let credentials = Credentials::take(&mut config.auth_info)?;
    let user_agent = HeaderValue::try_from(user_agent());
    config
        .headers
        .extend(user_agent.map(|value| (USER_AGENT, value)));

    let mut tls = config.rustls_client_config()?;
    if let Some(certificate) = credentials.certificate() {
        tls.client_auth_cert_resolver = certificate;
    }

    let Some(proxy) = config.proxy_url.take() else {
        return connect_through(tcp_connector(), tls, &config, credentials);
    };
    match proxy.scheme_str() {
        Some("http") => connect_through(http_tunnel(proxy), tls, &config, credentials),
        Some("socks5") => connect_through(socks_tunnel(&proxy), tls, &config, credentials),
        other => Err(BuildError::Proxy(other.unwrap_or_default().to_owned())),
    }
}

/// The `User-Agent` header, which audit logs show. It contains the name of kube-dns and the name of
/// this project.
fn user_agent() -> String {
    // These are Go's names of architectures, which audit logs show for kube-dns.
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let version = daemon::version::VERSION;
    let project = daemon::version::PROJECT;

    format!(
        "kube-dns/{version} ({}/{architecture}) {project}/{version}",
        std::env::consts::OS
    )
}

fn tcp_connector() -> HttpConnector {
    let mut connector = HttpConnector::new();
    // The connector also gets URLs with https, which it would otherwise reject.
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
    // A dead peer of an idle connection is detected after 50 seconds: 20 seconds without data, then
    // 10 seconds for each of three probes.
    connector.set_keepalive(Some(KEEPALIVE));
    connector.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
    connector.set_keepalive_retries(Some(KEEPALIVE_RETRIES));
    connector
}

/// Connections through an HTTP proxy (CONNECT), with user name and password from its URL.
fn http_tunnel(proxy: Uri) -> Tunnel<HttpConnector> {
    let basic = user_of(&proxy).and_then(|user| {
        let user: Vec<u8> = percent_decode_str(user).collect();
        HeaderValue::try_from(format!("Basic {}", BASE64_STANDARD.encode(user))).ok()
    });

    let tunnel = Tunnel::new(proxy, tcp_connector());
    match basic {
        Some(basic) => tunnel.with_auth(basic),
        None => tunnel,
    }
}

/// Connections through a SOCKS proxy, with user name and password from its URL. The proxy resolves
/// host names.
fn socks_tunnel(proxy: &Uri) -> SocksV5<HttpConnector> {
    let address = format!(
        "{}:{}",
        proxy.host().unwrap_or_default(),
        proxy.port_u16().unwrap_or(SOCKS_PORT)
    );
    let address = Uri::builder()
        .scheme("socks5")
        .authority(address)
        .path_and_query("/")
        .build();
    let address = address.unwrap_or_else(|_| proxy.clone());
    let socks = SocksV5::new(address, tcp_connector());

    let Some(user) = user_of(proxy) else {
        return socks;
    };
    let (name, password) = user.split_once(':').unwrap_or((user, ""));
    let name = percent_decode_str(name).decode_utf8_lossy().into_owned();
    let password = percent_decode_str(password).decode_utf8_lossy();
    socks.with_auth(name, password.into_owned())
}

/// User name and password of a URL, still percent-encoded.
fn user_of(proxy: &Uri) -> Option<&str> {
    let (user, _) = proxy.authority()?.as_str().rsplit_once('@')?;
    Some(user)
}

/// A client that connects through `connector`.
fn connect_through<C>(
    connector: C,
    tls: ClientConfig,
    config: &Config,
    credentials: Credentials,
) -> Result<Client, BuildError>
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: Connection + hyper::rt::Read + hyper::rt::Write + Send + Unpin + 'static,
    C::Future: Send + 'static,
    C::Error: std::error::Error + Send + Sync + 'static,
{
    let mut https = HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http();
    if let Some(name) = &config.tls_server_name {
        let server_name = name
            .clone()
            .try_into()
            .map_err(|_| BuildError::ServerName(name.clone()))?;
        https = https.with_server_name_resolver(FixedServerNameResolver::new(server_name));
    }

    let http = legacy::Client::builder(TokioExecutor::new())
        .pool_idle_timeout(IDLE)
        .pool_max_idle_per_host(MAX_IDLE)
        .http1_max_buf_size(READ)
        .build::<_, Body>(https.enable_http1().wrap_connector(connector));

    let credentials = Arc::new(credentials);
    let authorize = AsyncFilterLayer::new(move |request: Request<Body>| {
        let credentials = Arc::clone(&credentials);
        async move {
            let authorized = credentials.authorize(request).await;
            authorized.map_err(AuthorizeError)
        }
    });
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .layer(authorize)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(http);
    Ok(Client::new(service, config.default_namespace.clone()))
}
