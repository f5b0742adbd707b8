//! Runs the selected command. The report of a measurement goes to standard output.

use std::io::Write as _;

use anyhow::{Context as _, bail};
use tokio::signal::unix::{SignalKind, signal};

use crate::api;
use crate::cluster::Cluster;
use crate::options::{Command, Measuring, Options};
use crate::report::Report;
use crate::setup::Bench;
use crate::{echo, hickory, report, scenario};

/// Runs the command that `options` select.
///
/// # Errors
///
/// If the command fails, or a goal is missed. Except in the echo server, SIGINT and SIGTERM cause
/// an error, too.
pub fn run(options: Options) -> anyhow::Result<()> {
    if let Some(Command::Echo {
        listen,
        sockets,
        batched,
    }) = options.command
    {
        // The echo server shows the cost of answers without an async runtime, so it has its own
        // threads.
        return echo::serve(listen, sockets, batched);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    // The child processes have a parent-death signal: the kernel kills them when the thread that
    // started them ends. So this future runs on the main thread.
    runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        tokio::select! {
            done = perform(options) => done,
            _ = interrupt.recv() => bail!("interrupted"),
            _ = terminate.recv() => bail!("terminated"),
        }
    })
}

async fn perform(options: Options) -> anyhow::Result<()> {
    match options.command {
        None => measure(options.measuring).await,
        // `run` serves this command itself, and does not call `perform`.
        Some(Command::Echo { .. }) => Ok(()),
        Some(Command::Hickory { listen, services }) => {
            hickory::serve(listen, &Cluster::generate(services)).await
        }
        Some(Command::Serve { listen, services }) => {
            let api = api::start(listen, &Cluster::generate(services))?;
            writeln!(std::io::stdout(), "{}", api.url())?;
            std::future::pending().await
        }
    }
}

async fn measure(options: Measuring) -> anyhow::Result<()> {
    if let Some(directory) = &options.write {
        report::check_page(directory)?;
    }
    let bench = Bench::new(options)?;
    let report = scenario::run(&bench).await?;
    let report = match &bench.options.write {
        Some(directory) => report::merge_into(directory, report)?,
        None => report,
    };
    show(&report)?;
    let missed = report.missed();
    if !missed.is_empty() {
        bail!("goals are missed: {}", missed.join("; "));
    }
    Ok(())
}

fn show(report: &Report) -> anyhow::Result<()> {
    std::io::stdout()
        .write_all(report.to_markdown().as_bytes())
        .context("cannot write the report")
}
