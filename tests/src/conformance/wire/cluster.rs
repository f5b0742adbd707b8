//! The embedded API server of one scenario.

use anyhow::Context as _;
use apiserver::{Faults, Options, Resource, RunningApiServer};
use serde_json::{Value, json};

/// A running API server. Dropping this value stops the server.
pub(crate) struct Cluster {
    server: RunningApiServer,
}

impl Cluster {
    /// Starts an API server without objects. The server rejects requests for `EndpointSlices`,
    /// because the `ClusterRole` of kube-dns does not allow such requests.
    pub(crate) fn start() -> Self {
        let server = RunningApiServer::empty();
        server.faults.forbid(Resource::EndpointSlices);
        Self { server }
    }

    /// Starts an API server without objects. The server mirrors Endpoints to `EndpointSlices`.
    pub(crate) fn start_with_slices() -> Self {
        let server = RunningApiServer::start(Options {
            mirror_endpoints: true,
            ..Options::empty()
        });
        Self { server }
    }

    pub(crate) fn url(&self) -> String {
        self.server.url()
    }

    /// The faults of the API server.
    pub(crate) fn faults(&self) -> &Faults {
        &self.server.faults
    }

    /// Stores objects as given, with new resource versions, and creates missing namespaces of these
    /// objects.
    pub(crate) fn load(&self, objects: &[Value]) -> anyhow::Result<()> {
        for object in objects {
            self.set(object.clone())
                .context("cannot store an initial object")?;
        }
        Ok(())
    }

    /// Creates the namespace of an object if the namespace is missing. The API server mirrors
    /// Endpoints only in existing namespaces.
    fn make_namespace_of(&self, object: &Value) -> anyhow::Result<()> {
        if let Some(namespace) = object
            .pointer("/metadata/namespace")
            .and_then(Value::as_str)
            && self
                .server
                .store
                .get(Resource::Namespaces, "", namespace)
                .is_none()
        {
            self.server.store.set(
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
            )?;
        }
        Ok(())
    }

    /// Stores one object as given, with a new resource version, and creates its namespace if the
    /// namespace is missing.
    pub(crate) fn set(&self, object: Value) -> anyhow::Result<()> {
        self.make_namespace_of(&object)?;
        self.server.store.set(object)?;
        Ok(())
    }

    pub(crate) fn delete(&self, resource: Resource, namespace: &str, name: &str) {
        self.server.store.delete(resource, namespace, name);
    }

    /// Applies a watch event, and creates the namespace of its object if the namespace is missing.
    pub(crate) fn apply(&self, event: &Value) -> anyhow::Result<()> {
        self.make_namespace_of(event.get("object").unwrap_or(&Value::Null))?;
        self.server
            .store
            .apply_event(event)
            .with_context(|| format!("cannot apply the event {event}"))?;
        Ok(())
    }

    /// Applies the events while no watch is open, and compacts the history, so that no watch can
    /// receive these events. The namespaces of the objects must exist.
    pub(crate) fn apply_unseen(&self, events: &[Value]) -> anyhow::Result<()> {
        self.server.faults.gap(|store| {
            events
                .iter()
                .try_for_each(|event| store.apply_event(event).map(drop))
        })?;
        Ok(())
    }
}
