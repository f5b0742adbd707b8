//! The embedded API server, in this process, with the generated cluster.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Context as _;
use apiserver::{ApiServer, Options, RunningApiServer};

use crate::cluster::Cluster;

/// Serves the objects of `cluster` on `address` until the returned value is dropped.
pub fn start(address: SocketAddr, cluster: &Cluster) -> anyhow::Result<RunningApiServer> {
    let server =
        ApiServer::bind(address, Options::default()).context("cannot start the API server")?;
    server
        .store()
        .load(cluster.objects())
        .context("cannot load the cluster")?;
    Ok(server.spawn())
}

/// Serves the objects of `cluster` on a free loopback port until the returned value is dropped.
pub fn start_on_free_port(cluster: &Cluster) -> anyhow::Result<RunningApiServer> {
    start((Ipv4Addr::LOCALHOST, 0).into(), cluster)
}
