//! Clients and names with the most queries in the last few minutes, from samples in bounded memory.
//!
//! Each thread keeps [space-saving](https://doi.org/10.1007/978-3-540-30570-5_27) sketches. A
//! ranking adds up the sketches of all threads. A sketch has [`MAX_SLOTS`] slots, so the count of a
//! client or name is too low by at most 0.2 % of all queries.
//!
//! Below a rate of twice [`TARGET_SAMPLES`] answers a second, a thread samples every answer.
//! Otherwise the thread samples one of n answers at random, and counts this answer n times. At
//! [`TARGET_SAMPLES`] a second, a name with 2 % of all queries has 2400 samples in two minutes. The
//! sampling error is then almost always below one tenth of the count.
//!
//! Each thread has two windows: the current window and the window before. Even if all names have
//! the maximum length, a window takes at most 600 KiB. Usually a window takes a quarter of that.

mod sketch;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use self::sketch::FrequencySketch;
use crate::{name, rcode};

/// Maximum number of keys in a sketch.
pub const MAX_SLOTS: usize = 512;
/// Target number of samples that one thread takes in a second. The thread takes up to twice as
/// many, because the weight of a sample is rounded down. The excess is largest just below twice
/// this number of answers a second.
pub const TARGET_SAMPLES: u32 = 1000;
/// Length of a window. A ranking covers the last complete window and the current one.
const WINDOW: Duration = Duration::from_mins(2);
/// Maximum weight of a sample, in answers.
const MAX_STRIDE: u32 = 1 << 16;

/// The sketches of one window.
#[derive(Debug, Default)]
struct WindowTables {
    queries: u64,
    samples: u64,
    missing: u64,
    failed: u64,
    clients: FrequencySketch,
    names: FrequencySketch,
    nxdomain: FrequencySketch,
    servfail: FrequencySketch,
}

impl WindowTables {
    fn clear(&mut self) {
        self.queries = 0;
        self.samples = 0;
        self.missing = 0;
        self.failed = 0;

        for sketch in [
            &mut self.clients,
            &mut self.names,
            &mut self.nxdomain,
            &mut self.servfail,
        ] {
            sketch.clear();
        }
    }

    fn add_answer(&mut self, client: IpAddr, name: &[u8], code: u16, weight: u64) {
        self.queries += weight;
        self.samples += 1;

        match client {
            IpAddr::V4(ip) => self.clients.add_key(&ip.octets(), weight),
            IpAddr::V6(ip) => self.clients.add_key(&ip.octets(), weight),
        }
        self.names.add_key(name, weight);

        match code {
            rcode::NXDOMAIN => {
                self.missing += weight;
                self.nxdomain.add_key(name, weight);
            }
            rcode::SERVFAIL => {
                self.failed += weight;
                self.servfail.add_key(name, weight);
            }
            // There is no ranking for other RCODEs.
            _ => {}
        }
    }
}

/// The windows of one thread: the current window and the window before.
#[derive(Debug)]
struct ThreadWindows {
    begun: Instant,
    current: WindowTables,
    last: WindowTables,
}

impl ThreadWindows {
    fn new(now: Instant) -> Self {
        Self {
            begun: now,
            current: WindowTables::default(),
            last: WindowTables::default(),
        }
    }

    /// Begins a new window if the current one is over. Windows begin at multiples of [`WINDOW`]
    /// since the start, even if this thread was idle. Otherwise `last` could cover answers that are
    /// too old.
    fn rotate(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.begun);
        let ended = elapsed.as_secs() / WINDOW.as_secs();
        if ended == 0 {
            return;
        }

        std::mem::swap(&mut self.current, &mut self.last);
        self.current.clear();
        // If more than one window has ended, the last of them had no answers.
        if ended > 1 {
            self.last.clear();
        }
        self.begun += Duration::from_secs(ended * WINDOW.as_secs());
    }

    /// Time that the two windows cover. `started` is the time at which the first window began.
    fn ranked_time(&self, started: Instant, now: Instant) -> Duration {
        let current = now.saturating_duration_since(self.begun);
        let is_first = self.begun == started;
        if is_first { current } else { current + WINDOW }
    }
}

/// Samples of the answers of all threads.
#[derive(Debug)]
pub struct TopQueries {
    started: Instant,
    threads: Mutex<Vec<Arc<Mutex<ThreadWindows>>>>,
}

