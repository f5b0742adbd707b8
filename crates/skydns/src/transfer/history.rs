//! The current version of each zone, and the latest steps between its versions. A step has the
//! difference between two successive versions. The last step ends at the current version.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::ZoneSerial;
use super::difference::{MAX_OCTETS, ZoneDifference};
use super::names::OwnerNames;
use crate::backend::View;
use wire::Name;

/// Maximum number of steps that are kept for a zone.
const MAX_STEPS: usize = 64;
/// Time for which a step is kept.
const MAX_AGE: Duration = Duration::from_mins(10);

/// A version of one zone. Its view has the records of this version.
pub(super) struct ZoneVersion<V> {
    pub(super) serial: u32,
    pub(super) view: Arc<V>,
    /// The names of the zone. All current transfers of the version share the names.
    names: Mutex<Weak<OwnerNames>>,
}

/// A step from one version to the next.
#[derive(Debug)]
pub(super) struct VersionStep {
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) difference: ZoneDifference,
}

impl<V> ZoneVersion<V> {
    pub(super) fn new(serial: u32, view: Arc<V>) -> Arc<Self> {
        Arc::new(Self {
            serial,
            view,
            names: Mutex::default(),
        })
    }
}

impl<V: View> ZoneVersion<V> {
    /// The owner names of zone `domain` in this version.
    pub(super) fn names(&self, domain: &Name) -> Arc<OwnerNames> {
        let mut known = self.names.lock();
        if let Some(names) = known.upgrade() {
            return names;
        }

        let names = Arc::new(OwnerNames::of_zone(&*self.view, domain));
        *known = Arc::downgrade(&names);
        names
    }
}

/// The versions of all zones.
pub(super) struct TransferHistory<V> {
    zones: HashMap<Name, ZoneHistory<V>>,
}

/// The current version of one zone, and the latest steps between its versions.
struct ZoneHistory<V> {
    current: Arc<ZoneVersion<V>>,
    /// The steps, the oldest first, each with its time. The last step ends at the current version.
    steps: VecDeque<(Arc<VersionStep>, Instant)>,
    /// Memory of the steps, in octets.
    octets: usize,
}

impl<V> Default for TransferHistory<V> {
    fn default() -> Self {
        Self {
            zones: HashMap::new(),
        }
    }
}

impl<V> TransferHistory<V> {
    pub(super) fn current(&self, zone: &Name) -> Option<&Arc<ZoneVersion<V>>> {
        self.zones.get(zone).map(|zone| &zone.current)
    }

    /// The current serial of each zone.
    pub(super) fn serials(&self) -> Vec<ZoneSerial> {
        let zones = self.zones.iter().map(|(zone, history)| ZoneSerial {
            zone: zone.clone(),
            serial: history.current.serial,
        });
        zones.collect()
    }

    /// The steps from one version of a zone to another; `None` if the history lacks the steps.
    pub(super) fn steps_between(
        &self,
        zone: &Name,
        from: u32,
        to: u32,
    ) -> Option<Vec<Arc<VersionStep>>> {
        let steps = &self.zones.get(zone)?.steps;
        let first = steps.iter().position(|(step, _)| step.from == from)?;
        let last = steps.iter().position(|(step, _)| step.to == to)?;

        // A transfer ends at the version that was current when it began. Later steps are left out.
        let range = steps.range(first..=last.max(first));
        Some(range.map(|(step, _)| Arc::clone(step)).collect())
    }

    /// Makes `version` the current version of a zone. `difference` is the difference between the
    /// previous version and `version`. If it is `None`, secondaries get the whole zone. `now` is
    /// the time of the version.
    pub(super) fn push_version(
        &mut self,
        zone: &Name,
        version: Arc<ZoneVersion<V>>,
        difference: Option<ZoneDifference>,
        now: Instant,
    ) {
        let Some(known) = self.zones.get_mut(zone) else {
            // The first version has no predecessor, so there is no step.
            let new = ZoneHistory {
                current: version,
                steps: VecDeque::new(),
                octets: 0,
            };
            self.zones.insert(zone.clone(), new);
            return;
        };

        match difference {
            Some(difference) => {
                known.octets += difference.octets;
                let step = VersionStep {
                    from: known.current.serial,
                    to: version.serial,
                    difference,
                };
                known.steps.push_back((Arc::new(step), now));
            }
            // Without a difference, there is no step to this version. So the earlier steps do not
            // reach the current version, and are dropped.
            None => known.clear_steps(),
        }

        known.current = version;
        known.drop_steps(now);
    }

