//! Failures of an upstream.

use std::io;

use nix::errno::Errno;

/// Reason why an upstream gave no usable reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UpstreamFailure {
    /// No usable reply arrived in time.
    #[error("no reply in time")]
    Timeout,
    /// No server listens at the address and port.
    #[error("connection refused")]
    Refused,
    /// The network is unreachable, or a socket has an error that no other variant describes.
    #[error("unreachable")]
    Unreachable,
    /// The upstream sent data that are no DNS message. Over TCP and TLS, a DNS message that is no
    /// usable reply to the query also counts.
    #[error("reply is not a usable DNS message")]
    Garbage,
    /// Many replies arrived with a wrong ID or question. An attacker may be guessing IDs.
    #[error("too many replies with a wrong ID or question")]
    Flooded,
    /// The upstream closed the connection before the reply was complete.
    #[error("connection closed early")]
    Closed,
    /// The TLS certificate is not trusted for this upstream.
    #[error("TLS certificate not trusted")]
    Certificate,
    /// The TLS handshake failed for another reason.
    #[error("TLS handshake failed")]
    Handshake,
    /// This machine has no socket, source port or buffer left, or the connection pool is full.
    #[error("no socket left")]
    NoSocket,
}

impl UpstreamFailure {
    /// The value of the label `cause` of `kubedns_forward_errors_total`.
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

    /// Whether this failure of a probe means that the upstream is dead. An invalid message, an
    /// untrusted certificate or a failed handshake shows that the upstream is alive. Many replies
    /// with a wrong ID, or a lack of local sockets, say nothing about the upstream.
    pub(super) fn means_dead(self) -> bool {
        matches!(
            self,
            Self::Timeout | Self::Refused | Self::Unreachable | Self::Closed
        )
    }

    /// Converts an error of a socket. A lack of local sockets, ports or buffers must not count
    /// against the upstream.
    pub(super) fn from_io(error: &io::Error) -> Self {
        if let Some(
            Errno::EMFILE
            | Errno::ENFILE
            | Errno::ENOBUFS
            | Errno::ENOMEM
            | Errno::EADDRNOTAVAIL
            | Errno::EAGAIN,
        ) = error.raw_os_error().map(Errno::from_raw)
        {
            return Self::NoSocket;
        }

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

/// Reason why a connection could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub(super) struct OpenError {
    pub(super) failure: UpstreamFailure,
    pub(super) reason: String,
}

impl OpenError {
    /// Whether the certificate or the handshake failed. An immediate retry would fail, too.
    pub(super) fn is_tls(&self) -> bool {
        matches!(
            self.failure,
            UpstreamFailure::Certificate | UpstreamFailure::Handshake
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_error_means_dead_upstream_unless_local_sockets_run_out() {
        for (errno, failure) in [
            (Errno::EMFILE, UpstreamFailure::NoSocket),
            (Errno::ENFILE, UpstreamFailure::NoSocket),
            (Errno::ENOBUFS, UpstreamFailure::NoSocket),
            (Errno::EADDRNOTAVAIL, UpstreamFailure::NoSocket),
            (Errno::EAGAIN, UpstreamFailure::NoSocket),
            (Errno::ECONNREFUSED, UpstreamFailure::Refused),
            (Errno::ENETUNREACH, UpstreamFailure::Unreachable),
            (Errno::EHOSTUNREACH, UpstreamFailure::Unreachable),
            (Errno::ETIMEDOUT, UpstreamFailure::Timeout),
        ] {
            let failed = UpstreamFailure::from_io(&errno.into());
            assert_eq!(failed, failure, "{errno}");
            assert_eq!(
                failed.means_dead(),
                failure != UpstreamFailure::NoSocket,
                "{errno}"
            );
        }
    }
}
