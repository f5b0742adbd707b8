//! `kube-dns explain NAME [TYPE]`: how a name resolves and why, or why it does not and what was meant.
//!
//! The first minute of an incident asks for one name. [`Explainer`] tells everything that this process knows of it:
//! the names that a pod's search list makes of it, who is responsible, the records, the Services and endpoints they come
//! from, the way through dnsmasq, similar names, and how trustworthy the records are. It is served as JSON (`document`) at
//! `GET /explain` on the status port; [`command`] asks for it and prints it as text.
//!
//! ```text
//! Request ─> Survey::new (published snapshot) ─> IndexRequest ─> index task ─> IndexReply ─> Survey::conclude ─> Explanation
//! ```
//!
//! Queries never pass here, and nothing here changes anything: the records are those of the published snapshot, asked
//! through the engine as a client would ask; the objects are asked of the index, in between two batches of events.
//! Upstream servers are not asked. Names, search lists, requests in flight, the objects looked at and the waiting all
//! have bounds.

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

use cluster::index::Question;
use cluster::snapshot::Published;

pub use command::{Options as CommandOptions, authority, command};
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
    index: mpsc::Sender<Question>,
    slots: Arc<Semaphore>,
    topology: Topology,
}

/// The place of dnsmasq, seen from kubedns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Topology {
    /// In front: clients ask it, and it asks kubedns for names of the cluster. The shape of kube-dns.
    #[default]
    DropIn,
    /// In front as a cache alone: it asks kubedns for all names, as the nanny's `-forward=kubedns` has it.
    Cache,
    /// Behind: clients ask kubedns, which asks it for names outside. Stub domains and upstream servers are its business.
    Direct,
    /// Absent: clients ask kubedns, which asks the upstream servers itself.
    Alone,
}

impl Topology {
    /// Whether nobody but kubedns asks upstream servers, so that names of one label and questions for all types (ANY) go
    /// on to them as well.
    pub fn forwards_all(self) -> bool {
        matches!(self, Self::Cache | Self::Alone)
    }
}

/// The state of the server now.
pub type StateOf = dyn Fn() -> ServerState + Send + Sync;

/// Why there is no explanation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unexplained {
    /// Too many are asked for at a time.
    #[error("{MAX_AT_ONCE} names are being explained already, ask again")]
    Busy,
    /// The process ends.
    #[error("shutting down")]
    Ending,
}

impl Explainer {
    /// An explainer of the records of `published`, and the questions that the index task has to answer for it.
    pub fn new(
        published: Arc<Published>,
        server: Arc<StateOf>,
        topology: Topology,
    ) -> (Self, mpsc::Receiver<Question>) {
        let (index, questions) = mpsc::channel(objects::QUEUE);
        let slots = Arc::new(Semaphore::new(MAX_AT_ONCE));
        (Self { published, server, index, slots, topology }, questions)
    }

    pub(crate) async fn explain(&self, request: Request) -> Result<Explanation, Unexplained> {
        let _slot = self.slots.try_acquire().map_err(|_| Unexplained::Busy)?;
        let snapshot = self.published.get();
        let (config, hosts) = ((self.server)().config.config, PathBuf::from("/etc/hosts"));
        let front = Front { config, topology: self.topology, hosts };
        // A wildcard walks over all Services: that is not for a thread that serves connections.
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
