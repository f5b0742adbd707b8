//! Explains names, one at a time, on a blocking thread.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use cluster::index::PublishedObjects;
use cluster::snapshot::Published;
use daemon::half_core::HalfCore;
use daemon::http;
use reports::nanny::NannyStatus;
use tokio::sync::{Semaphore, oneshot};

use crate::document::Explanation;
use crate::facts::dnsmasq_arguments::DnsmasqArguments;
use crate::facts::dnsmasq_path::DnsFront;
use crate::facts::server_state::ServerState;
use crate::facts::topology::DnsmasqTopology;
use crate::request::ExplainRequest;
use crate::survey::NameSurvey;

/// Maximum number of requests in progress. Only one name is explained at a time, and the other
/// requests wait.
const MAX_AT_ONCE: usize = 4;
/// Timeout of the request for the status of the nanny, which is in the same pod.
const NANNY_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum size of the status of the nanny, in octets.
const MAX_NANNY_STATUS: usize = 1 << 20;

/// Explains names. A clone shares all state.
#[derive(Clone)]
pub struct Explainer {
    published: Arc<Published>,
    objects: Arc<PublishedObjects>,
    server: Arc<ReadServerState>,
    slots: Arc<Semaphore>,
    /// The limit of half a processor core, which `/cache` and `/explain` share.
    share: Arc<HalfCore>,
    topology: DnsmasqTopology,
    /// The URL of the nanny's status; empty for none.
    nanny_status: Arc<str>,
}

/// Returns the current state of the server.
pub type ReadServerState = dyn Fn() -> ServerState + Send + Sync;

/// Reason for a missing explanation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ExplainError {
    /// Too many explanations are in progress.
    #[error("kubedns already has {MAX_AT_ONCE} requests for explanations; ask again later")]
    Busy,
    /// The process is shutting down.
    #[error("kubedns is shutting down")]
    Ending,
}

impl Explainer {
    /// Returns an explainer of the records in `published`, and of the `objects` that the records
    /// were made from.
    pub fn new(
        published: Arc<Published>,
        objects: Arc<PublishedObjects>,
        server: Arc<ReadServerState>,
        share: Arc<HalfCore>,
        topology: DnsmasqTopology,
    ) -> Self {
        let slots = Arc::new(Semaphore::new(MAX_AT_ONCE));
        Self {
            published,
            objects,
            server,
            slots,
            share,
            topology,
            nanny_status: Arc::from(""),
        }
    }

    /// Sets the `http://` URL of the nanny's status, which reports the options of dnsmasq. If the
    /// nanny reports no options, those of the stock manifest are assumed.
    #[must_use]
    pub fn with_nanny_status(self, url: &str) -> Self {
        Self {
            nanny_status: Arc::from(url),
            ..self
        }
    }

    /// The status of the nanny, if dnsmasq is in front of kubedns.
    async fn read_nanny_status(&self) -> Option<NannyStatus> {
        if !self.topology.is_behind_dnsmasq() {
            return None;
        }

        let rest = self.nanny_status.strip_prefix("http://")?;
        let path_at = rest.find('/').unwrap_or(rest.len());
        let (authority, path) = rest.split_at(path_at);
        let path = if path.is_empty() { "/" } else { path };
        let page = http::get(authority, path, NANNY_TIMEOUT, MAX_NANNY_STATUS).await;
        let body = page.ok()?.body;
        NannyStatus::parse(&String::from_utf8_lossy(&body)).ok()
    }

    /// Explains a name on a blocking thread. A wildcard visits all Services, which takes many
    /// milliseconds.
    pub(crate) async fn explain(
        &self,
        request: ExplainRequest,
    ) -> Result<Explanation, ExplainError> {
        let slot = Arc::clone(&self.slots)
            .try_acquire_owned()
            .map_err(|_| ExplainError::Busy)?;
        let nanny = self.read_nanny_status().await.unwrap_or_default();
        let this = self.clone();
        let (result, done) = oneshot::channel();

        tokio::task::spawn_blocking(move || {
            let _turn = this.share.turn();
            if !result.is_closed() {
                // The explanation is dropped if the client has disconnected in the meantime.
                let _ = result.send(this.explain_now(request, &nanny));
            }
            drop(slot);
        });

        done.await.map_err(|_| ExplainError::Ending)
    }

    /// Explains a name from the records and objects that are published now.
    fn explain_now(&self, request: ExplainRequest, nanny: &NannyStatus) -> Explanation {
        let server = (self.server)();
        // There are no options without a status. A nanny of another version may also report none.
        let options = &nanny.dnsmasq.arguments;
        let arguments = (!options.is_empty()).then(|| DnsmasqArguments::parse(options));
        let front = DnsFront {
            config: Arc::clone(&server.config.config),
            topology: self.topology,
            hosts: dnsclient::hosts::FILE.into(),
            arguments,
            added_servers: nanny.routes.added_servers(),
        };

        // Objects are published before the records that are made from them. The records are read
        // first, so the objects that are read afterwards are at least as new.
        let survey = NameSurvey::query_records(self.published.get(), &front, request);
        let found = self
            .objects
            .get()
            .map(|view| survey.object_lookup().look_up(&view));

        survey.conclude(found.as_ref(), &server, SystemTime::now().into())
    }
}
