//! Detects from outside that an event has been applied: another event follows on the same watch, and its effect is
//! queried until it shows.
//!
//! Services and Endpoints arrive on different watches, so each has its own marker: a Service with a name of its own,
//! and an address of a headless Service. All markers are removed before the questions of a step are asked. None is
//! used twice: the endpoints of an earlier marker may still exist for a while, above all if they are mirrored into
//! `EndpointSlices`, and would be taken for the new one.

use std::net::Ipv4Addr;
use std::time::Duration;

use apiserver::Resource;
use serde_json::Value;
use testkit::client;
use testkit::objects::{mk_cluster_ip, mk_endpoints, mk_headless};
use testkit::query::Query;

use super::cluster::Cluster;
use super::server::Server;

/// The last namespace in the sort order, so that the mirrored slices of a step are written before those of its
/// marker.
const NAMESPACE: &str = "zz-conformance-markers";
const HEADLESS: &str = "headless";
/// The addresses of markers begin after this one.
const FIRST: Ipv4Addr = Ipv4Addr::new(192, 168, 240, 0);
const PATIENCE: Duration = Duration::from_secs(20);

/// Sets markers and waits for them.
#[derive(Debug)]
pub(crate) struct Markers {
    domain: String,
    set: u16,
    services: Vec<String>,
    headless: bool,
}

impl Markers {
    pub(crate) fn new(domain: &str) -> Self {
        Self { domain: domain.to_owned(), set: 0, services: Vec::new(), headless: false }
    }

    /// Waits until all earlier events of the watch of `object` have been applied.
    ///
    /// For any kind but Services and Endpoints it returns at once: other kinds have no records.
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

    /// Waits until the Services so far have been applied.
    pub(crate) async fn services(&mut self, cluster: &Cluster, server: &mut Server) -> anyhow::Result<()> {
        let ip = self.next_address();
        let name = format!("m{}", self.set);
        cluster.set(mk_cluster_ip(NAMESPACE, &name, &[&ip], &["x:1"]))?;
        self.services.push(name.clone());
        self.await_address(&name, Some(&ip), server).await
    }

    /// Waits until the Endpoints so far have been applied.
    pub(crate) async fn endpoints(&mut self, cluster: &Cluster, server: &mut Server) -> anyhow::Result<()> {
        if !self.headless {
            cluster.set(mk_headless(NAMESPACE, HEADLESS, &["x:1"]))?;
            self.headless = true;
            self.services(cluster, server).await?;
        }
        let ip = self.next_address();
        cluster.set(mk_endpoints(NAMESPACE, HEADLESS, &[&ip], &["x:1"]))?;
        self.await_address(HEADLESS, Some(&ip), server).await
    }

    /// Removes all markers and waits until they are gone.
    pub(crate) async fn remove(&mut self, cluster: &Cluster, server: &mut Server) -> anyhow::Result<()> {
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

    async fn await_address(&self, name: &str, ip: Option<&str>, server: &mut Server) -> anyhow::Result<()> {
        let name = format!("{name}.{NAMESPACE}.svc.{}", self.domain);
        let (dns, query) = (server.dns, Query::new(&name, "A"));
        let shown = async || {
            let found = client::try_ask(dns, &query, Duration::from_secs(1)).await?.answer_data("A");
            if found.iter().map(String::as_str).eq(ip) { Ok(()) } else { Err(found.join(" ")) }
        };
        server.until(&format!("answered {name} with {ip:?}"), PATIENCE, shown).await
    }
}
