//! Zone transfers: AXFR (RFC 5936), IXFR (RFC 1995) and NOTIFY (RFC 1996). With a key, transfer
//! queries must be signed with TSIG (RFC 8945).
//!
//! Transfers are based on an enumeration of a zone's records in a [`View`]. A view is the data that
//! answers are made from, at one point in time. [`names`] visits the owner names, and [`content`]
//! gets the records of each name from the engine. AXFR writes the enumeration. If the enumeration
//! in a new view differs from the last version of the zone ([`difference`]), the zone gets a new
//! version. IXFR writes the differences since the client's version. The property test
//! `transfer_agreement` of the crate `cluster` compares transfers with the answers of the engine.
//! docs/transfer.md lists the names that cannot be enumerated.
//!
//! Zone transfers are off unless `--transfer-to` names peers.

mod completeness;
mod content;
mod difference;
mod history;
mod key;
mod metrics;
mod names;
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
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::backend::View;
use crate::backend::zones::{Authority, FurtherZone};
use crate::client_shares::ClientShares;
use crate::serial::{self, ZoneSerials};
use completeness::is_complete;
use content::ZoneContent;
use difference::{ZoneChange, ZoneDifference};
use history::{TransferHistory, ZoneVersion};
pub use key::{ParseTsigKeyError, TsigKey};
pub use metrics::TransferMetrics;
use metrics::{ResponseForm, TransferResult};
pub use peers::{ParsePeersError, TransferPeers};
use request::TransferRejection;
pub use stream::TransferStream;
pub(crate) use tsig::ResponseSigner;
use tsig::TsigRefusal;
use wire::{Name, Query, Transport, rcode};

/// Maximum number of concurrent transfers. Each transfer keeps a version of a zone and one
/// message in memory.
const MAX_TRANSFERS: usize = 128;
/// Maximum number of concurrent transfers to one host.
const MAX_OF_HOST: usize = 8;
/// Interval at which the history drops expired differences.
const EXPIRY_INTERVAL: Duration = Duration::from_mins(1);

/// Zone transfers, and the versions of the zones.
pub struct ZoneTransfers<V> {
    peers: TransferPeers,
    key: Option<Arc<TsigKey>>,
    serials: Arc<ZoneSerials>,
    history: Mutex<TransferHistory<V>>,
    /// The zones that can be transferred but are not complete yet. `None` before the first view.
    incomplete: Mutex<Option<Vec<Name>>>,
    /// The current serial of each zone.
    current: watch::Sender<Arc<[ZoneSerial]>>,
    places: Arc<ClientShares>,
    /// Transfers take turns: only the holder of the single permit makes a message.
    turn: Arc<Semaphore>,
    metrics: TransferMetrics,
}

/// The current serial of a zone.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ZoneSerial {
    zone: Name,
    serial: u32,
}

impl<V: View> ZoneTransfers<V> {
    /// Creates transfers for `peers`. With `key`, transfer queries must be signed. The versions of
    /// the zones get their serials from `serials`.
    pub fn new(
        peers: TransferPeers,
        key: Option<TsigKey>,
        serials: Arc<ZoneSerials>,
        metrics: TransferMetrics,
    ) -> Arc<Self> {
        Arc::new(Self {
            peers,
            key: key.map(Arc::new),
            serials,
            history: Mutex::default(),
            incomplete: Mutex::default(),
            current: watch::Sender::new(Arc::new([])),
            places: ClientShares::new(MAX_TRANSFERS, MAX_OF_HOST),
            turn: Arc::new(Semaphore::new(1)),
            metrics,
        })
    }

    /// The serials for the field [`Zone::serials`](crate::Zone::serials) of every view.
    pub fn serials(&self) -> Arc<ZoneSerials> {
        Arc::clone(&self.serials)
    }

    /// Makes a new version of each [complete](is_complete) zone that has no version yet, or whose
    /// records in `view` differ from its last version. Returns whether any zone has a new version.
    ///
    /// `now` is the time in seconds since 1970. The serial of a version is a time in seconds, so a
    /// zone has at most one new version each second. Before another call, the caller must wait for
    /// the next second, as [`follow_changes`](Self::follow_changes) does.
    pub fn update_versions(&self, view: &Arc<V>, now: u64) -> bool {
        let zones: Vec<Name> = transferable_zones(&**view).cloned().collect();
        // The versions of zones that no longer exist would keep their views in memory.
        for zone in self.history.lock().retain_zones(&zones) {
            self.metrics.remove_serial(&zone);
        }
        let (complete, incomplete): (Vec<Name>, Vec<Name>) = zones
            .into_iter()
            .partition(|zone| is_complete(&**view, zone));

        let mut is_new = false;
        for zone in &complete {
            is_new |= self.update_version(zone, view, now);
        }

        *self.incomplete.lock() = Some(incomplete);
        if is_new {
            self.publish_serials();
        }
        is_new
    }

    /// Makes the first version of a zone, or a new version if the records have changed. Returns
    /// whether there is a new version.
    fn update_version(&self, zone: &Name, view: &Arc<V>, now: u64) -> bool {
        let last = self.current_version(zone);
        let change = match &last {
            Some(last) => ZoneChange::between(&*last.view, &**view, zone),
            None => ZoneChange::Whole,
        };
        let difference: Option<ZoneDifference> = match change {
            ZoneChange::Nothing => {
                self.history.lock().replace_view(zone, view);
                return false;
            }
            ZoneChange::Records(difference) => Some(difference),
            ZoneChange::Whole => None,
        };

        if !has_name_server_address(&**view, zone)
            && last.is_none_or(|last| has_name_server_address(&*last.view, zone))
        {
            tracing::warn!(%zone, "name server of the zone has no address, so secondaries reject the zone");
        }

        let serial = self.serials.next_serial(zone, now);
        let version = ZoneVersion::new(serial, Arc::clone(view));
        self.history
            .lock()
            .push_version(zone, version, difference, Instant::now());

        // The serial is set last, because a secondary that sees the serial must get this version.
        self.serials.set_serial(zone, serial);
        self.metrics.set_serial(zone, serial);
        true
    }

