//! The position of a feed: within a list, or at a resource version from which a watch can resume.
//! Whether the next step is a watch or a list depends on how the last step ended, and on the
//! history of the API server's database.
//!
//! A resource version has a meaning only within one history of the database. A database that was
//! wiped or restored starts a new history. A watch from an old version would then wait forever or
//! miss changes. The API does not identify a history, but two signs reveal a new history. Either
//! the current version is lower than the last known version, or the collection's first object has
//! the same name but a different UID. Watch events update the known UID, because an object that is
//! recreated during a watch proves nothing. A new history may go undetected if the feed stays
//! disconnected until the new history has passed the last known version. The feed then misses
//! changes.

use std::time::Duration;

use smol_str::SmolStr;
use tokio::time::Instant;

use super::encoding::ListMeta;
use super::failure::RequestFailure;
use super::request::ListExtent;
use crate::objects::{ObjectIdentity, ObjectKey};

/// Number of objects per page.
const PAGE: u32 = 500;
/// Maximum number of pages of a list.
const MAX_PAGES: usize = 100_000;
/// Maximum time for which a failed page is requested again. API servers forget the token of a page
/// after five minutes.
const TOKEN_LIFE: Duration = Duration::from_mins(4);
/// The value of [`WatchPosition::unreadable`] at which a new list replaces the watch.
const MAX_UNREADABLE: u32 = 5;
/// Shortest duration of a watch. A shorter watch is treated as a failure, so the next watch is
/// delayed.
const SHORTEST_WATCH: Duration = Duration::from_secs(1);
/// A watch that ends at most this long before the requested end is on time. The request for a
/// watch gives the duration in whole seconds, rounded down.
const WATCH_ROUNDING: Duration = Duration::from_secs(2);

/// The next step of a feed.
#[derive(Debug)]
pub(super) enum FeedPosition {
    /// The next page of a list.
    Listing(ListPosition),
    /// A watch.
    Watching(WatchPosition),
}

impl Default for FeedPosition {
    fn default() -> Self {
        Self::Listing(ListPosition::default())
    }
}

impl FeedPosition {
    /// Begins a new list if the failure makes this position useless. Returns whether a new list
    /// begins.
    pub(super) fn relist_if_lost(&mut self, failure: &RequestFailure) -> bool {
        let next = match self {
            Self::Listing(listing) => listing.is_lost(failure).then(ListPosition::most_recent),
            Self::Watching(watching) => watching.list_if_lost(failure),
        };

        let Some(listing) = next else {
            return false;
        };
        *self = Self::Listing(listing);
        true
    }
}

/// A list in progress.
#[derive(Debug)]
pub(super) struct ListPosition {
    /// The next request.
    pub(super) extent: ListExtent,
    /// The resource version and the first object of the pages so far; `None` before the first page
    /// is complete.
    history: Option<DatabaseHistory>,
    pages: usize,
    /// The time when requests for the next page began to fail.
    failing: Option<Instant>,
}

impl Default for ListPosition {
    /// Begins with the same request as kube-dns: a list at any resource version, from the API
    /// server's watch cache.
    fn default() -> Self {
        Self::new(ListExtent::Cached("0".to_owned()))
    }
}

impl ListPosition {
    fn new(extent: ListExtent) -> Self {
        Self {
            extent,
            history: None,
            pages: 0,
            failing: None,
        }
    }

    /// A list at the most recent resource version, even if the responding API server lags behind.
    fn most_recent() -> Self {
        Self::new(ListExtent::first_page(PAGE))
    }

    /// Whether no page is complete yet.
    pub(super) fn is_new(&self) -> bool {
        self.history.is_none()
    }

    /// Requests fewer objects at once. Returns false if a page already has a single object.
    pub(super) fn shrink_page(&mut self) -> bool {
        match &mut self.extent {
            ListExtent::Page { limit: 1, .. } => return false,
            ListExtent::Page { limit, .. } => *limit = (*limit / 8).max(1),
            // API servers may ignore the limit of a list from the watch cache. So the pages come
            // from a list at the most recent resource version.
            cached @ ListExtent::Cached(_) => *cached = ListExtent::first_page(PAGE),
        }
        true
    }

    /// Notes the end of a page, whose objects are already noted in `history`. Returns the history
    /// if this page was the last page.
    pub(super) fn finish_page(
        &mut self,
        meta: ListMeta,
        mut history: DatabaseHistory,
    ) -> Option<DatabaseHistory> {
        history.advance(&meta.resource_version);
        self.pages += 1;
        // The next page has a new token, for which `TOKEN_LIFE` starts again.
        self.failing = None;
        if meta.r#continue.is_empty() {
            return Some(history);
        }

        let limit = match self.extent {
            ListExtent::Page { limit, .. } => limit,
            ListExtent::Cached(_) => PAGE,
        };
        self.extent = ListExtent::Page {
            limit,
            token: Some(meta.r#continue),
        };
        self.history = Some(history);
        None
    }

    /// The resource version and the first object of the pages so far.
    pub(super) fn history(&self) -> DatabaseHistory {
        self.history.clone().unwrap_or_default()
    }

    /// Whether the list has reached [`MAX_PAGES`].
    pub(super) fn is_endless(&self) -> bool {
        self.pages >= MAX_PAGES
    }

    /// Whether a new list must replace this list. A failed page is requested again with its token,
    /// as long as the API server may know the token. The time is bounded: after a restore of the
    /// database, an old token may fail forever without a distinct error.
    fn is_lost(&mut self, failure: &RequestFailure) -> bool {
        let failing_since = *self.failing.get_or_insert_with(Instant::now);

        match &self.extent {
            // Resource version "0" means any version, so such a list depends on no history.
            ListExtent::Cached(version) => version != "0" && failure.ends_history(),
            ListExtent::Page { token: None, .. } => false,
            ListExtent::Page { token: Some(_), .. } => {
                // The API server answers 400 to a token that it cannot read.
                let is_rejected = matches!(failure, RequestFailure::Server { code: 400, .. });
                let is_unknown = failure.ends_history() || is_rejected;
                is_unknown || self.is_endless() || failing_since.elapsed() >= TOKEN_LIFE
            }
        }
    }
}

