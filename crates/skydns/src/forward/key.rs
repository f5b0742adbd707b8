//! The key of a query. A query in flight and its entry in the cache have the same key, so the reply
//! fills the entry of exactly that query.

use std::hash::{Hash, Hasher};
use std::ops::RangeInclusive;
use std::sync::Arc;

use wire::Upstream;

use super::options;
use super::query::{QueryKind, UpstreamQuery};

pub(super) type UpstreamList = Arc<[Upstream]>;

/// Query types that are not record types (RFC 6895, section 3.1), for example transfers and ANY.
const QUESTIONS_ONLY: RangeInclusive<u16> = 128..=255;

/// A query and its upstreams. Queries with equal keys get the same reply.
#[derive(Debug)]
pub(super) struct QueryKey {
    pub(super) query: UpstreamQuery,
    pub(super) upstreams: UpstreamList,
}

impl QueryKey {
    /// Whether the reply may be cached: the query is for one type of records, and has no forwarded
    /// options. An option such as a client subnet may change the reply.
    pub(super) fn is_cacheable(&self) -> bool {
        self.query.options.is_empty() && !QUESTIONS_ONLY.contains(&self.query.kind.qtype)
    }

    pub(super) fn borrowed(&self) -> BorrowedQueryKey<'_> {
        let UpstreamQuery {
            name,
            kind,
            options,
        } = &self.query;
        BorrowedQueryKey {
            name,
            kind: *kind,
            options,
            upstreams: &self.upstreams,
        }
    }
}

/// A [`QueryKey`] with borrowed name and upstreams, for lookups without allocation.
#[derive(Clone, Copy, Debug)]
pub(super) struct BorrowedQueryKey<'a> {
    /// QNAME in wire format, in lower case.
    pub(super) name: &'a [u8],
    pub(super) kind: QueryKind,
    /// EDNS options; see [`UpstreamQuery`].
    pub(super) options: &'a [u8],
    pub(super) upstreams: &'a UpstreamList,
}

impl<'a> BorrowedQueryKey<'a> {
    /// The key of a client's query in the cache; `None` if its reply must not be cached.
    pub(super) fn of_client(
        query: &'a wire::Query<'_>,
        upstreams: &'a UpstreamList,
    ) -> Option<Self> {
        let forwarded = query
            .edns
            .map(|edns| options::forwarded_options(edns.options));
        let plain = forwarded.is_none_or(|options| options.is_empty());
        // As in `QueryKey::is_cacheable`.
        if !plain || QUESTIONS_ONLY.contains(&query.qtype) {
            return None;
        }

        Some(Self {
            name: query.lower(),
            kind: QueryKind::of_client(query),
            options: &[],
            upstreams,
        })
    }
}

impl PartialEq for BorrowedQueryKey<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind
            && self.name == other.name
            && self.options == other.options
            && has_same_upstreams(self.upstreams, other.upstreams)
    }
}

impl Eq for BorrowedQueryKey<'_> {}

/// Compares two lists. Usually both are the same list in memory.
fn has_same_upstreams(one: &UpstreamList, other: &UpstreamList) -> bool {
    Arc::ptr_eq(one, other) || one == other
}

impl Hash for BorrowedQueryKey<'_> {
    // The hash leaves out the upstreams: few lists of upstreams are used for the same name.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
        self.kind.hash(state);
        self.options.hash(state);
    }
}

impl PartialEq for QueryKey {
    fn eq(&self, other: &Self) -> bool {
        self.borrowed() == other.borrowed()
    }
}

impl Eq for QueryKey {}

impl Hash for QueryKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.borrowed().hash(state);
    }
}
