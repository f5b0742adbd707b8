//! Follows the keys of one zone: lists them, watches them, and publishes each new state as a whole.
//!
//! The first session lists the keys and watches for changes after the revision of the list. If a session fails, the
//! next session continues the watch at the last revision. The keys are listed again if etcd has compacted the last
//! revision, or if etcd was set up anew or restored from a backup. The keys are also listed again if the zone was too
//! large. Until the new list is complete, the last state stays published.

use std::time::Duration;

use daemon::backoff::Backoff;
use dnsconfig::blocking_read::BlockingRead;
use thiserror::Error;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::client::{Access, Client, ClientError};
use crate::gateway::{self, Event, EventKind, GatewayError, Header, Page, WatchResponse};
use crate::key::Subtree;
use crate::metrics::FeedMetrics;
use crate::tree::Tree;

/// Maximum number of keys in one page of a list. Smaller pages are requested if a response is too large.
const PAGE: usize = 1000;
/// Maximum memory for the messages of one zone, in octets, see [`Tree::octets`].
const MAX_OCTETS: usize = 128 << 20;
/// The time without a frame of the watch after which etcd is checked.
const SILENCE: Duration = Duration::from_secs(30);
/// Minimum duration of a successful session. The pause after such a session is the shortest pause.
const SETTLED: Duration = Duration::from_secs(10);
/// Maximum number of log lines about skipped keys, for each page or frame.
const LOGGED: usize = 5;
/// The first and the longest pause after a failed session.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// Receives the results of a feed.
pub trait Sink: Send + Sync {
    /// Publishes a new state of the zone.
    fn publish(&self, tree: &Tree);
    /// Reports the failure of a session, or `None` when a session is established.
    fn connected(&self, failure: Option<String>);
}

/// Follows the keys of one zone.
pub struct Feed<S> {
    access: Access,
    keys: Subtree,
    sink: S,
    metrics: FeedMetrics,
    member: usize,
    tree: Tree,
    /// The etcd cluster and the revision of `tree`; `None` if the keys must be listed.
    reached: Option<Header>,
    /// Whether a session is established; `None` until the first session is established or fails.
    connected: Option<bool>,
    reading: BlockingRead<Result<Client, ClientError>>,
}

/// Failure of a session.
#[derive(Debug, Error)]
enum Failure {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("reading the certificates and the password times out")]
    Hangs,
    #[error("the history since revision {0} is compacted")]
    Compacted(u64),
    #[error("etcd has another history: it was set up anew, or restored")]
    OtherHistory,
    #[error("the watch was canceled: {0}")]
    Canceled(String),
    #[error("the zone takes more than {MAX_OCTETS} octets")]
    Large,
}

impl<S: Sink> Feed<S> {
    /// A feed of `keys` from etcd, reached through `access`.
    pub fn new(access: Access, keys: Subtree, sink: S, metrics: FeedMetrics) -> Self {
        let (tree, reading) = (Tree::default(), BlockingRead::default());
        Self { access, keys, sink, metrics, member: 0, tree, reached: None, connected: None, reading }
    }

