//! Zones from etcd: watches the keys of each zone, and publishes the content of the zone.
//!
//! If kubedns also serves cluster names, its readiness does not wait for etcd. Queries for names in
//! a zone are answered with SERVFAIL until the zone is loaded. Until the reverse names are loaded,
//! PTR queries are answered as if etcd had none.

use std::collections::BTreeMap;
use std::sync::Arc;

use ::etcd::metrics::EtcdMetrics;
use ::etcd::records::{MergedRecords, ZoneRecords};
use ::etcd::{EtcdFeed, EtcdSink, MessageTree, ZoneKeys};
use daemon::tasks::Tasks;
use explain::LostZone;
use parking_lot::Mutex;
use skydns::FurtherZone;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use wire::Name;

use crate::options::EtcdSource;

/// The zones from etcd, and the reverse names from the same etcd.
pub struct EtcdZones {
    followed: Vec<FollowedZone>,
    lost: LostZones,
}

impl EtcdZones {
    /// Creates the zones of `sources`, and the reverse names of the same etcd servers.
    pub fn new(sources: Vec<EtcdSource>) -> Self {
        // Zones that have the same path in the same etcd share the reverse names below that path.
        let mut reverse_sources: Vec<EtcdSource> = Vec::new();
        for source in &sources {
            let is_known = reverse_sources
                .iter()
                .any(|known| known.path == source.path && known.access == source.access);
            if !is_known {
                reverse_sources.push(EtcdSource {
                    zone: reverse_domain(),
                    ..source.clone()
                });
            }
        }

        let mut followed = Vec::new();
        for source in sources {
            followed.push(FollowedZone::new(source.zone.clone(), vec![source]));
        }
        // The reverse names of all sources make one zone, because any of the etcd servers may have
        // the name of an address.
        if !reverse_sources.is_empty() {
            followed.push(FollowedZone::new(reverse_domain(), reverse_sources));
        }
        Self {
            followed,
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
        self.followed.iter().map(FollowedZone::current_zone)
    }

    /// Returns the zones whose watch has failed and has not opened since, with the reasons. The
    /// result stays up to date.
    pub fn lost(&self) -> LostZones {
        self.lost.clone()
    }

    /// Starts to watch the zones, and sends new content to `publish`.
    pub fn follow(
        self,
        tasks: &mut Tasks,
        metrics: &EtcdMetrics,
        publish: &mpsc::Sender<FurtherZone>,
        stop: &CancellationToken,
    ) {
        for zone in self.followed {
            let domain = zone.domain.clone();
            let contents = zone.contents.subscribe();
            tasks.lasting(
                "publishing a zone of etcd",
                publish_changes(domain, contents, publish.clone()),
            );

            for feed in zone.into_feeds(metrics, &self.lost) {
                tasks.lasting("following a zone of etcd", feed.run(stop.clone()));
            }
        }
    }
}

/// A zone and the sources of its records. Reverse names have one source per etcd and path.
struct FollowedZone {
    domain: Name,
    sources: Vec<EtcdSource>,
    /// The content from each source.
    contents: Arc<watch::Sender<Vec<ZoneRecords>>>,
}

impl FollowedZone {
    fn new(domain: Name, sources: Vec<EtcdSource>) -> Self {
        let unloaded = vec![ZoneRecords::default(); sources.len()];
        Self {
            domain,
            sources,
            contents: Arc::new(watch::Sender::new(unloaded)),
        }
    }

    fn current_zone(&self) -> FurtherZone {
        make_zone(&self.domain, &self.contents.borrow())
    }

