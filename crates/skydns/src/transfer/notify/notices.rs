//! The notifications to one secondary: the zones that have changed, and the time of each message.
//! This module does no input or output.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use super::super::ZoneSerial;
use wire::{Name, rcode};

/// Time to wait for a response after each message, in seconds.
const RESPONSE_WAITS: [u64; 5] = [1, 2, 4, 8, 16];
/// Minimum time between two messages for a zone.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// The notifications to one secondary. The map contains only transferred zones, so its size is
/// bounded.
#[derive(Debug, Default)]
pub(super) struct PendingNotices {
    zones: HashMap<Name, ZoneNotice>,
}

/// The notification of the last change of a zone.
#[derive(Debug, Default)]
struct ZoneNotice {
    serial: u32,
    /// The ID of the messages for this serial. No other zone has the same ID.
    id: u16,
    /// The number of messages since the attempts began.
    sent: usize,
    /// Time at which the next message is sent, or the attempts are given up; `None` once the
    /// secondary has responded, or has been silent for too long.
    due: Option<Instant>,
    last_sent: Option<Instant>,
    /// Whether the last response was an error.
    last_was_error: bool,
}

/// An action that is due now.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum DueNotice {
    Send {
        id: u16,
        zone: Name,
    },
    /// The attempts have ended without a response. A late response to an earlier change does not
    /// count.
    GivenUp {
        zone: Name,
    },
}

/// A response of the secondary to a notification.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NoticeResponse {
    pub(super) zone: Name,
    /// Whether the response is an error, and the previous response for the zone was not an error.
    pub(super) is_first_error: bool,
}

impl ZoneNotice {
    /// Whether attempts are in progress, and have sent at least one message.
    fn expects_response(&self) -> bool {
        self.sent > 0 && self.due.is_some()
    }
}

impl PendingNotices {
    /// Takes the current serials of all zones. A change does not restart the attempts for an
    /// earlier change of the same zone. So a secondary that never responds is noticed even if the
    /// zone changes often.
    pub(super) fn set_serials(&mut self, current: &[ZoneSerial], now: Instant) {
        // Zones that are no longer transferred need no notification.
        self.zones
            .retain(|zone, _| current.iter().any(|known| known.zone == *zone));

        for ZoneSerial { zone, serial } in current {
            let known = self.zones.get(zone);
            if known.is_none_or(|notice| notice.serial != *serial) {
                self.set_serial(zone, *serial, now);
            }
        }
    }

    /// Schedules the notification of a change, unless attempts for an earlier change are in
    /// progress. The next message of those attempts has the new serial.
    fn set_serial(&mut self, zone: &Name, serial: u32, now: Instant) {
        let id = self.unused_id();
        let notice = self.zones.entry(zone.clone()).or_default();
        notice.serial = serial;
        notice.id = id;

        if notice.due.is_none() {
            let earliest = notice.last_sent.map_or(now, |sent| sent + MIN_INTERVAL);
            notice.due = Some(earliest.max(now));
            notice.sent = 0;
        }
    }

    /// A random ID that no zone has. The zone of a response is found by the ID alone. There are far
    /// fewer zones than IDs, so the loop ends.
    fn unused_id(&self) -> u16 {
        let mut id: u16 = rand::random();
        while self.zones.values().any(|notice| notice.id == id) {
            id = id.wrapping_add(1);
        }
        id
    }

