//! Probes of the running dnsmasq process.
//!
//! Every three seconds, a probe queries the cache size: CHAOS TXT `cachesize.bind`, which dnsmasq
//! answers from memory. After a missed probe, the next probe follows without a pause. The interval
//! is not shorter, because dnsmasq counts the answers to probes as cache hits.
//!
//! A dnsmasq that does not answer and uses no processor time hangs: a signal stopped the process,
//! or a system call blocks. A dnsmasq that does not answer but uses processor time is busy, and
//! gets more time: a restart would empty its cache.
//!
//! Each missed probe adds the time since the previous missed probe to the silence, but at most one
//! second. The limit matters when the nanny itself was stopped, frozen or short of processor time,
//! and sent no probes.
//!
//! A process counts as hanging only after it has answered once: without any answer, a blocked path
//! between nanny and dnsmasq is equally likely. A process that the kernel shows as stopped hangs in
//! any case.

use std::time::Duration;

use dnsclient::{ask_with_retry, chaos};
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use nix::unistd::Pid;
use tokio::time::{Instant, sleep_until};
use tracing::{debug, warn};
use wire::{Nameserver, ServerAddr};

/// The pause between probes while dnsmasq answers.
const INTERVAL: Duration = Duration::from_secs(3);
/// Timeout of a probe. The next probe begins when a probe times out.
const PATIENCE: Duration = Duration::from_secs(1);
/// A dnsmasq that is silent and idle for this long after the first missed probe hangs.
const HANGS_AFTER: Duration = Duration::from_secs(3);
/// A dnsmasq that is silent for this long hangs, even if it is busy.
const BUSY_TOO_LONG: Duration = Duration::from_secs(30);
/// The pause between probes before the first answer.
const FIRST_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(crate) struct Health {
    server: Nameserver,
    pid: Pid,
    has_answered: bool,
    due: Instant,
    /// The missed probes since the last answer, if any.
    silence: Option<Silence>,
}

/// State of a process as the kernel reports it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Look {
    /// Processor time used so far, in clock ticks.
    ticks: u64,
    pub(super) stopped: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finding {
    Answers,
    /// dnsmasq did not answer this probe.
    Silent,
    Hangs,
}

impl Health {
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
    pub(crate) fn findings(self) -> BoxStream<'static, Finding> {
        let next = |mut health: Self| async { Some((health.next().await, health)) };
        stream::unfold(self, next).boxed()
    }

    /// Waits for the next finding to report.
    async fn next(&mut self) -> Finding {
        loop {
            sleep_until(self.due).await;
            let asked = Instant::now();
            let alive = answers(self.server).await;
            let now = Instant::now();
            let finding = self.judge(alive, now, look(self.pid).unwrap_or_default());
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
        asked
            + if self.silence.is_some() {
                PATIENCE
            } else {
                INTERVAL
            }
    }

    /// Evaluates a probe's outcome and the state of the process.
    fn judge(&mut self, alive: bool, now: Instant, look: Look) -> Option<Finding> {
        if alive {
            self.silence = None;
            self.has_answered = true;
            return Some(Finding::Answers);
        }
        let silence = match self.silence.take() {
            Some(silence) => silence.goes_on(now, look),
            None => Silence::new(now, look),
        };
        let silence = self.silence.insert(silence);
        let Silence {
            lasts,
            idle,
            stopped,
            ..
        } = *silence;
        if silence.is_a_hang(self.has_answered) {
            warn!(server = %self.server, ?lasts, ?idle, ?stopped, "dnsmasq does not answer");
            return Some(Finding::Hangs);
        }
        if !self.has_answered {
            return None;
        }
        debug!(server = %self.server, ?lasts, "dnsmasq did not answer a probe");
        Some(Finding::Silent)
    }
}

/// Missed probes in a row.
#[derive(Debug)]
struct Silence {
    /// The time at which the last probe timed out, and the process state then.
    last: (Instant, Look),
    /// The time since the first missed probe.
    lasts: Duration,
    /// The time since the process last used the processor.
    idle: Duration,
    /// The time since a signal stopped the process.
    stopped: Duration,
}

impl Silence {
    fn new(now: Instant, look: Look) -> Self {
        Self {
            last: (now, look),
            lasts: Duration::ZERO,
            idle: Duration::ZERO,
            stopped: Duration::ZERO,
        }
    }

    /// Adds a missed probe.
    fn goes_on(self, now: Instant, look: Look) -> Self {
        let (then, before) = self.last;
        let step = now.duration_since(then).min(PATIENCE);
        let grown = |was: Duration, still: bool| if still { was + step } else { Duration::ZERO };
        Self {
            last: (now, look),
            lasts: self.lasts + step,
            idle: grown(self.idle, look.ticks == before.ticks),
            stopped: grown(self.stopped, look.stopped && before.stopped),
        }
    }

    /// Returns whether dnsmasq hangs. Missed probes prove a hang only if `has_answered`. A stopped
    /// process hangs in any case.
    fn is_a_hang(&self, has_answered: bool) -> bool {
        let silent = self.idle >= HANGS_AFTER || self.lasts >= BUSY_TOO_LONG;
        self.stopped >= HANGS_AFTER || (has_answered && silent)
    }
}