impl Default for TopQueries {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            threads: Mutex::default(),
        }
    }
}

/// One row of a ranking: a client or a name, and its number of answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopRow<T> {
    /// The client or the name.
    pub key: T,
    /// Number of answers, estimated.
    pub queries: u64,
}

/// The clients and names with the most queries in the last few minutes, in descending order. All
/// numbers of answers except `samples` are estimates. The sketches can make the number of a row too
/// low, but not too high. Sampling can make a number too low or too high.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TopRanking {
    /// Length of the ranked period: two to four minutes, or the time since the start if that is
    /// shorter.
    pub time: Duration,
    /// Answers in that period, estimated.
    pub queries: u64,
    /// Answers that were sampled.
    pub samples: u64,
    /// NXDOMAIN answers, estimated.
    pub missing: u64,
    /// SERVFAIL answers, estimated.
    pub failed: u64,
    /// Clients with the most answers.
    pub clients: Vec<TopRow<IpAddr>>,
    /// Names with the most answers, in presentation format.
    pub names: Vec<TopRow<String>>,
    /// Names with the most NXDOMAIN answers.
    pub nxdomain: Vec<TopRow<String>>,
    /// Names with the most SERVFAIL answers.
    pub servfail: Vec<TopRow<String>>,
}

impl TopQueries {
    /// Adds a sampler for one thread.
    pub fn add_sampler(&self) -> AnswerSampler {
        let windows = Arc::new(Mutex::new(ThreadWindows::new(self.started)));
        self.threads.lock().push(Arc::clone(&windows));
        AnswerSampler {
            windows,
            skip: 0,
            stride: 1,
            taken: 0,
            since: Instant::now(),
        }
    }

    /// Returns the ranking, with at most `rows` rows of each kind.
    pub fn ranking(&self, rows: usize) -> TopRanking {
        let now = Instant::now();
        let threads = self.threads.lock().clone();
        let mut sum = WindowSum::default();
        let mut time = Duration::ZERO;

        for windows in &threads {
            // While this lock is held, the thread that owns the windows drops its samples.
            let mut windows = windows.lock();
            windows.rotate(now);
            time = time.max(windows.ranked_time(self.started, now));
            sum.add_window(&windows.last);
            sum.add_window(&windows.current);
        }

        TopRanking {
            time,
            queries: sum.queries,
            samples: sum.samples,
            missing: sum.missing,
            failed: sum.failed,
            clients: ranked_rows(sum.clients, rows, parse_address),
            names: ranked_names(sum.names, rows),
            nxdomain: ranked_names(sum.nxdomain, rows),
            servfail: ranked_names(sum.servfail, rows),
        }
    }

    /// The number of answers to the clients for which `is_counted` returns true, and the number of
    /// all answers. Both are estimates for the same period as in a [`ranking`](Self::ranking).
    pub fn count_clients(&self, is_counted: impl Fn(IpAddr) -> bool) -> (u64, u64) {
        let now = Instant::now();
        let threads = self.threads.lock().clone();
        let (mut counted, mut all) = (0, 0);

        for windows in &threads {
            let mut windows = windows.lock();
            windows.rotate(now);
            for tables in [&windows.last, &windows.current] {
                all += tables.queries;
                for (octets, count) in tables.clients.lower_bounds() {
                    if parse_address(octets).is_some_and(&is_counted) {
                        counted += count;
                    }
                }
            }
        }
        (counted, all)
    }
}

/// The sum of the windows of all threads.
#[derive(Default)]
struct WindowSum {
    queries: u64,
    samples: u64,
    missing: u64,
    failed: u64,
    clients: KeyCounts,
    names: KeyCounts,
    nxdomain: KeyCounts,
    servfail: KeyCounts,
}

type KeyCounts = HashMap<Box<[u8]>, u64>;

impl WindowSum {
    fn add_window(&mut self, tables: &WindowTables) {
        self.queries += tables.queries;
        self.samples += tables.samples;
        self.missing += tables.missing;
        self.failed += tables.failed;

        for (counts, sketch) in [
            (&mut self.clients, &tables.clients),
            (&mut self.names, &tables.names),
            (&mut self.nxdomain, &tables.nxdomain),
            (&mut self.servfail, &tables.servfail),
        ] {
            for (key, count) in sketch.lower_bounds() {
                *counts.entry(key.into()).or_default() += count;
            }
        }
    }
}

