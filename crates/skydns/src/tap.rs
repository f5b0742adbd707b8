//! Copies of answered queries, for readers that watch queries.
//!
//! A reader opens a watch ([`TapWatch`]). Each watch has a filter, a maximum number of records a
//! second, and a bounded queue. A record ([`TapRecord`]) is the copy of a query and its answer. The
//! filter is applied before anything is copied. Records beyond the limits are dropped and counted,
//! so a slow reader never delays an answer. Without watches, the tap costs one relaxed atomic load
//! for each query.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use wire::query_filter::QueryFilter;
use wire::top::SampledAnswer;
use wire::{Question, Transport, name::MAX_NAME, rcode};

use crate::engine::Reply;
use crate::engine::System;
use crate::metrics::Took;

/// Maximum number of open watches.
const MAX_WATCHES: usize = 8;
/// Maximum number of records that wait for a reader.
const MAX_QUEUED: usize = 4096;
/// Maximum size of the names and messages in a queue, in octets.
const MAX_QUEUED_OCTETS: usize = 2 << 20;
/// Interval at which a reader looks for new records. Waking the reader for each record
/// would cost the answering thread a system call.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A query and its answer.
#[derive(Debug, Clone, Copy)]
pub struct AnsweredQuery<'a> {
    /// The client.
    pub client: SocketAddr,
    /// The transport.
    pub transport: Transport,
    /// The query.
    pub query: &'a [u8],
    /// The answer.
    pub response: &'a [u8],
    /// The properties of the answer that metrics count.
    pub reply: Reply,
    /// The latency.
    pub took: Took,
}

impl AnsweredQuery<'_> {
    /// The properties of the answer that the ranking of clients and names needs.
    pub(crate) fn sample(&self) -> SampledAnswer<'_> {
        SampledAnswer {
            client: self.client.ip(),
            name: self.name(),
            rcode: self.reply.rcode,
        }
    }

    /// The query name in wire format; empty for a malformed query.
    pub(crate) fn name(&self) -> &[u8] {
        Question::read(self.query).map_or(&[], |(question, _)| question.name)
    }
}

/// A copy of a query and its answer.
#[derive(Debug, Clone)]
pub struct TapRecord {
    /// Time of the answer.
    pub time: SystemTime,
    /// The client.
    pub client: SocketAddr,
    /// The transport.
    pub transport: Transport,
    /// The query name in wire format; empty for a malformed query.
    pub name: Box<[u8]>,
    /// QTYPE; 0 for a malformed query.
    pub qtype: u16,
    /// The RCODE.
    pub rcode: u16,
    /// The size of the answer, in octets.
    pub size: usize,
    /// The latency.
    pub took: Duration,
    /// Whether the answer was truncated.
    pub truncated: bool,
    /// The source of the answer: `auth`, `reverse`, `stub`, `recursive` or `cache`. If the answer
    /// has an [`AnswerReason`](crate::engine::AnswerReason), the word for the reason replaces the
    /// source.
    pub by: &'static str,
    /// Both messages, if the reader requested them.
    pub messages: Option<TapMessages>,
}

/// A query and its answer in wire format.
#[derive(Debug, Clone)]
pub struct TapMessages {
    /// The query.
    pub query: Box<[u8]>,
    /// The answer.
    pub response: Box<[u8]>,
}

impl TapRecord {
    fn new(answered: &AnsweredQuery<'_>, time: SystemTime, with_messages: bool) -> Self {
        let AnsweredQuery {
            client,
            transport,
            query,
            response,
            reply,
            took,
        } = *answered;
        let (Took::AtOnce(elapsed) | Took::Waited(elapsed)) = took;
        let messages = with_messages.then(|| TapMessages {
            query: query.into(),
            response: response.into(),
        });

        Self {
            time,
            client,
            transport,
            name: answered.name().into(),
            qtype: reply.qtype,
            rcode: reply.rcode,
            size: response.len(),
            took: elapsed,
            truncated: reply.truncated,
            by: answered_by(reply, took),
            messages,
        }
    }

    /// Size of the name and the messages, in octets.
    fn octets(&self) -> usize {
        let messages = match &self.messages {
            Some(messages) => messages.query.len() + messages.response.len(),
            None => 0,
        };
        self.name.len() + messages
    }
}

