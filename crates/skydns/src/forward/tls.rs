//! TLS with upstreams (RFC 7858): trust, sessions and certificates.
//!
//! A certificate must be valid now and chain to a trusted CA. The certificate must be for the
//! configured name of the upstream. If no name is configured, the certificate must be for the
//! upstream's address. Pins are checked in addition. Sessions are resumed.

mod certificate;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use daemon::blocking_read::BlockingRead;
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
use wire::{Upstream, UpstreamProtocol};

use self::certificate::CertificateInfo;
use super::failure::{OpenError, UpstreamFailure};
use super::metrics::UpstreamMetrics;

/// Time after which the next handshake reads the CA certificates again.
const RELOAD_INTERVAL: Duration = Duration::from_mins(1);
/// Maximum number of sessions kept for resumption, for all upstreams together.
const MAX_SESSIONS: usize = 64;

/// Trusted CAs and pins. By default, the CAs of the system are trusted and no key is pinned.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsTrust {
    /// PEM file of CA certificates, used instead of the CAs of the system.
    pub ca_file: Option<PathBuf>,
    /// Pinned keys. If any key is pinned for an upstream, the certificate must have one of the keys
    /// pinned for that upstream.
    pub pins: Vec<KeyPin>,
}

/// A pinned key of an upstream's certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyPin {
    /// The configured name of the upstream, in lower case; for an upstream without a name, its
    /// address as [`IpAddr`](std::net::IpAddr) displays it.
    pub name: String,
    /// SHA-256 of the `SubjectPublicKeyInfo` (RFC 7858 section 4.2).
    pub sha256: [u8; 32],
}

impl KeyPin {
    /// Whether the key is pinned for `upstream`.
    pub fn is_for(&self, upstream: &Upstream) -> bool {
        let is_named = match &upstream.name {
            Some(name) => self.name == **name,
            None => self.name == upstream.server.ip.to_string(),
        };
        upstream.protocol == UpstreamProtocol::Tls && is_named
    }
}

#[derive(Debug)]
pub(super) struct TlsClient {
    trust: TlsTrust,
    settings: Mutex<Option<TlsSettings>>,
    reading: BlockingRead<CertificateResult>,
}

#[derive(Clone)]
struct TlsSettings {
    connector: TlsConnector,
    /// A hash of the CA certificates.
    authorities: u64,
    /// The end of the last attempt to read the CA certificates.
    read_at: Instant,
}

impl std::fmt::Debug for TlsSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsSettings")
            .field("read_at", &self.read_at)
            .finish_non_exhaustive()
    }
}

impl TlsClient {
    pub(super) fn new(trust: TlsTrust) -> Self {
        Self {
            trust,
            settings: Mutex::default(),
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
        let name = server_name(upstream)?;
        let stream = connector
            .connect(name, stream)
            .await
            .map_err(|error| handshake_error(&error))?;

        // Pins and expiry are checked on the certificate of this session, new or resumed.
        let connection = stream.get_ref().1;
        let first = connection.peer_certificates().and_then(<[_]>::first);
        let certificate = first
            .and_then(|der| CertificateInfo::parse(der))
            .ok_or_else(|| untrusted("the certificate cannot be read"))?;

        let resumed = connection.handshake_kind() == Some(HandshakeKind::Resumed);
        metrics.record_handshake(resumed, certificate.expires);
        self.check_certificate(upstream, &certificate)?;
        Ok(stream)
    }

    /// Checks the pins and the expiry of the certificate. rustls does not support pins, and checks
    /// the expiry only in a full handshake.
    fn check_certificate(
        &self,
        upstream: &Upstream,
        certificate: &CertificateInfo<'_>,
    ) -> Result<(), OpenError> {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |now| now.as_secs());
        if certificate.expires < i64::try_from(now).unwrap_or(i64::MAX) {
            return Err(untrusted(
                "the certificate of a resumed session has expired",
            ));
        }

        // If keys are pinned, a certificate with any other key is rejected even if a trusted CA has
        // signed it.
        if !self.matches_pins(upstream, certificate) {
            return Err(untrusted(
                "the key of the certificate is not one of the pinned keys",
            ));
        }
        Ok(())
    }

    /// Whether the certificate has one of the keys pinned for the upstream. True if no key is
    /// pinned for the upstream.
    fn matches_pins(&self, upstream: &Upstream, certificate: &CertificateInfo<'_>) -> bool {
        let pins = self.trust.pins.iter();
        let mut pins = pins.filter(|pin| pin.is_for(upstream)).peekable();
        if pins.peek().is_none() {
            return true;
        }

        let key = sha256(certificate.key);
        pins.any(|pin| key.as_deref() == Some(&pin.sha256[..]))
    }

