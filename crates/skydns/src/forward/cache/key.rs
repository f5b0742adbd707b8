//! Keys of the cache: questions with the same key get the same reply.

use std::hash::{Hash, Hasher};
use std::ops::RangeInclusive;
use std::sync::Arc;

use dnsconfig::Upstream;
use quick_cache::Equivalent;

use crate::forward::inflight::Key;
use crate::forward::options;
use crate::wire::Edns;

/// The upstreams of a question, the first preferred.
pub(super) type Upstreams = Arc<[Upstream]>;

/// Types of questions that are no types of records (RFC 6895, section 3.1): transfers, ANY and the like.
const QUESTIONS_ONLY: RangeInclusive<u16> = 128..=255;

/// Everything a reply depends on beside the name and the upstreams. Not the UDP size: truncated replies are not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct QueryKind {
    qtype: u16,
    qclass: u16,
    /// RD, AD and CD.
    flags: u16,
    dnssec_ok: bool,
}

impl QueryKind {
    /// `None` where the reply must not be kept: somebody else may get another one.
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

/// A question and whom it was asked of.
#[derive(Clone, Debug)]
pub(super) struct CacheKey {
    /// QNAME in wire format and lower case.
    name: Box<[u8]>,
    kind: QueryKind,
    upstreams: Upstreams,
}

impl CacheKey {
    /// The question under way as it is kept, if it is.
    pub(super) fn of(Key { query, upstreams }: &Key) -> Option<Self> {
        let kind = QueryKind::of(query.qtype, query.qclass, query.flags, query.edns.as_ref())?;
        Some(Self { name: query.name.to_ascii_lowercase().into(), kind, upstreams: Arc::clone(upstreams) })
    }

    fn borrowed(&self) -> BorrowedKey<'_> {
        BorrowedKey { name: &self.name, kind: self.kind, upstreams: &self.upstreams }
    }
}

/// The same, borrowed from a query.
#[derive(Clone, Copy, Debug)]
pub(super) struct BorrowedKey<'a> {
    /// QNAME in wire format and lower case.
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
    // Few lists of upstreams are asked for one name, so they need not tell hashes apart.
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
