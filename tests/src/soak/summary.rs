//! Results of the soak test as Markdown, and their assessment.

use std::fmt;
use std::time::Duration;

use testkit::processes::Usage;

use super::churn::Counts;
use super::samples::{Process, Thirds};
use crate::steady::Report;

/// Maximum growth of resident memory, from its median in the second third of the test to its median
/// in the last third: a percentage plus a number of KiB.
const MEMORY: (u32, u32) = (5, 512);
/// Maximum growth in descriptors: a percentage plus a count. The margin is needed, because each
/// forwarded query in flight may have a socket.
const DESCRIPTORS: (u32, u32) = (10, 8);
/// Maximum growth in threads: a percentage plus a number.
const THREADS: (u32, u32) = (0, 1);

/// The results of a soak test.
pub struct Summary {
    pub(super) report: Report,
    pub(super) processes: Vec<Process>,
    pub(super) elapsed: Duration,
    pub(super) restarts: u32,
    /// Datagrams that the kernel dropped because dnsmasq's receive buffer was full.
    pub(super) drops: u64,
    pub(super) churn: Counts,
}

/// The name of a quantity, its value in a sample, and its maximum growth: a percentage plus a
/// number.
type Quantity = (&'static str, fn(&Usage) -> u32, (u32, u32));

/// The quantities whose growth is limited.
const QUANTITIES: [Quantity; 3] = [
    ("resident memory (KiB)", |usage| usage.resident, MEMORY),
    ("descriptors", |usage| usage.descriptors, DESCRIPTORS),
    ("threads", |usage| usage.threads, THREADS),
];

impl Summary {
    /// Returns whether the test has passed.
    pub fn is_good(&self) -> bool {
        self.complaints().is_empty()
    }

    fn complaints(&self) -> Vec<String> {
        let mut complaints = self.report.faults();
        // dnsmasq has a receive buffer of the default size. On a busy machine, the kernel drops
        // queries that do not fit in this buffer.
        let lost = self.report.lost();
        if lost > self.drops {
            complaints.push(format!(
                "{lost} queries were lost, but the kernel dropped only {} datagrams because dnsmasq's receive buffer was full",
                self.drops
            ));
        }
        if self.restarts > 0 {
            complaints.push(format!("containers were restarted {} times", self.restarts));
        }
        if self.churn.delays.is_empty() {
            let problem =
                "the time from a change to the first answer with the change was never measured";
            complaints.push(problem.to_owned());
        }
        for process in &self.processes {
            complaints.extend(
                QUANTITIES
                    .iter()
                    .filter_map(|(what, of, margin)| growth(process, what, *of, *margin)),
            );
        }
        complaints
    }
}

fn growth(
    process: &Process,
    what: &str,
    of: fn(&Usage) -> u32,
    margin: (u32, u32),
) -> Option<String> {
    let name = process.name;
    match thirds(process, of) {
        Err(error) => Some(format!("{name}: {error}")),
        Ok(thirds) if thirds.is_flat(margin.0, margin.1) => None,
        Ok(Thirds([_, second, last])) => Some(format!(
            "{name}: the median of {what} grew from {second} in the second third to {last} in \
             the last"
        )),
    }
}

fn thirds(process: &Process, of: fn(&Usage) -> u32) -> anyhow::Result<Thirds> {
    Thirds::of(&process.usages.iter().map(of).collect::<Vec<_>>())
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts {
            changes,
            edits,
            delays,
        } = &self.churn;
        let minutes = self.elapsed.as_secs_f64() / 60.0;
        writeln!(
            f,
            "The test ran for {minutes:.1} minutes. It made {changes} changes to Services and Endpoints, and {edits} edits of the ConfigMap."
        )?;
        let mut delays = delays.clone();
        delays.sort_unstable();
        let at = |per_mille: usize| {
            delays
                .get(delays.len() * per_mille / 1000)
                .or(delays.last())
                .copied()
        };
        let shown =
            [500, 990, 1000].map(|at_most| at(at_most).unwrap_or_default().as_secs_f64() * 1000.0);
        let [median, p99, most] = shown;
        let n = delays.len();
        writeln!(
            f,
            "The time from a change to the first answer with the change was measured {n} times: median {median:.1} ms, p99 {p99:.1} ms, maximum {most:.1} ms.\n"
        )?;
        for (path, line) in &self.report.lines {
            writeln!(f, "* {path}: {line}")?;
        }
        writeln!(
            f,
            "\nThe kernel dropped {} datagrams because dnsmasq's receive buffer was full.",
            self.drops
        )?;
        writeln!(
            f,
            "\nThe table shows the median of each quantity in each third of the test, and the peak of the whole test."
        )?;
        writeln!(
            f,
            "\n| process | quantity | first third | second third | last third | peak |"
        )?;
        writeln!(f, "| --- | --- | --- | --- | --- | --- |")?;
        for process in &self.processes {
            write_process(f, process)?;
        }
        writeln!(f)?;
        for process in &self.processes {
            writeln!(
                f,
                "* {} used {:.1} % of a core.",
                process.name,
                load(process, self.elapsed)
            )?;
        }
        for complaint in self.complaints() {
            writeln!(f, "FAILED: {complaint}")?;
        }
        Ok(())
    }
}

fn write_process(f: &mut fmt::Formatter<'_>, process: &Process) -> fmt::Result {
    for (what, of, _) in QUANTITIES {
        let Ok(Thirds([first, second, last])) = thirds(process, of) else {
            continue;
        };
        let peak = process.usages.iter().map(of).max().unwrap_or_default();
        writeln!(
            f,
            "| {} | {what} | {first} | {second} | {last} | {peak} |",
            process.name
        )?;
    }
    Ok(())
}

/// CPU time in percent of one core.
fn load(process: &Process, elapsed: Duration) -> f64 {
    let cpu = |usage: Option<&Usage>| usage.map_or(Duration::ZERO, |usage| usage.cpu);
    let used = cpu(process.usages.last()).saturating_sub(cpu(process.usages.first()));
    100.0 * used.as_secs_f64() / elapsed.as_secs_f64()
}
