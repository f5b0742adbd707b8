//! Where a feed stands: in the middle of a list, or behind a version that a watch can go on from.

use std::time::Duration;

use tokio::time::Instant;

use super::failure::Failure;
use super::history::History;
use super::page::Page;

/// How many objects are asked for at a time.
const PAGE: u32 = 500;
/// How many pages a list may have.
const MAX_PAGES: usize = 100_000;
/// How long a page that fails is asked for again. API servers forget its token after five minutes.
const TOKEN_LIFE: Duration = Duration::from_mins(4);
/// How often in a row the events of a watch may be unreadable.
const MAX_UNREADABLE: u32 = 5;

/// What is to be done next.
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
        let lost = match self {
            Self::Listing(listing) => listing.is_lost(failure),
            Self::Watching(watching) => failure.ends_history() || watching.unreadable >= MAX_UNREADABLE,
        };
        if lost {
            *self = Self::default();
        }
        lost
    }
}

/// A list under way.
#[derive(Debug)]
pub(super) struct Listing {
    /// How many objects the next page may have.
    pub(super) limit: u32,
    /// The token of the next page.
    pub(super) token: Option<String>,
    /// What the pages so far belong to.
    history: Option<History>,
    pages: usize,
    /// Since when the next page fails.
    failing: Option<Instant>,
}

impl Default for Listing {
    fn default() -> Self {
        Self { limit: PAGE, token: None, history: None, pages: 0, failing: None }
    }
}

impl Listing {
    /// No page has been received.
    pub(super) fn is_new(&self) -> bool {
        self.history.is_none()
    }

    /// Makes pages smaller. False if they are as small as can be.
    pub(super) fn shrink(&mut self) -> bool {
        let limit = (self.limit / 8).max(1);
        std::mem::replace(&mut self.limit, limit) != limit
    }

    /// Goes on behind `page`. Returns the history if it was the last one.
    pub(super) fn advance(&mut self, page: &mut Page<'_>) -> Option<History> {
        self.history.get_or_insert_with(|| History::begin(page)).advance(&page.version);
        self.pages += 1;
        self.failing = None;
        self.token = page.continued.take();
        if self.token.is_none() { self.history.take() } else { None }
    }

    /// More pages than any list has.
    pub(super) fn is_endless(&self) -> bool {
        self.pages >= MAX_PAGES
    }

    /// Are the pages so far worthless? A page that fails is asked for again by its token, unless the API server does
    /// not know that any more. One that belongs to another history may fail for ever without saying so.
    fn is_lost(&mut self, failure: &Failure) -> bool {
        let since = *self.failing.get_or_insert_with(Instant::now);
        let unknown = failure.ends_history() || matches!(failure, Failure::Server { code: 400, .. });
        self.token.is_some() && (unknown || self.is_endless() || since.elapsed() >= TOKEN_LIFE)
    }
}

/// A history that is watched.
#[derive(Debug)]
pub(super) struct Watching {
    pub(super) history: History,
    /// The last watch did not end as agreed: the API server may be back with another history.
    pub(super) doubtful: bool,
    /// How often in a row the watch could not be read. Resumed for ever, it would be stuck at the same event.
    pub(super) unreadable: u32,
}

impl Watching {
    pub(super) fn new(history: History) -> Self {
        Self { history, doubtful: false, unreadable: 0 }
    }
}
