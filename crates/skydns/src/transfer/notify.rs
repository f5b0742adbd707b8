//! Notifications of changed zones to secondaries (RFC 1996) over UDP. A notification is sent up to
//! five times, until the secondary responds.

mod notices;

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use tokio::net::UdpSocket;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::ZoneTransfers;
use super::content::ZoneContent;
use super::metrics::NotifyResult;
use super::tsig::TsigSession;
use crate::backend::View;
use crate::serial;
use notices::{DueNotice, NoticeResponse, PendingNotices};
use wire::{Header, Name, POINTER_TO_QUESTION, Question, class, flag, rcode, rtype};

/// The opcode NOTIFY, at its position in the flags of a header.
const NOTIFY: u16 = 4 << 11;
/// Maximum size of a response, in octets.
const MAX_RESPONSE: usize = 1232;

/// Notifies one secondary.
pub struct ZoneNotifier<V> {
    transfers: Arc<ZoneTransfers<V>>,
    target: SocketAddr,
    notices: PendingNotices,
    /// Opened for the first notification, and again after an error.
    socket: Option<UdpSocket>,
    /// Whether a missing response has been logged, and no response has arrived since then.
    is_silent: bool,
}

impl<V: View> ZoneTransfers<V> {
    /// Creates a notifier for each peer to notify.
    pub fn notifiers(self: &Arc<Self>) -> Vec<ZoneNotifier<V>> {
        let mut notifiers = Vec::new();
        for target in self.peers.targets() {
            notifiers.push(ZoneNotifier {
                transfers: Arc::clone(self),
                target: *target,
                notices: PendingNotices::default(),
                socket: None,
                is_silent: false,
            });
        }
        notifiers
    }
}

impl<V: View> ZoneNotifier<V> {
    /// Notifies the secondary of changes until `stop` is cancelled.
    pub async fn run(mut self, stop: CancellationToken) {
        tokio::select! {
            () = self.notify_changes() => {}
            () = stop.cancelled() => {}
        }
    }

    async fn notify_changes(&mut self) {
        let mut current = self.transfers.current.subscribe();
        let mut buffer = [0; MAX_RESPONSE];
        loop {
            let zones = Arc::clone(&current.borrow_and_update());
            self.notices.set_serials(&zones, Instant::now());
            for due in self.notices.take_due(Instant::now()) {
                match due {
                    DueNotice::Send { id, zone } => self.send_notice(id, &zone).await,
                    DueNotice::GivenUp { zone } => self.report_unanswered(&zone),
                }
            }

            tokio::select! {
                changed = current.changed() => if changed.is_err() { return },
                () = sleep_until_due(self.notices.next_due()) => {}
                received = receive_response(self.socket.as_ref(), &mut buffer) => match received {
                    Ok(length) => self.take_response(buffer.get(..length).unwrap_or_default()),
                    Err(error) => self.close_socket(&error),
                },
            }
        }
    }

    /// Sends the notification of a zone. A failure is treated like a lost datagram.
    async fn send_notice(&mut self, id: u16, zone: &Name) {
        let Some(message) = self.notice_message(id, zone) else {
            return;
        };

        let sent = match self.open_socket().await {
            Ok(socket) => socket.send(&message).await,
            Err(error) => Err(error),
        };
        if let Err(error) = sent {
            self.close_socket(&error);
        }
    }

    async fn open_socket(&mut self) -> io::Result<&UdpSocket> {
        let socket = match self.socket.take() {
            Some(socket) => socket,
            None => connect_socket(self.target).await?,
        };
        Ok(self.socket.insert(socket))
    }

    /// Closes the socket after a failure to send or receive. The next notification opens another
    /// socket.
    fn close_socket(&mut self, error: &io::Error) {
        tracing::debug!(secondary = %self.target, %error, "cannot send NOTIFY or get a response");
        self.socket = None;
    }

    /// Counts a notification without a response. After one such notification is logged, no other is
    /// logged until a response arrives.
    fn report_unanswered(&mut self, zone: &Name) {
        self.transfers
            .metrics
            .count_notify(NotifyResult::Unanswered);
        if !self.is_silent {
            self.is_silent = true;
            tracing::warn!(secondary = %self.target, %zone, "secondary did not respond to NOTIFY");
        }
    }

    fn take_response(&mut self, message: &[u8]) {
        let Ok(header) = Header::parse(message) else {
            return;
        };

        // Any datagram from the address of the secondary arrives here.
        if !header.is_response() || header.flags & flag::OPCODE != NOTIFY {
            return;
        }
        let Some(response) = self.notices.take_response(header.id, header.rcode()) else {
            return;
        };

        if std::mem::take(&mut self.is_silent) {
            tracing::info!(secondary = %self.target, "secondary responds to NOTIFY again");
        }
        self.report_response(&response, header.rcode());
    }

    fn report_response(&self, response: &NoticeResponse, rcode: u16) {
        let metrics = &self.transfers.metrics;
        let zone = &response.zone;
        if rcode == rcode::NOERROR {
            metrics.count_notify(NotifyResult::Acknowledged);
            tracing::debug!(secondary = %self.target, %zone, "NOTIFY acknowledged");
            return;
        }

        metrics.count_notify(NotifyResult::Refused);
        if response.is_first_error {
            tracing::warn!(secondary = %self.target, %zone, rcode, "secondary responded to NOTIFY with an error");
        }
    }

    /// The message for a zone, with the current SOA of the zone (RFC 1996, section 3.7); `None` if
    /// the zone is gone.
    fn notice_message(&self, id: u16, zone: &Name) -> Option<Vec<u8>> {
        let version = self.transfers.current_version(zone)?;
        let numbers = self.transfers.serials.soa_numbers(version.serial);
        let soa = ZoneContent::new(&*version.view, zone).soa_record(numbers);

        let header = Header {
            id,
            flags: NOTIFY | flag::AA,
            counts: [1, 1, 0, 0],
        };
        let question = Question {
            name: zone.wire(),
            qtype: rtype::SOA,
            qclass: class::IN,
        };
        let mut message = header.octets().to_vec();
        question.append(&mut message);
        message.extend_from_slice(&POINTER_TO_QUESTION);
        message.extend_from_slice(&soa.body);

        if let Some(key) = &self.transfers.key {
            TsigSession::of_request(key, id).sign_message(0, serial::now(), &mut message);
        }
        Some(message)
    }
}

async fn connect_socket(target: SocketAddr) -> io::Result<UdpSocket> {
    let any = if target.is_ipv4() {
        Ipv4Addr::UNSPECIFIED.into()
    } else {
        Ipv6Addr::UNSPECIFIED.into()
    };
    let socket = UdpSocket::bind(SocketAddr::new(any, 0)).await?;
    socket.connect(target).await?;
    Ok(socket)
}

/// Receives a datagram; waits for ever without a socket.
async fn receive_response(socket: Option<&UdpSocket>, buffer: &mut [u8]) -> io::Result<usize> {
    match socket {
        Some(socket) => socket.recv(buffer).await,
        None => std::future::pending().await,
    }
}

/// Sleeps until `due`; for ever if nothing is due.
async fn sleep_until_due(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}
