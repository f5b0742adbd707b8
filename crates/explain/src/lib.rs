//! `kube-dns explain NAME [TYPE]`: explains how a name resolves, or why the name does not resolve. Suggests similar names.
//!
//! [`Explainer`] reports everything that kubedns knows of a name. The report has the names that a pod's search list produces,
//! the responsible servers, the records, and their Services and endpoints. It also has the path through dnsmasq, similar
//! names, and warnings about the records. `GET /explain` on the status port returns the report as JSON (`document`);
//! [`command`] requests the JSON and prints it as text.
//!
//! ```text
//! Request ─> Survey::new (published snapshot) ─> IndexRequest ─> index task ─> IndexReply ─> Survey::conclude ─> Explanation
//! ```
//!
//! Explanations change no state, and DNS queries never wait for them. The query engine answers from the published snapshot, as
//! for clients. The index task looks up the objects between two batches of events. Explanations send no queries to upstream
//! servers. Names, search lists, concurrent requests, visited objects and waits all have bounds.

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

use tokio::sync::{Semaphore, mpsc};

use cluster::index::IndexReader;
use cluster::snapshot::Published;

pub use command::{Options as CommandOptions, command};
pub use state::{LostZone, ServerState};

use dnsmasq::Front;
use document::Explanation;
use request::Request;
use survey::Survey;

/// Bound of the concurrent explanations.
const MAX_AT_ONCE: usize = 4;

/// Explains names. A clone shares all state.
#[derive(Clone)]
pub struct Explainer {
    published: Arc<Published>,
    server: Arc<StateOf>,
    index: mpsc::Sender<IndexReader>,
    slots: Arc<Semaphore>,
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
    /// Behind: clients ask kubedns, which asks dnsmasq for external names. dnsmasq asks stub domains and upstream
    /// servers.
    Direct,
    /// Absent: clients ask kubedns, which asks the upstream servers itself.
    Alone,
}

impl Topology {
    /// Whether clients query dnsmasq, which forwards to kubedns.
    pub fn is_behind_dnsmasq(self) -> bool {
        matches!(self, Self::DropIn | Self::Cache)
    }

    /// Whether upstream servers receive queries from kubedns alone. kubedns then also forwards names of one label and queries for
    /// all types (ANY).
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
    /// Returns an explainer of the records in `published`, and the receiver of the look-ups that the index task has to run.
    pub fn new(
        published: Arc<Published>,
        server: Arc<StateOf>,
        topology: Topology,
    ) -> (Self, mpsc::Receiver<IndexReader>) {
        let (index, questions) = mpsc::channel(objects::QUEUE);
        let slots = Arc::new(Semaphore::new(MAX_AT_ONCE));
        (Self { published, server, index, slots, topology }, questions)
    }

    pub(crate) async fn explain(&self, request: Request) -> Result<Explanation, Unexplained> {
        let _slot = self.slots.try_acquire().map_err(|_| Unexplained::Busy)?;
        let snapshot = self.published.get();
        let (config, hosts) = ((self.server)().config.config, dnsclient::hosts::FILE.into());
        let front = Front { config, topology: self.topology, hosts };
        // A wildcard name visits all Services, which would delay other connections on this thread.
        let survey = tokio::task::spawn_blocking(move || Survey::new(snapshot, &front, request));
        let survey = survey.await.map_err(|_| Unexplained::Ending)?;
        let reply = objects::ask(&self.index, survey.wanted()).await;
        let server = (self.server)();
        let conclude = move || survey.conclude(reply.as_ref(), &server, SystemTime::now().into());
        tokio::task::spawn_blocking(conclude).await.map_err(|_| Unexplained::Ending)
    }
}

#[cfg(test)]
mod tests;
