//! The TLS settings of an etcd client, from files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use thiserror::Error;

/// The paths of files in PEM format.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EtcdTlsFiles {
    /// The CA certificates that verify etcd. If `None`, the certificates of the system are used.
    pub ca: Option<PathBuf>,
    /// The client certificate and its key.
    pub client: Option<(PathBuf, PathBuf)>,
}

/// Unusable TLS settings.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A file cannot be read, or its content cannot be used.
    #[error("cannot use {}: {reason}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason why the file cannot be used.
        reason: String,
    },
    /// The system has no valid CA certificate.
    #[error("the system has no valid CA certificate to verify etcd with")]
    NoAuthorities,
    /// rustls rejects the settings.
    #[error("TLS cannot be set up: {0}")]
    Settings(#[from] rustls::Error),
}

impl EtcdTlsFiles {
    /// Reads the settings. If TLS is not `needed`, no file is read.
    pub(super) fn read_config(&self, needed: bool) -> Result<ClientConfig, TlsError> {
        let roots = if needed {
            self.read_roots()?
        } else {
            RootCertStore::empty()
        };
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots);

        match &self.client {
            Some((certificate, key)) if needed => {
                let chain = read_certificates(certificate)?;
                let key =
                    PrivateKeyDer::from_pem_file(key).map_err(|error| unusable_pem(key, &error))?;
                Ok(builder.with_client_auth_cert(chain, key)?)
            }
            _ => Ok(builder.with_no_client_auth()),
        }
    }

    fn read_roots(&self) -> Result<RootCertStore, TlsError> {
        let authorities = match &self.ca {
            Some(file) => read_certificates(file)?,
            None => rustls_native_certs::load_native_certs().certs,
        };

        let mut roots = RootCertStore::empty();
        // If one certificate is valid PEM but cannot be parsed, the others are used nevertheless.
        match (roots.add_parsable_certificates(authorities), &self.ca) {
            ((0, _), Some(file)) => Err(TlsError::File {
                path: file.clone(),
                reason: "no CERTIFICATE in it is valid".to_owned(),
            }),
            ((0, _), None) => Err(TlsError::NoAuthorities),
            _ => Ok(roots),
        }
    }
}

fn read_certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let certificates: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect)
        .map_err(|error| unusable_pem(file, &error))?;

    // The parser reports no error if the file has no CERTIFICATE section.
    if certificates.is_empty() {
        return Err(TlsError::File {
            path: file.to_owned(),
            reason: "there is no CERTIFICATE in it".to_owned(),
        });
    }
    Ok(certificates)
}

fn unusable_pem(path: &Path, error: &rustls::pki_types::pem::Error) -> TlsError {
    TlsError::File {
        path: path.to_owned(),
        reason: error.to_string(),
    }
}
