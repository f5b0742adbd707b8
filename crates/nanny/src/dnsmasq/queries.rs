//! Passes the queries of dnsmasq's clients to followers, which are taps (`tap --dnsmasq`) and the
//! query log. Also ranks the clients and names with the most queries (`top --dnsmasq`).
//!
//! dnsmasq cannot start to log queries while it runs, and a restart empties its cache. So only the
//! query log of the `ConfigMap` makes the nanny restart dnsmasq with `--log-queries=extra`. Taps
//! and the ranking work only while dnsmasq runs with this option, for the query log or because of
//! the user's arguments. At other times, requests for a tap or the ranking are rejected, because
//! such a request must not restart dnsmasq. [`query_lines`] joins the log lines of a query. Each
//! follower has a filter and a bounded queue.
//!
//! [`query_lines`]: crate::dnsmasq::query_lines

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use daemon::metrics::{MetricError, Metrics, gauge_value};
use parking_lot::Mutex;
use prometheus::{IntCounter, IntGauge};
use querylog::ranking::{ROWS, RankingDocument};
use querylog::{LineSource, QueryLine};
use tokio::sync::watch;
use wire::Name;
use wire::query_filter::QueryFilter;
use wire::top::{AnswerSampler, SampledAnswer, TopQueries};

use crate::dnsmasq::query_lines::{LoggedQuery, QueryLineJoiner};

/// Stands for the RCODE of a query without an answer, in filters and in the ranking. No real answer
/// has this RCODE.
const NO_ANSWER: u16 = u16::MAX;
/// Maximum number of lines that wait for a reader.
const MAX_QUEUED: usize = 4096;

/// The reason why a request for a tap or the ranking is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "dnsmasq does not run with --log-queries=extra, and the nanny does not restart dnsmasq for this request: set queryLog in \
     the ConfigMap, or start dnsmasq with this argument"
)]
pub(crate) struct QueriesNotLogged;

/// The followers of dnsmasq's queries: the open taps (requests to `/tap`) and the query log. Clones
/// share them.
#[derive(Clone, Debug)]
pub(crate) struct QueryFollowers(Arc<SharedFollowers>);

#[derive(Debug)]
struct SharedFollowers {
    state: Mutex<FollowerState>,
    /// The arguments of the user contain `--log-queries=extra`.
    always_logged: bool,
    /// True while dnsmasq has to run with `--log-queries=extra` for the query log. Always false if
    /// `always_logged` is true.
    wanted: watch::Sender<bool>,
    counters: FollowerCounters,
}

#[derive(Debug)]
struct FollowerCounters {
    followers: IntGauge,
    sent: IntCounter,
    rate_limited: IntCounter,
    dropped: IntCounter,
    lost_lines: IntCounter,
}

impl FollowerCounters {
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
                "Log lines that dnsmasq dropped because the nanny did not read them in time.",
            )?,
        })
    }
}

#[derive(Debug, Default)]
struct FollowerState {
    joiner: QueryLineJoiner,
    /// `None` while [`SharedFollowers::is_logged`] is false.
    ranking: Option<QueryRanking>,
    queues: Vec<FollowerQueue>,
    next_id: u64,
}

/// Ranks the queries of the last few minutes that dnsmasq has logged.
#[derive(Debug)]
struct QueryRanking {
    top: TopQueries,
    sampler: AnswerSampler,
}

impl Default for QueryRanking {
    fn default() -> Self {
        let top = TopQueries::default();
        let sampler = top.add_sampler();
        Self { top, sampler }
    }
}

impl QueryRanking {
    fn count(&mut self, query: &LoggedQuery, now: Instant) {
        // The nanny and the sidecar query names that end in `bind` all the time. Other clients
        // rarely do, so the ranking leaves out these names.
        let is_own = query.name.rsplit('.').next() == Some("bind");
        if is_own || !self.sampler.is_due() {
            return;
        }
        // dnsmasq also logs malformed names. Such a query is counted for its client, and under the
        // name `.`.
        let name = Name::parse(&query.name).unwrap_or_default();
        let answer = SampledAnswer {
            client: query.client,
            name: name.wire(),
            rcode: query.rcode.unwrap_or(NO_ANSWER),
        };
        self.sampler.take_sample(answer, now);
    }
}

/// The purpose of a follower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FollowerKind {
    Tap,
    QueryLog,
}

