//! Notifications of changed zones to secondaries (RFC 1996) over UDP. A notification is repeated until the secondary
//! acknowledges it.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UdpSocket;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use super::content::Content;
use super::tsig::Session;
use super::{Change, Transfers};
use crate::backend::View;
use crate::serial;
use crate::wire::{Header, Name, POINTER_TO_QUESTION, Question, class, flag, rtype};

/// The opcode NOTIFY, at its position in the flags of a header.
const NOTIFY: u16 = 4 << 11;
/// Time to wait for the acknowledgements in each attempt, in seconds.
const WAITS: [u64; 5] = [1, 2, 4, 8, 16];
/// Maximum size of an acknowledgement, in octets.
const MAX_RESPONSE: usize = 1232;

/// Notifies one secondary.
pub struct Notifier<V> {
    transfers: Arc<Transfers<V>>,
    target: SocketAddr,
    /// Last serial of each zone that the secondary acknowledged. The map holds only configured zones, so it is
    /// bounded.
    known: HashMap<Name, u32>,
    /// Time of the last round, in seconds since 1970. There is at most one round a second, because there is at most
    /// one version a second.
    last: u64,
}

impl<V: View> Transfers<V> {
    /// Creates a notifier for each peer to notify.
    pub fn notifiers(self: &Arc<Self>) -> Vec<Notifier<V>> {
        let notifier = |target: &SocketAddr| Notifier {
            transfers: Arc::clone(self),
            target: *target,
            known: HashMap::new(),
            last: 0,
        };
        self.peers.targets().iter().map(notifier).collect()
    }
}

impl<V: View> Notifier<V> {
    /// Notifies the secondary of every change until `stop` is cancelled.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut changes = self.transfers.changes.subscribe();
        let working = async {
            while changes.changed().await.is_ok() {
                let result = if self.notify(&mut changes).await { "acknowledged" } else { "unanswered" };
                self.transfers.metrics.notify(result).inc();
                if result == "unanswered" {
                    tracing::warn!(secondary = %self.target, "NOTIFY was not acknowledged");
                }
            }
        };
        tokio::select! {
            () = working => {}
            () = stop.cancelled() => {}
        }
    }

    /// Sends notifications until the secondary acknowledges all, or all attempts have failed. Another change restarts
    /// the attempts. Returns whether all notifications were acknowledged.
    async fn notify(&mut self, changes: &mut watch::Receiver<Arc<[Change]>>) -> bool {
        let mut attempts = WAITS.into_iter();
        while let Some(wait) = attempts.next() {
            if serial::now() <= self.last {
                tokio::time::sleep(serial::to_next_second()).await;
            }
            let pending = self.pending(&changes.borrow_and_update());
            if pending.is_empty() {
                return true;
            }
            self.last = serial::now();
            let round = self.round(pending, Instant::now() + Duration::from_secs(wait));
            tokio::select! {
                acknowledged = round => if acknowledged && !changes.has_changed().unwrap_or(false) {
                    return true;
                },
                () = changed(changes) => attempts = WAITS.into_iter(),
            }
        }
        false
    }

    /// The changes that the secondary has not acknowledged.
    fn pending(&self, changes: &[Change]) -> Vec<Change> {
        changes
            .iter()
            .filter(|change| self.known.get(&change.zone) != Some(&change.serial))
            .cloned()
            .collect()
    }

    /// Sends a message for each zone and receives acknowledgements until `deadline`. Returns true if the secondary
    /// acknowledged all.
    async fn round(&mut self, pending: Vec<Change>, deadline: Instant) -> bool {
        let result = self.exchange(pending, deadline).await;
        if let Err(error) = &result {
            tracing::debug!(secondary = %self.target, %error, "cannot send NOTIFY");
            sleep_until(deadline).await;
        }
        result.unwrap_or(false)
    }

    async fn exchange(&mut self, pending: Vec<Change>, deadline: Instant) -> io::Result<bool> {
        let any =
            if self.target.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let socket = UdpSocket::bind(SocketAddr::new(any, 0)).await?;
        socket.connect(self.target).await?;
        let mut waiting = HashMap::new();
        for change in pending {
            let id = rand::random();
            let Some(message) = self.message(id, &change.zone) else { continue };
            socket.send(&message).await?;
            waiting.insert(id, change);
        }
        let mut buffer = [0; MAX_RESPONSE];
        while !waiting.is_empty() {
            let Ok(received) = timeout_at(deadline, socket.recv(&mut buffer)).await else { return Ok(false) };
            let Ok(header) = Header::parse(buffer.get(..received?).unwrap_or_default()) else { continue };
            if header.is_response()
                && header.flags & flag::OPCODE == NOTIFY
                && let Some(Change { zone, serial }) = waiting.remove(&header.id)
            {
                tracing::debug!(secondary = %self.target, %zone, rcode = header.rcode(), "NOTIFY acknowledged");
                self.known.insert(zone, serial);
            }
        }
        Ok(true)
    }

    /// The message for a zone, with the current SOA of the zone (RFC 1996, section 3.7); `None` before the first
    /// version.
    fn message(&self, id: u16, zone: &Name) -> Option<Vec<u8>> {
        let version = self.transfers.version()?;
        let soa = Content::new(&*version.view, zone).soa(self.transfers.serial.numbers(version.serial));
        let mut message = Header { id, flags: NOTIFY | flag::AA, counts: [1, 1, 0, 0] }.octets().to_vec();
        Question { name: zone.wire(), qtype: rtype::SOA, qclass: class::IN }.append(&mut message);
        message.extend_from_slice(&POINTER_TO_QUESTION);
        message.extend_from_slice(&soa.body);
        if let Some(key) = &self.transfers.key {
            Session::of_request(key, id).sign(0, serial::now(), &mut message);
        }
        Some(message)
    }
}

/// Waits for a change without marking the change as seen in `changes`.
async fn changed(changes: &watch::Receiver<Arc<[Change]>>) {
    let mut changes = changes.clone();
    if changes.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}
