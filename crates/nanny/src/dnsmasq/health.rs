//! Probes of the running dnsmasq process.
//!
//! While dnsmasq answers, a probe queries the cache size every three seconds: CHAOS TXT
//! `cachesize.bind`, which dnsmasq answers from memory. If no answer comes within a second, the
//! probe counts as missed, and the next probe starts at the end of this second. The interval of
//! three seconds is not shorter, because dnsmasq counts the answers to probes as cache hits.
//!
//! A dnsmasq that does not answer and uses no processor time hangs: a signal stopped the process,
//! or a system call blocks. A dnsmasq that does not answer but uses processor time is busy, and
//! gets more time, because a restart would empty its cache.
//!
//! The silence is the time for which dnsmasq has not answered. Each missed probe adds the time
//! since the previous missed probe to the silence, but at most one second. The limit matters when
//! the nanny itself was stopped, frozen or short of processor time, and sent no probes.
//!
//! Before the first answer, a blocked path between nanny and dnsmasq is as likely as a hang. So a
//! process that has never answered is not considered hanging, unless the kernel shows it as
//! stopped.

use std::time::Duration;

use dnsclient::{chaos, query_with_tcp_retry};
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use nix::unistd::Pid;
use tokio::time::{Instant, sleep_until};
use tracing::{debug, warn};
use wire::{Nameserver, ServerAddr};

/// The time from the start of a probe to the start of the next, while dnsmasq answers.
const INTERVAL: Duration = Duration::from_secs(3);
/// Timeout of a probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
/// dnsmasq is considered hung if it is both silent and idle, or both silent and stopped, for this
/// long. Before the first answer, only a stopped dnsmasq is considered hung.
const HANGS_AFTER: Duration = Duration::from_secs(3);
/// After its first answer, dnsmasq is considered hung if it is silent for this long, even if it is
/// busy.
const BUSY_TOO_LONG: Duration = Duration::from_secs(30);
/// The pause between probes before the first answer.
const FIRST_INTERVAL: Duration = Duration::from_millis(50);

/// The probes of one dnsmasq process.
#[derive(Debug)]
pub(crate) struct HealthProbe {
    server: Nameserver,
    pid: Pid,
    has_answered: bool,
    due: Instant,
    /// The missed probes since the last answer, if any.
    silence: Option<ProbeSilence>,
}

/// State of a process as the kernel reports it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ProcessState {
    /// Processor time used so far, in clock ticks.
    ticks: u64,
    pub(super) stopped: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProbeFinding {
    Answers,
    /// dnsmasq did not answer this probe.
    Silent,
    Hangs,
}

impl HealthProbe {
    /// Probes the process that answers at `server`.
    pub(crate) fn new(server: Nameserver, pid: Pid) -> Self {
        Self {
            server,
            pid,
            has_answered: false,
            due: Instant::now() + FIRST_INTERVAL,
            silence: None,
        }
    }

    /// The stream of findings. Cancel safe: dropping the future of the next finding does not cancel
    /// a probe.
    pub(crate) fn findings(self) -> BoxStream<'static, ProbeFinding> {
        stream::unfold(self, |mut probe| async {
            let finding = probe.next_finding().await;
            Some((finding, probe))
        })
        .boxed()
    }

    /// Probes dnsmasq until a probe gives a finding.
    async fn next_finding(&mut self) -> ProbeFinding {
        loop {
            sleep_until(self.due).await;
            let asked = Instant::now();
            let alive = answers_probe(self.server).await;

            let now = Instant::now();
            let process = read_process_state(self.pid).unwrap_or_default();
            let finding = self.judge(alive, now, process);
            self.due = self.next_probe(asked, now);
            if let Some(finding) = finding {
                return finding;
            }
        }
    }

    /// The time of the next probe. The last probe lasted from `asked` until `now`.
    fn next_probe(&self, asked: Instant, now: Instant) -> Instant {
        if !self.has_answered {
            return now + FIRST_INTERVAL;
        }
        // A probe can fail before its timeout, so the next probe waits for the end of the timeout.
        if self.silence.is_some() {
            return asked + PROBE_TIMEOUT;
        }
        asked + INTERVAL
    }

    /// Evaluates a probe's outcome and the state of the process.
    fn judge(&mut self, alive: bool, now: Instant, process: ProcessState) -> Option<ProbeFinding> {
        if alive {
            self.silence = None;
            self.has_answered = true;
            return Some(ProbeFinding::Answers);
        }

        // The silence grows by the time since the previous missed probe, but at most by one second.
        let silence = match self.silence.take() {
            Some(silence) => silence.add_missed_probe(now, process),
            None => ProbeSilence::new(now, process),
        };
        let silence = self.silence.insert(silence);
        let lasts = silence.lasts;

        if silence.is_hang(self.has_answered) {
            warn!(
                server = %self.server,
                ?lasts,
                idle = ?silence.idle,
                stopped = ?silence.stopped,
                "dnsmasq does not answer"
            );
            return Some(ProbeFinding::Hangs);
        }
        // Before the first answer, a missed probe is not reported: dnsmasq may still be starting.
        if !self.has_answered {
            return None;
        }
        debug!(server = %self.server, ?lasts, "dnsmasq did not answer a probe");
        Some(ProbeFinding::Silent)
    }
}

