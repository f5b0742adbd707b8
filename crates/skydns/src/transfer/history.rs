//! The current version of each zone, and the last differences between versions.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::difference::{Difference, MAX_OCTETS};
use super::names::Names;
use crate::backend::View;
use crate::wire::Name;

/// Maximum number of steps that are kept for a zone.
const MAX_STEPS: usize = 64;
/// Time for which a step is kept.
const MAX_AGE: Duration = Duration::from_mins(10);

/// A version of one zone. The view is one that has the records of the version.
pub(super) struct Version<V> {
    pub(super) serial: u32,
    pub(super) view: Arc<V>,
    /// The names of the zone. All current transfers of the version share the names.
    names: Mutex<Weak<Names>>,
}

/// A step from one version to the next.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) difference: Difference,
}

impl<V> Version<V> {
    pub(super) fn new(serial: u32, view: Arc<V>) -> Arc<Self> {
        Arc::new(Self {
            serial,
            view,
            names: Mutex::default(),
        })
    }
}

impl<V: View> Version<V> {
    /// The owner names of the zone, which is `domain`.
    pub(super) fn names(&self, domain: &Name) -> Arc<Names> {
        let mut known = self.names.lock();
        known.upgrade().unwrap_or_else(|| {
            let names = Arc::new(Names::of_zone(&*self.view, domain));
            *known = Arc::downgrade(&names);
            names
        })
    }
}

/// The versions of all zones.
pub(super) struct History<V> {
    zones: HashMap<Name, ZoneHistory<V>>,
}

struct ZoneHistory<V> {
    current: Arc<Version<V>>,
    /// The steps that lead to the current version, the oldest first, each with its time.
    steps: VecDeque<(Arc<Step>, Instant)>,
    /// Memory of the steps, in octets.
    octets: usize,
}

impl<V> Default for History<V> {
    fn default() -> Self {
        Self {
            zones: HashMap::new(),
        }
    }
}

impl<V> History<V> {
    pub(super) fn current(&self, zone: &Name) -> Option<&Arc<Version<V>>> {
        self.zones.get(zone).map(|zone| &zone.current)
    }

    /// The steps from one version of a zone to another; `None` if they are not kept.
    pub(super) fn steps_between(&self, zone: &Name, from: u32, to: u32) -> Option<Vec<Arc<Step>>> {
        let steps = &self.zones.get(zone)?.steps;
        let first = steps.iter().position(|(step, _)| step.from == from)?;
        let last = steps.iter().position(|(step, _)| step.to == to)?;
        Some(
            steps
                .range(first..=last.max(first))
                .map(|(step, _)| Arc::clone(step))
                .collect(),
        )
    }

    /// Makes `version` the current version of a zone. `difference` leads to it from the last
    /// version; without it, the zone must be transferred whole. `now` is the time of the version.
    pub(super) fn push(
        &mut self,
        zone: &Name,
        version: Arc<Version<V>>,
        difference: Option<Difference>,
        now: Instant,
    ) {
        let Some(known) = self.zones.get_mut(zone) else {
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
                let step = Step {
                    from: known.current.serial,
                    to: version.serial,
                    difference,
                };
                known.steps.push_back((Arc::new(step), now));
            }
            None => known.clear(),
        }
        known.current = version;
        known.forget(now);
    }

    /// Replaces the view of a zone whose records are the same in `view`. The last view would keep
    /// the replaced records of other zones in memory.
    pub(super) fn renew(&mut self, zone: &Name, view: &Arc<V>) {
        if let Some(known) = self.zones.get_mut(zone) {
            known.current = Version::new(known.current.serial, Arc::clone(view));
        }
    }

    /// Drops the zones that are not in `zones`.
    pub(super) fn retain(&mut self, zones: &[Name]) {
        self.zones.retain(|zone, _| zones.contains(zone));
    }

    /// Drops expired steps.
    pub(super) fn forget(&mut self, now: Instant) {
        self.zones.values_mut().for_each(|zone| zone.forget(now));
    }
}

impl<V> ZoneHistory<V> {
    fn clear(&mut self) {
        self.steps.clear();
        self.octets = 0;
    }

    /// Drops expired steps, and the oldest steps beyond the bounds on their number and memory.
    fn forget(&mut self, now: Instant) {
        let is_old = |made: &Instant| now.duration_since(*made) > MAX_AGE;
        while self.steps.len() > MAX_STEPS
            || self.octets > MAX_OCTETS
            || self.steps.front().is_some_and(|(_, made)| is_old(made))
        {
            let Some((step, _)) = self.steps.pop_front() else {
                break;
            };
            self.octets -= step.difference.octets;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone() -> Name {
        Name::parse("cluster.local").unwrap()
    }

    fn push(history: &mut History<()>, serial: u32, octets: usize, now: Instant) {
        let difference = Difference {
            octets,
            ..Difference::default()
        };
        history.push(
            &zone(),
            Version::new(serial, Arc::new(())),
            Some(difference),
            now,
        );
    }

    /// The serials of the versions from which steps lead to the current version.
    fn kept(history: &History<()>) -> Vec<u32> {
        let Some(current) = history.current(&zone()).map(|version| version.serial) else {
            return Vec::new();
        };
        (0..1000)
            .filter(|from| history.steps_between(&zone(), *from, current).is_some())
            .collect()
    }

    #[test]
    fn old_steps_expire() {
        let mut history = History::default();
        let start = Instant::now();
        assert!(history.current(&zone()).is_none());
        for serial in 0..100 {
            push(
                &mut history,
                serial,
                10,
                start + Duration::from_secs(serial.into()),
            );
        }
        assert_eq!(kept(&history), (35..99).collect::<Vec<_>>());
        let steps = history.steps_between(&zone(), 96, 98).unwrap();
        let steps: Vec<_> = steps.iter().map(|step| (step.from, step.to)).collect();
        assert_eq!(
            steps,
            [(96, 97), (97, 98)],
            "a transfer of an earlier version goes on"
        );

        history.forget(start + Duration::from_secs(98) + MAX_AGE);
        assert_eq!(kept(&history), vec![97, 98]);
    }

    #[test]
    fn memory_of_steps_is_bounded() {
        let mut history = History::default();
        let now = Instant::now();
        for serial in 0..10 {
            push(&mut history, serial, MAX_OCTETS / 4, now);
        }
        assert_eq!(kept(&history), vec![5, 6, 7, 8]);

        history.push(&zone(), Version::new(10, Arc::new(())), None, now);
        assert_eq!(
            kept(&history),
            Vec::<u32>::new(),
            "no step leads past a version without difference"
        );
        push(&mut history, 11, 10, now);
        assert_eq!(kept(&history), vec![10]);
    }
}
