//! The credentials of a kubeconfig's user or of a service account. Of the user's settings, the
//! crate `kube` handles only impersonation.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use daemon::blocking_read::BlockingRead;
use http::Request;
use http::header::{AUTHORIZATION, HeaderValue, InvalidHeaderValue};
use kube::client::Body;
use kube::config::AuthInfo;
use parking_lot::Mutex;
use secrecy::ExposeSecret as _;
use thiserror::Error;
use tokio::time::Instant;
use tower::BoxError;

use super::certificate::{ClientCertificate, IdentityError, Pem};
use super::exec::Plugin;

/// Age of a token from a file after which the file is read again. A kubelet writes a new token
/// minutes before the previous token expires.
const FRESH: Duration = Duration::from_secs(50);

/// Unusable credentials.
#[derive(Debug, Error)]
pub(super) enum CredentialsError {
    #[error(
        "auth-provider {0:?} is not supported; accepted: token, tokenFile, client certificate, username and password, exec"
    )]
    AuthProvider(String),
    #[error("cannot read the token file {}: {reason}", .path.display())]
    TokenFile { path: PathBuf, reason: String },
    #[error("client-certificate-data and client-key-data must be base64")]
    Base64,
    #[error("the user's token has characters that an HTTP header cannot have")]
    Header(#[from] InvalidHeaderValue),
    #[error(transparent)]
    Identity(#[from] IdentityError),
}

/// Credentials of one user.
#[derive(Debug)]
pub(super) struct Credentials {
    /// The header with the password or token that the kubeconfig itself contains.
    fixed: Option<HeaderValue>,
    token: TokenSource,
    certificate: Option<Arc<ClientCertificate>>,
}

#[derive(Debug)]
enum TokenSource {
    None,
    File(TokenFile),
    Plugin(Box<Plugin>),
}

impl Credentials {
    /// Reads the credentials of `user`. Certificates, token files and plugins are removed from
    /// `user`, because `kube` would read a certificate only once, and would wait for a plugin
    /// without a timeout. This function reads files, which may block.
    ///
    /// # Errors
    ///
    /// [`CredentialsError`] if a credential cannot be used.
    pub(super) fn take(user: &mut AuthInfo) -> Result<Self, CredentialsError> {
        if let Some(provider) = &user.auth_provider {
            // kube-dns rejects auth providers, too: it does not link those of client-go.
            return Err(CredentialsError::AuthProvider(provider.name.clone()));
        }
        let fixed = fixed_authorization(user)?;
        let mut certificate = take_certificate(user)?.map(Arc::new);

        // As in client-go, a token file overrides a token in the kubeconfig, and both override a
        // plugin.
        let token = match (user.token_file.take(), user.exec.take()) {
            (Some(path), _) => {
                let path = PathBuf::from(path);
                match read_token(&path) {
                    // The error is fatal only if the kubeconfig has no token or password to which
                    // requests can fall back.
                    Err(error) if fixed.is_none() => return Err(error),
                    first => TokenSource::File(TokenFile::new(path, first.ok())),
                }
            }
            (None, Some(plugin)) if user.token.is_none() => {
                // The TLS configuration is built once, before the plugin runs. The configuration
                // therefore contains a `ClientCertificate` that may be empty at first. The
                // certificate of the plugin, if any, is stored there later.
                let given = certificate.get_or_insert_with(|| Arc::new(ClientCertificate::none()));
                TokenSource::Plugin(Box::new(Plugin::new(plugin, Arc::clone(given))))
            }
            (None, _) => TokenSource::None,
        };
        Ok(Self {
            fixed,
            token,
            certificate,
        })
    }

    /// The client certificate, if the user has one or a plugin may provide one.
    pub(super) fn certificate(&self) -> Option<Arc<ClientCertificate>> {
        self.certificate.clone()
    }

    /// Adds the token or password, if any, to a request. Also refreshes the client certificate,
    /// which the next TLS handshake uses.
    pub(super) async fn authorize(
        &self,
        mut request: Request<Body>,
    ) -> Result<Request<Body>, BoxError> {
        if let Some(certificate) = &self.certificate {
            certificate.refresh().await;
        }

        let token = match &self.token {
            TokenSource::None => None,
            TokenSource::File(file) => match file.token().await {
                Ok(token) => Some(token),
                // The token or password in the kubeconfig is the fallback for an unreadable file.
                Err(_) if self.fixed.is_some() => None,
                Err(error) => return Err(error.into()),
            },
            TokenSource::Plugin(plugin) => plugin.token().await?,
        };

        let value = match token {
            Some(token) => Some(authorization("Bearer", &token)?),
            None => self.fixed.clone(),
        };
        if let Some(value) = value {
            request.headers_mut().insert(AUTHORIZATION, value);
        }
        Ok(request)
    }
}

/// The header with the password in the kubeconfig, or else with the token. kube's own layer would
/// panic on a token that is not valid in a header.
fn fixed_authorization(user: &AuthInfo) -> Result<Option<HeaderValue>, CredentialsError> {
    let value = match (&user.username, &user.password, &user.token) {
        (Some(name), Some(password), _) => {
            let pair = format!("{name}:{}", password.expose_secret());
            authorization("Basic", &BASE64_STANDARD.encode(pair))
        }
        (_, _, Some(token)) => authorization("Bearer", token.expose_secret()),
        _ => return Ok(None),
    };
    value.map(Some)
}

/// The value of an `Authorization` header. It is marked as sensitive, so that it is not logged.
fn authorization(scheme: &str, credentials: &str) -> Result<HeaderValue, CredentialsError> {
    let mut value = HeaderValue::try_from(format!("{scheme} {credentials}"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// Takes the client certificate of the kubeconfig. Inline data takes precedence over files.
fn take_certificate(user: &mut AuthInfo) -> Result<Option<ClientCertificate>, CredentialsError> {
    let certificate_data = user.client_certificate_data.take().unwrap_or_default();
    let key_data = user.client_key_data.take();
    let key_data = key_data.as_ref().map_or("", |data| data.expose_secret());

    let certificate = select_pem(&certificate_data, user.client_certificate.take())?;
    let key = select_pem(key_data, user.client_key.take())?;
    match (certificate, key) {
        (None, None) => Ok(None),
        (Some(certificate), Some(key)) => Ok(Some(ClientCertificate::read(certificate, key)?)),
        _ => Err(IdentityError::Half.into()),
    }
}

/// The inline PEM in base64, or else the PEM file.
fn select_pem(data: &str, path: Option<String>) -> Result<Option<Pem>, CredentialsError> {
    if data.is_empty() {
        return Ok(path.map(|path| Pem::File(path.into())));
    }

    // Go's decoder ignores line ends, so kubeconfigs may have them.
    let text: String = data.split_ascii_whitespace().collect();
    match BASE64_STANDARD.decode(text) {
        Ok(pem) => Ok(Some(Pem::Data(pem))),
        Err(_) => Err(CredentialsError::Base64),
    }
}

/// A token file, which is read again when the token is older than [`FRESH`].
#[derive(Debug)]
struct TokenFile {
    path: PathBuf,
    current: Mutex<Option<(String, Instant)>>,
    reading: BlockingRead<Result<String, CredentialsError>>,
}

impl TokenFile {
    fn new(path: PathBuf, first: Option<String>) -> Self {
        let current = Mutex::new(first.map(|token| (token, Instant::now())));
        Self {
            path,
            current,
            reading: BlockingRead::default(),
        }
    }

    /// The token. If the file cannot be read, the previous token stays in use.
    async fn token(&self) -> Result<String, CredentialsError> {
        if let Some((token, read)) = &*self.current.lock()
            && read.elapsed() < FRESH
        {
            return Ok(token.clone());
        }

        let path = self.path.clone();
        let read = self.reading.run(move || read_token(&path)).await;
        let read = read.unwrap_or_else(|| Err(unreadable_token(&self.path, &"the read timed out")));

        let mut current = self.current.lock();
        match (read, &*current) {
            // The error is ignored: a kubelet renews a token minutes before the token expires, and
            // the next request reads the file again.
            (Err(_), Some((token, _))) => Ok(token.clone()),
            (Err(error), None) => Err(error),
            (Ok(token), _) => {
                *current = Some((token.clone(), Instant::now()));
                Ok(token)
            }
        }
    }
}

/// Reads a token and trims it.
fn read_token(path: &Path) -> Result<String, CredentialsError> {
    match std::fs::read_to_string(path) {
        Ok(text) if text.trim().is_empty() => Err(unreadable_token(path, &"it is empty")),
        Ok(text) => Ok(text.trim().to_owned()),
        Err(error) => Err(unreadable_token(path, &error)),
    }
}

fn unreadable_token(path: &Path, reason: &dyn Display) -> CredentialsError {
    CredentialsError::TokenFile {
        path: path.to_owned(),
        reason: reason.to_string(),
    }
}