/// A watch in progress.
#[derive(Debug)]
pub(super) struct WatchPosition {
    pub(super) history: DatabaseHistory,
    /// Whether the last watch failed, or ended early or silently. The API server's database may
    /// then have been wiped or restored, so the [`DatabaseHistory`] must be checked.
    pub(super) must_check_history: bool,
    /// Whether the last watch ended as [`WatchEnd::Silent`].
    pub(super) was_silent: bool,
    /// Number of failures of open watches since the last event was handled. Only failures with
    /// [`RequestFailure::is_unreadable`] count. At [`MAX_UNREADABLE`], a new list replaces the
    /// watch: the next event may be unreadable, and each resumed watch would fail at this event
    /// again.
    pub(super) unreadable: u32,
}

impl WatchPosition {
    pub(super) fn new(history: DatabaseHistory) -> Self {
        Self {
            history,
            must_check_history: false,
            was_silent: false,
            unreadable: 0,
        }
    }

    /// The list that must replace the watch after `failure`; `None` if the watch can be resumed.
    fn list_if_lost(&mut self, failure: &RequestFailure) -> Option<ListPosition> {
        // A list from the watch cache is enough if it is not older than the expired version.
        if matches!(failure, RequestFailure::Expired(_)) {
            let version = std::mem::take(&mut self.history.version);
            return Some(ListPosition::new(ListExtent::Cached(version)));
        }

        let is_lost = failure.ends_history() || self.unreadable >= MAX_UNREADABLE;
        is_lost.then(ListPosition::most_recent)
    }
}

/// The end of a watch without a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WatchEnd {
    /// The watch ended at about the requested time, with events or bookmarks.
    OnTime,
    /// The watch ended early. The API server may be shutting down, and may return with a wiped or
    /// restored database.
    Early,
    /// The watch had no event at all, or none for too long, or did not end in time. If the database
    /// was wiped or restored, a watch from an old version is silent, too.
    Silent,
}

impl WatchEnd {
    /// Assesses a watch that lasted for `actual` of the `requested` duration.
    pub(super) fn assess(
        actual: Duration,
        requested: Duration,
        is_silent: bool,
    ) -> Result<Self, RequestFailure> {
        if actual < SHORTEST_WATCH {
            return Err(RequestFailure::Brief(actual));
        }

        Ok(if is_silent {
            Self::Silent
        } else if actual + WATCH_ROUNDING < requested {
            Self::Early
        } else {
            Self::OnTime
        })
    }
}

/// The progress of a list or a watch within one history of the database.
#[derive(Debug, Clone, Default)]
pub(super) struct DatabaseHistory {
    /// The resource version to resume from.
    pub(super) version: String,
    /// The collection's first object, as of `version`; `None` if it is unknown.
    first: Option<ObjectIdentity>,
}

impl DatabaseHistory {
    /// Notes an object of the list. Paths are compared, because lists from the watch cache need not
    /// be in the order of paths in the database.
    pub(super) fn note_listed(&mut self, key: &ObjectKey, uid: &SmolStr) {
        let is_first = match &self.first {
            Some(first) => database_path(key).lt(database_path(&first.key)),
            None => true,
        };
        if is_first {
            self.first = Some(ObjectIdentity {
                key: key.clone(),
                uid: uid.clone(),
            });
        }
    }

    /// Notes an object of a watch event. Without a known first object, the event does not show
    /// which object is first.
    pub(super) fn note_changed(&mut self, key: &ObjectKey, uid: &SmolStr) {
        if let Some(first) = &mut self.first
            && database_path(key).le(database_path(&first.key))
        {
            first.key.clone_from(key);
            first.uid.clone_from(uid);
        }
    }

    /// Notes that an object was deleted, or cannot be read any more.
    pub(super) fn note_deleted(&mut self, key: &ObjectKey) {
        self.first.take_if(|first| first.key == *key);
    }

    /// Advances the version; an empty version is ignored.
    pub(super) fn advance(&mut self, version: &str) {
        if !version.is_empty() {
            version.clone_into(&mut self.version);
        }
    }

    /// Compares this history with the version and the first object of a new list. If they do not
    /// contradict the history, the first object of the new list is remembered.
    pub(super) fn check_continues(
        &mut self,
        version: &str,
        first: Option<ObjectIdentity>,
    ) -> Result<(), RequestFailure> {
        // A version that is not a number cannot be compared, so it proves nothing.
        if let Ok(now) = version.parse::<u64>()
            && let Ok(known) = self.version.parse::<u64>()
            && now < known
        {
            let sign = format!("it is at resource version {now} and was at {known}");
            return Err(RequestFailure::OtherHistory(sign));
        }

        // A first object with another key proves nothing, because objects come and go while no
        // watch is open.
        if let Some(known) = &self.first
            && let Some(first) = &first
            && known.key == first.key
            && known.uid != first.uid
        {
            let sign = format!("{} was recreated while no watch was open", first.key);
            return Err(RequestFailure::OtherHistory(sign));
        }

        self.first = first;
        Ok(())
    }
}

/// The end of an object's path in the database: namespace and name.
fn database_path(key: &ObjectKey) -> impl Iterator<Item = u8> {
    key.namespace.bytes().chain(*b"/").chain(key.name.bytes())
}

#[cfg(test)]
mod tests;
