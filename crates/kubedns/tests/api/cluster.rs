//! An embedded API server for a test.

use std::ops::Deref;
use std::time::Duration;

use apiserver::{ApiServer, Options, Resource, Running};
use testkit::objects::mk_cluster_ip;

/// Timeout of all waits, generous for slow machines.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// An embedded API server without objects, which stops when dropped.
pub(crate) struct Cluster(Running);

impl Deref for Cluster {
    type Target = Running;

    fn deref(&self) -> &Running {
        &self.0
    }
}

impl Cluster {
    pub(crate) fn start() -> Self {
        Self::with(Options::default())
    }

    /// With the Service `web.apps`.
    pub(crate) fn with_web() -> Self {
        let cluster = Self::start();
        cluster.set(mk_cluster_ip("apps", "web", &["10.96.0.7"], &["http:80"]));
        cluster
    }

    pub(crate) fn with(mut options: Options) -> Self {
        options.bootstrap = false;
        Self(
            ApiServer::bind(([127, 0, 0, 1], 0).into(), options)
                .unwrap()
                .spawn(),
        )
    }

    pub(crate) fn set(&self, object: serde_json::Value) {
        self.store.set(object).unwrap();
    }

    pub(crate) fn delete(&self, resource: Resource, namespace: &str, name: &str) {
        self.store
            .delete(resource, namespace, name)
            .expect("it is there");
    }
}