    /// Returns the actions that are due at `now`, and schedules the next actions.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<DueNotice> {
        let mut all = Vec::new();
        for (zone, notice) in &mut self.zones {
            if notice.due.is_none_or(|due| due > now) {
                continue;
            }

            // After the last wait, the secondary is considered silent.
            let Some(wait) = RESPONSE_WAITS.get(notice.sent) else {
                notice.due = None;
                all.push(DueNotice::GivenUp { zone: zone.clone() });
                continue;
            };

            notice.sent += 1;
            notice.last_sent = Some(now);
            notice.due = Some(now + Duration::from_secs(*wait));
            all.push(DueNotice::Send {
                id: notice.id,
                zone: zone.clone(),
            });
        }
        all
    }

    /// Time at which the next message is sent, or the attempts for a zone are given up.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.zones.values().filter_map(|notice| notice.due).min()
    }

    /// Takes the response with this ID. Returns the zone of the response if a response was
    /// expected. An error response ends the attempts, too, because a repeated message would very
    /// likely get the same error.
    pub(super) fn take_response(&mut self, id: u16, rcode: u16) -> Option<NoticeResponse> {
        // A late response to an earlier change has another ID, and does not end the attempts.
        let mut zones = self.zones.iter_mut();
        let (zone, notice) =
            zones.find(|(_, notice)| notice.id == id && notice.expects_response())?;

        let is_error = rcode != rcode::NOERROR;
        let is_first_error = is_error && !notice.last_was_error;
        notice.due = None;
        notice.last_was_error = is_error;
        Some(NoticeResponse {
            zone: zone.clone(),
            is_first_error,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_name(text: &str) -> Name {
        Name::parse(text).unwrap()
    }

    fn zone_serial(zone: &str, serial: u32) -> ZoneSerial {
        ZoneSerial {
            zone: parse_name(zone),
            serial,
        }
    }

    /// The IDs of the messages that are due.
    fn sent_ids(notices: &mut PendingNotices, now: Instant) -> Vec<u16> {
        let all = notices.take_due(now);
        let ids = all.iter().filter_map(|due| match due {
            DueNotice::Send { id, .. } => Some(*id),
            DueNotice::GivenUp { .. } => None,
        });
        ids.collect()
    }

    #[test]
    fn steady_changes_do_not_delay_giving_up() {
        let start = Instant::now();
        let mut notices = PendingNotices::default();
        let mut messages = 0;
        let mut given_up = Vec::new();
        for second in 0..63 {
            let now = start + Duration::from_secs(second);
            notices.set_serials(
                &[zone_serial("cluster.local", u32::try_from(second).unwrap())],
                now,
            );
            for due in notices.take_due(now) {
                match due {
                    DueNotice::Send { .. } => messages += 1,
                    DueNotice::GivenUp { .. } => given_up.push(second),
                }
            }
        }
        assert_eq!(given_up, [31]);
        assert_eq!(
            messages, 10,
            "five messages must be sent before giving up, and five after it"
        );
    }

    #[test]
    fn acknowledged_notice_is_not_repeated() {
        let start = Instant::now();
        let mut notices = PendingNotices::default();
        notices.set_serials(&[zone_serial("cluster.local", 1)], start);
        let first = sent_ids(&mut notices, start);
        assert_eq!(notices.next_due(), Some(start + Duration::from_secs(1)));
        assert_eq!(
            sent_ids(&mut notices, start + Duration::from_secs(1)),
            first,
            "the message must be repeated with the same ID"
        );
        assert!(
            notices.take_response(first[0].wrapping_add(1), 0).is_none(),
            "a response with another ID must be ignored"
        );

        let response = notices.take_response(first[0], 0).unwrap();
        assert_eq!(
            response,
            NoticeResponse {
                zone: parse_name("cluster.local"),
                is_first_error: false
            }
        );
        assert!(
            notices.take_response(first[0], 0).is_none(),
            "a second response must be ignored"
        );
        assert_eq!(notices.next_due(), None);

        // The message for the next change is sent no earlier than a second after the last message.
        notices.set_serials(
            &[zone_serial("cluster.local", 2)],
            start + Duration::from_millis(1500),
        );
        assert_eq!(notices.next_due(), Some(start + Duration::from_secs(2)));
        notices.set_serials(
            &[zone_serial("cluster.local", 3)],
            start + Duration::from_secs(9),
        );
        assert_eq!(
            sent_ids(&mut notices, start + Duration::from_secs(9)).len(),
            1
        );
        assert!(
            notices.take_response(first[0], 0).is_none(),
            "a late response to an earlier change must be ignored"
        );
    }

    #[test]
    fn error_is_reported_unless_previous_response_was_error() {
        let start = Instant::now();
        let mut notices = PendingNotices::default();
        let mut errors = Vec::new();
        for (change, rcode) in [(1, 9), (2, 9), (3, 0), (4, 9)] {
            let now = start + Duration::from_secs(10 * u64::from(change));
            notices.set_serials(&[zone_serial("sky.test", change)], now);
            let id = sent_ids(&mut notices, now)[0];
            let response = notices.take_response(id, rcode).unwrap();
            errors.push(response.is_first_error);
            assert_eq!(notices.next_due(), None, "the message must not be repeated");
        }
        assert_eq!(
            errors,
            [true, false, false, true],
            "an error must be reported unless the previous response was an error"
        );
    }

    #[test]
    fn zones_have_distinct_ids() {
        let now = Instant::now();
        let mut notices = PendingNotices::default();
        let zones: Vec<_> = (0..2000)
            .map(|n| zone_serial(&format!("z{n}.test"), 1))
            .collect();
        notices.set_serials(&zones, now);
        let mut ids = sent_ids(&mut notices, now);
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), zones.len());
        notices.set_serials(&zones[..3], now);
        assert_eq!(
            notices.zones.len(),
            3,
            "zones that are gone must be dropped"
        );
    }
}
