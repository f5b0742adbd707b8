//! The queries of dnsmasq's clients, for their followers: taps (`tap --dnsmasq`) and the query log.
//!
//! dnsmasq cannot start to log queries while it runs, and a restart empties its cache. So only the
//! query log of the `ConfigMap` has dnsmasq restarted with `--log-queries=extra`. A tap follows the
//! queries while they are logged anyway; otherwise it is rejected, because reading a page must not
//! change anything. [`query_lines`] joins the log lines of a query. Each follower has a filter and
//! a bounded queue.
//!
//! [`query_lines`]: crate::dnsmasq::query_lines

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use daemon::metrics::{MetricError, Metrics, gauge_value};
use dnsconfig::query_log::Filter;
use parking_lot::Mutex;
use prometheus::{IntCounter, IntGauge};
use querylog::{LineSource, QueryLine};
use tokio::sync::watch;

use crate::dnsmasq::query_lines::{Answered, Joiner};

/// Limit of lines that wait for a reader.
const QUEUE: usize = 4096;

/// The reason why there is no tap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "dnsmasq does not log queries, and a tap does not restart it: set queryLog in the ConfigMap, or start dnsmasq with \
     --log-queries=extra"
)]
pub(crate) struct NotLogged;

/// The followers of dnsmasq's queries: the open taps (requests to `/tap`) and the query log. Clones
/// share them.
#[derive(Clone, Debug)]
pub(crate) struct Queries(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// The arguments of the user make dnsmasq log queries.
    always_logged: bool,
    /// The query log is open.
    wanted: watch::Sender<bool>,
    counters: Counters,
}

#[derive(Debug)]
struct Counters {
    followers: IntGauge,
    sent: IntCounter,
    rate_limited: IntCounter,
    dropped: IntCounter,
    lost_lines: IntCounter,
}

impl Counters {
    fn new(metrics: &Metrics) -> Result<Self, MetricError> {
        let records = metrics.int_counter_vec(
            "nanny_tap_records_total",
            "Queries that matched a tap or the query log, by result: sent, rate_limited or dropped.",
            &["result"],
        )?;
        Ok(Self {
            followers: metrics.int_gauge("nanny_taps", "Taps and query logs that are open.")?,
            sent: records.with_label_values(&["sent"]),
            rate_limited: records.with_label_values(&["rate_limited"]),
            dropped: records.with_label_values(&["dropped"]),
            lost_lines: metrics.int_counter(
                "nanny_dnsmasq_lost_log_lines_total",
                "Lines of its log that dnsmasq dropped because the nanny did not read them in time.",
            )?,
        })
    }
}

#[derive(Debug, Default)]
struct State {
    joiner: Joiner,
    readers: Vec<Queue>,
    next: u64,
}

/// The purpose of a follower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FollowerKind {
    Tap,
    QueryLog,
}

/// Lines that one reader has not read yet.
#[derive(Debug)]
struct Queue {
    id: u64,
    kind: FollowerKind,
    filter: Filter,
    rate: u32,
    lines: VecDeque<QueryLine>,
    left_out: u64,
    /// The second in which the last line was sent, and the number of lines sent in that second.
    second: u64,
    taken: u32,
}

impl Queue {
    fn offer(&mut self, answered: &Answered, time: SystemTime, counters: &Counters) {
        let rcode = answered.rcode.unwrap_or(u16::MAX);
        if !self.filter.has(answered.client, answered.qtype, rcode)
            || !self.filter.has_name(answered.name.as_bytes())
        {
            return;
        }
        let second = time
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs();
        if second != self.second {
            (self.second, self.taken) = (second, 0);
        }
        let is_over_rate = self.taken >= self.rate;
        if is_over_rate || self.lines.len() >= QUEUE {
            let result = if is_over_rate {
                &counters.rate_limited
            } else {
                &counters.dropped
            };
            result.inc();
            self.left_out += 1;
            return;
        }
        self.taken += 1;
        self.lines.push_back(answered.line(time));
    }
}

