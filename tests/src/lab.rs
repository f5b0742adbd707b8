//! A `kubedns` process with an API server and an upstream, for tests of answers.
//!
//! Tests add and remove Services and Endpoints. Each call returns after kubedns has applied the
//! change.

#![allow(
    clippy::panic,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a test whose set-up fails has to end there, with the reason"
)]

use std::net::{Ipv4Addr, SocketAddr};

use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::client;
use testkit::http::get;
use testkit::message::Message;
use testkit::ports::free_port;
use testkit::query::Query;
use testkit::reply::Reply;
use testkit::upstream::{Asked, Handler, Upstream};

use crate::conformance::wire::Target;
use crate::conformance::wire::cluster::Cluster;
use crate::conformance::wire::place::write_kubeconfig;
use crate::conformance::wire::server::Server;
use crate::conformance::wire::settle::Markers;

/// The cluster domain of a lab.
pub const DOMAIN: &str = "cluster.local.";

/// A running kubedns with its API server and upstream. Dropping the lab stops all three.
pub struct Lab {
    /// The upstream of the server.
    pub upstream: Upstream,
    cluster: Cluster,
    server: Server,
    /// Objects that are added after a change. When kubedns answers with their records, it has
    /// applied the change, too.
    markers: Markers,
    _directory: TempDir,
    metrics: SocketAddr,
}

impl Lab {
    /// Starts a server with these flags and an upstream that answers NXDOMAIN.
    pub async fn start(flags: &[&str]) -> Self {
        Self::with_upstream(flags, |asked: &Asked| {
            Reply::to(&asked.packet).rcode("NXDOMAIN").into()
        })
        .await
    }

    /// Starts a server with these flags and an upstream with this handler. The address of the
    /// upstream replaces `$UPSTREAM` in the flags. Without the flag `--nameservers`, the server
    /// forwards to the upstream.
    pub async fn with_upstream(flags: &[&str], handler: impl Handler) -> Self {
        let cluster = Cluster::start();
        let upstream = Upstream::start(handler).await;
        let directory = tempfile::tempdir().expect("a temporary directory must be made");
        let kubeconfig = write_kubeconfig(directory.path(), &cluster.url(), &json!({}))
            .expect("the kubeconfig must be written");
        let address = upstream.addr().to_string();
        let mut all = vec![
            format!("--kubecfg-file={}", kubeconfig.display()),
            "--resolv-conf=/dev/null".to_owned(),
        ];
        let flags = flags.iter();
        all.extend(flags.map(|flag| flag.replace("$UPSTREAM", &address)));
        if !all.iter().any(|flag| flag.starts_with("--nameservers")) {
            all.push(format!("--nameservers={address}"));
        }
        let metrics = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let env = vec![("PROMETHEUS_PORT", metrics.port().to_string())];
        let mut server = Server::start(&Target::Ours(Vec::new()), all, env);
        server.answers().await.expect("the server must answer");
        server.ready().await.expect("the server must get ready");
        Self {
            upstream,
            cluster,
            server,
            markers: Markers::new(DOMAIN),
            _directory: directory,
            metrics,
        }
    }

    /// Adds or changes an object in the API server. If the object is a Service or Endpoints, waits
    /// until kubedns has applied the change.
    pub async fn set(&mut self, object: Value) {
        self.apply("MODIFIED", object).await;
    }

    /// Deletes an object from the API server. If the object is a Service or Endpoints, waits until
    /// kubedns has applied the deletion.
    pub async fn delete(&mut self, object: Value) {
        self.apply("DELETED", object).await;
    }

    async fn apply(&mut self, kind: &str, object: Value) {
        self.cluster
            .apply(&json!({"type": kind, "object": object}))
            .expect("the API server must apply the event");
        self.markers
            .follow(&object, &self.cluster, &mut self.server)
            .await
            .expect("kubedns must apply the change");
        self.markers
            .remove(&self.cluster, &mut self.server)
            .await
            .expect("the markers must be removed");
    }

    /// Adds or changes many Services and Endpoints, and waits until kubedns has applied them all.
    pub async fn set_all(&mut self, objects: impl IntoIterator<Item = Value>) {
        for object in objects {
            self.cluster.set(object).expect("the object must be stored");
        }
        self.markers
            .services(&self.cluster, &mut self.server)
            .await
            .expect("kubedns must apply the Services");
        self.markers
            .endpoints(&self.cluster, &mut self.server)
            .await
            .expect("kubedns must apply the Endpoints");
        self.markers
            .remove(&self.cluster, &mut self.server)
            .await
            .expect("the markers must be removed");
    }

    /// Sends a query over UDP, with an EDNS payload size of 65535 octets.
    pub async fn ask(&self, name: &str, rtype: &str) -> Message {
        client::ask(self.dns(), &Query::new(name, rtype).edns(65_535)).await
    }

    /// Sends a query over TCP.
    pub async fn ask_tcp(&self, name: &str, rtype: &str) -> Message {
        client::ask_tcp(self.dns(), &Query::new(name, rtype)).await
    }

    /// Sends a query over UDP, and returns the answer as [`in_a_line`] shows it.
    pub async fn answer(&self, name: &str, rtype: &str) -> String {
        in_a_line(&self.ask(name, rtype).await)
    }

    /// The address of the DNS port.
    pub fn dns(&self) -> SocketAddr {
        self.server.dns
    }

    /// The address of the status pages, such as `/readiness` and `/cache`.
    pub fn http(&self) -> SocketAddr {
        self.server.http
    }

    /// The address of `/metrics`.
    pub fn metrics(&self) -> SocketAddr {
        self.metrics
    }

    /// The server's process.
    pub fn process(&mut self) -> &mut testkit::process::Process {
        &mut self.server.process
    }
}

/// An answer in one line, such as `NOERROR -> web.example. 10.0.0.1`: the RCODE, the CNAME targets,
/// and the sorted data of the other answer records.
pub fn in_a_line(message: &Message) -> String {
    let mut data: Vec<String> = message
        .answer_data("CNAME")
        .iter()
        .map(|target| format!("-> {target}"))
        .collect();
    let others = message.answer.iter().filter(|record| record.rtype != 5);
    let mut others: Vec<String> = others.map(|record| record.data.clone()).collect();
    others.sort();
    data.extend(others);
    let mut line = message.rcode_name();
    for datum in data {
        line.push(' ');
        line.push_str(&datum);
    }
    line
}

/// The status code of a GET request; 0 without a response.
pub async fn status_of(http: SocketAddr, path: &str) -> u16 {
    get(http, path).await.map_or(0, |response| response.status)
}
