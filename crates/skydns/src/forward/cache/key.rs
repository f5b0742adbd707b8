//! Keys of the cache. Queries with equal keys get the same reply.

use std::hash::{Hash, Hasher};
use std::ops::RangeInclusive;
use std::sync::Arc;

use dnsconfig::Upstream;
use quick_cache::Equivalent;

use crate::forward::inflight::Key;
use crate::forward::options;
use crate::wire::Edns;

pub(super) type Upstreams = Arc<[Upstream]>;

/// Query types that are not record types (RFC 6895, section 3.1), for example transfers and ANY.
const QUESTIONS_ONLY: RangeInclusive<u16> = 128..=255;

/// Everything that a reply depends on, except the name and the upstreams. The UDP size is left out, because truncated
/// replies are not cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct QueryKind {
    qtype: u16,
    qclass: u16,
    /// RD, AD and CD.
    flags: u16,
    dnssec_ok: bool,
}

impl QueryKind {
    /// The kind of a query; `None` if the reply must not be cached, because another client may get a different reply.
    pub(super) fn of<O: AsRef<[u8]>>(
        qtype: u16,
        qclass: u16,
        flags: u16,
        edns: Option<&Edns<O>>,
    ) -> Option<Self> {
        let plain =
            |edns: &Edns<O>| edns.version == 0 && options::forwarded(edns.options.as_ref()).is_empty();
        let kept = !QUESTIONS_ONLY.contains(&qtype) && edns.is_none_or(plain);
        kept.then(|| Self { qtype, qclass, flags, dnssec_ok: edns.is_some_and(|edns| edns.dnssec_ok) })
    }
}

/// A query and its upstreams.
#[derive(Clone, Debug)]
pub(super) struct CacheKey {
    /// QNAME in wire format, lower case.
    name: Box<[u8]>,
    kind: QueryKind,
    upstreams: Upstreams,
}

impl CacheKey {
    /// The cache key of a query in flight; `None` if its reply must not be cached.
    pub(super) fn of(Key { query, upstreams }: &Key) -> Option<Self> {
        let kind = QueryKind::of(query.qtype, query.qclass, query.flags, query.edns.as_ref())?;
        Some(Self { name: query.name.to_ascii_lowercase().into(), kind, upstreams: Arc::clone(upstreams) })
    }

    fn borrowed(&self) -> BorrowedKey<'_> {
        BorrowedKey { name: &self.name, kind: self.kind, upstreams: &self.upstreams }
    }
}

/// A borrowed cache key.
#[derive(Clone, Copy, Debug)]
pub(super) struct BorrowedKey<'a> {
    /// QNAME in wire format, lower case.
    pub(super) name: &'a [u8],
    pub(super) kind: QueryKind,
    pub(super) upstreams: &'a Upstreams,
}

impl Equivalent<CacheKey> for BorrowedKey<'_> {
    fn equivalent(&self, key: &CacheKey) -> bool {
        let same_upstreams =
            || Arc::ptr_eq(self.upstreams, &key.upstreams) || *self.upstreams == key.upstreams;
        self.kind == key.kind && *self.name == *key.name && same_upstreams()
    }
}

impl Hash for BorrowedKey<'_> {
    // The hash leaves out the upstreams: few lists of upstreams are used for the same name.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
        self.kind.hash(state);
    }
}

impl PartialEq for CacheKey {
    fn eq(&self, other: &Self) -> bool {
        self.borrowed().equivalent(other)
    }
}

impl Eq for CacheKey {}

impl Hash for CacheKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.borrowed().hash(state);
    }
}
