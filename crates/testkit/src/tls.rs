//! A TLS proxy in front of a server without TLS, such as a scripted upstream.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
pub use tokio_rustls::rustls::time_provider::{DefaultTimeProvider, TimeProvider};
pub use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion};

/// A TLS proxy. The proxy terminates TLS, and opens a connection to the server for each client
/// connection.
pub struct Gate {
    /// The address that the proxy listens on.
    pub address: SocketAddr,
    _tasks: JoinSet<()>,
}

impl Gate {
    /// Opens a proxy with the certificate of this name in `testdata/tls`.
    pub async fn open(certificate: &str, to: SocketAddr) -> Self {
        Self::of_versions(certificate, &[&TLS12, &TLS13], to).await
    }

    /// Opens a proxy that accepts only these versions of TLS.
    pub async fn of_versions(
        certificate: &str,
        versions: &[&'static SupportedProtocolVersion],
        to: SocketAddr,
    ) -> Self {
        let chain = vec![
            CertificateDer::from_pem_file(file(&format!("{certificate}.pem")))
                .expect("the certificate must be readable"),
        ];
        let key = PrivateKeyDer::from_pem_file(file(&format!("{certificate}.key")))
            .expect("the key must be readable");
        let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()));
        let builder = builder
            .with_protocol_versions(versions)
            .expect("the versions of TLS must be supported")
            .with_no_client_auth();
        let config = builder.with_single_cert(chain, key);
        Self::over(config.expect("the certificate must fit the key"), to).await
    }

    /// Opens a proxy that requires a client certificate, which must be valid at the time that
    /// `clock` shows. `folder` has three files: `ca.pem`, the CA of the client certificates;
    /// `server.pem`, the certificate of the proxy; and `server.key`, the key of `server.pem`.
    pub async fn for_clients_of(
        folder: &Path,
        clock: Arc<dyn TimeProvider>,
        to: SocketAddr,
    ) -> Self {
        let certificate = |name: &str| CertificateDer::from_pem_file(folder.join(name));
        let key = PrivateKeyDer::from_pem_file(folder.join("server.key"))
            .expect("the key must be readable");
        let mut roots = RootCertStore::empty();
        roots
            .add(certificate("ca.pem").expect("the CA must be readable"))
            .expect("the CA must be valid");
        let provider = Arc::new(default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
        let config = ServerConfig::builder_with_details(provider, clock)
            .with_safe_default_protocol_versions()
            .expect("the versions of TLS must be supported")
            .with_client_cert_verifier(verifier.build().expect("the CA must be valid"))
            .with_single_cert(
                vec![certificate("server.pem").expect("the certificate must be readable")],
                key,
            );
        Self::over(config.expect("the certificate must fit the key"), to).await
    }

    /// Opens a proxy with this TLS configuration on a free port of 127.0.0.1.
    pub async fn over(config: ServerConfig, to: SocketAddr) -> Self {
        Self::at(([127, 0, 0, 1], 0).into(), config, to).await
    }

    /// Opens a proxy with this TLS configuration at `address`.
    pub async fn at(address: SocketAddr, config: ServerConfig, to: SocketAddr) -> Self {
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind(address)
            .await
            .unwrap_or_else(|error| panic!("cannot listen on TCP {address}: {error}"));
        let address = listener
            .local_addr()
            .expect("a bound socket must have an address");
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                connections.spawn(async move {
                    let Ok(mut stream) = acceptor.accept(stream).await else {
                        return;
                    };
                    let Ok(mut server) = TcpStream::connect(to).await else {
                        return;
                    };
                    // An error is ignored: the client and the server may close the connection at
                    // any time.
                    let _ = copy_bidirectional(&mut stream, &mut server).await;
                });
                while connections.try_join_next().is_some() {}
            }
        });
        Self {
            address,
            _tasks: tasks,
        }
    }

    /// The proxy as an upstream. If `name` is given, the certificate of the proxy must have that
    /// name.
    pub fn upstream(&self, name: Option<&str>) -> wire::Upstream {
        let name = name.map(|name| format!("#{name}")).unwrap_or_default();
        format!("tls://{}{name}", self.address)
            .parse()
            .expect("the address must be valid for an upstream")
    }
}

/// The path of a file in `testdata/tls`.
pub fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("testdata/tls")
        .join(name)
}
