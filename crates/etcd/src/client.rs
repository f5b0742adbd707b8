//! Requests to etcd's JSON gateway over HTTP/1.1, with TLS and a token if configured. Each
//! [`EtcdClient`] is one session. A session reads certificates and the password at its start.

mod tls;

use std::fs::File;
use std::io::Read as _;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{self, Client as HttpClient};
use hyper_util::rt::TokioExecutor;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use thiserror::Error;
use tokio::time::timeout;

use crate::gateway::{self, AuthToken, GatewayError, WatchFrames, WatchResponse};
pub use tls::{EtcdTlsFiles, TlsError};

/// Timeout for setting up a TCP connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// TCP keepalive: the idle time before the first probe.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(20);
/// TCP keepalive: the interval of probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// TCP keepalive: the number of failed probes after which the connection is dead.
const KEEPALIVE_RETRIES: u32 = 3;
/// Timeout of the head of a response, and of the body unless the response is a watch.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum size of a response that is not a watch, a token or an error, in octets.
const MAX_BODY: usize = 32 << 20;
/// Maximum size of an error response and of a token response, in octets.
const MAX_ERROR: usize = 64 << 10;
/// Maximum size of the password file, in octets; the rest is ignored.
const MAX_PASSWORD: u64 = 4096;

/// Settings for the access to etcd.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EtcdAccess {
    /// Members of one etcd cluster, `http://` or `https://` with host and port. A session uses one
    /// member. After a failure, the next session uses the next member.
    pub members: Vec<Uri>,
    /// Certificates.
    pub tls: EtcdTlsFiles,
    /// User and password, if etcd requires them.
    pub login: Option<EtcdLogin>,
}

/// A user of etcd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdLogin {
    /// The name.
    pub user: String,
    /// The file with the password. White space around the password is ignored.
    pub password_file: PathBuf,
}

impl EtcdLogin {
    /// The request for a token. Blocks while reading the password.
    fn token_request(&self) -> Result<Value, ClientError> {
        let mut password = String::new();
        File::open(&self.password_file)
            .and_then(|file| file.take(MAX_PASSWORD).read_to_string(&mut password))
            .map_err(|source| ClientError::Password {
                path: self.password_file.clone(),
                source,
            })?;

        Ok(json!({ "name": self.user, "password": password.trim() }))
    }
}