/// Missed probes in a row. Each probe adds at most [`PROBE_TIMEOUT`] to `lasts`, `idle` and
/// `stopped`.
#[derive(Debug)]
struct ProbeSilence {
    /// The time at which the last missed probe ended.
    last_missed: Instant,
    /// The state of the process at that time.
    last_state: ProcessState,
    /// How long dnsmasq has not answered: from the first missed probe to the last.
    lasts: Duration,
    /// How long the process has used no processor time, up to the last missed probe.
    idle: Duration,
    /// How long a signal has kept the process stopped, up to the last missed probe.
    stopped: Duration,
}

impl ProbeSilence {
    fn new(now: Instant, process: ProcessState) -> Self {
        Self {
            last_missed: now,
            last_state: process,
            lasts: Duration::ZERO,
            idle: Duration::ZERO,
            stopped: Duration::ZERO,
        }
    }

    fn add_missed_probe(self, now: Instant, process: ProcessState) -> Self {
        let step = now.duration_since(self.last_missed).min(PROBE_TIMEOUT);
        let is_idle = process.ticks == self.last_state.ticks;
        let is_stopped = process.stopped && self.last_state.stopped;

        Self {
            last_missed: now,
            last_state: process,
            lasts: self.lasts + step,
            idle: if is_idle {
                self.idle + step
            } else {
                Duration::ZERO
            },
            stopped: if is_stopped {
                self.stopped + step
            } else {
                Duration::ZERO
            },
        }
    }

    /// Returns whether dnsmasq hangs. Before its first answer, only a process that was stopped for
    /// [`HANGS_AFTER`] hangs.
    fn is_hang(&self, has_answered: bool) -> bool {
        let silent = self.idle >= HANGS_AFTER || self.lasts >= BUSY_TOO_LONG;
        self.stopped >= HANGS_AFTER || (has_answered && silent)
    }
}

/// Returns whether dnsmasq answers with a cache size.
async fn answers_probe(server: Nameserver) -> bool {
    let question = chaos::txt_query("cachesize.bind.");
    match query_with_tcp_retry(&ServerAddr::from(server), &question, PROBE_TIMEOUT).await {
        Ok(answer) => chaos::txt_strings(&answer).next().is_some(),
        Err(error) => {
            debug!(%error, "a probe of dnsmasq failed");
            false
        }
    }
}

/// Reads the state and the processor time of a process (fields 3, 14 and 15 of its `stat`, see
/// proc(5)).
pub(super) fn read_process_state(pid: Pid) -> Option<ProcessState> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The process name in parentheses may contain any character; the fields after it have a fixed
    // format.
    let (_, fields) = stat.rsplit_once(") ")?;

    let mut fields = fields.split(' ');
    let stopped = fields.next()? == "T";
    let user: u64 = fields.nth(10)?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(ProcessState {
        ticks: user + system,
        stopped,
    })
}

#[cfg(test)]
mod tests {
    use testkit::reply::Reply;
    use testkit::upstream::{Asked, Reaction, Upstream};
    use tokio::time::timeout;

    use super::*;

    fn busy(ticks: u64) -> ProcessState {
        ProcessState {
            ticks,
            stopped: false,
        }
    }

