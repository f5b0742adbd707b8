//! A map from domains to values. The value for a name is that of the longest domain that contains
//! the name.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use wire::name::{Name, labels};

/// Values by domain in wire format and lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DomainMap<T> {
    domains: HashMap<Box<[u8]>, T, RandomState>,
}

impl<T> DomainMap<T> {
    pub(crate) fn insert(&mut self, domain: &Name, value: T) {
        self.domains
            .insert(domain.to_lowercase().wire().into(), value);
    }

    /// The longest domain that contains `name` (wire format, lower case), with its value. An empty
    /// map returns `None` at once.
    pub(crate) fn find<'n>(&self, name: &'n [u8]) -> Option<(&'n [u8], &T)> {
        if self.domains.is_empty() {
            return None;
        }

        // At most 128 domains contain a name.
        let mut domain = name;
        loop {
            if let Some(value) = self.domains.get(domain) {
                return Some((domain, value));
            }
            domain = parent(domain)?;
        }
    }

    /// The number of domains.
    pub(crate) fn len(&self) -> usize {
        self.domains.len()
    }

    /// All domains with their values, in any order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &T)> {
        self.domains
            .iter()
            .map(|(domain, value)| (&**domain, value))
    }
}

impl<T> Default for DomainMap<T> {
    fn default() -> Self {
        Self {
            domains: HashMap::default(),
        }
    }
}

/// The name without its first label; `None` for the root.
pub(crate) fn parent(name: &[u8]) -> Option<&[u8]> {
    let first = labels(name).next()?;
    name.get(1 + first.len()..)
}
