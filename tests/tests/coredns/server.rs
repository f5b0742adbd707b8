//! Runs a real `CoreDNS`, if one is installed, with the configuration that `kube-dns check config
//! --corefile` writes.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use testkit::ports::free_port;
use testkit::process::{Process, Program};
use testkit::query::Query;
use testkit::{client, eventually, http};
use tests::conformance::answer::{Answer, Observed};
use tests::conformance::vector::Response;

use crate::corefile::corefile;

/// Timeout of each wait during the start of a server. `CoreDNS` becomes ready after its first lists
/// from the API server.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// Flags of kubedns: it serves without dnsmasq, on loopback. The Corefile is written for these flags.
pub(crate) const ALONE: [&str; 2] = ["--topology=alone", "--dns-bind-address=127.0.0.1"];

/// The path of `CoreDNS`. If none is installed, prints that nothing was tested.
#[allow(
    clippy::print_stderr,
    reason = "a skipped test must not look like a passed one"
)]
pub(crate) fn installed() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("COREDNS_BIN") {
        return Some(path.into());
    }

    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .map(|folder| folder.join("coredns"))
        .find(|file| file.is_file());
    if found.is_none() {
        eprintln!(
            "SKIPPED: CoreDNS is neither in PATH nor named by COREDNS_BIN, so the Corefile was NOT tried"
        );
    }
    found
}

/// A running `CoreDNS`.
pub(crate) struct CoreDns {
    pub(crate) address: SocketAddr,
    process: Process,
    _files: tempfile::TempDir,
}

impl CoreDns {
    /// Starts `CoreDNS` with the Corefile for these flags of kubedns and the `ConfigMap` in the
    /// directory `config_map`. Waits until it answers.
    pub(crate) async fn start(program: &Path, flags: &[String], config_map: &Path) -> Self {
        let port = free_port();
        let ready = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let mut flags = flags.to_vec();
        flags.extend(ALONE.map(str::to_owned));
        flags.push(format!("--dns-port={port}"));
        let written = with_free_ports(&corefile(&flags, config_map), ready);
        let files = tempfile::tempdir().expect("a temporary directory must be made");
        let file = files.path().join("Corefile");
        std::fs::write(&file, &written).expect("the file must be written");

        let conf = ["-conf".as_ref(), file.as_os_str()];
        let mut server = Self {
            address: (Ipv4Addr::LOCALHOST, port).into(),
            process: Program::tied(program).args(conf).start(),
            _files: files,
        };
        server.wait_until_serving(ready).await;
        server
    }

    /// Waits until the first lists are complete, and then until the sockets are open.
    async fn wait_until_serving(&mut self, ready: SocketAddr) {
        until_ready(&mut self.process, ready, "/ready").await;
        let probe = Query::new("cluster.local.", "SOA").wire();
        eventually(PATIENCE, || {
            client::udp(self.address, &probe, client::PATIENCE)
        })
        .await;
    }
}

/// Waits until the page `path` of the process returns 200.
pub(crate) async fn until_ready(process: &mut Process, server: SocketAddr, path: &str) {
    process
        .until("was ready", PATIENCE, async || {
            http::get(server, path)
                .await
                .is_ok_and(|page| page.status == 200)
        })
        .await;
}

/// Sends a question, as `NAME TYPE`, and normalises the answer.
pub(crate) async fn ask(server: SocketAddr, question: &str) -> Response {
    let (name, rtype) = question
        .split_once(' ')
        .expect("a question must have a name and a type");
    let query = Query::new(name, rtype).wire();
    let observed = match client::udp(server, &query, client::PATIENCE).await {
        Ok(packet) => Observed::Packet(packet),
        Err(error) => Observed::Nothing(error.to_string()),
    };
    let answer = Answer::read(&observed);
    assert_eq!(answer.defect, None, "{question}");
    Response {
        question: Vec::new(),
        ..answer.response
    }
}

/// The configuration with free ports for `ready`, `health`, `prometheus` and the blocks of the rules
/// for external names, because tests run concurrently. `--dns-port` has already set a free port for
/// DNS.
fn with_free_ports(corefile: &str, ready: SocketAddr) -> String {
    let local = || SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    corefile
        .replace("    ready\n", &format!("    ready {ready}\n"))
        .replace("    health {", &format!("    health {} {{", local()))
        .replace("prometheus :9153", &format!("prometheus {}", local()))
        .replace(":1053", &format!(":{}", free_port()))
}

/// Panics unless the differing questions are those in `listed`, which has a reason for each.
#[track_caller]
pub(crate) fn assert_listed(differing: &BTreeSet<String>, listed: &[(&str, &str)]) {
    let listed: BTreeSet<String> = listed
        .iter()
        .map(|(question, _)| (*question).to_owned())
        .collect();
    assert_eq!(*differing, listed, "the differences are printed above");
}
