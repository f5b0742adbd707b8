//! One question to one upstream.

mod judge;
mod stream;
mod tcp;
mod udp;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use dnsconfig::{Protocol, Upstream};
use nix::errno::Errno;
use tokio::time::{Instant, timeout_at};

use super::health::Health;
use super::metrics::UpstreamMetrics;
use super::pool::Pool;
use super::{Limits, Query, Reply};
use crate::wire::{Transport, rcode};

pub use judge::{Verdict, judge};

/// Why an upstream gave no usable reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// Nothing usable came in time.
    #[error("no reply in time")]
    Timeout,
    /// Nobody listens at its address and port.
    #[error("connection refused")]
    Refused,
    /// The network cannot get there, or broke.
    #[error("unreachable")]
    Unreachable,
    /// It sent what is no DNS message.
    #[error("reply is not a DNS message")]
    Garbage,
    /// So many datagrams came with a wrong ID or question that somebody seems to be guessing.
    #[error("too many replies to other questions")]
    Flooded,
    /// It closed the connection before the reply was complete.
    #[error("connection closed early")]
    Closed,
    /// The TLS certificate is not one that is trusted for it.
    #[error("TLS certificate not trusted")]
    Certificate,
    /// TLS failed for another reason.
    #[error("TLS handshake failed")]
    Handshake,
    /// This machine has no socket left to ask with, or no port for one.
    #[error("no socket left")]
    NoSocket,
}

impl Failure {
    /// The cause in metric labels.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Refused => "refused",
            Self::Unreachable => "unreachable",
            Self::Garbage => "garbage",
            Self::Flooded => "flooded",
            Self::Closed => "closed",
            Self::Certificate => "certificate",
            Self::Handshake => "handshake",
            Self::NoSocket => "no_socket",
        }
    }

    /// Does the failure of a probe say that the upstream is dead? One that sends garbage is alive.
    pub(super) fn means_dead(self) -> bool {
        matches!(self, Self::Timeout | Self::Refused | Self::Unreachable | Self::Closed)
    }

    /// Fault behind an error of connecting over TCP. What this machine lacks is not the upstream's fault.
    pub(super) fn from_connecting(error: &io::Error) -> Self {
        match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::EMFILE | Errno::ENFILE | Errno::ENOBUFS | Errno::ENOMEM | Errno::EADDRNOTAVAIL) => {
                Self::NoSocket
            }
            _ => Self::from_talking(error),
        }
    }

    /// Fault behind an error while talking to the upstream.
    pub(super) fn from_talking(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Self::Refused,
            io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::UnexpectedEof => Self::Closed,
            io::ErrorKind::TimedOut => Self::Timeout,
            _ => Self::Unreachable,
        }
    }
}

/// So long before the deadline a reply that will do is handed on, if no better one has come.
const MARGIN: Duration = Duration::from_millis(10);

/// One question on its way to one upstream.
#[derive(Clone, Copy)]
pub(super) struct Exchange<'a> {
    pub(super) query: &'a Query,
    pub(super) upstream: &'a Upstream,
    /// When the caller gives up waiting.
    pub(super) deadline: Instant,
    pub(super) limits: &'a Limits,
    pub(super) health: &'a Health,
    pub(super) pool: &'a Pool,
    pub(super) metrics: &'a Arc<UpstreamMetrics>,
}

impl Exchange<'_> {
    /// Asks until there is a usable reply or none is to be had. Takes as long as it takes, unless there is a reply that
    /// will do: without one, the caller sets the bound.
    pub(super) async fn run(self) -> Result<Reply, Failure> {
        let asked = Instant::now();
        self.metrics.request(self.query.transport);
        let mut reply = self.ask_once().await?;
        if reply.rcode == rcode::SERVFAIL {
            self.metrics.servfail();
            reply = self.ask_again(reply).await?;
        }
        self.metrics.replied(asked.elapsed());
        Ok(reply)
    }

    /// SERVFAIL is not taken at the first word: the reference asks once more, and so do we. If that stays without an
    /// answer, the first one counts.
    async fn ask_again(self, servfail: Reply) -> Result<Reply, Failure> {
        let second = timeout_at(self.last_moment(), self.ask_once()).await;
        second.unwrap_or_else(|_| {
            self.metrics.failure(Failure::Timeout);
            Ok(servfail)
        })
    }

    /// When a reply that is there has to be handed on.
    fn last_moment(self) -> Instant {
        self.deadline.checked_sub(MARGIN).unwrap_or(self.deadline)
    }

    /// Takes the first usable reply for what it is. Counts nothing: this is for questions of our own.
    pub(super) async fn run_once(self) -> Result<Reply, Failure> {
        match self.upstream.protocol {
            Protocol::Udp => udp::ask(self).await,
            Protocol::Tcp | Protocol::Tls => stream::ask(self).await,
        }
    }

    async fn ask_once(self) -> Result<Reply, Failure> {
        match self.upstream.protocol {
            Protocol::Udp => self.ask_plainly().await,
            Protocol::Tcp | Protocol::Tls => stream::ask(self).await,
        }
    }

    /// Asks over UDP, and over TCP where that is too small or somebody guesses IDs: that does not work over TCP.
    // Differs from kube-dns: it asks over the client's transport.
    async fn ask_plainly(self) -> Result<Reply, Failure> {
        let over_udp = udp::ask(self).await;
        let retry = match &over_udp {
            Ok(reply) => reply.truncated,
            Err(failure) => *failure == Failure::Flooded,
        };
        // Who asked over TCP cannot be told to come back over TCP.
        let will_do = self.query.transport == Transport::Udp;
        if !retry || will_do && self.health.was_silent_over_tcp(self.upstream, Instant::now()) {
            return over_udp;
        }
        let over_tcp = self.retry_over_tcp().await;
        if will_do { over_tcp.or(over_udp) } else { over_tcp }
    }

    /// Asks the same over TCP, for as long as there is time.
    async fn retry_over_tcp(self) -> Result<Reply, Failure> {
        let asked = Instant::now();
        self.metrics.tcp_retry();
        let until = (asked + self.limits.tcp_retry).min(self.last_moment());
        let result = timeout_at(until, tcp::ask(self)).await.unwrap_or(Err(Failure::Timeout));
        if let Err(failure) = &result {
            self.metrics.failure(*failure);
        }
        // A reply that came late left it little time.
        let now = Instant::now();
        let silent = matches!(result, Err(Failure::Timeout));
        if !silent || (now - asked) * 2 >= self.limits.tcp_retry {
            self.health.over_tcp(self.upstream, now, silent);
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_this_machine_lacks_is_not_the_upstreams_fault() {
        for (errno, failure) in [
            (Errno::EMFILE, Failure::NoSocket),
            (Errno::ENFILE, Failure::NoSocket),
            (Errno::ENOBUFS, Failure::NoSocket),
            (Errno::EADDRNOTAVAIL, Failure::NoSocket),
            (Errno::ECONNREFUSED, Failure::Refused),
            (Errno::ENETUNREACH, Failure::Unreachable),
            (Errno::EHOSTUNREACH, Failure::Unreachable),
            (Errno::ETIMEDOUT, Failure::Timeout),
        ] {
            let told = Failure::from_connecting(&errno.into());
            assert_eq!(told, failure, "{errno}");
            assert_eq!(told.means_dead(), failure != Failure::NoSocket, "{errno}");
        }
    }
}
