//! An API server behind a TLS proxy that requires client certificates. Also tests a credential
//! plugin that does not exist.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use apiserver::RunningApiServer;
use cluster::objects::Service;
use serde_json::{Value, json};
use testkit::eventually;
use testkit::objects::{mk_cluster_ip, mk_kubeconfig};
use testkit::tls::{DefaultTimeProvider, Gate, TimeProvider};
use tokio_rustls::rustls::pki_types::UnixTime;

use super::running_feed::{RunningFeed, TIMEOUT, connect_with, fast_timing};

/// A clock in the year 2199, when every certificate has expired.
#[derive(Debug)]
struct FarFuture;

impl TimeProvider for FarFuture {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_hours(
            230 * 365 * 24,
        )))
    }
}

/// Starts a TLS proxy to `to` that requires client certificates.
async fn open(to: SocketAddr) -> Gate {
    Gate::for_clients_of(&file(""), Arc::new(DefaultTimeProvider), to).await
}

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("testdata/tls")
        .join(name)
}

/// A kubeconfig with a client certificate and key in these files.
fn kubeconfig(address: SocketAddr, [certificate, key]: [&Path; 2]) -> tempfile::NamedTempFile {
    let config = tempfile::NamedTempFile::new().unwrap();
    let server =
        json!({"server": format!("https://{address}"), "certificate-authority": file("ca.pem")});
    let user = json!({"client-certificate": certificate, "client-key": key});
    std::fs::write(config.path(), mk_kubeconfig(&server, &user).to_string()).unwrap();
    config
}

/// Starts a feed of Services with this kubeconfig.
async fn start(config: &Path) -> RunningFeed<Service> {
    RunningFeed::with(connect_with(config).await, fast_timing())
}

/// Waits until more than three connections have failed.
async fn until_failed(feed: &RunningFeed<Service>) {
    eventually(TIMEOUT, || async {
        feed.restarts("unreachable") + feed.restarts("broken") > 3
    })
    .await;
}

#[tokio::test]
async fn client_certificate_is_accepted() {
    let server = RunningApiServer::empty();
    server.set(mk_cluster_ip("apps", "web", &["10.96.0.7"], &["http:80"]));
    let gate = open(server.address).await;
    let config = kubeconfig(gate.address, [&file("client.pem"), &file("client.key")]);
    let mut feed = start(config.path()).await;
    feed.until(|mirror| mirror.lists == 1).await;
    server.set(mk_cluster_ip("apps", "new", &["10.96.0.8"], &["http:80"]));
    feed.until(|mirror| mirror.get("apps", "new").is_some())
        .await;
}

/// The first certificate stands for an expired one. It is self-signed and of X.509 version 1, so
/// the proxy rejects it.
#[tokio::test]
async fn renewed_client_certificate_is_read_again() {
    let server = RunningApiServer::empty();
    let gate = open(server.address).await;
    let directory = tempfile::tempdir().unwrap();
    let [certificate, key] = ["tls.crt", "tls.key"].map(|name| directory.path().join(name));
    std::fs::copy(file("client-v1.pem"), &certificate).unwrap();
    std::fs::copy(file("client-v1.key"), &key).unwrap();
    let config = kubeconfig(gate.address, [&certificate, &key]);
    let mut feed = start(config.path()).await;
    until_failed(&feed).await;
    std::fs::copy(file("client.key"), &key).unwrap();
    std::fs::copy(file("client.pem"), &certificate).unwrap();
    feed.until(|mirror| mirror.lists == 1).await;
}

/// The server in the kubeconfig is first a TLS proxy that rejects the certificate with the alert
/// `CertificateExpired`. Before the feed starts, the server is changed to a TLS proxy that accepts
/// the certificate.
#[tokio::test]
async fn kubeconfig_is_read_again_after_expired_certificate() {
    let server = RunningApiServer::empty();
    let expired = Gate::for_clients_of(&file(""), Arc::new(FarFuture), server.address).await;
    let good = open(server.address).await;
    let certificate = [&*file("client.pem"), &*file("client.key")];
    let config = kubeconfig(expired.address, certificate);
    let connection = connect_with(config.path()).await;
    std::fs::copy(kubeconfig(good.address, certificate).path(), config.path()).unwrap();
    let mut feed = RunningFeed::with(connection, fast_timing());
    feed.until(|mirror| mirror.lists == 1).await;
    assert!(
        feed.restarts("unreachable") > 0,
        "the expired certificate must make a connection fail"
    );
}

/// The kubeconfig first names a plugin that does not exist.
#[tokio::test]
async fn kubeconfig_is_read_again_after_failed_plugin() {
    let server = RunningApiServer::empty();
    let config = tempfile::NamedTempFile::new().unwrap();
    let write = |user: Value| {
        let kubeconfig = mk_kubeconfig(&json!({"server": server.url()}), &user);
        std::fs::write(config.path(), kubeconfig.to_string()).unwrap();
    };
    write(json!({"exec": {"command": "/nonexistent/plugin"}}));
    let connection = connect_with(config.path()).await;
    write(json!({"token": "corrected"}));

    let mut feed = RunningFeed::with(connection, fast_timing());
    feed.until(|mirror| mirror.lists == 1).await;
    assert!(
        feed.restarts("unauthorized") > 0,
        "the missing plugin must make a request fail"
    );
}

#[tokio::test]
async fn connection_without_client_certificate_is_retried() {
    let server = RunningApiServer::empty();
    let gate = open(server.address).await;
    let config = tempfile::NamedTempFile::new().unwrap();
    let server = json!({"server": format!("https://{}", gate.address), "certificate-authority": file("ca.pem")});
    std::fs::write(
        config.path(),
        mk_kubeconfig(&server, &json!({"token": "none"})).to_string(),
    )
    .unwrap();
    until_failed(&start(config.path()).await).await;
}
