//! TLS with upstreams (RFC 7858): trust, sessions and certificates.
//!
//! A certificate must be valid now and chain to a trusted CA. The certificate must be for the
//! configured name of the upstream; without a name, for its address. Pins are checked in addition.
//! Sessions are resumed.

mod certificate;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dnsconfig::Upstream;
use dnsconfig::blocking_read::BlockingRead;
use rustls::client::Resumption;
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, HandshakeKind, RootCertStore};
use rustls_native_certs::{CertificateResult, load_certs_from_paths, load_native_certs};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use self::certificate::Certificate;
use super::failure::{Failure, OpenError};
use super::metrics::UpstreamMetrics;

/// Time after which the next handshake reads the CA certificates again.
const FRESH: Duration = Duration::from_mins(1);
/// Maximum number of sessions kept for resumption, for all upstreams together.
const SESSIONS: usize = 64;

/// Trusted CAs and pins. By default the CAs of the system are trusted, without pins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsTrust {
    /// PEM file of CA certificates, used instead of the CAs of the system.
    pub ca_file: Option<PathBuf>,
    /// Pinned keys. If any key is pinned for an upstream, the certificate must have one of the keys
    /// pinned for that upstream.
    pub pins: Vec<Pin>,
}

/// A pinned key of an upstream's certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pin {
    /// The configured name of the upstream; for an upstream without a name, its address.
    pub name: String,
    /// SHA-256 of the `SubjectPublicKeyInfo` (RFC 7858 section 4.2).
    pub sha256: [u8; 32],
}

#[derive(Debug)]
pub(super) struct Tls {
    trust: TlsTrust,
    newest: Mutex<Option<Settings>>,
    reading: BlockingRead<CertificateResult>,
}

#[derive(Clone)]
struct Settings {
    connector: TlsConnector,
    /// A hash of the CA certificates.
    authorities: u64,
    read: Instant,
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings")
            .field("read", &self.read)
            .finish_non_exhaustive()
    }
}

impl Tls {
    pub(super) fn new(trust: TlsTrust) -> Self {
        Self {
            trust,
            newest: Mutex::default(),
            reading: BlockingRead::default(),
        }
    }

    /// Performs the TLS handshake with `upstream` over a stream, and checks the certificate.
    pub(super) async fn handshake(
        &self,
        upstream: &Upstream,
        stream: TcpStream,
        metrics: &UpstreamMetrics,
    ) -> Result<TlsStream<TcpStream>, OpenError> {
        let connector = self.connector().await?;
        let name = match &upstream.name {
            Some(name) => {
                ServerName::try_from(name.to_string()).map_err(|error| wrong(error.to_string()))?
            }
            None => ServerName::from(upstream.server.ip),
        };
        let stream = connector
            .connect(name, stream)
            .await
            .map_err(|error| failed(&error))?;
        let connection = stream.get_ref().1;
        let first = connection.peer_certificates().and_then(<[_]>::first);
        let certificate = first.and_then(|der| Certificate::parse(der));
        let certificate =
            certificate.ok_or_else(|| wrong("the certificate cannot be read".to_owned()))?;
        metrics.handshake(
            connection.handshake_kind() == Some(HandshakeKind::Resumed),
            certificate.expires,
        );
        self.check(upstream, &certificate)?;
        Ok(stream)
    }

    /// Checks the pins, and for a resumed session the expiry of the certificate. rustls checks
    /// neither.
    fn check(&self, upstream: &Upstream, certificate: &Certificate<'_>) -> Result<(), OpenError> {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |now| now.as_secs());
        if certificate.expires < i64::try_from(now).unwrap_or(i64::MAX) {
            return Err(wrong(
                "the certificate of a resumed session has expired".to_owned(),
            ));
        }
        let ip = upstream.server.ip.to_string();
        let name = upstream.name.as_deref().unwrap_or(&ip);
        let mut pins = self
            .trust
            .pins
            .iter()
            .filter(|pin| pin.name == name)
            .peekable();
        let key = sha256(certificate.key);
        if pins.peek().is_some() && !pins.any(|pin| key.as_deref() == Some(&pin.sha256[..])) {
            return Err(wrong(
                "the key of the certificate is not the pinned one".to_owned(),
            ));
        }
        Ok(())
    }