impl Queries {
    /// No followers. With `always_logged`, the arguments of the user make dnsmasq log queries.
    pub(crate) fn new(metrics: &Metrics, always_logged: bool) -> Result<Self, MetricError> {
        Ok(Self(Arc::new(Shared {
            state: Mutex::default(),
            always_logged,
            wanted: watch::Sender::default(),
            counters: Counters::new(metrics)?,
        })))
    }

    /// A value that is true while the query log is open, so that dnsmasq has to be started with
    /// `--log-queries=extra`. Always false if it logs queries anyway.
    pub(crate) fn wanted(&self) -> watch::Receiver<bool> {
        self.0.wanted.subscribe()
    }

    /// Reads a line that dnsmasq logged.
    pub(crate) fn take(&self, line: &str) {
        let mut state = self.0.state.lock();
        if state.readers.is_empty() {
            return;
        }
        let time = SystemTime::now();
        for answered in state.joiner.take(line, Instant::now()) {
            for reader in &mut state.readers {
                reader.offer(&answered, time, &self.0.counters);
            }
        }
    }

    /// Records that dnsmasq dropped lines.
    pub(crate) fn lost(&self, lines: u64) {
        self.0.counters.lost_lines.inc_by(lines);
        self.0.state.lock().joiner.lost();
    }

    /// Opens the query log: queries that match `filter`, of at most `rate` lines per second.
    pub(crate) fn query_log(&self, filter: Filter, rate: u32) -> Reader {
        self.follow(FollowerKind::QueryLog, filter, rate)
    }

    /// Opens a tap on the queries that match `filter`, of at most `rate` lines per second.
    ///
    /// # Errors
    ///
    /// [`NotLogged`] if dnsmasq does not log queries.
    pub(crate) fn tap(&self, filter: Filter, rate: u32) -> Result<Reader, NotLogged> {
        if self.0.is_logged(&self.0.state.lock()) {
            Ok(self.follow(FollowerKind::Tap, filter, rate))
        } else {
            Err(NotLogged)
        }
    }

    fn follow(&self, kind: FollowerKind, filter: Filter, rate: u32) -> Reader {
        let mut state = self.0.state.lock();
        let id = state.next;
        state.next += 1;
        state.readers.push(Queue {
            id,
            kind,
            filter,
            rate,
            lines: VecDeque::new(),
            left_out: 0,
            second: 0,
            taken: 0,
        });
        self.0.followers_changed(&state);
        Reader {
            id,
            shared: Arc::clone(&self.0),
        }
    }
}

impl Shared {
    /// Whether dnsmasq logs queries, or is about to be restarted with its query log.
    fn is_logged(&self, state: &State) -> bool {
        self.always_logged || state.has_query_log()
    }

    fn followers_changed(&self, state: &State) {
        self.counters
            .followers
            .set(gauge_value(state.readers.len()));
        let wanted = !self.always_logged && state.has_query_log();
        self.wanted
            .send_if_modified(|known| std::mem::replace(known, wanted) != wanted);
    }
}

impl State {
    fn has_query_log(&self) -> bool {
        self.readers
            .iter()
            .any(|reader| reader.kind == FollowerKind::QueryLog)
    }
}

/// A reader of lines. Dropping the reader removes the follower.
#[derive(Debug)]
pub(crate) struct Reader {
    id: u64,
    shared: Arc<Shared>,
}

impl Reader {
    fn queue<T>(&self, take: impl FnOnce(&mut Queue) -> T) -> Option<T> {
        self.shared
            .state
            .lock()
            .readers
            .iter_mut()
            .find(|queue| queue.id == self.id)
            .map(take)
    }
}

impl LineSource for Reader {
    fn next(&mut self) -> Option<QueryLine> {
        let line = self.queue(|queue| queue.lines.pop_front()).flatten();
        line.inspect(|_| self.shared.counters.sent.inc())
    }

