//! Runs the suite against server processes over real sockets. Each scenario has a process and an
//! embedded API server.

mod ask;
pub(crate) mod cluster;
pub(crate) mod place;
mod play;
pub(crate) mod server;
pub(crate) mod settle;

use std::sync::Arc;

use anyhow::Context as _;
use tokio::task::JoinSet;

use super::difference::{Differences, Mode};
use super::memory::Memory;
use super::report::Report;
use super::vector::{self, Scenario};
use super::verdict::Verdict;
pub use server::{READ_SLICES, Target};

/// Maximum number of scenarios that run concurrently.
const AT_A_TIME: usize = 4;

/// Result of one scenario.
#[derive(Debug)]
pub enum Played {
    /// All questions were asked.
    Asked(Vec<Verdict>),
    /// The scenario cannot run with this binary or on this machine, for this reason.
    Skipped(String),
}

/// Runs the scenarios whose name contains `filter` against the target, and returns the results.
pub async fn run(target: Target, mode: Mode, filter: &str) -> anyhow::Result<Report> {
    let mut scenarios = vector::load_all()?;
    let differences = Arc::new(Differences::load(&scenarios)?);
    let memory = Arc::new(Memory::of(&scenarios)?);
    scenarios.retain(|scenario| scenario.name.contains(filter));
    scenarios.reverse();
    let target = Arc::new(target);
    let mut report = Report::default();
    let mut under_way = JoinSet::new();
    while !scenarios.is_empty() || !under_way.is_empty() {
        while under_way.len() < AT_A_TIME
            && let Some(scenario) = scenarios.pop()
        {
            let (target, differences, memory) = (
                Arc::clone(&target),
                Arc::clone(&differences),
                Arc::clone(&memory),
            );
            under_way.spawn(async move {
                let played = play::play(&target, &differences, mode, &memory, &scenario).await;
                (scenario, played)
            });
        }
        if let Some(ended) = under_way.join_next().await {
            let (scenario, played) = ended.context("a scenario panicked")?;
            note(&mut report, &scenario, played?);
        }
    }
    Ok(report)
}

fn note(report: &mut Report, scenario: &Scenario, played: Played) {
    match played {
        Played::Asked(verdicts) => report.add(verdicts),
        Played::Skipped(why) => report.skip(&scenario.name, &why),
    }
}
