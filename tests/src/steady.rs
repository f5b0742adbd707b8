//! The steady client: sends the same queries at a constant rate while a test injects faults. The
//! final report counts right, wrong and failed answers, and lost queries.
//!
//! Each query belongs to a *path*, such as `cluster` or `outside`. Queries on the same path pass
//! through the same servers. While the only server of a path is down, the queries of the path may
//! be lost, or may fail with SERVFAIL or REFUSED. The test permits these failures with
//! [`Steady::excuse`], until [`Excuse::ends`] has waited for right answers. A wrong answer is never
//! excused.

#![allow(
    clippy::panic,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a test whose set-up fails has to end there, with the reason"
)]

mod ledger;
mod question;
mod report;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use testkit::eventually;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use self::ledger::{Ledger, WindowId};

pub use self::question::{Endpoints, Question};
pub use self::report::{Line, Report};

/// Timeout of a query: the usual retry interval of resolvers.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// Timeout of each wait for right answers.
const RECOVERY: Duration = Duration::from_secs(90);

/// Number of right answers in a row that [`Excuse::ends`] waits for, per question of the path.
const STREAK: u32 = 2;

/// Interval at which queries are sent. The rate determines the number of queries in each interval.
const TICK: Duration = Duration::from_millis(10);

/// Maximum number of queries in flight; must exceed the rate times [`PATIENCE`].
const IN_FLIGHT: usize = 20_000;

/// A running steady client.
pub struct Steady {
    shared: Arc<Shared>,
    stop: CancellationToken,
    task: JoinSet<()>,
}

struct Shared {
    questions: Vec<Question>,
    ledger: Mutex<Ledger>,
}

/// A period in which some paths may fail. The test must end the period with [`Excuse::ends`].
#[must_use]
pub struct Excuse {
    shared: Arc<Shared>,
    windows: Vec<(&'static str, WindowId)>,
}

impl Steady {
    /// Starts sending these queries in turn, `rate` per second.
    pub fn start(questions: Vec<Question>, rate: u32) -> Self {
        assert!(!questions.is_empty(), "at least one question is needed");
        let ledger = Mutex::new(Ledger::new(questions.iter().map(|question| question.path)));
        let shared = Arc::new(Shared { questions, ledger });
        let stop = CancellationToken::new();
        let mut task = JoinSet::new();
        task.spawn(ask_steadily(Arc::clone(&shared), rate, stop.clone()));
        Self { shared, stop, task }
    }

    /// Permits lost and failed queries on these paths from now on, including queries in flight.
    /// `why` is the reason in the report.
    pub fn excuse(&self, paths: &[&'static str], why: &'static str) -> Excuse {
        let mut ledger = self.shared.ledger.lock();
        let windows = paths
            .iter()
            .map(|path| (*path, ledger.open(path, why)))
            .collect();
        Excuse {
            shared: Arc::clone(&self.shared),
            windows,
        }
    }

    /// Waits for `more` further right answers on each path.
    pub async fn answered(&self, more: u64) {
        self.wait_for(more, |_| true).await;
    }

    /// Waits for `more` further right answers on one path.
    pub async fn answered_on(&self, path: &'static str, more: u64) {
        self.wait_for(more, |other| other == path).await;
    }

    async fn wait_for(&self, more: u64, counts: impl Fn(&str) -> bool) {
        let goal =
            |(path, n): &(&'static str, u64)| (*path, if counts(path) { n + more } else { 0 });
        let goals: Vec<(&'static str, u64)> = self.counts().iter().map(goal).collect();
        eventually(RECOVERY, || {
            let now = self.counts();
            let behind = goals.iter().zip(&now).find(|((_, goal), (_, n))| n < goal);
            let outcome = behind.map_or(Ok(()), |((path, _), _)| Err(self.shared.behind(path)));
            async move { outcome }
        })
        .await;
    }

    fn counts(&self) -> Vec<(&'static str, u64)> {
        self.shared.ledger.lock().answered()
    }

    /// Stops sending, waits for the queries in flight, and returns the report.
    pub async fn stop(mut self) -> Report {
        self.stop.cancel();
        self.task
            .join_next()
            .await
            .expect("the client must have a task")
            .expect("the client must not panic");
        self.shared.ledger.lock().report()
    }
}

impl Shared {
    fn questions_of(&self, path: &str) -> u32 {
        let of_path = self
            .questions
            .iter()
            .filter(|question| question.path == path)
            .count();
        u32::try_from(of_path).expect("the count of questions must fit into 32 bits")
    }

    /// The failure message for a path that does not give enough right answers in time.
    fn behind(&self, path: &str) -> String {
        let mut ledger = self.ledger.lock();
        let streak = ledger.streak(path);
        format!(
            "the path {path} has not given enough right answers in time; right answers in a row since the last call of `Excuse::ends`: {streak}\n{}",
            ledger.report()
        )
    }
}

impl Excuse {
    /// For each excused path, waits for enough right answers in a row (see `STREAK`), and for the
    /// end of the queries sent before this call. Then ends the excuse of the path. Panics if a path
    /// does not recover in time.
    pub async fn ends(self) {
        for (path, _) in &self.windows {
            self.shared.ledger.lock().begin_streak(path);
        }
        for (path, window) in &self.windows {
            let wanted = self.shared.questions_of(path) * STREAK;
            eventually(RECOVERY, || {
                let settled = self.shared.ledger.lock().has_settled(path, wanted);
                let settled = if settled {
                    Ok(())
                } else {
                    Err(self.shared.behind(path))
                };
                async move { settled }
            })
            .await;
            self.shared.ledger.lock().close(path, *window);
        }
    }
}

async fn ask_steadily(shared: Arc<Shared>, rate: u32, stop: CancellationToken) {
    let begun = Instant::now();
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut asking = JoinSet::new();
    let mut asked: usize = 0;
    // After a pause of the machine, the client skips most of the missed queries. All of them at
    // once could overflow a receive buffer.
    let mut owed = Duration::ZERO;
    let mut last = begun;
    while !stop.is_cancelled() {
        ticks.tick().await;
        let now = Instant::now();
        owed = owed.saturating_add((now - last).min(TICK * 3) * rate);
        last = now;
        while owed >= Duration::from_secs(1) && asking.len() < IN_FLIGHT {
            owed = owed.saturating_sub(Duration::from_secs(1));
            asking.spawn(ask(Arc::clone(&shared), asked % shared.questions.len()));
            asked = asked.wrapping_add(1);
        }
        while asking.try_join_next().is_some() {}
    }
    asking.join_all().await;
}

async fn ask(shared: Arc<Shared>, number: usize) {
    let Some(question) = shared.questions.get(number) else {
        return;
    };
    let sent = Instant::now();
    shared.ledger.lock().sent(question.path, sent);
    let outcome = question.ask().await;
    shared
        .ledger
        .lock()
        .done(question.path, sent, Instant::now(), outcome);
}
