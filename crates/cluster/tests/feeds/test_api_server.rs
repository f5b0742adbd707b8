//! An embedded API server for a test, and connections to it.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use apiserver::{ApiServer, Options, Resource, Running, Verb};
use cluster::connect::{Access, Connection};
use cluster::watch::{WatchMetrics, WatchTiming};

/// Timeout of all waits, generous for slow machines.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

/// An embedded API server without objects, which stops when dropped.
pub(crate) struct TestApiServer(Running);

impl Deref for TestApiServer {
    type Target = Running;

    fn deref(&self) -> &Running {
        &self.0
    }
}

impl TestApiServer {
    pub(crate) fn start() -> Self {
        Self::start_with(Options::default())
    }

    pub(crate) fn start_with(mut options: Options) -> Self {
        options.bootstrap = false;
        let server = ApiServer::bind(([127, 0, 0, 1], 0).into(), options).unwrap();

        Self(server.spawn())
    }

    pub(crate) async fn connect(&self) -> Arc<Connection> {
        let access = Access {
            master_url: Some(self.url()),
            ..Access::default()
        };

        Arc::new(Connection::new(access).await.unwrap())
    }

    /// Number of list requests, including those for further pages.
    pub(crate) fn list_count(&self) -> usize {
        let requests = self.faults.requests();
        requests
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
pub(crate) fn fast_timing() -> WatchTiming {
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

pub(crate) fn watch_metrics() -> WatchMetrics {
    WatchMetrics::new(&daemon::metrics::Metrics::new("test").unwrap()).unwrap()
}
