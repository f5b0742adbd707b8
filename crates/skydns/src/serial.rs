//! The serial of transferred zones (RFC 1982), and the timers of their SOA.
//!
//! The serial of a version is the time of the version in seconds, and at most one version is taken each second.
//! Therefore the serial is not ahead of the clock, unless the clock was set back. A restarted process, or another
//! replica, continues with a higher serial without any stored state.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// REFRESH: seconds between two queries of a secondary for the serial, if no NOTIFY arrives.
const REFRESH: u32 = 60;
/// RETRY: seconds until a secondary repeats a failed query.
const RETRY: u32 = 15;
/// EXPIRE: seconds without contact after which a secondary drops the zone. [`Serial::mark`] is added.
const EXPIRE: u32 = 604_800;

/// The current serial. The engine reads the serial for each SOA record.
#[derive(Debug)]
pub struct Serial {
    current: AtomicU32,
    /// Random number of this process, which is added to EXPIRE. An IXFR query returns EXPIRE in its SOA record. The
    /// number shows whether this process made the client's version: two replicas may have different records with the
    /// same serial.
    mark: u32,
}

impl Serial {
    /// Creates the serial of a process that starts now.
    pub fn new() -> Arc<Self> {
        Self::starting(now(), rand::random::<u16>())
    }

    pub(crate) fn starting(now: u64, mark: u16) -> Arc<Self> {
        Arc::new(Self { current: AtomicU32::new(low(now)), mark: mark.into() })
    }

    pub(crate) fn get(&self) -> u32 {
        self.current.load(Ordering::Relaxed)
    }

    /// Whether the time `now` is later than the current serial. A version taken at `now` then has a serial that is
    /// not ahead of the clock.
    pub(crate) fn is_past(&self, now: u64) -> bool {
        follows(low(now), self.get())
    }

    /// Advances the serial to the time `now`; if the clock was set back, by one.
    pub(crate) fn next(&self, now: u64) -> u32 {
        let last = self.get();
        let next = if follows(low(now), last) { low(now) } else { last.wrapping_add(1) };
        // Some secondaries treat the serial 0 in a special way.
        let next = next.max(1);
        self.current.store(next, Ordering::Relaxed);
        next
    }

    /// SERIAL, REFRESH, RETRY and EXPIRE of an SOA record of version `serial`.
    pub(crate) fn numbers(&self, serial: u32) -> [u32; 4] {
        [serial, REFRESH, RETRY, EXPIRE + self.mark]
    }

    /// SERIAL, REFRESH, RETRY and EXPIRE of the current version.
    pub(crate) fn current_numbers(&self) -> [u32; 4] {
        self.numbers(self.get())
    }
}

/// Whether `serial` is newer than `other` (RFC 1982, section 3.2).
pub(crate) fn follows(serial: u32, other: u32) -> bool {
    (1..1 << 31).contains(&serial.wrapping_sub(other))
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Time until the next second begins.
pub(crate) fn to_next_second() -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Duration::from_secs(1).saturating_sub(Duration::from_nanos(now.subsec_nanos().into()))
}

/// The low 32 bits of a time. The time wraps in 2106, and so does the serial.
fn low(seconds: u64) -> u32 {
    u32::try_from(seconds & u64::from(u32::MAX)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serials_are_times_and_only_grow() {
        let wrapped = 1 << 32;
        for (what, start, times, serials) in [
            ("a running clock", 1000, vec![1001, 1005], vec![1001, 1005]),
            ("a clock that is set back", 1000, vec![1001, 900, 901, 1010], vec![1001, 1002, 1003, 1010]),
            ("a clock that stops", 1000, vec![1000, 1000], vec![1001, 1002]),
            ("a clock that wraps", wrapped - 1, vec![wrapped, wrapped + 1], vec![1, 2]),
        ] {
            let serial = Serial::starting(start, 0);
            let taken: Vec<u32> = times.into_iter().map(|now| serial.next(now)).collect();
            assert_eq!(taken, serials, "{what}");
            assert!(taken.iter().is_sorted_by(|first, second| follows(**second, **first)), "{what}");
        }
    }

    #[test]
    fn a_restarted_process_goes_on_above() {
        let first = Serial::starting(1000, 7);
        assert!(!first.is_past(1000), "the process before may have had this second");
        assert!(first.is_past(1001));
        let last = first.next(1001);
        let second = Serial::starting(1001, 8);
        assert!(!second.is_past(1001) && second.is_past(1002));
        assert!(follows(second.next(1002), last));
        assert_ne!(first.numbers(last), second.numbers(last), "their versions are not the same");
    }
}