    /// The connector with the current settings. If the CA certificates have not changed, the
    /// sessions are kept.
    async fn connector(&self) -> Result<TlsConnector, OpenError> {
        let mut settings = self.settings.lock().await;
        if let Some(current) = &*settings
            && current.read_at.elapsed() < RELOAD_INTERVAL
        {
            return Ok(current.connector.clone());
        }

        let file = self.trust.ca_file.clone();
        let read = self.reading.run(move || match file {
            Some(file) => load_certs_from_paths(Some(&file), None),
            None => load_native_certs(),
        });
        // A read that hangs counts as one that found no certificates.
        let read = read.await.unwrap_or_default();

        let new = TlsSettings::replace(settings.take(), &read)?;
        Ok(settings.insert(new).connector.clone())
    }
}

/// The name or address for which the certificate must be valid.
fn server_name(upstream: &Upstream) -> Result<ServerName<'static>, OpenError> {
    match &upstream.name {
        Some(name) => {
            ServerName::try_from(name.to_string()).map_err(|error| untrusted(error.to_string()))
        }
        None => Ok(ServerName::from(upstream.server.ip)),
    }
}

impl TlsSettings {
    /// The settings with the CA certificates in `read`. If no certificate could be read or used,
    /// the settings `before` stay in use.
    fn replace(before: Option<Self>, read: &CertificateResult) -> Result<Self, OpenError> {
        let Some(before) = before else {
            return Self::new(read);
        };

        if before.authorities == hash_certificates(&read.certs) {
            return Ok(before.mark_read());
        }
        Ok(Self::new(read).unwrap_or_else(|_| before.mark_read()))
    }

    fn new(read: &CertificateResult) -> Result<Self, OpenError> {
        let mut roots = RootCertStore::empty();
        let (added, _) = roots.add_parsable_certificates(read.certs.iter().cloned());
        if added == 0 {
            return Err(untrusted(no_authorities(read)));
        }

        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| untrusted(error.to_string()))?;
        let mut config = builder.with_root_certificates(roots).with_no_client_auth();
        config.resumption = Resumption::in_memory_sessions(MAX_SESSIONS);

        Ok(Self {
            connector: TlsConnector::from(Arc::new(config)),
            authorities: hash_certificates(&read.certs),
            read_at: Instant::now(),
        })
    }

    /// The same settings, after a further attempt to read the CA certificates.
    fn mark_read(self) -> Self {
        Self {
            read_at: Instant::now(),
            ..self
        }
    }
}

fn hash_certificates(certificates: &[CertificateDer<'_>]) -> u64 {
    let mut hasher = DefaultHasher::new();
    certificates.hash(&mut hasher);
    hasher.finish()
}

/// The reason why no certificate can be trusted, with the first error from reading the CAs.
fn no_authorities(read: &CertificateResult) -> String {
    let reason = read
        .errors
        .first()
        .map(|error| format!(": {error}"))
        .unwrap_or_default();
    format!(
        "no usable CA certificate could be read, so the server's certificate cannot be checked{reason}"
    )
}

/// Computes SHA-256 with the hash function of a cipher suite.
fn sha256(octets: &[u8]) -> Option<Box<[u8]>> {
    let suite = ring::cipher_suite::TLS13_AES_128_GCM_SHA256.tls13()?;
    Some(suite.common.hash_provider.hash(octets).as_ref().into())
}

/// The error of a certificate that is not trusted.
fn untrusted(reason: impl Into<String>) -> OpenError {
    OpenError {
        failure: UpstreamFailure::Certificate,
        reason: reason.into(),
    }
}

/// Converts an error of the TLS handshake.
fn handshake_error(error: &std::io::Error) -> OpenError {
    let tls = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<rustls::Error>());
    // Errors that are not from rustls come from the socket.
    let failure = match tls {
        Some(rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented) => {
            UpstreamFailure::Certificate
        }
        Some(_) => UpstreamFailure::Handshake,
        None => UpstreamFailure::from_io(error),
    };

    OpenError {
        failure,
        reason: error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// rustls does not check the expiry of the certificate when a session is resumed.
    #[test]
    fn expired_certificate_of_resumed_session_is_rejected() {
        let tls = TlsClient::new(TlsTrust::default());
        let upstream = "tls://192.0.2.1".parse().unwrap();
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let now = i64::try_from(since_epoch.as_secs()).unwrap();

        for (expires, expected) in [
            (now - 1, Some(UpstreamFailure::Certificate)),
            (now + 3600, None),
        ] {
            let certificate = CertificateInfo { expires, key: b"" };
            let checked = tls.check_certificate(&upstream, &certificate);
            assert_eq!(checked.err().map(|error| error.failure), expected);
        }
    }
}
