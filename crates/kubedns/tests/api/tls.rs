//! The API server over TLS, with certificates on both sides.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cluster::connect::{Access, Connection};
use cluster::objects::{Change, Kind, Service};
use cluster::watch::{Collection, Feed, Received};
use testkit::objects::mk_cluster_ip;
use testkit::tls::Gate;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::time_provider::{DefaultTimeProvider, TimeProvider};
use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use tokio_util::sync::CancellationToken;

use super::cluster::{Cluster, PATIENCE, metrics, pace};

/// The year 2200: every certificate has expired.
#[derive(Debug)]
struct FarFuture;

impl TimeProvider for FarFuture {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_hours(230 * 365 * 24)))
    }
}

/// Takes TLS from clients with a certificate and hands what they say on to `to`.
async fn open(to: SocketAddr) -> Gate {
    open_at(to, Arc::new(DefaultTimeProvider)).await
}

/// The same with another clock.
async fn open_at(to: SocketAddr, clock: Arc<dyn TimeProvider>) -> Gate {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(file("ca.pem")).unwrap()).unwrap();
    let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).build().unwrap();
    let certificate = vec![CertificateDer::from_pem_file(file("server.pem")).unwrap()];
    let key = PrivateKeyDer::from_pem_file(file("server.key")).unwrap();
    let provider = Arc::clone(ServerConfig::builder().crypto_provider());
    let config = ServerConfig::builder_with_details(provider, clock)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(certificate, key)
        .unwrap();
    Gate::over(config, to).await
}

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../cluster/testdata/tls").join(name)
}

fn kubeconfig(address: SocketAddr, user: &str) -> tempfile::NamedTempFile {
    let config = tempfile::NamedTempFile::new().unwrap();
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
         clusters: [{{name: c, cluster: {{server: 'https://{address}', certificate-authority: '{}'}}}}]\n\
         users: [{{name: u, user: {{{user}}}}}]\n",
        file("ca.pem").display()
    );
    std::fs::write(config.path(), text).unwrap();
    config
}

/// The changes of a feed, its task, and how often it began again for a reason.
type Started = (mpsc::Receiver<Received<Change<Service>>>, JoinSet<()>, Box<dyn Fn(&str) -> u64>);

/// Starts a feed of Services with this kubeconfig.
async fn start(config: &Path) -> Started {
    start_on(connect(config).await)
}

async fn connect(config: &Path) -> Arc<Connection> {
    let access = Access { kubeconfig: Some(config.to_owned()), master_url: None };
    Arc::new(Connection::new(access).await.unwrap())
}

/// Starts a feed of Services on a connection.
fn start_on(connection: Arc<Connection>) -> Started {
    let (sink, changes) = mpsc::channel(16);
    let metrics = metrics();
    let services = Collection::all(Kind::Service);
    let feed = Feed::new(connection, services, pace(), metrics.feed(Kind::Service), sink, |change| change);
    let mut task = JoinSet::new();
    task.spawn(feed.run(CancellationToken::new()));
    (changes, task, Box::new(move |reason| metrics.restarts(Kind::Service, reason)))
}

#[tokio::test]
async fn a_client_certificate_opens_the_way() {
    let cluster = Cluster::start();
    cluster.set(mk_cluster_ip("apps", "web", &["10.96.0.7"], &["http:80"]));
    let gate = open(cluster.address).await;
    let user = format!(
        "client-certificate: '{}', client-key: '{}'",
        file("client.pem").display(),
        file("client.key").display()
    );
    let config = kubeconfig(gate.address, &user);
    let (mut changes, _task, _restarts) = start(config.path()).await;
    let listed = async { while changes.recv().await.expect("it goes on").event != Change::RelistDone {} };
    tokio::time::timeout(PATIENCE, listed).await.expect("a list in time");
    cluster.set(mk_cluster_ip("apps", "new", &["10.96.0.8"], &["http:80"]));
    let watched = tokio::time::timeout(PATIENCE, changes.recv()).await.expect("an event in time");
    assert!(matches!(watched.map(|received| received.event), Some(Change::Apply(_))));
}

/// What the files hold first is of another authority, as a certificate that has expired would be.
#[tokio::test]
async fn a_renewed_client_certificate_opens_the_way() {
    let cluster = Cluster::start();
    let gate = open(cluster.address).await;
    let directory = tempfile::tempdir().unwrap();
    let [certificate, key] = ["tls.crt", "tls.key"].map(|name| directory.path().join(name));
    std::fs::copy(file("client-v1.pem"), &certificate).unwrap();
    std::fs::copy(file("client-v1.key"), &key).unwrap();
    let user = format!("client-certificate: '{}', client-key: '{}'", certificate.display(), key.display());
    let config = kubeconfig(gate.address, &user);
    let (mut changes, _task, restarts) = start(config.path()).await;
    testkit::eventually(PATIENCE, || async { restarts("unreachable") + restarts("broken") > 3 }).await;
    std::fs::copy(file("client.key"), &key).unwrap();
    std::fs::copy(file("client.pem"), &certificate).unwrap();
    let listed = async { while changes.recv().await.expect("it goes on").event != Change::RelistDone {} };
    tokio::time::timeout(PATIENCE, listed).await.expect("a list in time");
}

/// Nothing but the alert `CertificateExpired` comes from where the kubeconfig leads first.
#[tokio::test]
async fn a_certificate_that_has_expired_has_the_kubeconfig_read_again() {
    let cluster = Cluster::start();
    let expired = open_at(cluster.address, Arc::new(FarFuture)).await;
    let good = open(cluster.address).await;
    let user = format!(
        "client-certificate: '{}', client-key: '{}'",
        file("client.pem").display(),
        file("client.key").display()
    );
    let config = kubeconfig(expired.address, &user);
    let connection = connect(config.path()).await;
    std::fs::copy(kubeconfig(good.address, &user).path(), config.path()).unwrap();
    let (mut changes, _task, restarts) = start_on(connection);
    let listed = async { while changes.recv().await.expect("it goes on").event != Change::RelistDone {} };
    tokio::time::timeout(PATIENCE, listed).await.expect("a list in time");
    assert!(restarts("unreachable") > 0, "the alert came first");
}

#[tokio::test]
async fn without_a_certificate_it_goes_on_trying() {
    let cluster = Cluster::start();
    let gate = open(cluster.address).await;
    let config = kubeconfig(gate.address, "token: none");
    let (_changes, _task, restarts) = start(config.path()).await;
    testkit::eventually(PATIENCE, || async { restarts("unreachable") + restarts("broken") > 3 }).await;
}