    /// Follows the zone until `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut backoff = Backoff::new(FIRST_PAUSE);
        loop {
            let begun = Instant::now();
            let ended = tokio::select! {
                ended = self.session() => ended,
                () = stop.cancelled() => return,
            };
            if self.connected == Some(true) && begun.elapsed() > SETTLED {
                backoff.reset();
            }
            if let Err(failure) = ended {
                self.failed(&failure);
            }
            tokio::select! {
                () = sleep(backoff.pause(LONGEST_PAUSE)) => {}
                () = stop.cancelled() => return,
            }
        }
    }

    fn failed(&mut self, failure: &Failure) {
        self.metrics.failures.inc();
        if matches!(failure, Failure::Compacted(_) | Failure::OtherHistory | Failure::Large) {
            self.reached = None;
        }
        self.member += 1;
        let error = daemon::error_chain::brief(failure);
        let (keys, records) = (&self.keys, self.tree.len());
        match self.connected.replace(false) {
            Some(false) => tracing::debug!(%keys, error, "etcd still not connected"),
            Some(true) => {
                tracing::warn!(%keys, records, error, "etcd connection lost, keeping the last records");
            }
            None => {
                tracing::warn!(%keys, error, "etcd cannot be reached, the names of the zone are SERVFAIL");
            }
        }
        self.metrics.connected.set(0);
        self.sink.connected(Some(error));
    }

    fn succeeded(&mut self) {
        if self.connected.replace(true) != Some(true) {
            tracing::info!(keys = %self.keys, records = self.tree.len(), "etcd connected");
        }
        self.metrics.connected.set(1);
        self.sink.connected(None);
    }

    /// Runs one session until it fails.
    async fn session(&mut self) -> Result<(), Failure> {
        let mut client = self.client().await?;
        let reached = match self.reached {
            Some(reached) => reached,
            None => self.list(&mut client).await?,
        };
        let request = gateway::watch(&self.keys.range(), reached.revision + 1);
        let mut watch = client.watch(&request).await?;
        loop {
            match timeout(SILENCE, watch.next()).await {
                Ok(response) => self.take(response?)?,
                Err(_) => self.check(&mut client).await?,
            }
        }
    }

    async fn client(&self) -> Result<Client, Failure> {
        let (access, count) = (self.access.clone(), self.access.members.len().max(1));
        let member = self.access.members.get(self.member % count).cloned().unwrap_or_default();
        Ok(self.reading.run(move || Client::new(&access, &member)).await.ok_or(Failure::Hangs)??)
    }

    /// Reads all keys in pages, each at the revision of the first page, and publishes them.
    async fn list(&mut self, client: &mut Client) -> Result<Header, Failure> {
        let (mut keys, mut tree) = (self.keys.range(), Tree::default());
        let (mut limit, mut header) = (PAGE, None::<Header>);
        loop {
            let revision = header.map_or(0, |header| header.revision);
            let page = client.post::<Page>("/v3/kv/range", &gateway::range(&keys, limit, revision)).await;
            let page = match page {
                Err(ClientError::Gateway(GatewayError::Large(_))) if limit > 1 => {
                    limit /= 4;
                    continue;
                }
                page => page?,
            };
            let first = *header.get_or_insert(page.header);
            if let Some(last) = page.kvs.last().filter(|_| page.more) {
                keys.start = [&last.key[..], b"\0"].concat();
            }
            let more = page.more && !page.kvs.is_empty();
            self.set(&mut tree, page.kvs.into_iter().map(|kv| Event { kind: EventKind::Put, kv }))?;
            if !more {
                (self.tree, self.reached) = (tree, Some(first));
                self.metrics.lists.inc();
                self.publish();
                return Ok(first);
            }
        }
    }

    /// Applies a frame of the watch.
    fn take(&mut self, response: WatchResponse) -> Result<(), Failure> {
        let reached = self.reached.unwrap_or_default();
        if response.compact_revision != 0 {
            return Err(Failure::Compacted(reached.revision));
        }
        if response.canceled {
            return Err(Failure::Canceled(response.cancel_reason));
        }
        // A restored etcd may have an older revision. etcd does not reject a watch from a future revision, but sends no
        // events.
        if !response.header.continues(reached) {
            return Err(Failure::OtherHistory);
        }
        if response.created {
            self.succeeded();
            return Ok(());
        }
        // While a watch catches up, the revision in the header is later than that of the events.
        let last = response.events.last().map(|event| event.kv.mod_revision);
        let revision = last.unwrap_or(response.header.revision);
        let mut tree = self.tree.clone();
        self.set(&mut tree, response.events.into_iter())?;
        (self.tree, self.reached) = (tree, Some(Header { revision, ..response.header }));
        if last.is_some() {
            self.publish();
        }
        Ok(())
    }

    /// Checks that etcd answers, and that the cluster and its revision fit the last known state.
    async fn check(&self, client: &mut Client) -> Result<(), Failure> {
        let page: Page = client.post("/v3/kv/range", &gateway::range(&self.keys.range(), 1, 0)).await?;
        let continues = page.header.continues(self.reached.unwrap_or_default());
        if continues { Ok(()) } else { Err(Failure::OtherHistory) }
    }

    /// Applies changes to `tree`.
    fn set(&self, tree: &mut Tree, changes: impl Iterator<Item = Event>) -> Result<(), Failure> {
        let mut skipped = 0;
        for event in changes {
            if let Err(error) = tree.apply(&self.keys, &event) {
                skipped += 1;
                if skipped <= LOGGED {
                    let key = String::from_utf8_lossy(&event.kv.key);
                    tracing::warn!(%key, %error, "etcd key skipped");
                }
            }
            if tree.octets() > MAX_OCTETS {
                return Err(Failure::Large);
            }
        }
        self.metrics.skipped.inc_by(skipped as u64);
        if let Some(more) = skipped.checked_sub(LOGGED + 1) {
            tracing::warn!(more = more + 1, "further etcd keys skipped");
        }
        Ok(())
    }

    fn publish(&self) {
        self.metrics.records.set(daemon::metrics::gauge_value(self.tree.len()));
        self.sink.publish(&self.tree);
    }
}
