//! Notifications of changed zones to secondaries (RFC 1996) over UDP. A notification is repeated
//! until the secondary responds.

mod notices;

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use tokio::net::UdpSocket;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::ZoneTransfers;
use super::content::ZoneContent;
use super::tsig::TsigSession;
use crate::backend::View;
use crate::serial;
use notices::{DueNotice, PendingNotices};
use wire::{Header, Name, POINTER_TO_QUESTION, Question, class, flag, rcode, rtype};

/// The opcode NOTIFY, at its position in the flags of a header.
const NOTIFY: u16 = 4 << 11;
/// Maximum size of a response, in octets.
const MAX_RESPONSE: usize = 1232;

/// Notifies one secondary.
pub struct Notifier<V> {
    transfers: Arc<ZoneTransfers<V>>,
    target: SocketAddr,
    notices: PendingNotices,
    /// Opened for the first notification, and again after an error.
    socket: Option<UdpSocket>,
    /// Whether the last notification without a response was logged, and no response has come since.
    is_silent: bool,
}

impl<V: View> ZoneTransfers<V> {
    /// Creates a notifier for each peer to notify.
    pub fn notifiers(self: &Arc<Self>) -> Vec<Notifier<V>> {
        let notifier = |target: &SocketAddr| Notifier {
            transfers: Arc::clone(self),
            target: *target,
            notices: PendingNotices::default(),
            socket: None,
            is_silent: false,
        };
        self.peers.targets().iter().map(notifier).collect()
    }
}

impl<V: View> Notifier<V> {
    /// Notifies the secondary of every change until `stop` is cancelled.
    pub async fn run(mut self, stop: CancellationToken) {
        tokio::select! {
            () = self.notify() => {}
            () = stop.cancelled() => {}
        }
    }

    async fn notify(&mut self) {
        let mut current = self.transfers.current.subscribe();
        let mut buffer = [0; MAX_RESPONSE];
        loop {
            let zones = Arc::clone(&current.borrow_and_update());
            self.notices.update(&zones, Instant::now());
            for due in self.notices.take_due(Instant::now()) {
                match due {
                    DueNotice::Send { id, zone } => self.send(id, &zone).await,
                    DueNotice::GivenUp { zone } => self.give_up(&zone),
                }
            }

            tokio::select! {
                changed = current.changed() => if changed.is_err() { return },
                () = sleep_until_due(self.notices.next_due()) => {}
                received = receive(self.socket.as_ref(), &mut buffer) => match received {
                    Ok(length) => self.take_response(buffer.get(..length).unwrap_or_default()),
                    Err(error) => self.close(&error),
                },
            }
        }
    }

    /// Sends the notification of a zone. A failure is like a lost datagram.
    async fn send(&mut self, id: u16, zone: &Name) {
        let Some(message) = self.message(id, zone) else {
            return;
        };
        let sent = match self.open_socket().await {
            Ok(socket) => socket.send(&message).await,
            Err(error) => Err(error),
        };
        if let Err(error) = sent {
            self.close(&error);
        }
    }

    async fn open_socket(&mut self) -> io::Result<&UdpSocket> {
        let socket = match self.socket.take() {
            Some(socket) => socket,
            None => connect(self.target).await?,
        };
        Ok(self.socket.insert(socket))
    }

    fn close(&mut self, error: &io::Error) {
        tracing::debug!(secondary = %self.target, %error, "cannot send NOTIFY");
        self.socket = None;
    }

    fn give_up(&mut self, zone: &Name) {
        self.transfers.metrics.notify("unanswered").inc();
        if !self.is_silent {
            self.is_silent = true;
            tracing::warn!(secondary = %self.target, %zone, "NOTIFY was not acknowledged");
        }
    }

    fn take_response(&mut self, message: &[u8]) {
        let Ok(header) = Header::parse(message) else {
            return;
        };
        if !header.is_response() || header.flags & flag::OPCODE != NOTIFY {
            return;
        }
        let Some(response) = self.notices.take_response(header.id, header.rcode()) else {
            return;
        };

        if std::mem::take(&mut self.is_silent) {
            tracing::info!(secondary = %self.target, "secondary responds to NOTIFY again");
        }
        let zone = &response.zone;
        if header.rcode() == rcode::NOERROR {
            self.transfers.metrics.notify("acknowledged").inc();
            tracing::debug!(secondary = %self.target, %zone, "NOTIFY acknowledged");
        } else {
            self.transfers.metrics.notify("refused").inc();
            if response.is_first_error {
                let rcode = header.rcode();
                tracing::warn!(secondary = %self.target, %zone, rcode, "NOTIFY was refused");
            }
        }
    }

    /// The message for a zone, with the current SOA of the zone (RFC 1996, section 3.7); `None` if
    /// the zone is gone.
    fn message(&self, id: u16, zone: &Name) -> Option<Vec<u8>> {
        let version = self.transfers.version(zone)?;
        let numbers = self.transfers.serials.soa_numbers(version.serial);
        let soa = ZoneContent::new(&*version.view, zone).soa(numbers);
        let mut message = Header {
            id,
            flags: NOTIFY | flag::AA,
            counts: [1, 1, 0, 0],
        }
        .octets()
        .to_vec();
        Question {
            name: zone.wire(),
            qtype: rtype::SOA,
            qclass: class::IN,
        }
        .append(&mut message);
        message.extend_from_slice(&POINTER_TO_QUESTION);
        message.extend_from_slice(&soa.body);
        if let Some(key) = &self.transfers.key {
            TsigSession::of_request(key, id).sign(0, serial::now(), &mut message);
        }
        Some(message)
    }
}

async fn connect(target: SocketAddr) -> io::Result<UdpSocket> {
    let any = if target.is_ipv4() {
        Ipv4Addr::UNSPECIFIED.into()
    } else {
        Ipv6Addr::UNSPECIFIED.into()
    };
    let socket = UdpSocket::bind(SocketAddr::new(any, 0)).await?;
    socket.connect(target).await?;
    Ok(socket)
}

async fn receive(socket: Option<&UdpSocket>, buffer: &mut [u8]) -> io::Result<usize> {
    match socket {
        Some(socket) => socket.recv(buffer).await,
        None => std::future::pending().await,
    }
}

async fn sleep_until_due(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}