    /// The current settings. If the CA certificates have not changed, the sessions are kept.
    async fn connector(&self) -> Result<TlsConnector, OpenError> {
        let mut newest = self.newest.lock().await;
        if let Some(settings) = newest
            .as_ref()
            .filter(|settings| settings.read.elapsed() < FRESH)
        {
            return Ok(settings.connector.clone());
        }
        let file = self.trust.ca_file.clone();
        let read = self.reading.run(move || match file {
            Some(file) => load_certs_from_paths(Some(&file), None),
            None => load_native_certs(),
        });
        // A read that hangs found none.
        let read = read.await.unwrap_or_default();
        let settings = match newest.take() {
            Some(before) if before.authorities == hash(&read.certs) => before.read_now(),
            before => match (Settings::new(&read), before) {
                (Ok(settings), _) => settings,
                // If the CA certificates cannot be read or used now, those read before stay in use.
                (Err(_), Some(before)) => before.read_now(),
                (Err(error), None) => return Err(error),
            },
        };
        Ok(newest.insert(settings).connector.clone())
    }
}

impl Settings {
    fn new(read: &CertificateResult) -> Result<Self, OpenError> {
        let mut roots = RootCertStore::empty();
        let (added, _) = roots.add_parsable_certificates(read.certs.iter().cloned());
        if added == 0 {
            return Err(wrong(no_authorities(read)));
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder
            .with_safe_default_protocol_versions()
            .map_err(|error| wrong(error.to_string()))?;
        let mut config = builder.with_root_certificates(roots).with_no_client_auth();
        config.resumption = Resumption::in_memory_sessions(SESSIONS);
        let connector = TlsConnector::from(Arc::new(config));
        Ok(Self {
            connector,
            authorities: hash(&read.certs),
            read: Instant::now(),
        })
    }

    fn read_now(self) -> Self {
        Self {
            read: Instant::now(),
            ..self
        }
    }
}

fn hash(certificates: &[CertificateDer<'_>]) -> u64 {
    let mut hasher = DefaultHasher::new();
    certificates.hash(&mut hasher);
    hasher.finish()
}

fn no_authorities(read: &CertificateResult) -> String {
    let reason = read
        .errors
        .first()
        .map(|error| format!(": {error}"))
        .unwrap_or_default();
    format!("there are no CA certificates to check it with{reason}")
}

/// SHA-256, from the provider of the cipher suites.
fn sha256(octets: &[u8]) -> Option<Box<[u8]>> {
    let suite = ring::cipher_suite::TLS13_AES_128_GCM_SHA256.tls13()?;
    Some(suite.common.hash_provider.hash(octets).as_ref().into())
}

fn wrong(reason: String) -> OpenError {
    OpenError {
        failure: Failure::Certificate,
        reason,
    }
}

/// Converts an error of the TLS handshake.
fn failed(error: &std::io::Error) -> OpenError {
    let reason = error.to_string();
    let tls = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let failure = match tls {
        Some(rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented) => {
            Failure::Certificate
        }
        Some(_) => Failure::Handshake,
        None => Failure::from_talking(error),
    };
    OpenError { failure, reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// rustls does not check the expiry of the certificate when a session is resumed.
    #[test]
    fn a_certificate_that_expires_while_its_session_lasts_is_refused() {
        let (tls, upstream) = (
            Tls::new(TlsTrust::default()),
            "tls://192.0.2.1".parse().unwrap(),
        );
        let now = i64::try_from(
            SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap()
                .as_secs(),
        )
        .unwrap();
        for (expires, expected) in [(now - 1, Some(Failure::Certificate)), (now + 3600, None)] {
            let checked = tls.check(&upstream, &Certificate { expires, key: b"" });
            assert_eq!(checked.err().map(|error| error.failure), expected);
        }
    }
}
