//! The messages of a zone as records of the DNS server, see [`skydns::Records`].

use std::any::Any;
use std::borrow::Cow;

use skydns::{Entry, Host, Lookup, Records, ServiceRecord};

use crate::tree::{Stored, Tree};

/// The records of a zone; `None` before the first list.
#[derive(Debug, Clone, Default)]
pub struct ZoneRecords(Option<Tree>);

impl From<Tree> for ZoneRecords {
    fn from(tree: Tree) -> Self {
        Self(Some(tree))
    }
}

impl Records for ZoneRecords {
    fn has_synced(&self) -> bool {
        self.0.is_some()
    }

    fn records<'v>(
        &'v self,
        path: &[&str],
        exact: bool,
        steps: &mut usize,
        visit: &mut dyn FnMut(Entry<'v>),
    ) -> Lookup {
        let Some(tree) = &self.0 else {
            return Lookup::Missing;
        };
        let exactly = || tree.exactly(path).map(|stored| vec![stored]);
        let found = if exact {
            exactly()
        } else {
            tree.find(path, steps)
        };
        let Some(found) = found else {
            return Lookup::Missing;
        };
        for stored in found {
            visit(stored.entry());
        }
        Lookup::Exists
    }

    fn is_enumerable(&self) -> bool {
        true
    }

    fn owner_names(&self, unlike: Option<&dyn Records>, visit: &mut dyn FnMut(&[&str])) {
        let other = unlike.and_then(|other| (other as &dyn Any).downcast_ref::<Self>());
        if let Some(tree) = &self.0 {
            tree.names(other.and_then(|other| other.0.as_ref()), visit);
        }
    }

    fn has_descendants(&self, path: &[&str]) -> bool {
        self.0.as_ref().is_some_and(|tree| tree.holds(path))
    }
}

impl Stored {
    fn entry(&self) -> Entry<'_> {
        let message = &self.message;
        let host = match &message.host {
            Host::Name(name) => Host::Name(Cow::Borrowed(name)),
            other => other.clone(),
        };
        let record = ServiceRecord {
            port: message.port,
            ttl: message.ttl,
            priority: message.priority,
            weight: message.weight,
            extras: Some(&message.extras),
            ..ServiceRecord::new(host, &self.base)
        };
        Entry {
            label: &self.label,
            record,
            synthesized: false,
        }
    }
}

/// The records of several sources for one domain. Queries for a name are answered by the first
/// source that has the name.
#[derive(Debug, Clone, Default)]
pub struct Merged(pub Vec<ZoneRecords>);

impl Records for Merged {
    fn has_synced(&self) -> bool {
        self.0.iter().any(Records::has_synced)
    }

    fn records<'v>(
        &'v self,
        path: &[&str],
        exact: bool,
        steps: &mut usize,
        visit: &mut dyn FnMut(Entry<'v>),
    ) -> Lookup {
        let mut places = self
            .0
            .iter()
            .map(|place| place.records(path, exact, steps, visit));
        places
            .find(|lookup| *lookup != Lookup::Missing)
            .unwrap_or(Lookup::Missing)
    }

    fn is_enumerable(&self) -> bool {
        true
    }

    fn owner_names(&self, unlike: Option<&dyn Records>, visit: &mut dyn FnMut(&[&str])) {
        let other = unlike.and_then(|other| (other as &dyn Any).downcast_ref::<Self>());
        let other = other.filter(|other| other.0.len() == self.0.len());
        for (at, place) in self.0.iter().enumerate() {
            let before = self.0.get(..at).unwrap_or_default();
            let counterpart = other
                .and_then(|other| other.0.get(at))
                .map(|place| place as &dyn Records);
            place.owner_names(counterpart, &mut |path| {
                if !before.iter().any(|place| place.has_descendants(path)) {
                    visit(path);
                }
            });
        }
    }

    fn has_descendants(&self, path: &[&str]) -> bool {
        self.0.iter().any(|place| place.has_descendants(path))
    }
}
