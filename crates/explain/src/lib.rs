//! `kube-dns explain NAME [TYPE]`: explains how a name resolves, or why the name does not resolve.
//! Suggests similar names.
//!
//! [`Explainer`] reports everything that kubedns knows of a name. The report has the names that a
//! pod's search list produces, the responsible servers, the records, and their Services and
//! endpoints. It also has the path through dnsmasq, similar names, and warnings about the records.
//! `GET /explain` on the status port returns the report as JSON (`document`); [`command`] requests
//! the JSON and prints it as text.
//!
//! ```text
//! Request ─> Survey::new (published snapshot) ─> ObjectLookup ─> published objects ─> FoundObjects ─> Survey::conclude ─> Explanation
//! ```
//!
//! Explanations change no state, and neither DNS queries nor events wait for them. The query engine
//! answers from the published snapshot, as for clients. Both steps and the look-up run on a
//! blocking thread, one explanation at a time. Explanations send no queries to upstream servers.
//! Names, search lists, requests and visited objects all have bounds.

mod answer;
mod candidate;
mod command;
mod dnsmasq;
mod document;
mod evidence;
mod http;
mod kind;
mod list;
mod moment;
mod near;
mod objects;
mod reasons;
mod request;
mod search;
mod state;
mod survey;
mod text;
mod verdict;

use std::sync::Arc;
use std::time::SystemTime;

use tokio::sync::{Semaphore, oneshot};

use cluster::index::PublishedObjects;
use cluster::snapshot::Published;
use daemon::half_core::HalfCore;

pub use command::{Options as CommandOptions, command};
pub use state::{LostZone, ServerState};

use dnsmasq::Front;
use document::Explanation;
use request::Request;
use survey::Survey;

/// Bound of the requests that wait or are being explained.
const MAX_AT_ONCE: usize = 4;

/// Explains names. A clone shares all state.
#[derive(Clone)]
pub struct Explainer {
    published: Arc<Published>,
    objects: Arc<PublishedObjects>,
    server: Arc<StateOf>,
    slots: Arc<Semaphore>,
    /// The processor time of all pages.
    share: Arc<HalfCore>,
    topology: Topology,
}

/// The position of dnsmasq, seen from kubedns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Topology {
    /// In front: clients ask it, and it asks kubedns for names of the cluster, as in kube-dns.
    #[default]
    DropIn,
    /// In front as a cache alone: it asks kubedns for all names (`-forward=kubedns` of the nanny).
    Cache,
    /// Behind: clients ask kubedns, which asks dnsmasq for external names. dnsmasq asks stub
    /// domains and upstream servers.
    Direct,
    /// Absent: clients ask kubedns, which asks the upstream servers itself.
    Alone,
}

impl Topology {
    /// Whether clients query dnsmasq, which forwards to kubedns.
    pub fn is_behind_dnsmasq(self) -> bool {
        matches!(self, Self::DropIn | Self::Cache)
    }

    /// Whether upstream servers receive queries from kubedns alone. kubedns then also forwards
    /// names of one label and queries for all types (ANY).
    pub fn forwards_all(self) -> bool {
        matches!(self, Self::Cache | Self::Alone)
    }
}

/// Returns the current state of the server.
pub type StateOf = dyn Fn() -> ServerState + Send + Sync;

/// Reason for a missing explanation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unexplained {
    /// Too many explanations are in progress.
    #[error("{MAX_AT_ONCE} names are being explained already, ask again")]
    Busy,
    /// The process is shutting down.
    #[error("shutting down")]
    Ending,
}

impl Explainer {
    /// Returns an explainer of the records in `published`, and of the `objects` that they were made
    /// of. All pages take turns for the same `share` of the processor.
    pub fn new(
        published: Arc<Published>,
        objects: Arc<PublishedObjects>,
        server: Arc<StateOf>,
        share: Arc<HalfCore>,
        topology: Topology,
    ) -> Self {
        let slots = Arc::new(Semaphore::new(MAX_AT_ONCE));
        Self {
            published,
            objects,
            server,
            slots,
            share,
            topology,
        }
    }

    /// Explains a name on a blocking thread. A wildcard visits all Services, which takes many
    /// milliseconds.
    pub(crate) async fn explain(&self, request: Request) -> Result<Explanation, Unexplained> {
        let slot = Arc::clone(&self.slots)
            .try_acquire_owned()
            .map_err(|_| Unexplained::Busy)?;
        let this = self.clone();
        let (result, done) = oneshot::channel();

        tokio::task::spawn_blocking(move || {
            let _turn = this.share.turn();
            if !result.is_closed() {
                // A client that leaves meanwhile misses its explanation.
                let _ = result.send(this.explain_now(request));
            }
            drop(slot);
        });

        done.await.map_err(|_| Unexplained::Ending)
    }

    /// Explains a name from the records and objects that are published now.
    fn explain_now(&self, request: Request) -> Explanation {
        let server = (self.server)();
        let front = Front {
            config: Arc::clone(&server.config.config),
            topology: self.topology,
            hosts: dnsclient::hosts::FILE.into(),
        };

        // The records first: the objects are published before the records that are made of them.
        let survey = Survey::new(self.published.get(), &front, request);
        let found = self
            .objects
            .get()
            .map(|view| survey.wanted().look_up(&view));

        survey.conclude(found.as_ref(), &server, SystemTime::now().into())
    }
}

#[cfg(test)]
mod tests;
