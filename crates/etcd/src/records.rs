//! The records of a zone for the DNS server (see [`skydns::Records`]). They are made from SkyDNS
//! messages: the values of the keys in etcd. [`MergedRecords`] combines the records of one domain
//! from several etcd clusters, or from several key prefixes.

use std::any::Any;
use std::borrow::Cow;

use skydns::{Entry, EntryVisit, Host, Lookup, Records, ServiceRecord};

use crate::tree::{MessageTree, StoredMessage};

/// The records of a zone; `None` before the first list.
#[derive(Debug, Clone, Default)]
pub struct ZoneRecords(Option<MessageTree>);

impl From<MessageTree> for ZoneRecords {
    fn from(tree: MessageTree) -> Self {
        Self(Some(tree))
    }
}

impl Records for ZoneRecords {
    fn has_synced(&self) -> bool {
        self.0.is_some()
    }

    fn visit_entries<'v>(&'v self, visit: EntryVisit<'_, 'v>) -> Lookup {
        let EntryVisit {
            path,
            exact,
            steps,
            on_entry: visit,
        } = visit;
        let Some(tree) = &self.0 else {
            return Lookup::Missing;
        };
        let found = if exact {
            tree.message_at(path).map(|stored| vec![stored])
        } else {
            tree.find_messages(path, steps)
        };
        let Some(found) = found else {
            return Lookup::Missing;
        };

        for stored in found {
            visit(stored.as_entry());
        }
        Lookup::Exists
    }

    fn is_enumerable(&self) -> bool {
        true
    }

    fn owner_names(&self, unlike: Option<&dyn Records>, visit: &mut dyn FnMut(&[&str])) {
        let other = unlike.and_then(|other| (other as &dyn Any).downcast_ref::<Self>());
        if let Some(tree) = &self.0 {
            tree.visit_names(other.and_then(|other| other.0.as_ref()), visit);
        }
    }

    fn has_descendants(&self, path: &[&str]) -> bool {
        self.0
            .as_ref()
            .is_some_and(|tree| tree.has_key_within(path))
    }
}

impl StoredMessage {
    fn as_entry(&self) -> Entry<'_> {
        let message = &self.message;
        // The name is borrowed, so that a lookup copies no names.
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

/// The records of one domain from several sources. Each source is one key prefix, such as
/// `/skydns`, in one etcd cluster. Queries for a name are answered by the first source that has the
/// name.
#[derive(Debug, Clone, Default)]
pub struct MergedRecords(pub Vec<ZoneRecords>);

impl Records for MergedRecords {
    fn has_synced(&self) -> bool {
        self.0.iter().any(Records::has_synced)
    }

    fn visit_entries<'v>(&'v self, visit: EntryVisit<'_, 'v>) -> Lookup {
        for source in &self.0 {
            let lookup = source.visit_entries(EntryVisit {
                path: visit.path,
                exact: visit.exact,
                steps: visit.steps,
                on_entry: visit.on_entry,
            });
            if lookup != Lookup::Missing {
                return lookup;
            }
        }
        Lookup::Missing
    }

    fn is_enumerable(&self) -> bool {
        true
    }

    fn owner_names(&self, unlike: Option<&dyn Records>, visit: &mut dyn FnMut(&[&str])) {
        let other = unlike.and_then(|other| (other as &dyn Any).downcast_ref::<Self>());
        let other = other.filter(|other| other.0.len() == self.0.len());

        for (at, source) in self.0.iter().enumerate() {
            let counterpart = other
                .and_then(|other| other.0.get(at))
                .map(|source| source as &dyn Records);
            // If an earlier source has the name, only that source answers queries for the name.
            let before = self.0.get(..at).unwrap_or_default();
            source.owner_names(counterpart, &mut |path| {
                if !before.iter().any(|source| source.has_descendants(path)) {
                    visit(path);
                }
            });
        }
    }

    fn has_descendants(&self, path: &[&str]) -> bool {
        self.0.iter().any(|source| source.has_descendants(path))
    }
}