/// The rows with the most answers, in descending order. Keys that `parse_key` rejects are left out.
fn ranked_rows<T: Ord>(
    counts: KeyCounts,
    rows: usize,
    parse_key: impl Fn(&[u8]) -> Option<T>,
) -> Vec<TopRow<T>> {
    let mut all: Vec<(Box<[u8]>, u64)> = counts.into_iter().collect();
    // Keys with equal counts are sorted, too, so that the order is stable.
    all.sort_by(|(a, more), (b, fewer)| fewer.cmp(more).then_with(|| a.cmp(b)));
    all.truncate(rows);

    let mut ranked = Vec::with_capacity(all.len());
    for (octets, queries) in all {
        if let Some(key) = parse_key(&octets) {
            ranked.push(TopRow { key, queries });
        }
    }
    ranked
}

fn ranked_names(counts: KeyCounts, rows: usize) -> Vec<TopRow<String>> {
    ranked_rows(counts, rows, |wire| Some(name::to_text(wire)))
}

fn parse_address(octets: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(octets).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(octets).map(IpAddr::from))
        .ok()
}

/// An answered query that may be sampled.
#[derive(Debug, Clone, Copy)]
pub struct SampledAnswer<'a> {
    /// The address of the client.
    pub client: IpAddr,
    /// The query name in wire format, in upper or lower case.
    pub name: &'a [u8],
    /// The RCODE of the answer.
    pub rcode: u16,
}

/// Samples the answers of one thread.
#[derive(Debug)]
pub struct AnswerSampler {
    windows: Arc<Mutex<ThreadWindows>>,
    /// Number of answers to skip before the next sample.
    skip: u32,
    /// Weight of a sample: the number of answers that the sample represents.
    stride: u32,
    /// Number of samples since the stride was last adapted, at `since`.
    taken: u32,
    since: Instant,
}

impl AnswerSampler {
    /// Whether the next answer is sampled. Must be called once for each answer.
    #[inline]
    pub fn is_due(&mut self) -> bool {
        self.skip = self.skip.wrapping_sub(1);
        self.skip == u32::MAX
    }

    /// Samples an answer, if it is [due](Self::is_due).
    pub fn take_sample(&mut self, answer: SampledAnswer<'_>, now: Instant) {
        if self.skip != u32::MAX {
            return;
        }
        let weight = self.stride.into();
        self.schedule_next(now);

        // If `ranking` or `count_clients` holds the lock, the sample is dropped. Both hold the lock
        // for a short time.
        if let Some(mut windows) = self.windows.try_lock() {
            windows.rotate(now);

            let mut lower = [0; name::MAX_NAME];
            let name = write_lower_case(answer.name, &mut lower);
            let client = answer.client.to_canonical();
            windows
                .current
                .add_answer(client, name, answer.rcode, weight);
        }
    }

    /// Selects at random which answer is sampled next. Otherwise periodic queries could be
    /// over-represented.
    fn schedule_next(&mut self, now: Instant) {
        self.taken += 1;
        let elapsed = now.saturating_duration_since(self.since);
        if self.taken >= TARGET_SAMPLES || elapsed >= Duration::from_secs(1) {
            self.stride = self.adapted_stride(elapsed);
            self.taken = 0;
            self.since = now;
        }

        // On average, one answer in `stride` is sampled.
        self.skip = fastrand::u32(0..2 * self.stride - 1);
    }

    /// The largest stride with which the thread takes at least [`TARGET_SAMPLES`] samples a second,
    /// if the rate of answers stays as it is. If there are fewer answers a second, the stride is 1.
    /// It is at most [`MAX_STRIDE`].
    fn adapted_stride(&self, elapsed: Duration) -> u32 {
        let answers = u64::from(self.taken) * u64::from(self.stride);
        let micros = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
        let per_second = answers.saturating_mul(1_000_000) / micros.max(1);

        let stride = per_second / u64::from(TARGET_SAMPLES);
        u32::try_from(stride)
            .unwrap_or(MAX_STRIDE)
            .clamp(1, MAX_STRIDE)
    }
}

/// Writes the name in lower case to `lower`.
fn write_lower_case<'l>(name: &[u8], lower: &'l mut [u8; name::MAX_NAME]) -> &'l [u8] {
    for (to, from) in lower.iter_mut().zip(name) {
        *to = from.to_ascii_lowercase();
    }
    lower.get(..name.len()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
