//! A server in a task of its own, for tests and benchmarks.

#![allow(
    clippy::expect_used,
    reason = "a test whose set-up fails has to end there"
)]

use std::net::{Ipv4Addr, SocketAddr};

use serde_json::Value;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::faults::Faults;
use crate::kinds::Resource;
use crate::server::{ApiServer, Options};
use crate::store::Store;

/// A running server. It stops when this value is dropped.
#[derive(Debug)]
pub struct RunningApiServer {
    /// The address that the server listens on.
    pub address: SocketAddr,
    /// The objects of the server, for direct reads and writes.
    pub store: Store,
    /// A handle for fault injection.
    pub faults: Faults,
    _task: JoinSet<()>,
}

impl RunningApiServer {
    pub(crate) fn new(server: ApiServer) -> Self {
        let mut task = JoinSet::new();
        let address = server.local_addr();
        let store = server.store();
        let faults = server.faults();
        task.spawn(server.run(CancellationToken::new()));
        Self {
            address,
            store,
            faults,
            _task: task,
        }
    }

    /// Starts a server on a free loopback port.
    ///
    /// # Panics
    ///
    /// If no port is free.
    pub fn start(options: Options) -> Self {
        ApiServer::bind((Ipv4Addr::LOCALHOST, 0).into(), options)
            .expect("a port must be free")
            .spawn()
    }

    /// Starts a server without objects.
    ///
    /// # Panics
    ///
    /// If no port is free.
    pub fn empty() -> Self {
        Self::start(Options::empty())
    }

    /// The URL of the server.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Creates or replaces an object as given, see [`Store::set`].
    ///
    /// # Panics
    ///
    /// If the kind is unknown, or if the object lacks its name or namespace.
    pub fn set(&self, object: Value) {
        self.store
            .set(object)
            .expect("the server must be able to store the object");
    }

    /// Deletes an object.
    ///
    /// # Panics
    ///
    /// If there is no such object.
    pub fn delete(&self, resource: Resource, namespace: &str, name: &str) {
        self.store
            .delete(resource, namespace, name)
            .expect("an object of this name must exist");
    }
}
