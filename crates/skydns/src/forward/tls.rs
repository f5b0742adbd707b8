//! TLS with upstreams (RFC 7858): whom to trust, and what is learnt of their certificates.
//!
//! A certificate must be valid now, lead to a CA and name the upstream: the name it is configured with, else its address.
//! Pins are asked for on top of that. Sessions are resumed.

mod certificate;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dnsconfig::Upstream;
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
use super::Failure;
use super::metrics::UpstreamMetrics;
use super::pool::OpenError;

/// CA certificates are read again at the next handshake when they are so old.
const FRESH: Duration = Duration::from_mins(1);
/// Sessions kept for resumption, of all upstreams together.
const SESSIONS: usize = 64;

/// Whom to trust. The default are the CAs of the system.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsTrust {
    /// A PEM file of CA certificates, in place of those of the system.
    pub ca_file: Option<PathBuf>,
    /// Names, or addresses of upstreams without one, whose certificate must have one of these keys.
    pub pins: Vec<Pin>,
}

/// The key that the certificate of an upstream must have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pin {
    /// The name that the upstream is configured with, or its address.
    pub name: String,
    /// SHA-256 of the `SubjectPublicKeyInfo` (RFC 7858 section 4.2).
    pub sha256: [u8; 32],
}

/// The settings of TLS, made when they are first needed.
#[derive(Debug)]
pub(super) struct Tls {
    trust: TlsTrust,
    newest: Mutex<Option<Settings>>,
}

/// The settings of TLS until the CA certificates change.
#[derive(Clone)]
struct Settings {
    connector: TlsConnector,
    /// A hash of the CA certificates.
    authorities: u64,
    read: Instant,
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings").field("read", &self.read).finish_non_exhaustive()
    }
}

impl Tls {
    pub(super) fn new(trust: TlsTrust) -> Self {
        Self { trust, newest: Mutex::default() }
    }

    /// Makes a stream to `upstream` a TLS stream, if it is whom it should be.
    pub(super) async fn handshake(
        &self,
        upstream: &Upstream,
        stream: TcpStream,
        metrics: &UpstreamMetrics,
    ) -> Result<TlsStream<TcpStream>, OpenError> {
        let connector = self.connector().await?;
        let name = match &upstream.name {
            Some(name) => ServerName::try_from(name.to_string()).map_err(|error| wrong(error.to_string()))?,
            None => ServerName::from(upstream.server.ip),
        };
        let stream = connector.connect(name, stream).await.map_err(|error| failed(&error))?;
        let connection = stream.get_ref().1;
        let first = connection.peer_certificates().and_then(<[_]>::first);
        let certificate = first.and_then(|der| Certificate::parse(der));
        let certificate = certificate.ok_or_else(|| wrong("the certificate cannot be read".to_owned()))?;
        metrics.handshake(connection.handshake_kind() == Some(HandshakeKind::Resumed), certificate.expires);
        self.check(upstream, &certificate)?;
        Ok(stream)
    }

    /// Checks that rustls does not make: pins, and with a resumed session whether the certificate has expired meanwhile.
    fn check(&self, upstream: &Upstream, certificate: &Certificate<'_>) -> Result<(), OpenError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
        if certificate.expires < i64::try_from(now).unwrap_or(i64::MAX) {
            return Err(wrong("the certificate of a resumed session has expired".to_owned()));
        }
        let ip = upstream.server.ip.to_string();
        let name = upstream.name.as_deref().unwrap_or(&ip);
        let mut pins = self.trust.pins.iter().filter(|pin| pin.name == name).peekable();
        let key = sha256(certificate.key);
        if pins.peek().is_some() && !pins.any(|pin| key.as_deref() == Some(&pin.sha256[..])) {
            return Err(wrong("the key of the certificate is not the pinned one".to_owned()));
        }
        Ok(())
    }

    /// The newest settings. CA certificates that are the same keep the sessions.
    async fn connector(&self) -> Result<TlsConnector, OpenError> {
        let mut newest = self.newest.lock().await;
        if let Some(settings) = newest.as_ref().filter(|settings| settings.read.elapsed() < FRESH) {
            return Ok(settings.connector.clone());
        }
        let file = self.trust.ca_file.clone();
        let read = tokio::task::spawn_blocking(move || match file {
            Some(file) => load_certs_from_paths(Some(&file), None),
            None => load_native_certs(),
        });
        let read = read.await.map_err(|error| wrong(error.to_string()))?;
        // A file that cannot be read just now leaves what was read before.
        let settings = match (read.certs.is_empty(), newest.take()) {
            (true, None) => return Err(wrong(no_authorities(&read))),
            (false, Some(before)) if before.authorities != hash(&read.certs) => Settings::new(&read)?,
            (false, None) => Settings::new(&read)?,
            (_, Some(before)) => Settings { read: Instant::now(), ..before },
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
        let builder =
            builder.with_safe_default_protocol_versions().map_err(|error| wrong(error.to_string()))?;
        let mut config = builder.with_root_certificates(roots).with_no_client_auth();
        config.resumption = Resumption::in_memory_sessions(SESSIONS);
        let connector = TlsConnector::from(Arc::new(config));
        Ok(Self { connector, authorities: hash(&read.certs), read: Instant::now() })
    }
}

fn hash(certificates: &[CertificateDer<'_>]) -> u64 {
    let mut hasher = DefaultHasher::new();
    certificates.hash(&mut hasher);
    hasher.finish()
}

fn no_authorities(read: &CertificateResult) -> String {
    let reason = read.errors.first().map(|error| format!(": {error}")).unwrap_or_default();
    format!("there are no CA certificates to check it with{reason}")
}

/// SHA-256 as the cipher suites have it.
fn sha256(octets: &[u8]) -> Option<Box<[u8]>> {
    let suite = ring::cipher_suite::TLS13_AES_128_GCM_SHA256.tls13()?;
    Some(suite.common.hash_provider.hash(octets).as_ref().into())
}

fn wrong(reason: String) -> OpenError {
    OpenError { failure: Failure::Certificate, reason }
}

/// The meaning of an error of the handshake.
fn failed(error: &std::io::Error) -> OpenError {
    let reason = error.to_string();
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
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

    /// rustls does not look at the certificate of a session that is taken up again.
    #[test]
    fn a_certificate_that_expires_while_its_session_lasts_is_refused() {
        let (tls, upstream) = (Tls::new(TlsTrust::default()), "tls://192.0.2.1".parse().unwrap());
        let now = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()).unwrap();
        for (expires, expected) in [(now - 1, Some(Failure::Certificate)), (now + 3600, None)] {
            let checked = tls.check(&upstream, &Certificate { expires, key: b"" });
            assert_eq!(checked.err().map(|error| error.failure), expected);
        }
    }
}