/// Lines that one follower has not read yet.
#[derive(Debug)]
struct FollowerQueue {
    id: u64,
    kind: FollowerKind,
    filter: QueryFilter,
    rate: u32,
    lines: VecDeque<QueryLine>,
    left_out: u64,
    /// The time of the last matching query, in whole seconds since 1970.
    second: u64,
    /// The number of lines queued within `second`.
    queued_in_second: u32,
}

impl FollowerQueue {
    fn offer(&mut self, query: &LoggedQuery, time: SystemTime, counters: &FollowerCounters) {
        if !self.matches(query) {
            return;
        }

        let second = time
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs();
        if second != self.second {
            self.second = second;
            self.queued_in_second = 0;
        }

        // A line that exceeds `rate` or `MAX_QUEUED` is left out. The reader gets the number of the
        // lines left out.
        if self.queued_in_second >= self.rate {
            counters.rate_limited.inc();
            self.left_out += 1;
        } else if self.lines.len() >= MAX_QUEUED {
            counters.dropped.inc();
            self.left_out += 1;
        } else {
            self.queued_in_second += 1;
            self.lines.push_back(query.to_line(time));
        }
    }

    fn matches(&self, query: &LoggedQuery) -> bool {
        let rcode = query.rcode.unwrap_or(NO_ANSWER);
        self.filter.matches_query(query.client, query.qtype, rcode)
            && self.filter.matches_name(query.name.as_bytes())
    }
}

impl QueryFollowers {
    /// Creates an empty set of followers. `always_logged` is true if the user's arguments contain
    /// `--log-queries=extra`.
    pub(crate) fn new(metrics: &Metrics, always_logged: bool) -> Result<Self, MetricError> {
        let state = FollowerState {
            ranking: always_logged.then(QueryRanking::default),
            ..FollowerState::default()
        };
        Ok(Self(Arc::new(SharedFollowers {
            state: Mutex::new(state),
            always_logged,
            wanted: watch::Sender::default(),
            counters: FollowerCounters::new(metrics)?,
        })))
    }

    /// A value that is true while dnsmasq must run with `--log-queries=extra` for the query log.
    /// The value is always false if the user's arguments contain this option.
    pub(crate) fn logging_wanted(&self) -> watch::Receiver<bool> {
        self.0.wanted.subscribe()
    }

    /// Reads a line that dnsmasq logged.
    pub(crate) fn handle_line(&self, line: &str) {
        let mut state = self.0.state.lock();
        if state.queues.is_empty() && state.ranking.is_none() {
            return;
        }

        let (now, time) = (Instant::now(), SystemTime::now());
        // A line may complete several queries: the query to which it belongs, and older queries
        // that got no answer.
        for query in state.joiner.join_line(line, now) {
            if let Some(ranking) = &mut state.ranking {
                ranking.count(&query, now);
            }
            for queue in &mut state.queues {
                queue.offer(&query, time, &self.0.counters);
            }
        }
    }

    /// Records that dnsmasq dropped this number of log lines, which may contain the answers to
    /// waiting queries.
    pub(crate) fn record_lost_lines(&self, lines: u64) {
        self.0.counters.lost_lines.inc_by(lines);
        self.0.state.lock().joiner.mark_lines_lost();
    }

    /// Opens the query log, which gets the queries that match `filter`, at most `rate` per second.
    pub(crate) fn open_query_log(&self, filter: QueryFilter, rate: u32) -> QueryReader {
        self.add_follower(FollowerKind::QueryLog, filter, rate)
    }

    /// Opens a tap, which gets the queries that match `filter`, at most `rate` per second.
    ///
    /// # Errors
    ///
    /// [`QueriesNotLogged`] if the query log is not open, and the user's arguments do not contain
    /// `--log-queries=extra`.
    pub(crate) fn open_tap(
        &self,
        filter: QueryFilter,
        rate: u32,
    ) -> Result<QueryReader, QueriesNotLogged> {
        if self.0.is_logged(&self.0.state.lock()) {
            Ok(self.add_follower(FollowerKind::Tap, filter, rate))
        } else {
            Err(QueriesNotLogged)
        }
    }