/// Failure of a request.
#[derive(Debug, Error)]
pub enum ClientError {
    /// The TLS settings are invalid.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The password cannot be read.
    #[error("cannot read the password in {}", .path.display())]
    Password {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        source: std::io::Error,
    },
    /// The request cannot be built, for example because the token is not a valid header value.
    #[error("cannot build the request")]
    Request(#[from] http::Error),
    /// The member cannot be reached.
    #[error("cannot reach etcd")]
    Unreachable(#[source] legacy::Error),
    /// The response takes too long.
    #[error("no complete response within {0:?}")]
    Slow(Duration),
    /// The response ends early.
    #[error("the response ended early")]
    Cut(#[source] Option<hyper::Error>),
    /// etcd rejects the request.
    #[error("etcd answered {status}: {message}")]
    Refused {
        /// The status code.
        status: StatusCode,
        /// The message of etcd.
        message: String,
    },
    /// The response is unusable, or reports an error.
    #[error(transparent)]
    Gateway(#[from] GatewayError),
}

impl ClientError {
    /// Whether etcd rejects the token, for example because the token has expired, or because the
    /// users or roles of etcd have changed.
    fn is_token_rejected(&self) -> bool {
        matches!(self, Self::Refused { status, message }
            if *status == StatusCode::UNAUTHORIZED || message.contains("auth: revision"))
    }
}

/// One session with one member.
pub struct EtcdClient {
    http: HttpClient<HttpsConnector<HttpConnector>, Full<Bytes>>,
    member: Uri,
    /// The request for a token, with user and password.
    login: Option<Value>,
    token: Option<HeaderValue>,
}

impl EtcdClient {
    /// Creates a session with `member`. Blocks while reading certificates and the password.
    ///
    /// # Errors
    ///
    /// If the certificates cannot be used, or the password cannot be read.
    pub fn new(access: &EtcdAccess, member: &Uri) -> Result<Self, ClientError> {
        let mut tcp = HttpConnector::new();
        // The TLS connector passes `https` URIs to this connector, which must accept them.
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
        tcp.set_keepalive(Some(KEEPALIVE_IDLE));
        tcp.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
        tcp.set_keepalive_retries(Some(KEEPALIVE_RETRIES));

        let is_https = member.scheme_str() == Some("https");
        let https = HttpsConnectorBuilder::new()
            .with_tls_config(access.tls.read_config(is_https)?)
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        // The requests of a session are sent one after another, so one idle connection is enough. A
        // watch keeps its own connection.
        let http = HttpClient::builder(TokioExecutor::new())
            .pool_max_idle_per_host(1)
            .build(https);

        let login = access.login.as_ref();
        Ok(Self {
            http,
            member: member.clone(),
            login: login.map(EtcdLogin::token_request).transpose()?,
            token: None,
        })
    }

    /// Posts a request and reads the whole response. If etcd rejects a token from an earlier
    /// request, requests a new token and tries once more.
    pub(crate) async fn post_json<T: DeserializeOwned>(
        &mut self,
        path: &str,
        request: &Value,
    ) -> Result<T, ClientError> {
        let response = self.send_with_token(path, request).await?;
        let body = read_body(response, MAX_BODY).await?;
        Ok(serde_json::from_slice(&body).map_err(GatewayError::from)?)
    }

    /// Posts a request whose response is a watch.
    pub(crate) async fn open_watch(&mut self, request: &Value) -> Result<KeyWatch, ClientError> {
        let body = self.send_with_token("/v3/watch", request).await?;
        Ok(KeyWatch {
            body,
            frames: WatchFrames::default(),
        })
    }

    async fn send_with_token(
        &mut self,
        path: &str,
        request: &Value,
    ) -> Result<Incoming, ClientError> {
        let Some(login) = self.login.clone() else {
            return self.send_request(path, request).await;
        };
        let is_new = self.token.is_none();
        if is_new {
            self.authenticate(&login).await?;
        }

        match self.send_request(path, request).await {
            // An older token may have expired, so the request is repeated with a new one. If etcd
            // rejects a token that it has just issued, that is an error.
            Err(error) if error.is_token_rejected() && !is_new => {
                self.authenticate(&login).await?;
                self.send_request(path, request).await
            }
            sent => sent,
        }
    }

    async fn authenticate(&mut self, login: &Value) -> Result<(), ClientError> {
        self.token = None;
        let response = self.send_request("/v3/auth/authenticate", login).await?;
        let body = read_body(response, MAX_ERROR).await?;

        let AuthToken { token } = serde_json::from_slice(&body).map_err(GatewayError::from)?;
        let mut token = HeaderValue::try_from(token).map_err(http::Error::from)?;
        // The token is kept out of debug output.
        token.set_sensitive(true);
        self.token = Some(token);
        Ok(())
    }

    /// Sends a request and returns the body of a successful response.
    async fn send_request(&self, path: &str, request: &Value) -> Result<Incoming, ClientError> {
        let mut uri = self.member.clone().into_parts();
        uri.path_and_query = Some(path.parse().map_err(http::Error::from)?);
        let uri = Uri::from_parts(uri).map_err(http::Error::from)?;

        let mut builder = Request::post(uri).header(CONTENT_TYPE, "application/json");
        if let Some(token) = &self.token {
            builder = builder.header(AUTHORIZATION, token);
        }
        let request = builder.body(Full::from(request.to_string()))?;
        let response = timeout(RESPONSE_TIMEOUT, self.http.request(request))
            .await
            .map_err(|_| ClientError::Slow(RESPONSE_TIMEOUT))?
            .map_err(ClientError::Unreachable)?;

        let (head, body) = response.into_parts();
        if head.status == StatusCode::OK {
            return Ok(body);
        }
        // If the body of an error response cannot be read, the error still contains the status.
        let body = read_body(body, MAX_ERROR).await.unwrap_or_default();
        Err(ClientError::Refused {
            status: head.status,
            message: gateway::error_message(&body),
        })
    }
}

/// Reads a whole body of at most `most` octets, within [`RESPONSE_TIMEOUT`].
async fn read_body(body: Incoming, most: usize) -> Result<Vec<u8>, ClientError> {
    timeout(RESPONSE_TIMEOUT, collect_body(body, most))
        .await
        .map_err(|_| ClientError::Slow(RESPONSE_TIMEOUT))?
}

async fn collect_body(mut body: Incoming, most: usize) -> Result<Vec<u8>, ClientError> {
    let mut octets = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| ClientError::Cut(Some(error)))?;
        let piece = frame.data_ref().map(|piece| &**piece).unwrap_or_default();

        if octets.len() + piece.len() > most {
            return Err(GatewayError::Large(most).into());
        }
        octets.extend_from_slice(piece);
    }
    Ok(octets)
}

/// The response to a watch: a stream of frames.
pub(crate) struct KeyWatch {
    body: Incoming,
    frames: WatchFrames,
}

impl KeyWatch {
    /// The next frame. Cancel safe.
    pub(crate) async fn next_frame(&mut self) -> Result<WatchResponse, ClientError> {
        loop {
            if let Some(frame) = self.frames.next_frame() {
                return Ok(frame?);
            }

            let piece = self.body.frame().await.ok_or(ClientError::Cut(None))?;
            let piece = piece.map_err(|error| ClientError::Cut(Some(error)))?;
            let octets = piece.data_ref().map(|piece| &**piece).unwrap_or_default();
            self.frames.push_octets(octets)?;
        }
    }
}
