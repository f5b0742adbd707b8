//! Detects that the server has applied an event. After the event, the test adds a marker on the
//! same watch: a new Service, or a new address of a headless Service. Then the test queries the
//! name of the marker until the server answers with the marker's address.
//!
//! Services and Endpoints arrive on different watches, so each watch has its own markers. All
//! markers are removed before the questions of a step are sent. No address is used twice: all
//! markers on the watch of Endpoints have the same name, so with a repeated address, the answer for
//! an older marker would look like the answer for the new one.

use std::net::Ipv4Addr;
use std::time::Duration;

use apiserver::Resource;
use serde_json::Value;
use testkit::client;
use testkit::objects::{mk_cluster_ip, mk_endpoints, mk_headless};
use testkit::query::Query;

use super::cluster::Cluster;
use super::server::Server;

/// The namespace of the markers. If the embedded API server mirrors Endpoints to EndpointSlices, it
/// does so in the order of the namespaces. This namespace is the last one, so the slice of a marker
/// is made last.
const NAMESPACE: &str = "zz-conformance-markers";
const HEADLESS: &str = "headless";
/// The addresses of the markers follow this address.
const FIRST: Ipv4Addr = Ipv4Addr::new(192, 168, 240, 0);
const PATIENCE: Duration = Duration::from_secs(20);

/// Creates markers, and waits until the server answers with their records.
#[derive(Debug)]
pub(crate) struct Markers {
    domain: String,
    set: u16,
    services: Vec<String>,
    headless: bool,
}

impl Markers {
    pub(crate) fn new(domain: &str) -> Self {
        Self {
            domain: domain.to_owned(),
            set: 0,
            services: Vec::new(),
            headless: false,
        }
    }

    /// Waits until the server has applied all earlier events on the watch of `object`. Only
    /// Services and Endpoints have markers: for other kinds, this function returns at once.
    pub(crate) async fn follow(
        &mut self,
        object: &Value,
        cluster: &Cluster,
        server: &mut Server,
    ) -> anyhow::Result<()> {
        match object.get("kind").and_then(Value::as_str) {
            Some("Service") => self.services(cluster, server).await,
            Some("Endpoints") => self.endpoints(cluster, server).await,
            _ => Ok(()),
        }
    }

    /// Waits until the server has applied all earlier events of Services.
    pub(crate) async fn services(
        &mut self,
        cluster: &Cluster,
        server: &mut Server,
    ) -> anyhow::Result<()> {
        let ip = self.next_address();
        let name = format!("m{}", self.set);
        cluster.set(mk_cluster_ip(NAMESPACE, &name, &[&ip], &["x:1"]))?;
        self.services.push(name.clone());
        self.await_address(&name, Some(&ip), server).await
    }

    /// Waits until the server has applied all earlier events of Endpoints.
    pub(crate) async fn endpoints(
        &mut self,
        cluster: &Cluster,
        server: &mut Server,
    ) -> anyhow::Result<()> {
        if !self.headless {
            cluster.set(mk_headless(NAMESPACE, HEADLESS, &["x:1"]))?;
            self.headless = true;
            self.services(cluster, server).await?;
        }
        let ip = self.next_address();
        cluster.set(mk_endpoints(NAMESPACE, HEADLESS, &[&ip], &["x:1"]))?;
        self.await_address(HEADLESS, Some(&ip), server).await
    }

    /// Removes all markers, and waits until the server no longer answers with their records.
    pub(crate) async fn remove(
        &mut self,
        cluster: &Cluster,
        server: &mut Server,
    ) -> anyhow::Result<()> {
        let mut last = self.services.last().cloned();
        for name in self.services.drain(..) {
            cluster.delete(Resource::Services, NAMESPACE, &name);
        }
        if self.headless {
            cluster.delete(Resource::Services, NAMESPACE, HEADLESS);
            self.await_address(HEADLESS, None, server).await?;
            cluster.delete(Resource::Endpoints, NAMESPACE, HEADLESS);
            self.headless = false;
            last = None;
        }
        match last {
            Some(name) => self.await_address(&name, None, server).await,
            None => Ok(()),
        }
    }

    /// An address that no marker has used.
    fn next_address(&mut self) -> String {
        self.set += 1;
        Ipv4Addr::from(FIRST.to_bits() + u32::from(self.set)).to_string()
    }

    async fn await_address(
        &self,
        name: &str,
        ip: Option<&str>,
        server: &mut Server,
    ) -> anyhow::Result<()> {
        let name = format!("{name}.{NAMESPACE}.svc.{}", self.domain);
        let (dns, query) = (server.dns, Query::new(&name, "A"));
        let shown = async || {
            let found = client::try_ask(dns, &query, Duration::from_secs(1))
                .await?
                .answer_data("A");
            if found.iter().map(String::as_str).eq(ip) {
                Ok(())
            } else {
                Err(found.join(" "))
            }
        };
        let expected = ip.unwrap_or("no address");
        server
            .until(&format!("answered {name} with {expected}"), PATIENCE, shown)
            .await
    }
}