    /// The clients and names with the most queries.
    ///
    /// # Errors
    ///
    /// [`QueriesNotLogged`] if the query log is not open, and the user's arguments do not contain
    /// `--log-queries=extra`.
    pub(crate) fn ranking(&self) -> Result<RankingDocument, QueriesNotLogged> {
        let state = self.0.state.lock();
        let ranking = state.ranking.as_ref().ok_or(QueriesNotLogged)?;
        // The nanny does not query the API server, so it does not know which pods the clients are.
        Ok(RankingDocument::new(
            &ranking.top.ranking(ROWS),
            &HashMap::new(),
        ))
    }

    fn add_follower(&self, kind: FollowerKind, filter: QueryFilter, rate: u32) -> QueryReader {
        let mut state = self.0.state.lock();
        let id = state.next_id;
        state.next_id += 1;
        state.queues.push(FollowerQueue {
            id,
            kind,
            filter,
            rate,
            lines: VecDeque::new(),
            left_out: 0,
            second: 0,
            queued_in_second: 0,
        });

        self.0.publish_followers(&mut state);
        QueryReader {
            id,
            shared: Arc::clone(&self.0),
        }
    }
}

impl SharedFollowers {
    /// Whether dnsmasq has to run with `--log-queries=extra`: the query log is open, or the user's
    /// arguments contain this option.
    fn is_logged(&self, state: &FollowerState) -> bool {
        self.always_logged || state.has_query_log()
    }

    fn publish_followers(&self, state: &mut FollowerState) {
        let count = gauge_value(state.queues.len());
        self.counters.followers.set(count);

        if self.is_logged(state) {
            state.ranking.get_or_insert_default();
        } else {
            state.ranking = None;
        }
        let wanted = !self.always_logged && state.has_query_log();
        self.wanted
            .send_if_modified(|known| std::mem::replace(known, wanted) != wanted);
    }
}

impl FollowerState {
    fn has_query_log(&self) -> bool {
        self.queues
            .iter()
            .any(|queue| queue.kind == FollowerKind::QueryLog)
    }
}

/// A reader of a follower's lines. Dropping the reader removes the follower.
#[derive(Debug)]
pub(crate) struct QueryReader {
    id: u64,
    shared: Arc<SharedFollowers>,
}

impl QueryReader {
    fn with_queue<T>(&self, act: impl FnOnce(&mut FollowerQueue) -> T) -> Option<T> {
        let mut state = self.shared.state.lock();
        let queue = state.queues.iter_mut().find(|queue| queue.id == self.id);
        queue.map(act)
    }
}

impl LineSource for QueryReader {
    fn next_line(&mut self) -> Option<QueryLine> {
        let line = self.with_queue(|queue| queue.lines.pop_front()).flatten();
        line.inspect(|_| self.shared.counters.sent.inc())
    }

    fn take_left_out(&mut self) -> u64 {
        self.with_queue(|queue| std::mem::take(&mut queue.left_out))
            .unwrap_or_default()
    }

    /// A tap is over when the query log is no longer open, unless the user's arguments contain
    /// `--log-queries=extra`.
    fn is_over(&self) -> bool {
        !self.shared.is_logged(&self.shared.state.lock())
    }
}

