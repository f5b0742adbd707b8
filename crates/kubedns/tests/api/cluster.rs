//! An embedded API server for a test, and the connection to it.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use apiserver::{ApiServer, Options, Resource, Running, Verb};
use cluster::connect::{Access, Connection};
use cluster::watch::WatchMetrics;
use cluster::watch::WatchTiming;
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

    pub(crate) async fn connection(&self) -> Arc<Connection> {
        let access = Access {
            master_url: Some(self.url()),
            ..Access::default()
        };
        Arc::new(Connection::new(access).await.unwrap())
    }

    /// Number of list requests, including those for further pages.
    pub(crate) fn lists(&self) -> usize {
        self.faults
            .requests()
            .iter()
            .filter(|request| request.verb == Verb::List)
            .count()
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

/// The timing of watches in tests: seconds in place of minutes.
pub(crate) fn timing() -> WatchTiming {
    let ms = Duration::from_millis;
    WatchTiming {
        watch: ms(20_000)..=ms(30_000),
        silence: ms(1500),
        overrun: ms(1000),
        response: ms(1500),
        backoff: ms(5)..=ms(100),
        max_pause: ms(100),
        max_pause_refused: ms(50),
        refusal_lasts: ms(200),
    }
}

pub(crate) fn metrics() -> WatchMetrics {
    WatchMetrics::new(&daemon::metrics::Metrics::new("test").unwrap()).unwrap()
}
