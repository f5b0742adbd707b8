//! The position of a feed: within a list, or at a version from which a watch can resume.

use std::time::Duration;

use tokio::time::Instant;

use super::collection::Extent;
use super::encoding::ListMeta;
use super::failure::Failure;
use super::history::History;

/// Number of objects per page.
const PAGE: u32 = 500;
/// Bound of the pages of a list.
const MAX_PAGES: usize = 100_000;
/// Time for which a failed page is requested again. API servers forget the token of a page after
/// five minutes.
const TOKEN_LIFE: Duration = Duration::from_mins(4);
/// Bound of consecutive unreadable events of a watch.
const MAX_UNREADABLE: u32 = 5;

/// The next step.
#[derive(Debug)]
pub(super) enum Position {
    /// The next page of a list.
    Listing(ListPosition),
    /// A watch.
    Watching(Watching),
}

impl Default for Position {
    fn default() -> Self {
        Self::Listing(ListPosition::default())
    }
}

impl Position {
    /// Notes a failure. Returns whether the position is lost, so that a new list begins.
    pub(super) fn fail(&mut self, failure: &Failure) -> bool {
        let next = match self {
            Self::Listing(listing) => listing.is_lost(failure).then(ListPosition::most_recent),
            // A list from the watch cache is enough, if it is not older than the expired version.
            Self::Watching(watching) if matches!(failure, Failure::Expired(_)) => {
                Some(ListPosition::new(Extent::Cached(std::mem::take(
                    &mut watching.history.version,
                ))))
            }
            Self::Watching(watching) => {
                let lost = failure.ends_history() || watching.unreadable >= MAX_UNREADABLE;
                lost.then(ListPosition::most_recent)
            }
        };
        let lost = next.is_some();
        if let Some(listing) = next {
            *self = Self::Listing(listing);
        }
        lost
    }
}

/// A list in progress.
#[derive(Debug)]
pub(super) struct ListPosition {
    /// The next request.
    pub(super) extent: Extent,
    /// The history of the pages so far.
    history: Option<History>,
    pages: usize,
    /// The time since which requests of the next page have failed.
    failing: Option<Instant>,
}

impl Default for ListPosition {
    /// Begins with the request of kube-dns: any version, from the API server's watch cache.
    fn default() -> Self {
        Self::new(Extent::Cached("0".to_owned()))
    }
}

impl ListPosition {
    fn new(extent: Extent) -> Self {
        Self {
            extent,
            history: None,
            pages: 0,
            failing: None,
        }
    }

    /// A list of the most recent version, even if the responding API server lags behind.
    fn most_recent() -> Self {
        Self::new(Extent::Page {
            limit: PAGE,
            token: None,
        })
    }

    /// Whether no page has been received.
    pub(super) fn is_new(&self) -> bool {
        self.history.is_none()
    }

    /// Requests fewer objects at once. Returns false if a page already has a single object.
    pub(super) fn shrink(&mut self) -> bool {
        match &mut self.extent {
            Extent::Page { limit: 1, .. } => return false,
            Extent::Page { limit, .. } => *limit = (*limit / 8).max(1),
            cached @ Extent::Cached(_) => {
                *cached = Extent::Page {
                    limit: PAGE,
                    token: None,
                }
            }
        }
        true
    }

    /// Notes the end of a page. `history` includes the objects of the page. Returns the history
    /// after the last page.
    pub(super) fn advance(&mut self, meta: ListMeta, mut history: History) -> Option<History> {
        history.advance(&meta.resource_version);
        self.pages += 1;
        self.failing = None;
        if meta.r#continue.is_empty() {
            return Some(history);
        }
        let limit = if let Extent::Page { limit, .. } = self.extent {
            limit
        } else {
            PAGE
        };
        self.extent = Extent::Page {
            limit,
            token: Some(meta.r#continue),
        };
        self.history = Some(history);
        None
    }

    /// The history of the pages so far.
    pub(super) fn history(&self) -> History {
        self.history.clone().unwrap_or_default()
    }

    /// Whether the list exceeds the bound of pages.
    pub(super) fn is_endless(&self) -> bool {
        self.pages >= MAX_PAGES
    }

    /// Whether the pages so far are lost. A failed page is requested again with its token, as long
    /// as the API server may know the token. The time is bounded: after a restore of the database,
    /// an old token may fail forever without a distinct error.
    fn is_lost(&mut self, failure: &Failure) -> bool {
        let since = *self.failing.get_or_insert_with(Instant::now);
        match &self.extent {
            Extent::Cached(version) => version != "0" && failure.ends_history(),
            Extent::Page { token: None, .. } => false,
            Extent::Page { token: Some(_), .. } => {
                let unknown =
                    failure.ends_history() || matches!(failure, Failure::Server { code: 400, .. });
                unknown || self.is_endless() || since.elapsed() >= TOKEN_LIFE
            }
        }
    }
}

/// A watch in progress.
#[derive(Debug)]
pub(super) struct Watching {
    pub(super) history: History,
    /// Whether the last watch ended early or silently. The API server's database may then have been
    /// wiped or restored, so that the [`History`] must be checked.
    pub(super) doubtful: bool,
    /// Whether the last watch ended without an event.
    pub(super) was_silent: bool,
    /// Number of consecutive unreadable watches. After [`MAX_UNREADABLE`], a new list avoids the
    /// event that cannot be read.
    pub(super) unreadable: u32,
}

impl Watching {
    pub(super) fn new(history: History) -> Self {
        Self {
            history,
            doubtful: false,
            was_silent: false,
            unreadable: 0,
        }
    }
}