/// Returns whether dnsmasq answers with a cache size.
async fn answers(server: Nameserver) -> bool {
    let question = chaos::question("cachesize.bind.");
    match ask_with_retry(&ServerAddr::from(server), &question, PATIENCE).await {
        Ok(answer) => chaos::texts(&answer).next().is_some(),
        Err(error) => {
            debug!(%error, "probe");
            false
        }
    }
}

/// Reads the state and the processor time of a process (fields 3, 14 and 15 of its `stat`, see
/// proc(5)).
pub(super) fn look(pid: Pid) -> Option<Look> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The process name in parentheses may contain any character; the fields after it have a fixed
    // format.
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ');
    let stopped = fields.next()? == "T";
    let user: u64 = fields.nth(10)?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(Look {
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

    fn busy(ticks: u64) -> Look {
        Look {
            ticks,
            stopped: false,
        }
    }

    fn health() -> Health {
        Health::new("127.0.0.1".parse().unwrap(), Pid::this())
    }

    #[test]
    fn silent_and_idle_hangs_silent_and_busy_waits() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut idle = health();
        assert_eq!(idle.judge(true, at(0), busy(10)), Some(Finding::Answers));
        assert_eq!(idle.judge(true, at(3), busy(11)), Some(Finding::Answers));
        for second in 7..10 {
            assert_eq!(
                idle.judge(false, at(second), busy(11)),
                Some(Finding::Silent),
                "{second}"
            );
        }
        assert_eq!(idle.judge(false, at(10), busy(11)), Some(Finding::Hangs));

        let mut working = health();
        working.judge(true, at(0), busy(10));
        for second in 2..32 {
            let finding = working.judge(false, at(second), busy(10 + second));
            assert_eq!(finding, Some(Finding::Silent), "{second}");
        }
        assert_eq!(working.judge(false, at(32), busy(42)), Some(Finding::Hangs));
    }

    #[test]
    fn time_in_which_nobody_asked_is_no_silence() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut health = health();
        health.judge(true, at(0), busy(10));
        // The probes are far apart, as for a nanny that was stopped.
        for second in [100, 200, 300] {
            assert_eq!(
                health.judge(false, at(second), busy(10)),
                Some(Finding::Silent)
            );
        }
        assert_eq!(
            health.judge(false, at(400), busy(10)),
            Some(Finding::Hangs),
            "each time"
        );
        health.judge(true, at(401), busy(10));
        for second in 0..30 {
            let finding = health.judge(false, at(1000 + 100 * second), busy(second));
            assert_eq!(finding, Some(Finding::Silent), "{second}");
        }
    }

    #[test]
    fn one_that_answers_is_asked_rarely_and_one_that_misses_a_probe_at_once() {
        let asked = Instant::now();
        let now = asked + PATIENCE;
        let mut health = health();
        assert_eq!(health.next_probe(asked, now), now + FIRST_INTERVAL);
        health.judge(true, now, busy(0));
        assert_eq!(health.next_probe(asked, now), asked + INTERVAL);
        health.judge(false, now, busy(0));
        assert_eq!(health.next_probe(asked, now), now);
    }

    #[test]
    fn an_answer_forgives_and_one_that_never_answered_is_not_judged() {
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
            assert!(!matches!(finding, Some(Finding::Hangs)), "{second}");
        }
    }

    #[test]
    fn one_that_is_stopped_hangs_even_if_it_never_answered() {
        let start = Instant::now();
        let stopped = Look {
            ticks: 0,
            stopped: true,
        };
        let mut health = health();
        assert_eq!(health.judge(false, start, stopped), None);
        for second in 1..3 {
            assert_eq!(
                health.judge(false, start + Duration::from_secs(second), stopped),
                None
            );
        }
        let finding = health.judge(false, start + Duration::from_secs(3), stopped);
        assert_eq!(finding, Some(Finding::Hangs));
    }

    #[tokio::test]
    async fn a_probe_outlives_those_who_wait_for_it_in_vain() {
        let dnsmasq = Upstream::start(|asked: &Asked| {
            let reply = Reply::to(&asked.packet).answer("cachesize.bind. 0 CH TXT \"1000\"");
            Reaction::from(reply).after(Duration::from_millis(50))
        })
        .await;
        let mut findings = Health::new(dnsmasq.addr().into(), Pid::this()).findings();
        let found = timeout(Duration::from_mins(1), async {
            loop {
                if let Ok(finding) = timeout(Duration::from_millis(5), findings.next()).await {
                    return finding;
                }
            }
        });
        assert_eq!(found.await, Ok(Some(Finding::Answers)));
    }

    #[test]
    fn what_the_kernel_tells_of_a_process() {
        assert!(look(Pid::this()).is_some_and(|look| !look.stopped));
        assert_eq!(look(Pid::from_raw(i32::MAX)), None);
    }
}