    /// Publishes the serial of each zone that has a version. The tasks that send NOTIFY watch these
    /// serials.
    fn publish_serials(&self) {
        let current = self.history.lock().serials();
        self.current.send_replace(current.into());
    }

    /// After each signal of `changes`, makes new versions of the zones from the view that `current`
    /// returns, until `stop` is cancelled. A zone has at most one new version each second.
    pub async fn follow_changes(
        self: Arc<Self>,
        mut changes: watch::Receiver<()>,
        current: impl Fn() -> Arc<V>,
        stop: CancellationToken,
    ) where
        V: 'static,
    {
        // A view that was published earlier is treated as a change, too.
        changes.mark_changed();
        let mut expiry = tokio::time::interval(EXPIRY_INTERVAL);
        expiry.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                signal = changes.changed() => if signal.is_err() { return },
                _ = expiry.tick() => {
                    self.history.lock().drop_expired(Instant::now());
                    continue;
                }
            }

            // A serial is a time in seconds, so another version has to wait for the next second.
            if !self.serials.are_before(serial::now()) {
                tokio::time::sleep(serial::to_next_second()).await;
            }
            changes.borrow_and_update();

            let this = Arc::clone(&self);
            let view = current();
            // All records of a zone may have to be compared, and this takes a long time.
            let updated =
                tokio::task::spawn_blocking(move || this.update_versions(&view, serial::now()))
                    .await;
            if updated.is_ok_and(|is_new| is_new) {
                tracing::debug!("zone versions published");
            }
        }
    }

    /// Checks the signature of a query. The result signs the response; it is `None` if the query is
    /// not signed.
    pub(crate) fn response_signer(
        &self,
        query: &Query<'_>,
    ) -> Result<Option<ResponseSigner>, TsigRefusal> {
        let session = tsig::check_signature(
            query.message,
            query.question_end(),
            self.key.as_ref(),
            serial::now(),
        )?;
        Ok(session.map(|session| ResponseSigner::new(session, query)))
    }

    fn current_version(&self, zone: &Name) -> Option<Arc<ZoneVersion<V>>> {
        self.history.lock().current(zone).cloned()
    }

    /// Whether `incomplete` contains the zone. Before the first view, true for all names.
    fn is_incomplete(&self, zone: &Name) -> bool {
        self.incomplete
            .lock()
            .as_ref()
            .is_none_or(|incomplete| incomplete.contains(zone))
    }

    /// Counts a transfer query that was refused before a transfer began.
    pub(crate) fn count_refusal(&self) {
        self.metrics
            .count_transfer(ResponseForm::Error, TransferResult::Refused);
    }

    /// Answers a transfer query over UDP with only the SOA record, or with an error. The serial
    /// shows the client whether to retry over TCP (RFC 1995, section 2). Returns the RCODE; `None`
    /// if the message is not a query.
    pub(crate) fn answer_over_udp(
        &self,
        message: &[u8],
        client: IpAddr,
        out: &mut Vec<u8>,
    ) -> Option<u16> {
        match self.accept_query(message, client, Transport::Udp)? {
            Ok(mut accepted) => {
                let content = ZoneContent::new(&*accepted.version.view, &accepted.request.zone);
                let numbers = self.serials.soa_numbers(accepted.version.serial);
                let soa = content.soa_record(numbers);

                self.metrics
                    .count_transfer(ResponseForm::Soa, TransferResult::Completed);
                out.extend_from_slice(&accepted.request.soa_response(soa));
                Some(rcode::NOERROR)
            }
            Err(TransferRejection { rcode, response }) => {
                self.count_refusal();
                out.extend_from_slice(&response);
                Some(rcode)
            }
        }
    }
}

/// Whether the name server of `zone` has an address in `view`.
fn has_name_server_address<V: View>(view: &V, zone: &Name) -> bool {
    ZoneContent::new(view, zone).has_name_server_address()
}

/// The zones of a view that can be transferred. Zones that hold only [PTR
/// records](crate::FurtherZone::pointers) are not authoritative for their domains and cannot be
/// transferred. A domain is left out, too, if its records cannot be enumerated, or if another zone
/// or a stub domain answers queries for the domain's own name.
fn transferable_zones<V: View>(view: &V) -> impl Iterator<Item = &Name> {
    let zone = view.zone();
    let further = view
        .zones()
        .iter()
        .filter(|zone: &&FurtherZone| !zone.pointers)
        .map(|zone| &zone.domain);

    // Without a cluster, `zone.domain` is no cluster domain, and is transferred only if a further
    // zone has this domain.
    let cluster = std::iter::once(&zone.domain)
        .chain(zone.other_domains.iter())
        .filter(|domain| view.cluster_domain_of(domain.wire()).is_some());
    cluster
        .chain(further)
        .filter(|domain| transferable_authority(view, domain).is_some())
}

/// Whether a name (wire format, lower case) is in zone `domain`, and not in another zone or a stub
/// domain below it.
fn holds_name<V: View>(view: &V, domain: &Name, name: &[u8]) -> bool {
    Authority::of(view, name).is_some_and(|holder| holder.domain == domain)
}

/// The zone with exactly this name, if it can be transferred.
fn transferable_authority<'v, V: View>(view: &'v V, zone: &Name) -> Option<Authority<'v>> {
    let authority = Authority::of(view, zone.wire())?;
    (authority.domain == zone && authority.records.is_enumerable()).then_some(authority)
}
