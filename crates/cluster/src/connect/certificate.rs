//! The client certificate, and the certificates of certificate authorities. A client certificate in
//! a file is read again before requests, with its key, so that a renewed certificate takes effect.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use daemon::blocking_read::BlockingRead;
use parking_lot::Mutex;
use rustls::client::ResolvesClientCert;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{InconsistentKeys, SignatureScheme};
use thiserror::Error;
use tokio::time::Instant;

/// Maximum age of a loaded certificate. client-go also reads certificate files at most once a
/// second.
const FRESH: Duration = Duration::from_secs(1);

/// An unusable certificate or key.
#[derive(Debug, Error)]
pub(super) enum IdentityError {
    #[error("cannot read {}", .path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("there is no CERTIFICATE in PEM format")]
    Certificate,
    #[error("there is no PRIVATE KEY, RSA PRIVATE KEY or EC PRIVATE KEY in PEM format")]
    Key,
    #[error("unsupported client key: {0}")]
    Kind(rustls::Error),
    #[error("the client key does not match the client certificate")]
    Mismatch,
    #[error("client certificate and client key must be given together")]
    Half,
    #[error("reading the certificate and the key timed out")]
    Hangs,
}

/// PEM, inline or in a file.
#[derive(Debug)]
pub(super) enum Pem {
    Data(Vec<u8>),
    File(PathBuf),
}

impl Pem {
    fn read(&self) -> Result<Vec<u8>, IdentityError> {
        match self {
            Self::Data(data) => Ok(data.clone()),
            Self::File(path) => std::fs::read(path).map_err(|source| IdentityError::Read {
                path: path.clone(),
                source,
            }),
        }
    }
}

/// The source of a certificate and its key.
#[derive(Debug)]
struct PemPair {
    certificate: Pem,
    key: Pem,
}

impl PemPair {
    fn read(&self) -> Result<CertifiedKey, IdentityError> {
        parse_certified_key(&self.certificate.read()?, &self.key.read()?)
    }
}

/// The certificate and key in use, and the time of the last attempt to load them.
#[derive(Debug)]
struct LoadedKey {
    /// `None` until a plugin has provided a certificate.
    key: Option<Arc<CertifiedKey>>,
    loaded: Instant,
}

impl LoadedKey {
    fn now(key: Option<Arc<CertifiedKey>>) -> Self {
        Self {
            key,
            loaded: Instant::now(),
        }
    }
}

/// A client certificate with its key.
#[derive(Debug)]
pub(super) struct ClientCertificate {
    /// The source of certificate and key; `None` if a plugin provides them.
    from: Option<Arc<PemPair>>,
    current: Mutex<LoadedKey>,
    reading: BlockingRead<Result<CertifiedKey, IdentityError>>,
}

impl ClientCertificate {
    /// No certificate, until [`set`](Self::set) provides one.
    pub(super) fn none() -> Self {
        Self {
            from: None,
            current: Mutex::new(LoadedKey::now(None)),
            reading: BlockingRead::default(),
        }
    }

    /// Reads the certificate and its key for the first time. Reads files, so it may block.
    ///
    /// # Errors
    ///
    /// [`IdentityError`] if the certificate or the key cannot be used.
    pub(super) fn read(certificate: Pem, key: Pem) -> Result<Self, IdentityError> {
        let pair = PemPair { certificate, key };
        let first = Arc::new(pair.read()?);

        Ok(Self {
            from: Some(Arc::new(pair)),
            current: Mutex::new(LoadedKey::now(Some(first))),
            reading: BlockingRead::default(),
        })
    }

    /// Replaces certificate and key.
    pub(super) fn set(&self, certificate: &[u8], key: &[u8]) -> Result<(), IdentityError> {
        let certified = parse_certified_key(certificate, key)?;
        *self.current.lock() = LoadedKey::now(Some(Arc::new(certified)));
        Ok(())
    }

    /// Reads certificate and key again if the certificate is in a file, at most once a second. If
    /// they cannot be read, the previous certificate stays in use.
    pub(super) async fn refresh(&self) {
        let Some(pair) = &self.from else { return };
        // Inline data only change with the kubeconfig, which `Connection::renew` reads again.
        if !matches!(pair.certificate, Pem::File(_)) {
            return;
        }
        if self.current.lock().loaded.elapsed() <= FRESH {
            return;
        }

        let pair = Arc::clone(pair);
        let read = self.reading.run(move || pair.read()).await;

        let mut current = self.current.lock();
        match read.unwrap_or(Err(IdentityError::Hangs)) {
            Ok(certified) => current.key = Some(Arc::new(certified)),
            Err(error) => {
                let error = daemon::error_chain::brief(&error);
                tracing::warn!(
                    error,
                    "cannot read the client certificate again; the previous certificate stays in use"
                );
            }
        }
        // The time is set after a failure, too, so that a broken file is read once a second, not
        // for each request.
        current.loaded = Instant::now();
    }
}

impl ResolvesClientCert for ClientCertificate {
    fn resolve(
        &self,
        _issuers: &[&[u8]],
        _schemes: &[SignatureScheme],
    ) -> Option<Arc<CertifiedKey>> {
        self.current.lock().key.clone()
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// The certificates in a file, as DER. A file without a certificate is an error.
pub(super) fn read_authorities(path: &Path) -> Result<Vec<Vec<u8>>, IdentityError> {
    let pem = Pem::File(path.to_owned()).read()?;

    let mut found = Vec::new();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|_| IdentityError::Certificate)?;
        found.push(certificate.to_vec());
    }

    if found.is_empty() {
        return Err(IdentityError::Certificate);
    }
    Ok(found)
}

fn parse_certified_key(certificate: &[u8], key: &[u8]) -> Result<CertifiedKey, IdentityError> {
    let chain = CertificateDer::pem_slice_iter(certificate).collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|_| IdentityError::Certificate)?;
    if chain.is_empty() {
        return Err(IdentityError::Certificate);
    }

    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| IdentityError::Key)?;
    let key = rustls::crypto::ring::sign::any_supported_type(&key).map_err(IdentityError::Kind)?;

    let certified = CertifiedKey::new(chain, key);
    match certified.keys_match() {
        Err(rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => {
            Err(IdentityError::Mismatch)
        }
        // rustls cannot parse X.509 version 1. The API server decides whether to accept such a
        // certificate.
        _ => Ok(certified),
    }
}
