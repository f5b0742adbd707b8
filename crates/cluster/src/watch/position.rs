//! Where a feed stands: in the middle of a list, or behind a version that a watch can go on from.

use std::time::Duration;

use tokio::time::Instant;

use super::collection::Extent;
use super::encoding::ListMeta;
use super::failure::Failure;
use super::history::History;

/// Objects of a page.
const PAGE: u32 = 500;
/// Bound of the pages of a list.
const MAX_PAGES: usize = 100_000;
/// The time for which a page that fails is asked for again. API servers forget its token after five minutes.
const TOKEN_LIFE: Duration = Duration::from_mins(4);
/// Bound of unreadable events of a watch in a row.
const MAX_UNREADABLE: u32 = 5;

/// The next step.
#[derive(Debug)]
pub(super) enum Position {
    /// The next page of a list.
    Listing(Listing),
    /// A watch.
    Watching(Watching),
}

impl Default for Position {
    fn default() -> Self {
        Self::Listing(Listing::default())
    }
}

impl Position {
    /// Takes note of a failure. One that makes the position worthless leads back to the start of a list; returns
    /// whether it does.
    pub(super) fn fail(&mut self, failure: &Failure) -> bool {
        let next = match self {
            Self::Listing(listing) => listing.is_lost(failure).then(Listing::most_recent),
            // What the API server no longer tells in events may be in its memory.
            Self::Watching(watching) if matches!(failure, Failure::Expired(_)) => {
                Some(Listing::new(Extent::Cached(std::mem::take(&mut watching.history.version))))
            }
            Self::Watching(watching) => {
                let lost = failure.ends_history() || watching.unreadable >= MAX_UNREADABLE;
                lost.then(Listing::most_recent)
            }
        };
        let lost = next.is_some();
        if let Some(listing) = next {
            *self = Self::Listing(listing);
        }
        lost
    }
}

/// A list under way.
#[derive(Debug)]
pub(super) struct Listing {
    /// The next request.
    pub(super) extent: Extent,
    /// The list that the pages so far belong to.
    history: Option<History>,
    pages: usize,
    /// Since when the next page fails.
    failing: Option<Instant>,
}

impl Default for Listing {
    /// The request of kube-dns: any version, from the memory of the API server.
    fn default() -> Self {
        Self::new(Extent::Cached("0".to_owned()))
    }
}

impl Listing {
    fn new(extent: Extent) -> Self {
        Self { extent, history: None, pages: 0, failing: None }
    }

    /// A list that must not come from an API server that lags behind.
    fn most_recent() -> Self {
        Self::new(Extent::Page { limit: PAGE, token: None })
    }

    /// No page has been received.
    pub(super) fn is_new(&self) -> bool {
        self.history.is_none()
    }

    /// Asks for less at once. False if that cannot be.
    pub(super) fn shrink(&mut self) -> bool {
        match &mut self.extent {
            Extent::Page { limit: 1, .. } => return false,
            Extent::Page { limit, .. } => *limit = (*limit / 8).max(1),
            cached @ Extent::Cached(_) => *cached = Extent::Page { limit: PAGE, token: None },
        }
        true
    }

    /// Goes on behind a page, which shows this history so far. Returns it if the page was the last one.
    pub(super) fn advance(&mut self, meta: ListMeta, mut history: History) -> Option<History> {
        history.advance(&meta.resource_version);
        self.pages += 1;
        self.failing = None;
        if meta.r#continue.is_empty() {
            return Some(history);
        }
        let limit = if let Extent::Page { limit, .. } = self.extent { limit } else { PAGE };
        self.extent = Extent::Page { limit, token: Some(meta.r#continue) };
        self.history = Some(history);
        None
    }

    /// The list that the pages so far belong to.
    pub(super) fn history(&self) -> History {
        self.history.clone().unwrap_or_default()
    }

    /// More pages than any list has.
    pub(super) fn is_endless(&self) -> bool {
        self.pages >= MAX_PAGES
    }

    /// Are the pages so far worthless? A page that fails is asked for again by its token, unless the API server does
    /// not know that any more. One that belongs to another history may fail for ever without saying so.
    fn is_lost(&mut self, failure: &Failure) -> bool {
        let since = *self.failing.get_or_insert_with(Instant::now);
        match &self.extent {
            Extent::Cached(version) => version != "0" && failure.ends_history(),
            Extent::Page { token: None, .. } => false,
            Extent::Page { token: Some(_), .. } => {
                let unknown = failure.ends_history() || matches!(failure, Failure::Server { code: 400, .. });
                unknown || self.is_endless() || since.elapsed() >= TOKEN_LIFE
            }
        }
    }
}

/// A history that is watched.
#[derive(Debug)]
pub(super) struct Watching {
    pub(super) history: History,
    /// The last watch did not end as agreed: the API server may be back with another history.
    pub(super) doubtful: bool,
    /// Number of times in a row that the watch could not be read. Resumed for ever, it would be stuck at the same event.
    pub(super) unreadable: u32,
}

impl Watching {
    pub(super) fn new(history: History) -> Self {
        Self { history, doubtful: false, unreadable: 0 }
    }
}
