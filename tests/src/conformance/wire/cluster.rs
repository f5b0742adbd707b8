//! The embedded API server of one scenario.

use std::net::Ipv4Addr;

use anyhow::Context as _;
use apiserver::{ApiServer, Faults, Options, Resource, Store};
use serde_json::Value;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// A running API server; dropping it takes it down.
pub(crate) struct Cluster {
    url: String,
    store: Store,
    faults: Faults,
    _task: JoinSet<()>,
}

impl Cluster {
    /// Starts one without any object.
    pub(crate) fn start() -> anyhow::Result<Self> {
        let options = Options { bootstrap: false, ..Options::default() };
        let server = ApiServer::bind((Ipv4Addr::LOCALHOST, 0).into(), options)?;
        let url = format!("http://{}", server.local_addr());
        let (store, faults) = (server.store(), server.faults());
        let mut task = JoinSet::new();
        task.spawn(server.run(CancellationToken::new()));
        Ok(Self { url, store, faults, _task: task })
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Stores objects exactly as given.
    pub(crate) fn load(&self, objects: &[Value]) -> anyhow::Result<()> {
        self.store.load(objects.iter().cloned()).context("an initial object")?;
        Ok(())
    }

    /// Stores one object exactly as given.
    pub(crate) fn set(&self, object: Value) -> anyhow::Result<()> {
        self.store.set(object)?;
        Ok(())
    }

    pub(crate) fn delete(&self, resource: Resource, namespace: &str, name: &str) {
        self.store.delete(resource, namespace, name);
    }

    /// Does what a watch event says.
    pub(crate) fn apply(&self, event: &Value) -> anyhow::Result<()> {
        self.store.apply_event(event).with_context(|| format!("{event}"))?;
        Ok(())
    }

    /// Does what the events say while no watch is open, and forgets their history.
    pub(crate) fn apply_unseen(&self, events: &[Value]) -> anyhow::Result<()> {
        self.faults.gap(|store| events.iter().try_for_each(|event| store.apply_event(event).map(drop)))?;
        Ok(())
    }
}