    /// Replaces the view of a zone whose records have not changed. A view has the records of all
    /// zones, so the previous view would keep outdated records of other zones in memory.
    pub(super) fn replace_view(&mut self, zone: &Name, view: &Arc<V>) {
        if let Some(known) = self.zones.get_mut(zone) {
            known.current = ZoneVersion::new(known.current.serial, Arc::clone(view));
        }
    }

    /// Drops the zones that are not in `zones`, and returns their names.
    pub(super) fn retain_zones(&mut self, zones: &[Name]) -> Vec<Name> {
        let removed = self.zones.extract_if(|zone, _| !zones.contains(zone));
        removed.map(|(zone, _)| zone).collect()
    }

    /// Drops expired steps.
    pub(super) fn drop_expired(&mut self, now: Instant) {
        for zone in self.zones.values_mut() {
            zone.drop_steps(now);
        }
    }
}

impl<V> ZoneHistory<V> {
    fn clear_steps(&mut self) {
        self.steps.clear();
        self.octets = 0;
    }

    /// Drops expired steps, and the oldest steps beyond the bounds on their number and memory.
    fn drop_steps(&mut self, now: Instant) {
        while let Some((step, made)) = self.steps.front() {
            let is_beyond_bounds = self.steps.len() > MAX_STEPS || self.octets > MAX_OCTETS;
            let is_expired = now.duration_since(*made) > MAX_AGE;
            // The first step is the oldest.
            if !is_beyond_bounds && !is_expired {
                return;
            }

            self.octets -= step.difference.octets;
            self.steps.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone() -> Name {
        Name::parse("cluster.local").unwrap()
    }

    fn push_step(history: &mut TransferHistory<()>, serial: u32, octets: usize, now: Instant) {
        let difference = ZoneDifference {
            octets,
            ..ZoneDifference::default()
        };
        history.push_version(
            &zone(),
            ZoneVersion::new(serial, Arc::new(())),
            Some(difference),
            now,
        );
    }

    /// The serials of the versions that have steps to the current version.
    fn kept_serials(history: &TransferHistory<()>) -> Vec<u32> {
        let Some(current) = history.current(&zone()).map(|version| version.serial) else {
            return Vec::new();
        };
        (0..1000)
            .filter(|from| history.steps_between(&zone(), *from, current).is_some())
            .collect()
    }

    #[test]
    fn steps_beyond_max_number_or_age_are_dropped() {
        let mut history = TransferHistory::default();
        let start = Instant::now();
        assert!(history.current(&zone()).is_none());
        for serial in 0..100 {
            push_step(
                &mut history,
                serial,
                10,
                start + Duration::from_secs(serial.into()),
            );
        }
        assert_eq!(kept_serials(&history), (35..99).collect::<Vec<_>>());
        let steps = history.steps_between(&zone(), 96, 98).unwrap();
        let steps: Vec<_> = steps.iter().map(|step| (step.from, step.to)).collect();
        assert_eq!(
            steps,
            [(96, 97), (97, 98)],
            "a transfer that ends at an earlier version must get only the steps to that version"
        );

        history.drop_expired(start + Duration::from_secs(98) + MAX_AGE);
        assert_eq!(kept_serials(&history), vec![97, 98]);
    }

    #[test]
    fn steps_beyond_max_octets_are_dropped() {
        let mut history = TransferHistory::default();
        let now = Instant::now();
        for serial in 0..10 {
            push_step(&mut history, serial, MAX_OCTETS / 4, now);
        }
        assert_eq!(kept_serials(&history), vec![5, 6, 7, 8]);

        history.push_version(&zone(), ZoneVersion::new(10, Arc::new(())), None, now);
        assert_eq!(
            kept_serials(&history),
            Vec::<u32>::new(),
            "the steps before a version without a difference must be dropped"
        );
        push_step(&mut history, 11, 10, now);
        assert_eq!(kept_serials(&history), vec![10]);
    }
}