    fn left_out(&mut self) -> u64 {
        self.queue(|queue| std::mem::take(&mut queue.left_out))
            .unwrap_or_default()
    }

    /// A tap is over when dnsmasq no longer logs queries.
    fn is_over(&self) -> bool {
        !self.shared.is_logged(&self.shared.state.lock())
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.readers.retain(|queue| queue.id != self.id);
        if state.readers.is_empty() {
            state.joiner = Joiner::default();
        }
        self.shared.followers_changed(&state);
    }
}

#[cfg(test)]
mod tests {
    use querylog::TapRequest;

    use super::*;

    fn queries() -> Queries {
        Queries::new(&Metrics::new("nanny").unwrap(), false).unwrap()
    }

    fn query_log(queries: &Queries, query: &str) -> Reader {
        let TapRequest { filter, rate, .. } = TapRequest::from_query(query).unwrap();
        queries.query_log(filter, rate)
    }

    fn tap(queries: &Queries, query: &str) -> Result<Reader, NotLogged> {
        let TapRequest { filter, rate, .. } = TapRequest::from_query(query).unwrap();
        queries.tap(filter, rate)
    }

    fn ask(queries: &Queries, number: usize, name: &str) {
        queries.take(&format!(
            "{number} 10.0.0.1/1 query[A] {name} from 10.0.0.1"
        ));
        queries.take(&format!("{number} 10.0.0.1/1 cached {name} is NXDOMAIN"));
    }

    #[test]
    fn tap_follows_only_logged_queries() {
        let queries = queries();
        let wanted = queries.wanted();
        assert!(matches!(tap(&queries, ""), Err(NotLogged)));
        assert!(!*wanted.borrow(), "a tap does not restart dnsmasq");
        ask(&queries, 1, "a.test");

        let mut all = query_log(&queries, "");
        let mut some = tap(&queries, "name=*.acme.test&rcode=NXDOMAIN").unwrap();
        assert!(*wanted.borrow());
        ask(&queries, 2, "a.test");
        ask(&queries, 3, "b.Acme.test");
        let names = |reader: &mut Reader| {
            std::iter::from_fn(|| reader.next())
                .map(|line| line.name)
                .collect::<Vec<_>>()
        };
        assert_eq!(names(&mut all), ["a.test.", "b.acme.test."]);
        assert_eq!(names(&mut some), ["b.acme.test."]);

        assert!(!some.is_over());
        drop(all);
        assert!(some.is_over(), "the query log has ended");
        assert!(!*wanted.borrow(), "a tap does not keep dnsmasq logging");
    }

    #[test]
    fn arguments_that_log_need_no_restart() {
        let queries = Queries::new(&Metrics::new("nanny").unwrap(), true).unwrap();
        let wanted = queries.wanted();
        let followed = tap(&queries, "").unwrap();
        let _log = query_log(&queries, "");
        assert!(!*wanted.borrow());
        assert!(!followed.is_over());
    }

    #[test]
    fn lines_that_nobody_reads_are_bounded_and_counted() {
        let queries = queries();
        let mut slow = query_log(&queries, "rate=100000");
        let mut few = query_log(&queries, "rate=1");
        for number in 0..QUEUE + 10 {
            ask(&queries, number, "a.test");
        }
        assert_eq!((slow.left_out(), slow.left_out()), (10, 0));
        assert!(few.left_out() > 1000);
        assert_eq!(std::iter::from_fn(|| slow.next()).count(), QUEUE);
        let Counters {
            followers,
            sent,
            rate_limited,
            dropped,
            ..
        } = &queries.0.counters;
        assert_eq!(
            (followers.get(), sent.get(), dropped.get()),
            (2, QUEUE as u64, 10)
        );
        assert!(rate_limited.get() > 1000);
        drop((slow, few));
        assert_eq!(followers.get(), 0);
    }
}
