//! The serials of transferred zones (RFC 1982), and the timers of their SOA.
//!
//! Each zone has its own serial. The serial of a version is the time of the version in seconds, or
//! one more than the last serial if this time is not later than the last serial. A zone has at most
//! one version each second. If the clock is never set back, no serial is ahead of the clock. The
//! first version after a restart then has a higher serial than all earlier versions of the zone. So
//! serials are not stored.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use wire::Name;

/// REFRESH: seconds between two queries of a secondary for the serial, if no NOTIFY arrives.
const REFRESH: u32 = 60;
/// RETRY: seconds until a secondary repeats a failed query.
const RETRY: u32 = 15;
/// EXPIRE: seconds without contact after which a secondary drops the zone. [`ZoneSerials::mark`] is
/// added to this value.
const EXPIRE: u32 = 604_800;

/// The serials of all zones. The engine reads them for each SOA record.
#[derive(Debug)]
pub struct ZoneSerials {
    /// Serial of a zone that has no version yet: the start of the process.
    start: u32,
    /// The serial of each zone that has a version.
    zones: ArcSwap<Vec<(Name, u32)>>,
    /// Random number of this process, which is added to EXPIRE. A secondary sends EXPIRE back in
    /// the SOA record of an IXFR query. The number then shows whether this process made the version
    /// of the secondary. The serial alone does not show this: two replicas may have different
    /// records with the same serial.
    mark: u32,
}

impl ZoneSerials {
    /// Creates the serials of a process that starts now.
    pub fn new() -> Arc<Self> {
        Self::starting_at(now(), rand::random::<u16>())
    }

    pub(crate) fn starting_at(now: u64, mark: u16) -> Arc<Self> {
        Arc::new(Self {
            start: low_bits(now),
            zones: ArcSwap::default(),
            mark: mark.into(),
        })
    }

    /// The serial of a zone.
    pub(crate) fn zone_serial(&self, zone: &Name) -> u32 {
        let zones = self.zones.load();
        let known = zones.iter().find(|(name, _)| name == zone);
        known.map_or(self.start, |(_, serial)| *serial)
    }

    /// Whether the time `now` is later than all serials. If so, a version made at `now` has a
    /// serial that is not ahead of the clock.
    pub(crate) fn are_before(&self, now: u64) -> bool {
        let now = low_bits(now);
        let zones = self.zones.load();
        follows(now, self.start) && zones.iter().all(|(_, serial)| follows(now, *serial))
    }

    /// The serial of the next version of a zone: the time `now`, or one more than the last serial
    /// if `now` is not later than the last serial.
    pub(crate) fn next_serial(&self, zone: &Name, now: u64) -> u32 {
        let last = self.zone_serial(zone);
        let now = low_bits(now);

        let next = if follows(now, last) {
            now
        } else {
            last.wrapping_add(1)
        };

        // Some secondaries treat the serial 0 in a special way.
        next.max(1)
    }

    /// Sets the current serial of a zone.
    pub(crate) fn set_serial(&self, zone: &Name, serial: u32) {
        let zones = self.zones.load();
        let others = zones.iter().filter(|(name, _)| name != zone).cloned();
        let all = others.chain([(zone.clone(), serial)]).collect();
        self.zones.store(Arc::new(all));
    }

    /// EXPIRE of the SOA records of this process.
    pub(crate) fn expire_seconds(&self) -> u32 {
        EXPIRE + self.mark
    }

    /// SERIAL, REFRESH, RETRY and EXPIRE of an SOA record of version `serial`.
    pub(crate) fn soa_numbers(&self, serial: u32) -> [u32; 4] {
        [serial, REFRESH, RETRY, self.expire_seconds()]
    }

    /// SERIAL, REFRESH, RETRY and EXPIRE of the current version of a zone.
    pub(crate) fn current_soa_numbers(&self, zone: &Name) -> [u32; 4] {
        self.soa_numbers(self.zone_serial(zone))
    }
}

/// Whether `serial` is newer than `other` (RFC 1982, section 3.2).
pub(crate) fn follows(serial: u32, other: u32) -> bool {
    (1..1 << 31).contains(&serial.wrapping_sub(other))
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}

/// Time until the next second begins.
pub(crate) fn to_next_second() -> Duration {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Duration::from_secs(1).saturating_sub(Duration::from_nanos(now.subsec_nanos().into()))
}

/// The low 32 bits of a time. These bits wrap in 2106, and so does the serial.
fn low_bits(seconds: u64) -> u32 {
    u32::try_from(seconds & u64::from(u32::MAX)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(text: &str) -> Name {
        Name::parse(text).unwrap()
    }

    fn advance_serial(serials: &ZoneSerials, zone: &Name, now: u64) -> u32 {
        let next = serials.next_serial(zone, now);
        serials.set_serial(zone, next);
        next
    }

    #[test]
    fn serial_is_time_or_one_more_than_last_and_never_zero() {
        let wrapped = 1 << 32;
        for (what, start, times, expected) in [
            ("a running clock", 1000, vec![1001, 1005], vec![1001, 1005]),
            (
                "a clock that is set back",
                1000,
                vec![1001, 900, 901, 1010],
                vec![1001, 1002, 1003, 1010],
            ),
            (
                "a clock that stops",
                1000,
                vec![1000, 1000],
                vec![1001, 1002],
            ),
            (
                "a clock that wraps",
                wrapped - 1,
                vec![wrapped, wrapped + 1],
                vec![1, 2],
            ),
        ] {
            let serials = ZoneSerials::starting_at(start, 0);
            let zone = zone("cluster.local");
            let taken: Vec<u32> = times
                .into_iter()
                .map(|now| advance_serial(&serials, &zone, now))
                .collect();
            assert_eq!(taken, expected, "{what}");
            assert!(
                taken
                    .iter()
                    .is_sorted_by(|first, second| follows(**second, **first)),
                "{what}"
            );
        }
    }

    #[test]
    fn each_zone_has_its_own_serial() {
        let serials = ZoneSerials::starting_at(1000, 0);
        let one = zone("cluster.local");
        let other = zone("k8s.example");
        advance_serial(&serials, &one, 1001);
        advance_serial(&serials, &other, 1003);
        advance_serial(&serials, &one, 1007);

        assert_eq!(serials.zone_serial(&one), 1007);
        assert_eq!(serials.zone_serial(&other), 1003);
        assert_eq!(
            serials.zone_serial(&zone("sky.test")),
            1000,
            "a zone without a version"
        );
        assert!(!serials.are_before(1007) && serials.are_before(1008));
    }

    #[test]
    fn restarted_process_continues_with_higher_serial() {
        let zone = zone("cluster.local");
        let first = ZoneSerials::starting_at(1000, 7);
        assert!(
            !first.are_before(1000),
            "the start time must count as a used serial: the previous process may have used it"
        );
        assert!(first.are_before(1001));

        let last = advance_serial(&first, &zone, 1001);
        let second = ZoneSerials::starting_at(1001, 8);
        assert!(!second.are_before(1001) && second.are_before(1002));
        assert!(follows(second.next_serial(&zone, 1002), last));
        assert_ne!(
            first.soa_numbers(last),
            second.soa_numbers(last),
            "for the same serial, processes with different marks must have different EXPIRE values"
        );
    }
}
