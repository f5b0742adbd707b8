//! Samples of the resources that the processes use.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use testkit::processes::{Pid, Usage};
use tokio::time::{Instant, interval_at};

/// A process with its samples so far.
pub(super) struct Process {
    pub(super) name: &'static str,
    pid: Pid,
    pub(super) usages: Vec<Usage>,
}

impl Process {
    pub(super) fn new(name: &'static str, pid: Pid) -> Self {
        Self {
            name,
            pid,
            usages: Vec::new(),
        }
    }

    fn take_sample(&mut self) -> anyhow::Result<()> {
        let usage = Usage::of(self.pid);
        let usage = usage.with_context(|| format!("{} has ended", self.name))?;
        self.usages.push(usage);
        Ok(())
    }
}

/// Samples the processes at the interval `every` until `length` has passed since `begun`. Fails if
/// a process has ended.
pub(super) async fn watch(
    processes: &mut [Process],
    begun: Instant,
    length: Duration,
    every: Duration,
) -> anyhow::Result<()> {
    let mut ticks = interval_at(begun + every, every);
    while begun.elapsed() < length {
        ticks.tick().await;
        processes.iter_mut().try_for_each(Process::take_sample)?;
    }
    Ok(())
}

/// The medians of a quantity in the first, second and last third of the test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Thirds(pub(super) [u32; 3]);

impl Thirds {
    pub(super) fn of(values: &[u32]) -> anyhow::Result<Self> {
        ensure!(
            values.len() >= 3,
            "fewer than three samples were taken; increase --minutes"
        );
        let length = values.len() / 3;
        let third = |n: usize| median(values.get(n * length..(n + 1) * length).unwrap_or_default());
        Ok(Self([third(0), third(1), third(2)]))
    }

    /// Returns whether the median of the last third exceeds the median of the second third by at
    /// most `percent` percent plus `slack`.
    pub(super) fn is_flat(self, percent: u32, slack: u32) -> bool {
        let Self([_, second, last]) = self;
        last <= second + second * percent / 100 + slack
    }
}

fn median(values: &[u32]) -> u32 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_counts_only_after_first_third() {
        let noise: Vec<u32> = (0..300).map(|n| 1000 + n % 7).collect();
        let growth: Vec<u32> = (0..300).map(|n| 1000 + n).collect();
        let start: Vec<u32> = (0..300)
            .map(|n| if n < 100 { n * 10 } else { 1000 })
            .collect();
        assert!(Thirds::of(&noise).unwrap().is_flat(1, 0));
        assert!(!Thirds::of(&growth).unwrap().is_flat(5, 10));
        assert!(
            Thirds::of(&start).unwrap().is_flat(0, 0),
            "growth in the first third must not count as a leak"
        );
        assert_eq!(Thirds::of(&growth).unwrap(), Thirds([1050, 1150, 1250]));
        assert!(Thirds::of(&[1, 2]).is_err());
    }
}
