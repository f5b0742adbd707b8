//! Zones from etcd: watches the keys of each zone, and sends its content to the index task.
//!
//! Readiness does not wait for etcd, because readiness concerns cluster names. The names of a zone
//! are SERVFAIL until the zone is loaded.

use std::collections::BTreeMap;
use std::sync::Arc;

use ::etcd::metrics::Metrics;
use ::etcd::records::{Merged, ZoneRecords};
use ::etcd::{Feed, Sink, Subtree, Tree};
use daemon::tasks::Tasks;
use explain::LostZone;
use parking_lot::Mutex;
use skydns::FurtherZone;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use wire::Name;

use crate::options::EtcdSource;

/// The zones whose watch in etcd is not open: the reason, by zone and path of the keys.
#[derive(Debug, Clone, Default)]
pub struct LostZones(Arc<Mutex<BTreeMap<(Name, String), String>>>);

impl LostZones {
    /// Returns the zones, each with the reason.
    pub fn zones(&self) -> Vec<LostZone> {
        let lost = self.0.lock();
        let zone = |((domain, path), failure): (&(Name, String), &String)| LostZone {
            domain: domain.clone(),
            reason: format!("etcd, keys below {path}: {failure}"),
        };
        lost.iter().map(zone).collect()
    }

    fn set(&self, keys: &(Name, String), failure: Option<String>) {
        let mut lost = self.0.lock();
        match failure {
            Some(failure) => lost.insert(keys.clone(), failure),
            None => lost.remove(keys),
        };
    }
}

/// The zones from etcd, and the reverse names from the same etcd.
pub struct EtcdZones {
    followed: Vec<Followed>,
    lost: LostZones,
}

/// A zone and the sources of its records. Reverse names have one source per etcd.
struct Followed {
    domain: Name,
    sources: Vec<EtcdSource>,
    contents: Arc<watch::Sender<Vec<ZoneRecords>>>,
}

impl Followed {
    fn new(domain: Name, sources: Vec<EtcdSource>) -> Self {
        let contents = Arc::new(watch::Sender::new(vec![
            ZoneRecords::default();
            sources.len()
        ]));
        Self {
            domain,
            sources,
            contents,
        }
    }

    /// The zone with its current content.
    fn zone(&self) -> FurtherZone {
        zone(&self.domain, &self.contents.borrow())
    }
}

/// Makes a zone from its content. Reverse names without a record in etcd are forwarded as usual.
fn zone(domain: &Name, contents: &[ZoneRecords]) -> FurtherZone {
    let records = Arc::new(Merged(contents.to_vec()));
    let pointers = *domain == reverse();
    FurtherZone {
        skydns: true,
        pointers,
        ..FurtherZone::new(domain, records)
    }
}

/// The domain `arpa`, which contains all reverse names.
fn reverse() -> Name {
    Name::parse("arpa").unwrap_or_default()
}

impl EtcdZones {
    /// Creates the zones of `sources`, and the reverse names of the same etcd servers.
    pub fn new(sources: Vec<EtcdSource>) -> Self {
        let mut beside: Vec<EtcdSource> = Vec::new();
        for source in &sources {
            let is_known =
                |known: &EtcdSource| (&known.path, &known.access) == (&source.path, &source.access);
            if !beside.iter().any(is_known) {
                beside.push(EtcdSource {
                    zone: reverse(),
                    ..source.clone()
                });
            }
        }
        let zones = sources
            .into_iter()
            .map(|source| Followed::new(source.zone.clone(), vec![source]));
        let reverse =
            Some(Followed::new(reverse(), beside)).filter(|reverse| !reverse.sources.is_empty());
        Self {
            followed: zones.chain(reverse).collect(),
            lost: LostZones::default(),
        }
    }

    /// Whether there are no zones.
    pub fn is_empty(&self) -> bool {
        self.followed.is_empty()
    }

    /// Returns the zones with their current content. A zone is not loaded before
    /// [`follow`](Self::follow).
    pub fn zones(&self) -> impl Iterator<Item = FurtherZone> {
        self.followed.iter().map(Followed::zone)
    }

    /// Returns the zones whose watch is not open, with the reasons.
    pub fn lost(&self) -> LostZones {
        self.lost.clone()
    }

    /// Starts to watch the zones, and sends new content to `publish`.
    pub fn follow(
        self,
        tasks: &mut Tasks,
        metrics: &Metrics,
        publish: &mpsc::Sender<FurtherZone>,
        stop: &CancellationToken,
    ) {
        for Followed {
            domain,
            sources,
            contents,
        } in self.followed
        {
            let shown = domain.to_string();
            tasks.lasting(
                "publishing a zone of etcd",
                forward_changes(domain.clone(), contents.subscribe(), publish.clone()),
            );
            for (source, EtcdSource { zone, path, access }) in sources.into_iter().enumerate() {
                let (contents, lost) = (Arc::clone(&contents), self.lost.clone());
                let sink = ToIndex {
                    contents,
                    source,
                    lost,
                    keys: (domain.clone(), path.clone()),
                };
                let feed = Feed::new(
                    access,
                    Subtree::new(&path, &zone),
                    sink,
                    metrics.feed(&shown),
                );
                tasks.lasting("following a zone of etcd", feed.run(stop.clone()));
            }
        }
    }
}

/// Sends the newest content of a zone after changes, and skips content that has been replaced
/// meanwhile.
async fn forward_changes(
    domain: Name,
    mut contents: watch::Receiver<Vec<ZoneRecords>>,
    publish: mpsc::Sender<FurtherZone>,
) {
    while contents.changed().await.is_ok() {
        let zone = zone(&domain, &contents.borrow_and_update());
        if publish.send(zone).await.is_err() {
            return;
        }
    }
}

/// Stores the newest content and the failure of a feed.
struct ToIndex {
    contents: Arc<watch::Sender<Vec<ZoneRecords>>>,
    source: usize,
    lost: LostZones,
    /// The zone, and the path of its keys in etcd.
    keys: (Name, String),
}

impl Sink for ToIndex {
    fn publish(&self, tree: &Tree) {
        let tree = ZoneRecords::from(tree.clone());
        self.contents.send_modify(|all| {
            if let Some(content) = all.get_mut(self.source) {
                *content = tree;
            }
        });
    }

    fn connected(&self, failure: Option<String>) {
        self.lost.set(&self.keys, failure);
    }
}
