//! The client certificate. Certificate files are read again at TLS handshakes, so that a renewed certificate takes
//! effect.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustls::client::ResolvesClientCert;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{InconsistentKeys, SignatureScheme};
use thiserror::Error;

/// Maximum age of a loaded certificate. client-go also reads certificate files at most once a second.
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
    #[error("not PEM with a CERTIFICATE")]
    Certificate,
    #[error("not PEM with a PRIVATE KEY, RSA PRIVATE KEY or EC PRIVATE KEY")]
    Key,
    #[error("unsupported client key: {0}")]
    Kind(rustls::Error),
    #[error("the client key does not match the client certificate")]
    Mismatch,
    #[error("client certificate and client key must be given together")]
    Half,
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
            Self::File(path) => {
                std::fs::read(path).map_err(|source| IdentityError::Read { path: path.clone(), source })
            }
        }
    }
}

/// A client certificate with its key.
#[derive(Debug)]
pub(super) struct ClientCertificate {
    /// The source of certificate and key; `None` if a plugin provides them.
    from: Option<(Pem, Pem)>,
    current: Mutex<(Option<Arc<CertifiedKey>>, Instant)>,
}

impl ClientCertificate {
    /// No certificate, until [`set`](Self::set) provides one.
    pub(super) fn none() -> Self {
        Self { from: None, current: Mutex::new((None, Instant::now())) }
    }

    /// Reads the certificate and its key for the first time.
    ///
    /// # Errors
    ///
    /// [`IdentityError`] if the certificate or the key cannot be used.
    pub(super) fn read(certificate: Pem, key: Pem) -> Result<Self, IdentityError> {
        let first = certified(&certificate.read()?, &key.read()?)?;
        Ok(Self {
            from: Some((certificate, key)),
            current: Mutex::new((Some(Arc::new(first)), Instant::now())),
        })
    }

    /// Replaces certificate and key.
    pub(super) fn set(&self, certificate: &[u8], key: &[u8]) -> Result<(), IdentityError> {
        let certified = certified(certificate, key)?;
        *self.current.lock() = (Some(Arc::new(certified)), Instant::now());
        Ok(())
    }

    /// The current certificate. If its files cannot be read, the previous certificate stays in use.
    fn current(&self) -> Option<Arc<CertifiedKey>> {
        let mut current = self.current.lock();
        if let Some((certificate @ Pem::File(_), key)) = &self.from
            && current.1.elapsed() > FRESH
        {
            let read = certificate.read().and_then(|certificate| certified(&certificate, &key.read()?));
            match read {
                Ok(certified) => current.0 = Some(Arc::new(certified)),
                Err(error) => {
                    let error = daemon::error_chain::brief(&error);
                    tracing::warn!(error, "cannot read the client certificate again");
                }
            }
            current.1 = Instant::now();
        }
        current.0.clone()
    }
}

impl ResolvesClientCert for ClientCertificate {
    fn resolve(&self, _issuers: &[&[u8]], _schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.current()
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// The certificates in a file as DER, at least one.
pub(super) fn authorities(path: &Path) -> Result<Vec<Vec<u8>>, IdentityError> {
    let pem = Pem::File(path.to_owned()).read()?;
    let found = CertificateDer::pem_slice_iter(&pem).map(|read| read.map(|der| der.to_vec()));
    let found = found.collect::<Result<Vec<_>, _>>().map_err(|_| IdentityError::Certificate)?;
    if found.is_empty() { Err(IdentityError::Certificate) } else { Ok(found) }
}

fn certified(certificate: &[u8], key: &[u8]) -> Result<CertifiedKey, IdentityError> {
    let chain = CertificateDer::pem_slice_iter(certificate).collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|_| IdentityError::Certificate)?;
    if chain.is_empty() {
        return Err(IdentityError::Certificate);
    }
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| IdentityError::Key)?;
    let key = rustls::crypto::ring::sign::any_supported_type(&key).map_err(IdentityError::Kind)?;
    let certified = CertifiedKey::new(chain, key);
    match certified.keys_match() {
        Err(rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => Err(IdentityError::Mismatch),
        // rustls cannot parse X.509 version 1. The API server decides whether to accept such a certificate.
        _ => Ok(certified),
    }
}