    /// The feeds of all sources.
    fn into_feeds(self, metrics: &EtcdMetrics, lost: &LostZones) -> Vec<EtcdFeed<ContentSink>> {
        let metrics = metrics.for_feeds(&self.domain.to_string(), self.sources.len());
        let mut feeds = Vec::new();
        for (source, (from, metrics)) in self.sources.into_iter().zip(metrics).enumerate() {
            let EtcdSource { zone, path, access } = from;
            let keys = ZoneKeys::new(&path, &zone);
            let sink = ContentSink {
                contents: Arc::clone(&self.contents),
                source,
                lost: lost.clone(),
                keys: WatchedKeys {
                    domain: self.domain.clone(),
                    source,
                    path,
                },
            };

            feeds.push(EtcdFeed::new(access, keys, sink, metrics));
        }
        feeds
    }
}

/// Makes a zone from its content. The zone of reverse names answers only PTR queries for which the
/// configuration and the cluster have no record. If etcd has none either, the query is answered as
/// if this zone did not exist.
fn make_zone(domain: &Name, contents: &[ZoneRecords]) -> FurtherZone {
    let records = Arc::new(MergedRecords(contents.to_vec()));
    FurtherZone {
        skydns: true,
        pointers: *domain == reverse_domain(),
        ..FurtherZone::new(domain, records)
    }
}

/// The domain `arpa`, which contains all reverse names.
fn reverse_domain() -> Name {
    Name::parse("arpa").unwrap_or_default()
}

/// Publishes the newest content of a zone after changes, and skips content that has been replaced
/// meanwhile.
async fn publish_changes(
    domain: Name,
    mut contents: watch::Receiver<Vec<ZoneRecords>>,
    publish: mpsc::Sender<FurtherZone>,
) {
    while contents.changed().await.is_ok() {
        let zone = make_zone(&domain, &contents.borrow_and_update());
        if publish.send(zone).await.is_err() {
            return;
        }
    }
}

/// Stores the newest content and the failure of a feed.
struct ContentSink {
    contents: Arc<watch::Sender<Vec<ZoneRecords>>>,
    /// The index in `contents` of this feed's content.
    source: usize,
    lost: LostZones,
    keys: WatchedKeys,
}

impl EtcdSink for ContentSink {
    fn publish_tree(&self, tree: &MessageTree) {
        let records = ZoneRecords::from(tree.clone());
        self.contents.send_modify(|contents| {
            if let Some(content) = contents.get_mut(self.source) {
                *content = records;
            }
        });
    }

    fn report_connection(&self, failure: Option<String>) {
        self.lost.note_watch(&self.keys, failure);
    }
}

/// A zone, and the path of its keys in one etcd.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct WatchedKeys {
    domain: Name,
    /// The index of the source among the sources of the zone.
    source: usize,
    path: String,
}

/// The zones whose watch in etcd has failed and has not opened since, with the reasons. A clone
/// shares all state.
#[derive(Debug, Clone, Default)]
pub struct LostZones(Arc<Mutex<BTreeMap<WatchedKeys, String>>>);

impl LostZones {
    /// Returns the zones, each with the reason.
    pub fn zones(&self) -> Vec<LostZone> {
        let mut zones = Vec::new();
        for (WatchedKeys { domain, path, .. }, failure) in self.0.lock().iter() {
            zones.push(LostZone {
                domain: domain.clone(),
                reason: format!("the keys below {path} in etcd cannot be watched: {failure}"),
            });
        }
        zones
    }

    /// Notes that the watch of the keys is open, or why it is not.
    fn note_watch(&self, keys: &WatchedKeys, failure: Option<String>) {
        let mut lost = self.0.lock();
        match failure {
            Some(failure) => lost.insert(keys.clone(), failure),
            None => lost.remove(keys),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two etcds may have reverse names below the same path.
    #[test]
    fn success_of_one_etcd_keeps_failure_of_another() {
        let lost = LostZones::default();
        let keys = |source| WatchedKeys {
            domain: reverse_domain(),
            source,
            path: "/skydns".to_owned(),
        };
        for source in [0, 1] {
            lost.note_watch(&keys(source), Some(format!("failure {source}")));
        }
        lost.note_watch(&keys(1), None);

        let reasons: Vec<String> = lost.zones().into_iter().map(|zone| zone.reason).collect();
        assert_eq!(
            reasons,
            ["the keys below /skydns in etcd cannot be watched: failure 0"]
        );
    }
}
