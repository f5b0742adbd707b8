//! Zone transfers: AXFR (RFC 5936), IXFR (RFC 1995) and NOTIFY (RFC 1996). With a key, queries are signed by TSIG
//! (RFC 8945).
//!
//! [`Transfers`] keeps the last versions of the records. A version is a view, from which the engine answers. A
//! transfer consists of the engine's own answers for each name of the view, so a secondary answers as this server
//! does. The difference of two versions covers the names whose records differ. Names that cannot be enumerated are
//! not transferred: docs/transfer.md lists them.
//!
//! Zone transfers are off unless there are peers.

mod content;
mod difference;
mod history;
mod key;
mod metrics;
mod notify;
mod peers;
mod request;
mod stream;
pub(crate) mod tsig;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use crate::backend::View;
use crate::backend::zones::{Authority, FurtherZone};
use crate::serial::{self, Serial};
use crate::shares::Shares;
use crate::wire::{Name, Query, Transport, rcode};
use content::Content;
use history::{History, Version};
pub use key::{Key, KeyError};
use metrics::Form;
pub use metrics::TransferMetrics;
pub use peers::{Peers, PeersError};
use request::{Rejection, Since};
pub use stream::Stream;
use tsig::{Refusal, ResponseSigner};

/// Maximum number of concurrent transfers. Each transfer holds a version and a message.
const MAX_TRANSFERS: usize = 128;
/// Maximum number of concurrent transfers of one host.
const MAX_OF_HOST: usize = 8;
/// Interval at which expired versions are dropped if nothing changes.
const TIDYING: Duration = Duration::from_mins(1);

/// Zone transfers, and the versions of the zones.
pub struct Transfers<V> {
    peers: Peers,
    key: Option<Arc<Key>>,
    serial: Arc<Serial>,
    history: Mutex<History<V>>,
    /// Serial of the last change of each zone.
    changes: watch::Sender<Arc<[Change]>>,
    places: Arc<Shares>,
    /// A permit for the one message that is being made.
    turn: Arc<Semaphore>,
    metrics: TransferMetrics,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Change {
    zone: Name,
    serial: u32,
}

impl<V: View> Transfers<V> {
    /// Creates transfers for `peers`. With `key`, queries must be signed. `serial` numbers the versions of the views.
    pub fn new(peers: Peers, key: Option<Key>, serial: Arc<Serial>, metrics: TransferMetrics) -> Arc<Self> {
        Arc::new(Self {
            peers,
            key: key.map(Arc::new),
            serial,
            history: Mutex::default(),
            changes: watch::Sender::new(Arc::new([])),
            places: Shares::new(MAX_TRANSFERS, MAX_OF_HOST),
            turn: Arc::new(Semaphore::new(1)),
            metrics,
        })
    }

    /// The serial to set in the [`Zone`](crate::Zone) of every view.
    pub fn serial(&self) -> Arc<Serial> {
        Arc::clone(&self.serial)
    }

    /// Makes `view` the current version, if a zone may differ from the last version. Returns whether a zone may
    /// differ.
    ///
    /// `now` is the time in seconds since 1970. The function does not wait for the next second;
    /// [`follow`](Self::follow) does.
    pub fn take(&self, view: &Arc<V>, now: u64) -> bool {
        let changed: Vec<Name> = match self.version() {
            None => zones(&**view).cloned().collect(),
            Some(last) => {
                zones(&**view).filter(|zone| differs(&*last.view, &**view, zone)).cloned().collect()
            }
        };
        if changed.is_empty() {
            return false;
        }
        let serial = self.serial.next(now);
        self.history.lock().push(Version::new(serial, Arc::clone(view)), Instant::now());
        self.metrics.serial.set(serial.into());
        self.changes.send_modify(|changes| {
            let unchanged = changes.iter().filter(|change| !changed.contains(&change.zone)).cloned();
            let changed = changed.iter().map(|zone| Change { zone: zone.clone(), serial });
            *changes = unchanged.chain(changed).collect();
        });
        true
    }

