//! The embedded API server, in this process, with a cluster in it.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Context as _;
use apiserver::{ApiServer, Faults, Options, Store};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::cluster::Cluster;

/// A running API server. It ends when this is dropped.
#[derive(Debug)]
pub struct Api {
    address: SocketAddr,
    /// Its objects.
    pub store: Store,
    /// What can go wrong.
    pub faults: Faults,
    _task: JoinSet<()>,
}

impl Api {
    /// Serves the objects of `cluster` on `address`.
    pub fn start(address: SocketAddr, cluster: &Cluster) -> anyhow::Result<Self> {
        let server = ApiServer::bind(address, Options::default()).context("cannot start the API server")?;
        let (address, store, faults) = (server.local_addr(), server.store(), server.faults());
        store.load(cluster.objects()).context("cannot load the cluster")?;
        let mut task = JoinSet::new();
        task.spawn(server.run(CancellationToken::new()));
        Ok(Self { address, store, faults, _task: task })
    }

    /// The same on any free port of loopback.
    pub fn anywhere(cluster: &Cluster) -> anyhow::Result<Self> {
        Self::start((Ipv4Addr::LOCALHOST, 0).into(), cluster)
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}
