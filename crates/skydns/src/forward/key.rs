//! The key of a query, one and the same for queries in flight and for the cache: a reply to a query
//! in flight fills the entry of exactly that query.

use std::hash::{Hash, Hasher};
use std::ops::RangeInclusive;
use std::sync::Arc;

use dnsconfig::Upstream;
use quick_cache::Equivalent;

use super::options;
use super::query::{Query, QueryKind};
use crate::wire;

pub(super) type Upstreams = Arc<[Upstream]>;

/// Query types that are not record types (RFC 6895, section 3.1), for example transfers and ANY.
const QUESTIONS_ONLY: RangeInclusive<u16> = 128..=255;

/// A query and its upstreams. Queries with equal keys get the same reply.
#[derive(Debug)]
pub(super) struct Key {
    pub(super) query: Query,
    pub(super) upstreams: Upstreams,
}

impl Key {
    /// Whether the reply may be cached. If not, another client may get a different reply.
    pub(super) fn is_cacheable(&self) -> bool {
        self.query.options.is_empty() && !QUESTIONS_ONLY.contains(&self.query.kind.qtype)
    }

    fn borrowed(&self) -> BorrowedKey<'_> {
        let Query {
            name,
            kind,
            options,
        } = &self.query;
        BorrowedKey {
            name,
            kind: *kind,
            options,
            upstreams: &self.upstreams,
        }
    }
}

/// A [`Key`] with borrowed name and upstreams, for lookups without allocation.
#[derive(Clone, Copy, Debug)]
pub(super) struct BorrowedKey<'a> {
    /// QNAME in wire format, in lower case.
    name: &'a [u8],
    kind: QueryKind,
    options: &'a [u8],
    upstreams: &'a Upstreams,
}

impl<'a> BorrowedKey<'a> {
    /// The key of a client's query; `None` if its reply is not cached.
    pub(super) fn of_client(query: &'a wire::Query<'_>, upstreams: &'a Upstreams) -> Option<Self> {
        let forwarded = query.edns.map(|edns| options::forwarded(edns.options));
        let plain = forwarded.is_none_or(|options| options.is_empty());
        let cacheable = plain && !QUESTIONS_ONLY.contains(&query.qtype);
        cacheable.then(|| Self {
            name: query.lower(),
            kind: QueryKind::of_client(query),
            options: &[],
            upstreams,
        })
    }

    fn is_key(&self, key: &Key) -> bool {
        let same_upstreams =
            || Arc::ptr_eq(self.upstreams, &key.upstreams) || *self.upstreams == key.upstreams;
        let query = &key.query;
        self.kind == query.kind
            && *self.name == *query.name
            && *self.options == *query.options
            && same_upstreams()
    }
}

impl Equivalent<Arc<Key>> for BorrowedKey<'_> {
    fn equivalent(&self, key: &Arc<Key>) -> bool {
        self.is_key(key)
    }
}

impl Hash for BorrowedKey<'_> {
    // The hash leaves out the upstreams: few lists of upstreams are used for the same name.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
        self.kind.hash(state);
        self.options.hash(state);
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.borrowed().is_key(other)
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.borrowed().hash(state);
    }
}