/// The value of [`TapRecord::by`]. An immediate answer for an external name is from the cache,
/// except SERVFAIL: the server itself sends SERVFAIL at once, for example if it must not forward
/// the name, or if too many queries already wait.
fn answered_by(reply: Reply, took: Took) -> &'static str {
    if let Some(reason) = reply.reason {
        return reason.as_str();
    }
    match (reply.system, took) {
        (System::Recursive | System::Stub, Took::AtOnce(_)) if reply.rcode != rcode::SERVFAIL => {
            "cache"
        }
        (system, _) => system.label(),
    }
}

/// Limit on the number of records a second.
#[derive(Debug)]
struct RecordRate {
    limit: u32,
    /// The time of the last record in seconds (upper 32 bits), and the number of records in this
    /// second (lower 32 bits).
    taken: AtomicU64,
}

impl RecordRate {
    /// Whether another record is within the limit for `second`; if so, counts the record.
    fn admits_record(&self, second: u64) -> bool {
        let counted = self.taken.fetch_update(Relaxed, Relaxed, |taken| {
            self.count_record(taken, second << 32)
        });
        counted.is_ok()
    }

    /// The value of `taken` after another record; `None` at the limit. `empty` is the value for
    /// the current second and zero records.
    fn count_record(&self, taken: u64, empty: u64) -> Option<u64> {
        let is_same_second = taken & !u64::from(u32::MAX) == empty;
        let taken = if is_same_second { taken } else { empty };
        (taken - empty < u64::from(self.limit)).then_some(taken + 1)
    }
}

#[derive(Debug, Default)]
struct TapCounters {
    taken: AtomicU64,
    over_rate: AtomicU64,
    dropped: AtomicU64,
}

/// Numbers of records of all watches since the start, and the number of open watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TapCounts {
    /// Records queued for readers.
    pub taken: u64,
    /// Records dropped because of the limit per second.
    pub over_rate: u64,
    /// Records dropped because the queue of a slow reader was full.
    pub dropped: u64,
    /// Open watches.
    pub watches: usize,
}

/// The settings of a watch, chosen by its reader.
#[derive(Debug, Clone)]
pub struct WatchSettings {
    /// Queries to follow.
    pub filter: QueryFilter,
    /// Maximum number of records a second.
    pub rate: u32,
    /// Whether records include both messages.
    pub messages: bool,
}

/// The part of a watch that the answering threads use.
#[derive(Debug)]
struct WatchSink {
    settings: WatchSettings,
    rate: RecordRate,
    records: mpsc::Sender<TapRecord>,
    octets: AtomicUsize,
    left_out: AtomicU64,
}

/// The queue of a reader has no room for another record.
#[derive(Debug)]
struct QueueFull;

impl WatchSink {
    /// Whether the filter matches a query.
    fn matches(&self, answered: &AnsweredQuery<'_>) -> bool {
        let filter = &self.settings.filter;
        let reply = answered.reply;
        if !filter.matches_query(answered.client.ip(), reply.qtype, reply.rcode) {
            return false;
        }

        if !filter.has_name_patterns() {
            return true;
        }

        // The name is matched last, because its conversion takes the most work.
        let mut text = [0; MAX_NAME];
        filter.matches_name(write_name_text(answered.name(), &mut text))
    }

    /// Queues a copy of a query for the reader, if the filter matches and the limits allow.
    fn offer_query(&self, answered: &AnsweredQuery<'_>, time: SystemTime, counters: &TapCounters) {
        if !self.matches(answered) {
            return;
        }

        let since_epoch = time.duration_since(SystemTime::UNIX_EPOCH);
        let second = since_epoch.unwrap_or_default().as_secs();
        // The limit applies before anything is copied.
        if !self.rate.admits_record(second) {
            counters.over_rate.fetch_add(1, Relaxed);
            self.left_out.fetch_add(1, Relaxed);
            return;
        }

        let record = TapRecord::new(answered, time, self.settings.messages);
        if let Err(QueueFull) = self.push_record(record) {
            counters.dropped.fetch_add(1, Relaxed);
            self.left_out.fetch_add(1, Relaxed);
            return;
        }
        counters.taken.fetch_add(1, Relaxed);
    }

    /// Queues a record, unless the queue is full.
    fn push_record(&self, record: TapRecord) -> Result<(), QueueFull> {
        let octets = record.octets();
        let has_room = self.octets.fetch_add(octets, Relaxed) + octets <= MAX_QUEUED_OCTETS;
        if has_room && self.records.try_send(record).is_ok() {
            return Ok(());
        }

        self.octets.fetch_sub(octets, Relaxed);
        Err(QueueFull)
    }
}

