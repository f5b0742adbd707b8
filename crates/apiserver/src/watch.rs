//! Watches: their parameters and their streams of events.
//!
//! A watch has no queue. Each watch remembers the version of its last event, and reads the later
//! events from the history of the resource after each change. If the history no longer contains the
//! next events of a slow watch, the watch ends with a 410.

mod stream;

use std::time::Duration;

use rand::RngExt as _;
use tokio::sync::watch::Receiver;

pub(crate) use self::stream::stream;
use crate::encode::Format;
use crate::faults::Signals;
use crate::kinds::Resource;
use crate::list::invalid_options;
use crate::query::Query;
use crate::selector::Selection;
use crate::status::Status;
use crate::store::Store;

/// Maximum duration of a watch that a client can request.
const LONGEST_REQUESTED: Duration = Duration::from_hours(24);

/// Minimum duration of a watch whose `timeoutSeconds` is missing or 0. The duration is random, up
/// to twice this value.
const SHORTEST_DEFAULT: Duration = Duration::from_mins(30);

/// Parameters of a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WatchQuery {
    /// The version after which the watch starts; `None` to start with all current objects.
    pub(crate) start: Option<u64>,
    /// Whether bookmarks are sent.
    pub(crate) bookmarks: bool,
    /// The duration after which the watch ends.
    pub(crate) timeout: Duration,
}

/// The data to start a watch.
pub(crate) struct Watch {
    pub(crate) store: Store,
    pub(crate) resource: Resource,
    pub(crate) selection: Selection,
    pub(crate) query: WatchQuery,
    pub(crate) format: Format,
    pub(crate) bookmark_period: Duration,
    pub(crate) signals: Receiver<Signals>,
}

impl WatchQuery {
    /// Parses and validates the parameters.
    pub(crate) fn parse(query: &Query) -> Result<Self, Status> {
        let start = query
            .version("resourceVersion")?
            .filter(|version| *version > 0);
        let bookmarks = query.flag("allowWatchBookmarks");
        // A kube-apiserver without the feature gate `WatchList` also rejects `sendInitialEvents`
        // and `resourceVersionMatch`.
        if !query.text("sendInitialEvents").is_empty() {
            return Err(invalid_options(
                "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled",
            ));
        }
        if !query.text("resourceVersionMatch").is_empty() {
            return Err(invalid_options(
                "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            ));
        }
        let timeout = match query.number("timeoutSeconds")? {
            Some(seconds) if seconds > 0 => Duration::from_secs(seconds).min(LONGEST_REQUESTED),
            _ => SHORTEST_DEFAULT.mul_f64(rand::rng().random_range(1.0..2.0)),
        };
        Ok(Self {
            start,
            bookmarks,
            timeout,
        })
    }
}
