//! Files on a dead mount: a read of such a file hangs. The tests use named pipes as such files,
//! because opening a named pipe for reading waits for a writer.

use std::fs::{self, OpenOptions};
use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;

use daemon::blocking_read::READ_TIMEOUT;
use http::Request;
use kube::client::Body;
use kube::config::AuthInfo;
use rustls::client::ResolvesClientCert as _;
use tokio::time::{advance, pause, resume};

use super::super::credentials::Credentials;
use super::{Connection, TWO_CONTEXTS, certificate, with_kubeconfig};

fn dies(path: &Path) {
    fs::remove_file(path).unwrap();
    nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).unwrap();
}

/// Ends the one read that hangs; the next read finds `content`.
fn returns(path: &Path, content: &[u8]) {
    let writer = OpenOptions::new().write(true).open(path).unwrap();
    fs::remove_file(path).unwrap();
    fs::write(path, content).unwrap();
    drop(writer);
}

/// The outcome of `work`. The clock is paused, and is advanced until `work` ends, so that timeouts
/// take no real time.
async fn late<T>(work: impl Future<Output = T>) -> T {
    let time = async {
        loop {
            advance(READ_TIMEOUT).await;
        }
    };
    pause();
    let outcome = tokio::select! {
        outcome = work => outcome,
        () = time => unreachable!("the clock advances until `work` ends"),
    };
    resume();
    outcome
}

async fn token(credentials: &Credentials) -> String {
    let request = credentials
        .authorize(Request::new(Body::empty()))
        .await
        .unwrap();
    request.headers()["authorization"]
        .to_str()
        .unwrap()
        .to_owned()
}

#[tokio::test]
async fn previous_credentials_are_used_until_mount_returns() {
    let mount = tempfile::tempdir().unwrap();
    let [token_file, client] = ["token", "client.pem"].map(|name| mount.path().join(name));
    fs::write(&token_file, "first").unwrap();
    fs::copy(certificate("client.pem"), &client).unwrap();
    let shown = |path: PathBuf| Some(path.display().to_string());
    let mut user = AuthInfo {
        token_file: shown(token_file.clone()),
        client_certificate: shown(client.clone()),
        client_key: shown(certificate("client.key")),
        ..AuthInfo::default()
    };
    let credentials = Credentials::take(&mut user).unwrap();
    dies(&token_file);
    dies(&client);
    pause();
    advance(Duration::from_mins(1)).await;
    resume();
    for request in 1..=3 {
        let sent = late(token(&credentials)).await;
        assert_eq!(sent, "Bearer first", "request {request}");
        assert!(
            credentials
                .certificate()
                .unwrap()
                .resolve(&[], &[])
                .is_some(),
            "request {request}"
        );
    }
    returns(&token_file, b"second");
    returns(&client, &fs::read(certificate("client.pem")).unwrap());
    let renewed = async || token(&credentials).await == "Bearer second";
    testkit::eventually(Duration::from_secs(10), renewed).await;
}

#[tokio::test]
async fn new_connection_fails_on_dead_mount() {
    let mount = tempfile::tempdir().unwrap();
    let file = mount.path().join("kubeconfig");
    fs::write(&file, TWO_CONTEXTS).unwrap();
    let access = with_kubeconfig(&file);
    let connection = Connection::new(access.clone()).await.unwrap();
    dies(&file);
    late(connection.renew()).await;
    returns(&file, TWO_CONTEXTS.as_bytes());
    dies(&file);
    let error = late(Connection::new(access)).await.unwrap_err().to_string();
    assert_eq!(
        error,
        "reading the credentials for the API server timed out after 5s"
    );
    returns(&file, b"");
}
