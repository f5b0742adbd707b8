//! The embedded API server, which serves the objects in a directory of manifests if there is no
//! real cluster.

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use apiserver::{ApiServer, Manifests, Options};
use tokio_util::sync::CancellationToken;

/// The pause between two readings of the directory.
const MANIFESTS_PERIOD: Duration = Duration::from_millis(500);

/// A bound API server with its first objects.
pub(crate) struct Embedded {
    server: ApiServer,
    manifests: Manifests,
    /// Number of objects that the API server accepted from the manifests in [`bind`](Self::bind).
    pub(crate) objects: usize,
}

impl Embedded {
    /// Binds `port` on 127.0.0.1 and loads the manifests.
    pub(crate) fn bind(port: u16, directory: &Path) -> Result<Self> {
        let server = ApiServer::bind((Ipv4Addr::LOCALHOST, port).into(), Options::default())?;
        let mut manifests = server.manifests(directory);
        let objects = manifests
            .load()
            .context("the embedded API server needs a directory of manifests (--manifests DIR)")?;
        Ok(Self {
            server,
            manifests,
            objects,
        })
    }

    /// Serves the API, and applies changes of the manifests, until cancelled.
    pub(crate) async fn run(self, token: CancellationToken) {
        tokio::join!(
            self.server.run(token.clone()),
            self.manifests.run(MANIFESTS_PERIOD, token)
        );
    }
}