    /// Takes a version of `current` after each change in `changes`, until `stop` is cancelled. At most one version is
    /// taken each second.
    pub async fn follow(
        self: Arc<Self>,
        mut changes: watch::Receiver<()>,
        current: impl Fn() -> Arc<V>,
        stop: CancellationToken,
    ) where
        V: 'static,
    {
        // A view that was published earlier also counts as a change.
        changes.mark_changed();
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                told = changes.changed() => if told.is_err() { return },
                () = tokio::time::sleep(TIDYING) => {
                    self.history.lock().forget(Instant::now());
                    continue;
                }
            }
            if !self.serial.is_past(serial::now()) {
                tokio::time::sleep(serial::to_next_second()).await;
            }
            changes.borrow_and_update();
            let (this, view) = (Arc::clone(&self), current());
            if view.has_synced() {
                let taken = tokio::task::spawn_blocking(move || this.take(&view, serial::now())).await;
                if taken.is_ok_and(|taken| taken) {
                    tracing::debug!(serial = self.serial.get(), "zone version published");
                }
            }
        }
    }

    /// Checks the signature of a query that is not a transfer query. The result signs the response; it is `None` if the
    /// query is not signed.
    pub(crate) fn response_signer(&self, query: &Query<'_>) -> Result<Option<ResponseSigner>, Refusal> {
        let session = tsig::check(query.message, query.question_end(), self.key.as_ref(), serial::now())?;
        Ok(session.map(|session| ResponseSigner::new(session, query)))
    }

    fn version(&self) -> Option<Arc<Version<V>>> {
        self.history.lock().current().cloned()
    }

    /// The version that a client claims to have, if this process made the version and still keeps it.
    fn version_of(&self, since: Since) -> Option<Arc<Version<V>>> {
        let [.., expire] = self.serial.numbers(since.serial);
        let ours = since.expire == 0 || since.expire == expire;
        self.history.lock().find(since.serial).filter(|_| ours).cloned()
    }

    /// Answers a transfer query over UDP with only the SOA record. From the serial the client knows whether to retry
    /// over TCP (RFC 1995, section 2).
    pub(crate) fn answer_over_udp(&self, message: &[u8], client: IpAddr, out: &mut Vec<u8>) -> Option<u16> {
        let (rcode, response, form, result) = match self.accept(message, client, Transport::Udp)? {
            Ok(mut request) => {
                let version = self.version()?;
                let content = Content::new(&*version.view, &request.zone);
                let soa = content.soa(self.serial.numbers(version.serial));
                (rcode::NOERROR, request.soa_alone(soa), Form::Soa, "completed")
            }
            Err(Rejection { rcode, response }) => (rcode, response, Form::Error, "refused"),
        };
        self.metrics.transfer(form, result).inc();
        out.extend_from_slice(&response);
        Some(rcode)
    }
}

/// The zones of a view that can be transferred. Zones of [pointers](crate::FurtherZone::pointers) are incomplete and
/// cannot be transferred.
fn zones<V: View>(view: &V) -> impl Iterator<Item = &Name> {
    let zone = view.zone();
    let is_whole = |zone: &&FurtherZone| !zone.pointers && zone.records.is_enumerable();
    let further = view.zones().iter().filter(is_whole).map(|zone| &zone.domain);
    std::iter::once(&zone.domain).chain(zone.other_domains.iter()).chain(further)
}

/// The zone with exactly this name, if it can be transferred.
fn authority<'v, V: View>(view: &'v V, zone: &Name) -> Option<Authority<'v>> {
    let authority = Authority::of(view, zone.wire())?;
    (authority.domain == zone && authority.records.is_enumerable()).then_some(authority)
}

/// Whether the records of a zone may differ between two views.
fn differs<V: View>(older: &V, newer: &V, zone: &Name) -> bool {
    let (Some(ours), Some(theirs)) = (authority(newer, zone), authority(older, zone)) else { return true };
    match (ours.further, theirs.further) {
        (Some(ours), Some(theirs)) => {
            let same_ttls = (ours.ttl, ours.negative_ttl) == (theirs.ttl, theirs.negative_ttl);
            let same = same_ttls && Arc::ptr_eq(&ours.records, &theirs.records);
            !(same && newer.zone().delegates_like(older.zone()))
        }
        (None, None) => {
            let mut differs = false;
            newer.names_changed_since(older, &mut |_| differs = true);
            differs
        }
        _ => true,
    }
}