    fn health() -> HealthProbe {
        HealthProbe::new("127.0.0.1".parse().unwrap(), Pid::this())
    }

    #[test]
    fn idle_process_hangs_before_busy_one() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let [answers, silent, hangs] = [
            ProbeFinding::Answers,
            ProbeFinding::Silent,
            ProbeFinding::Hangs,
        ]
        .map(Some);
        let mut idle = health();
        for (second, is_answered, ticks, finding) in [
            (0, true, 10, answers),
            (3, true, 11, answers),
            (7, false, 11, silent),
            (8, false, 11, silent),
            (9, false, 11, silent),
            (10, false, 11, hangs),
        ] {
            let found = idle.judge(is_answered, at(second), busy(ticks));
            assert_eq!(found, finding, "{second}");
        }

        let mut working = health();
        working.judge(true, at(0), busy(10));
        for second in 2..32 {
            let finding = working.judge(false, at(second), busy(10 + second));
            assert_eq!(finding, silent, "{second}");
        }
        assert_eq!(working.judge(false, at(32), busy(42)), hangs);
    }

    #[test]
    fn long_gap_adds_only_one_second_of_silence() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut health = health();
        health.judge(true, at(0), busy(10));
        // The probes are far apart, as for a nanny that was stopped.
        for second in [100, 200, 300] {
            assert_eq!(
                health.judge(false, at(second), busy(10)),
                Some(ProbeFinding::Silent)
            );
        }
        assert_eq!(
            health.judge(false, at(400), busy(10)),
            Some(ProbeFinding::Hangs),
            "each gap must add one second to the silence"
        );
        health.judge(true, at(401), busy(10));
        for second in 0..30 {
            let finding = health.judge(false, at(1000 + 100 * second), busy(second));
            assert_eq!(finding, Some(ProbeFinding::Silent), "{second}");
        }
    }

    #[test]
    fn time_of_next_probe_depends_on_answers() {
        let asked = Instant::now();
        let now = asked + PROBE_TIMEOUT;
        let mut health = health();
        assert_eq!(health.next_probe(asked, now), now + FIRST_INTERVAL);
        health.judge(true, now, busy(0));
        assert_eq!(health.next_probe(asked, now), asked + INTERVAL);
        health.judge(false, now, busy(0));
        assert_eq!(health.next_probe(asked, now), now);
    }

    #[test]
    fn short_silences_and_missing_first_answer_are_no_hang() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut never = health();
        for second in 0..100 {
            assert_eq!(never.judge(false, at(second), busy(0)), None);
        }
        let mut flaky = health();
        flaky.judge(true, at(0), busy(0));
        for second in 1..100 {
            let finding = flaky.judge(second % 4 == 0, at(second), busy(0));
            assert!(!matches!(finding, Some(ProbeFinding::Hangs)), "{second}");
        }
    }

    #[test]
    fn stopped_process_that_never_answered_hangs() {
        let start = Instant::now();
        let stopped = ProcessState {
            ticks: 0,
            stopped: true,
        };
        let mut health = health();
        assert_eq!(health.judge(false, start, stopped), None);
        for (second, expected) in [(1, None), (2, None), (3, Some(ProbeFinding::Hangs))] {
            let now = start + Duration::from_secs(second);
            assert_eq!(health.judge(false, now, stopped), expected, "{second}");
        }
    }

    #[tokio::test]
    async fn probe_survives_dropped_waits() {
        let dnsmasq = Upstream::start(|asked: &Asked| {
            let reply = Reply::to(&asked.packet).answer("cachesize.bind. 0 CH TXT \"1000\"");
            Reaction::from(reply).after(Duration::from_millis(50))
        })
        .await;
        let mut findings = HealthProbe::new(dnsmasq.addr().into(), Pid::this()).findings();
        let found = timeout(Duration::from_mins(1), async {
            loop {
                if let Ok(finding) = timeout(Duration::from_millis(5), findings.next()).await {
                    return finding;
                }
            }
        });
        assert_eq!(found.await, Ok(Some(ProbeFinding::Answers)));
    }

    #[test]
    fn process_state_is_read_from_proc() {
        assert!(read_process_state(Pid::this()).is_some_and(|state| !state.stopped));
        assert_eq!(read_process_state(Pid::from_raw(i32::MAX)), None);
    }
}
