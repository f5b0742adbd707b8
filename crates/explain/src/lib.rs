//! `kube-dns explain NAME [TYPE]`: explains how a name resolves, or why it does not and which name may be meant.
//!
//! An incident often begins with one name. [`Explainer`] reports everything that this process knows of it: the names
//! that a pod's search list makes of it, the responsible servers, the records, the Services and endpoints behind them,
//! the path through dnsmasq, similar names, and warnings about the records. `GET /explain` on the status port returns
//! the report as JSON (`document`); [`command`] requests it and prints it as text.
//!
//! ```text
//! Request ─> Survey::new (published snapshot) ─> IndexRequest ─> index task ─> IndexReply ─> Survey::conclude ─> Explanation
//! ```
//!
//! Explanations change nothing, and queries never wait for them. The records come from the published snapshot, as
//! the engine answers them; the objects come from the index, which is asked between two batches of events. Upstream
//! servers are not asked. Names, search lists, concurrent requests, visited objects and waits all have bounds.

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

use std::path::PathBuf;
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

/// The most explanations that are made at a time.
const MAX_AT_ONCE: usize = 4;

/// Explains names. `clone` is a handful of reference counts.
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
    /// Whether dnsmasq stands between the clients and kubedns.
    pub fn is_behind_dnsmasq(self) -> bool {
        matches!(self, Self::DropIn | Self::Cache)
    }

    /// Whether only kubedns asks upstream servers, so that it forwards names of one label and queries for all types
    /// (ANY), too.
    pub fn forwards_all(self) -> bool {
        matches!(self, Self::Cache | Self::Alone)
    }
}

/// The state of the server now.
pub type StateOf = dyn Fn() -> ServerState + Send + Sync;

/// Reason why there is no explanation.
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
    /// An explainer of the records of `published`, and the questions that the index task has to answer for it.
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
        let (config, hosts) = ((self.server)().config.config, PathBuf::from("/etc/hosts"));
        let front = Front { config, topology: self.topology, hosts };
        // A wildcard visits all Services, which would block a thread that serves connections.
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
