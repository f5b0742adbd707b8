//! The final report of the steady client. Queries on the same path, such as `cluster` or `outside`,
//! pass through the same servers. An excuse is a period in which the test permits lost and failed
//! queries on a path.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// The results of one path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// Queries sent.
    pub sent: u64,
    /// Right answers.
    pub answered: u64,
    /// Wrong or malformed answers, and answers to another query.
    pub wrong: u64,
    /// Queries without an answer, outside of excuses.
    pub lost: u64,
    /// Responses with SERVFAIL or REFUSED that are not right answers, outside of excuses.
    pub failed: u64,
    /// Queries without an answer, during an excuse.
    pub excused_lost: u64,
    /// Responses with SERVFAIL or REFUSED that are not right answers, during an excuse.
    pub excused_failed: u64,
    /// The longest time to a right answer.
    pub slowest: Duration,
    /// The reason and the duration of each excuse. The duration is `None` if the test has not ended
    /// the excuse.
    pub excuses: Vec<(String, Option<Duration>)>,
    /// Descriptions of the first wrong answers, and of the first lost and failed queries outside of
    /// excuses.
    pub odd: Vec<String>,
}

/// The results of all paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The results by path.
    pub lines: BTreeMap<String, Line>,
}

impl Report {
    /// Prints the report. Panics if a path has a wrong answer or no right answer. Panics at a lost
    /// or failed query outside of excuses, and at an excuse that has not ended.
    #[allow(
        clippy::print_stdout,
        reason = "the test runner shows the report after a failure, and with --no-capture"
    )]
    pub fn check(&self, title: &str) {
        let text = format!("{title}\n{self}");
        println!("{text}");
        assert_eq!(self.faults(), Vec::<String>::new(), "{text}");
        assert_eq!(self.lost(), 0, "{text}");
    }

    /// The paths that have a wrong answer, no right answer, or a failed query outside of excuses,
    /// and the excuses that have not ended.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for (path, line) in &self.lines {
            let accounted = line.answered + line.excused_lost + line.excused_failed + line.lost;
            if line.answered == 0 || line.sent != accounted {
                faults.push(format!(
                    "{path}: wrong or failed answers, or no right answer: {line} {:?}",
                    line.odd
                ));
            }
            let open = line.excuses.iter().filter(|(_, held)| held.is_none());
            faults.extend(open.map(|(why, _)| format!("{path}: the excuse {why:?} has not ended")));
        }
        faults
    }

    /// The number of queries without an answer, outside of excuses.
    pub fn lost(&self) -> u64 {
        self.lines.values().map(|line| line.lost).sum()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (path, line) in &self.lines {
            writeln!(f, "{path}: {line}")?;
            for odd in &line.odd {
                writeln!(f, "    {odd}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            sent,
            answered,
            wrong,
            lost,
            failed,
            ..
        } = self;
        write!(
            f,
            "sent {sent}, answered {answered}, wrong {wrong}, lost {lost}"
        )?;
        if *failed > 0 {
            write!(f, ", failed {failed}")?;
        }
        write!(f, ", slowest {} ms", self.slowest.as_millis())?;
        if self.excuses.is_empty() {
            return Ok(());
        }
        write!(
            f,
            "; excused: lost {}, SERVFAIL or REFUSED {}, while",
            self.excused_lost, self.excused_failed
        )?;
        for (why, held) in &self.excuses {
            match held {
                Some(held) => write!(f, " [{why}, {:.1} s]", held.as_secs_f64())?,
                None => write!(f, " [{why}, never ended]")?,
            }
        }
        Ok(())
    }
}
