//! Heartbeats, by which a child shows its parent that it does not hang.
//!
//! The standard input of the child is a socket whose other end the parent holds. Each heartbeat is
//! one octet. The parent counts timeouts of `poll` instead of comparing times. While the node has
//! no CPU time for the container, the child sends no heartbeats, but the parent does not run
//! either. However long this lasts, the parent counts at most one timeout.

use std::io::{self, Read as _, Write as _};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use nix::poll::PollTimeout;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

/// Interval of the heartbeats.
const INTERVAL: Duration = Duration::from_millis(500);
/// Time in milliseconds after which the parent counts a heartbeat as missed.
const TIMEOUT: u16 = 550;
/// Number of successive missed heartbeats after which the child counts as hung.
const MAX_MISSED: u32 = 3;

/// The child's end of the connection.
#[derive(Debug)]
pub struct Heartbeat(UnixStream);

impl Heartbeat {
    /// The connection to the parent that restarts this process; `None` if there is no such parent.
    ///
    /// # Errors
    ///
    /// When standard input cannot be used.
    pub fn to_parent() -> io::Result<Option<Self>> {
        if super::count().is_none() {
            return Ok(None);
        }
        let stream = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
        // A parent that does not read must not block this process.
        stream.set_nonblocking(true)?;
        Ok(Some(Self(stream)))
    }

    /// Sends a heartbeat twice a second while `is_active` is true. Ends when `stop` is cancelled;
    /// the parent then expects no more heartbeats.
    pub async fn run(mut self, is_active: impl Fn() -> bool, stop: CancellationToken) {
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = ticks.tick() => {}
            }
            if is_active() {
                // If the buffer is full, the parent has enough heartbeats to read.
                let _ = self.0.write(&[0]);
            }
        }
    }
}

/// Standard input also refers to this socket and stays open. So the socket must be shut down, or
/// the parent would not see the end of the connection.
impl Drop for Heartbeat {
    fn drop(&mut self) {
        // This fails only if the parent is gone.
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

/// The parent's end of the connection.
#[derive(Debug)]
pub(super) struct HeartbeatWatch {
    /// `None` after either end of the connection was closed, or after an error.
    stream: Option<UnixStream>,
    /// Number of successive missed heartbeats; `None` until the first heartbeat arrives. The start
    /// can take a long time, so no heartbeat counts as missed before the first one has arrived.
    missed: Option<u32>,
}

impl HeartbeatWatch {
    /// Creates a connection. Returns both ends.
    pub(super) fn pair() -> io::Result<(Self, OwnedFd)> {
        let (stream, to_parent) = UnixStream::pair()?;
        stream.set_nonblocking(true)?;
        let watch = Self {
            stream: Some(stream),
            missed: None,
        };
        Ok((watch, to_parent.into()))
    }

    /// The descriptor that is readable when a heartbeat has arrived.
    pub(super) fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.stream.as_ref().map(AsFd::as_fd)
    }

    /// Timeout of the next heartbeat.
    pub(super) fn timeout(&self) -> PollTimeout {
        if self.stream.is_some() && self.missed.is_some() {
            PollTimeout::from(TIMEOUT)
        } else {
            PollTimeout::NONE
        }
    }

    /// Reads the heartbeats that have arrived. `timed_out` is true if [`timeout`](Self::timeout)
    /// has passed without an event. Returns whether the child hangs.
    pub(super) fn update(&mut self, timed_out: bool) -> bool {
        let Some(stream) = &mut self.stream else {
            return false;
        };

        let mut octets = [0; 64];
        match stream.read(&mut octets) {
            Ok(0) => self.stream = None,
            Ok(_) => self.missed = Some(0),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if timed_out {
                    self.missed = self.missed.map(|missed| missed.saturating_add(1));
                }
            }
            Err(error) => {
                tracing::warn!(%error, "cannot read heartbeats; if the process hangs, it is not killed");
                self.stream = None;
            }
        }

        let missed = self.missed.unwrap_or(0);
        self.stream.is_some() && missed >= MAX_MISSED
    }

    /// Stops watching.
    pub(super) fn close(&mut self) {
        self.stream = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The events of each case are heartbeats (`+`), timeouts (`.`) and the end of the connection
    /// (`x`).
    #[test]
    fn child_hangs_after_three_missed_heartbeats() {
        for (case, events, expected) in [
            ("active", "++++", false),
            ("slow to start", "......", false),
            ("late", "+..+..+..", false),
            ("silent", "++...", true),
            ("silent, but about to end", "++..x..", false),
        ] {
            let (mut watch, to_parent) = HeartbeatWatch::pair().unwrap();
            let mut heartbeat = Some(Heartbeat(to_parent.into()));
            let mut is_hung = false;
            for event in events.chars() {
                match (event, &mut heartbeat) {
                    ('+', Some(heartbeat)) => heartbeat.0.write_all(&[0]).unwrap(),
                    ('x', _) => drop(heartbeat.take()),
                    _ => {}
                }
                is_hung = watch.update(event == '.');
            }
            assert_eq!(is_hung, expected, "{case}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn heartbeats_stop_with_the_activity() {
        let (mut watch, to_parent) = HeartbeatWatch::pair().unwrap();
        let stop = CancellationToken::new();
        let (activity, is_active) = tokio::sync::watch::channel(true);
        let heartbeat = Heartbeat(to_parent.into()).run(move || *is_active.borrow(), stop.clone());
        let mut sending = tokio::task::JoinSet::new();
        sending.spawn(heartbeat);

        tokio::time::sleep(INTERVAL / 2).await;
        watch.update(false);
        assert_eq!(watch.missed, Some(0));

        activity.send(false).unwrap();
        for expected in [false, false, true] {
            tokio::time::sleep(INTERVAL).await;
            assert_eq!(watch.update(true), expected);
        }

        stop.cancel();
        sending.join_all().await;
        watch.update(false);
        assert!(watch.as_fd().is_none());
    }
}