impl Drop for QueryReader {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.queues.retain(|queue| queue.id != self.id);
        self.shared.publish_followers(&mut state);
        if state.queues.is_empty() && state.ranking.is_none() {
            // From now on no line is joined, so the queries that wait for an answer would stay for
            // ever.
            state.joiner = QueryLineJoiner::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use querylog::TapRequest;
    use querylog::ranking::RankingRow;

    use super::*;

    fn queries() -> QueryFollowers {
        QueryFollowers::new(&Metrics::new("nanny").unwrap(), false).unwrap()
    }

    fn query_log(queries: &QueryFollowers, query: &str) -> QueryReader {
        let TapRequest { filter, rate, .. } = TapRequest::from_query(query).unwrap();
        queries.open_query_log(filter, rate)
    }

    fn tap(queries: &QueryFollowers, query: &str) -> Result<QueryReader, QueriesNotLogged> {
        let TapRequest { filter, rate, .. } = TapRequest::from_query(query).unwrap();
        queries.open_tap(filter, rate)
    }

    fn ask(queries: &QueryFollowers, number: usize, name: &str) {
        queries.handle_line(&format!(
            "{number} 10.0.0.1/1 query[A] {name} from 10.0.0.1"
        ));
        queries.handle_line(&format!("{number} 10.0.0.1/1 cached {name} is NXDOMAIN"));
    }

    #[test]
    fn tap_needs_query_log_unless_arguments_enable_logging() {
        let queries = queries();
        let wanted = queries.logging_wanted();
        assert!(matches!(tap(&queries, ""), Err(QueriesNotLogged)));
        assert!(!*wanted.borrow(), "a tap must not restart dnsmasq");
        ask(&queries, 1, "a.test");

        let mut all = query_log(&queries, "");
        let mut some = tap(&queries, "name=*.acme.test&rcode=NXDOMAIN").unwrap();
        assert!(*wanted.borrow());
        ask(&queries, 2, "a.test");
        ask(&queries, 3, "b.Acme.test");
        let names = |reader: &mut QueryReader| {
            std::iter::from_fn(|| reader.next_line())
                .map(|line| line.name)
                .collect::<Vec<_>>()
        };
        assert_eq!(names(&mut all), ["a.test.", "b.acme.test."]);
        assert_eq!(names(&mut some), ["b.acme.test."]);

        assert!(!some.is_over());
        drop(all);
        assert!(
            some.is_over(),
            "the tap must end when the query log is dropped"
        );
        assert!(!*wanted.borrow(), "a tap must not keep dnsmasq logging");
    }

    /// The key and the number of queries in each row.
    fn rows(rows: &[RankingRow]) -> Vec<(&str, u64)> {
        rows.iter()
            .map(|row| (row.key.as_str(), row.queries))
            .collect()
    }

    #[test]
    fn ranking_counts_logged_queries_except_bind_names() {
        let queries = queries();
        ask(&queries, 1, "a.test");
        assert_eq!(queries.ranking(), Err(QueriesNotLogged));

        // The ranking also counts queries that do not match the filter of the query log.
        let log = query_log(&queries, "name=b.test");
        ask(&queries, 2, "a.test");
        ask(&queries, 3, "a.test");
        ask(&queries, 4, "b.test");
        ask(&queries, 4, "hits.bind");
        queries.handle_line("5 10.0.0.2/1 query[A] a..test from 10.0.0.2");
        queries.handle_line("5 10.0.0.2/1 config a..test is 192.0.2.1");

        let ranking = queries.ranking().unwrap();
        assert_eq!(rows(&ranking.clients), [("10.0.0.1", 3), ("10.0.0.2", 1)]);
        let names = [("a.test.", 2), (".", 1), ("b.test.", 1)];
        assert_eq!(rows(&ranking.names), names);
        assert_eq!(rows(&ranking.nxdomain), [("a.test.", 2), ("b.test.", 1)]);
        drop(log);
        assert_eq!(queries.ranking(), Err(QueriesNotLogged));
    }

    #[test]
    fn no_restart_is_wanted_if_arguments_enable_logging() {
        let queries = QueryFollowers::new(&Metrics::new("nanny").unwrap(), true).unwrap();
        ask(&queries, 1, "a.test");
        let ranking = queries.ranking().unwrap();
        assert_eq!(rows(&ranking.clients), [("10.0.0.1", 1)]);
        let wanted = queries.logging_wanted();
        let followed = tap(&queries, "").unwrap();
        let _log = query_log(&queries, "");
        assert!(!*wanted.borrow());
        assert!(!followed.is_over());
    }

    #[test]
    fn lines_over_limits_are_left_out_and_counted() {
        let queries = queries();
        let mut slow = query_log(&queries, "rate=100000");
        let mut few = query_log(&queries, "rate=1");
        for number in 0..MAX_QUEUED + 10 {
            ask(&queries, number, "a.test");
        }
        assert_eq!((slow.take_left_out(), slow.take_left_out()), (10, 0));
        assert!(few.take_left_out() > 1000);
        assert_eq!(std::iter::from_fn(|| slow.next_line()).count(), MAX_QUEUED);
        let FollowerCounters {
            followers,
            sent,
            rate_limited,
            dropped,
            ..
        } = &queries.0.counters;
        assert_eq!(
            (followers.get(), sent.get(), dropped.get()),
            (2, MAX_QUEUED as u64, 10)
        );
        assert!(rate_limited.get() > 1000);
        drop((slow, few));
        assert_eq!(followers.get(), 0);
    }
}
