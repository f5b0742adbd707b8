//! The scenarios. Each makes the measurements of one situation, such as a start of kubedns.

mod change;
mod churn;
mod cost;
mod fleet;
mod forwarded;
mod outside;
mod pages;
mod real;
mod start;

use crate::cluster::Cluster;
use crate::options::Scenario;
use crate::report::{Machine, Report};
use crate::setup::Bench;

/// Runs the selected scenarios.
pub async fn run(bench: &Bench) -> anyhow::Result<Report> {
    let options = &bench.options;
    let cluster = Cluster::generate(options.services);
    let mut report = Report {
        machine: Machine::here(),
        ..Report::default()
    };
    if options.wants(Scenario::Start) {
        report.start = Some(start::measure(bench, &cluster).await?);
    }
    if options.wants(Scenario::Cost) {
        report.cost = Some(cost::measure(bench, &cluster).await?);
    }
    if options.wants(Scenario::Change) {
        report.change = Some(change::measure(bench, &cluster).await?);
    }
    if options.wants(Scenario::Churn) {
        report.churn = Some(churn::measure(bench, &cluster).await?);
    }
    if options.wants(Scenario::Outside) {
        report.outside = Some(outside::measure(bench, &cluster).await?);
    }
    if options.wants(Scenario::Forwarded) {
        report.forwarded = forwarded::measure(bench).await?;
    }
    if options.wants(Scenario::Pages) {
        report.pages = Some(pages::measure(bench, &cluster).await?);
    }
    if options.wants(Scenario::Large) {
        let large = Cluster::generate(options.large);
        report.large = Some(start::measure(bench, &large).await?);
    }
    if options.wants(Scenario::Real) {
        report.real = real::measure(bench, &cluster).await?;
    }
    if options.wants(Scenario::Fleet) {
        report.fleet = fleet::measure(bench, &cluster).await?;
    }
    Ok(report)
}
