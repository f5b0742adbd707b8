//! A pod for fault injection, with the queries that a client sends to the pod during a test.
//!
//! `localpod` starts the real binaries and, except in [`Topology::Alone`], a real dnsmasq. The test
//! can make the API server and the upstream fail.

#![allow(
    clippy::panic,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a test whose set-up fails has to end there, with the reason"
)]

mod cluster;
mod outside;
mod relay;

use std::net::SocketAddr;

use apiserver::{Faults, Resource};
use serde_json::Value;
use testkit::objects::mk_config_map;
use testkit::processes::{Pid, descendants, program_name};
use testkit::upstream::Upstream;

use crate::conformance::wire::cluster::Cluster;
use crate::e2e::Pod;
use crate::steady::Question;

pub use cluster::{objects, questions};
pub use outside::{Mood, Outside, corporate, names_forwarded_by_kubedns, names_outside, zone};
pub use relay::Relay;

/// The order in which kubedns and dnsmasq receive queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// dnsmasq receives the clients' queries. If dnsmasq cannot answer a query for a cluster name
    /// or a reverse name itself, it forwards the query to kubedns.
    DropIn,
    /// dnsmasq receives the clients' queries. If dnsmasq cannot answer a query itself, it forwards
    /// the query to kubedns.
    Cache,
    /// kubedns receives the clients' queries, and forwards queries for external names to dnsmasq.
    Direct,
    /// kubedns without dnsmasq.
    Alone,
}

/// A pod with its API server and upstream.
pub struct Rig {
    /// The pod. It is the first field, so that it is dropped before its servers.
    pub pod: Pod,
    /// The topology of the pod.
    pub topology: Topology,
    /// The upstream's behaviour.
    pub upstream_behaviour: Outside,
    /// The upstream.
    pub upstream: Upstream,
    cluster: Cluster,
}

impl Rig {
    /// Starts a pod in this topology with further arguments for localpod.
    pub async fn start(topology: Topology, args: &[&str]) -> Self {
        Self::start_in(topology, args, &[]).await
    }

    /// Starts a pod with environment variables for all its processes.
    pub async fn start_in(
        topology: Topology,
        args: &[&str],
        environment: &[(&'static str, String)],
    ) -> Self {
        let outside = Outside::default();
        let upstream = Upstream::start(outside.handler()).await;
        let addresses = [upstream.addr()];
        Self::with(topology, args, environment, outside, upstream, &addresses).await
    }

    /// Starts a pod that forwards to the upstreams at `addresses`, in this order. `addresses`
    /// includes `upstream`.
    pub async fn with(
        topology: Topology,
        args: &[&str],
        environment: &[(&'static str, String)],
        outside: Outside,
        upstream: Upstream,
        addresses: &[SocketAddr],
    ) -> Self {
        let cluster = loaded_cluster();
        let shape = match topology {
            Topology::DropIn => None,
            Topology::Cache => Some("--cache"),
            Topology::Direct => Some("--direct"),
            Topology::Alone => Some("--alone"),
        };
        let args: Vec<&str> = shape.into_iter().chain(args.iter().copied()).collect();
        let pod = Pod::start_on(&cluster.url(), addresses, &args, environment).await;
        Self {
            pod,
            topology,
            upstream_behaviour: outside,
            upstream,
            cluster,
        }
    }

    /// Asserts that no container was restarted.
    pub fn assert_no_restarts(&self) {
        for (name, container) in &self.pod.status().containers {
            assert_eq!(container.restarts, 0, "{name}");
        }
    }

    /// The URL of the API server.
    pub fn api_url(&self) -> String {
        self.cluster.url()
    }

    /// The faults of the API server, for the test to set.
    pub fn api_faults(&self) -> &Faults {
        self.cluster.faults()
    }

    /// Stores an object.
    pub fn set(&self, object: Value) {
        self.cluster.set(object).expect("the object must be stored");
    }

    /// Replaces the data of the pod's `ConfigMap`.
    pub fn configure(&self, data: &[(&str, &str)]) {
        self.set(mk_config_map("kube-system", "kube-dns", data));
    }

    /// Deletes an object.
    pub fn delete(&self, resource: Resource, namespace: &str, name: &str) {
        self.cluster.delete(resource, namespace, name);
    }

    /// Waits until `dig`, which queries the pod as a client does, shows this address for a name.
    pub async fn wait_until_resolved(&self, name: &str, address: &str) {
        let dig = self.pod.dig();
        testkit::eventually(crate::e2e::PATIENCE, || async {
            dig.short(name).await == [address]
        })
        .await;
    }

    /// The process ID of dnsmasq itself, not of the nanny that started it. The nanny has another
    /// child: the helper process that signals dnsmasq. The helper outlives dnsmasq by a moment, so
    /// dnsmasq is found by its name.
    pub async fn dnsmasq(&self) -> Pid {
        let nanny = self.pod.container("dnsmasq").await;
        let is_dnsmasq = |pid: &Pid| program_name(*pid).as_deref() == Some("dnsmasq");
        testkit::eventually(crate::e2e::PATIENCE, || async move {
            descendants(nanny).into_iter().find(is_dnsmasq)
        })
        .await
    }

    /// The queries of a client, each on a path ([`crate::steady`]). The pod's DNS port gets queries
    /// about the cluster (path `cluster`) and for external names (path `outside`). If dnsmasq
    /// serves this port, queries about the cluster also go to kubedns directly (path `kubedns`).
    pub fn questions(&self) -> Vec<Question> {
        let ports = self.pod.ports;
        let mut all = interleave(
            &questions("cluster", ports.dns),
            &names_outside("outside", ports.dns),
        );
        if matches!(self.topology, Topology::DropIn | Topology::Cache) {
            all = interleave(&all, &questions("kubedns", ports.kubedns));
        }
        all
    }
}

/// A cluster with an upstream, for pods that replace each other.
pub struct Rollout {
    upstream: Upstream,
    cluster: Cluster,
}

impl Rollout {
    /// A cluster without a pod.
    pub async fn start() -> Self {
        Self {
            upstream: Upstream::start(Outside::default().handler()).await,
            cluster: loaded_cluster(),
        }
    }

    /// Starts a pod in the drop-in topology and waits until it is ready.
    pub async fn pod(&self, args: &[&str]) -> Pod {
        Pod::start_on(&self.cluster.url(), &[self.upstream.addr()], args, &[]).await
    }
}

fn loaded_cluster() -> Cluster {
    let cluster = Cluster::start();
    cluster
        .load(&objects())
        .expect("the objects of the cluster must be stored");
    cluster
}

/// Interleaves both lists, so that a client alternates between their questions. The shorter list
/// repeats.
fn interleave(a: &[Question], b: &[Question]) -> Vec<Question> {
    let longest = a.len().max(b.len());
    let turn = |n: usize| [a.get(n % a.len()).cloned(), b.get(n % b.len()).cloned()];
    (0..longest).flat_map(turn).flatten().collect()
}