/// Converts a name to the form that filters match: lower case, with dots between the labels and
/// without the last dot.
fn write_name_text<'t>(wire: &[u8], text: &'t mut [u8; MAX_NAME]) -> &'t [u8] {
    // The length octet of each label except the first becomes the dot before that label.
    let mut next = 0;
    let mut length = 0;

    for (at, octet) in wire.iter().enumerate().take(MAX_NAME) {
        let is_length = at == next;
        if is_length {
            next += usize::from(*octet) + 1;
        }

        if at > 0
            && let Some(place) = text.get_mut(at - 1)
        {
            *place = if is_length {
                b'.'
            } else {
                octet.to_ascii_lowercase()
            };
            length = at;
        }
    }

    // The octet of the root became a dot after the last label. That dot is removed.
    text.get(..length.saturating_sub(1)).unwrap_or_default()
}

/// The limit on open watches is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{MAX_WATCHES} other readers already follow the queries")]
pub struct TooManyWatches;

/// Passes answered queries to all watches. All transports share one tap.
#[derive(Debug, Default)]
pub struct QueryTap {
    on: AtomicBool,
    sinks: ArcSwap<Vec<Arc<WatchSink>>>,
    /// Lock for changes of the watches.
    changing: Mutex<()>,
    counters: TapCounters,
}

impl QueryTap {
    /// Whether any watch is open.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Relaxed)
    }

    /// Copies an answered query to the watches that match it.
    #[cold]
    pub(crate) fn copy_to_watches(&self, answered: &AnsweredQuery<'_>) {
        let time = SystemTime::now();
        for sink in self.sinks.load().iter() {
            sink.offer_query(answered, time, &self.counters);
        }
    }

    /// Opens a watch.
    ///
    /// # Errors
    ///
    /// Fails if too many watches are open.
    pub fn open_watch(
        self: &Arc<Self>,
        settings: WatchSettings,
    ) -> Result<TapWatch, TooManyWatches> {
        let (sender, records) = mpsc::channel(MAX_QUEUED);
        let rate = RecordRate {
            limit: settings.rate,
            taken: AtomicU64::new(0),
        };
        let sink = Arc::new(WatchSink {
            settings,
            rate,
            records: sender,
            octets: AtomicUsize::new(0),
            left_out: AtomicU64::new(0),
        });

        // Two readers may open a watch at the same time, so the number is checked under the lock.
        self.change_sinks(|sinks| {
            if sinks.len() >= MAX_WATCHES {
                return Err(TooManyWatches);
            }
            sinks.push(Arc::clone(&sink));
            Ok(())
        })?;

        Ok(TapWatch {
            tap: Arc::clone(self),
            sink,
            records,
        })
    }

    /// The current counts.
    pub fn counts(&self) -> TapCounts {
        TapCounts {
            taken: self.counters.taken.load(Relaxed),
            over_rate: self.counters.over_rate.load(Relaxed),
            dropped: self.counters.dropped.load(Relaxed),
            watches: self.sinks.load().len(),
        }
    }

    fn change_sinks<T>(&self, change: impl FnOnce(&mut Vec<Arc<WatchSink>>) -> T) -> T {
        let _changing = self.changing.lock();
        let mut sinks = self.sinks.load().to_vec();
        let changed = change(&mut sinks);

        self.on.store(!sinks.is_empty(), Relaxed);
        self.sinks.store(Arc::new(sinks));
        changed
    }
}

/// The queue of one reader. Dropping this value closes the watch.
#[derive(Debug)]
pub struct TapWatch {
    tap: Arc<QueryTap>,
    sink: Arc<WatchSink>,
    records: mpsc::Receiver<TapRecord>,
}

impl TapWatch {
    /// Takes the next record; `None` if the queue is empty.
    pub fn take_record(&mut self) -> Option<TapRecord> {
        let record = self.records.try_recv().ok()?;
        self.sink.octets.fetch_sub(record.octets(), Relaxed);
        Some(record)
    }

    /// Waits for the next record.
    pub async fn next_record(&mut self) -> TapRecord {
        loop {
            if let Some(record) = self.take_record() {
                return record;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Number of matching records that were dropped since the last call.
    pub fn take_left_out(&self) -> u64 {
        self.sink.left_out.swap(0, Relaxed)
    }
}

impl Drop for TapWatch {
    fn drop(&mut self) {
        self.tap
            .change_sinks(|sinks| sinks.retain(|sink| !Arc::ptr_eq(sink, &self.sink)));
    }
}

#[cfg(test)]
mod tests;
