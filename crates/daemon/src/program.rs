//! The common `main` of the binaries, from the command line to the exit code.

use std::future::Future;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser;

use crate::flags::{self, ProgramOptions, Style};
use crate::klog::{self, LogFlags};
use crate::restart;
use crate::shutdown::{Shutdown, Signals};

/// The exit status after an error, as after `Fatal` of Go's glog and klog.
const FAILED: u8 = 255;
/// Maximum time for which `run` may continue after [`Shutdown::stop`].
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// The description of a binary in its `main.rs`.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// The name in help and error texts.
    pub name: &'static str,
    /// The Go package whose command-line syntax and texts are used.
    pub style: Style,
    /// The subcommands. `main.rs` runs a subcommand if its name is the first word. If the name is a
    /// later word, it is rejected, unless it is the value of a flag or comes after `--`.
    pub subcommands: &'static [&'static str],
    /// Number of threads of the async runtime.
    pub worker_threads: usize,
}

/// The part of a binary's options that [`main`] needs.
pub trait Options: Parser {
    /// The logging flags.
    fn log(&self) -> &LogFlags;

    /// The lameduck duration: how long the program continues to answer after the first signal.
    fn lameduck(&self) -> Duration {
        Duration::ZERO
    }

    /// Whether the program runs as a child that is started again after a crash ([`restart`]).
    fn restarts_after_crash(&self) -> bool {
        false
    }
}

/// Parses the command line, starts logging and the runtime, and runs `run` until it returns.
/// Signals stop the program as described in [`shutdown`](crate::shutdown).
///
/// If [`Options::restarts_after_crash`] is true, the first process only starts and restarts a child
/// process. The child calls `run`.
///
/// A mistake in the command line is printed, and the exit code is 2. A later error is logged with
/// its causes as one line, and the exit code is 255. The line has no backtrace, even if the
/// environment requests one.
pub fn main<O, F, Fut>(program: Program, run: F) -> ExitCode
where
    O: Options,
    F: FnOnce(O, Shutdown) -> Fut,
    Fut: Future<Output = anyhow::Result<()>>,
{
    let Program {
        name,
        style,
        subcommands,
        ..
    } = program;

    let words = std::env::args_os().skip(1);
    let parsed = flags::parse_program::<O>(name, style, subcommands, words);
    let ProgramOptions { options, ignored } = match parsed {
        Ok(parsed) => parsed,
        Err(exit) => return exit.print(),
    };

    if options.restarts_after_crash() && restart::count().is_none() {
        return restart_after_crashes(options.log());
    }

    klog::init(options.log());
    if !ignored.is_empty() {
        tracing::warn!(
            words = ignored.join(" "),
            "ignored words of the command line that are neither flags nor values"
        );
    }

    let result = run_until_stopped(program, options, run);
    exit_code(result.map(|()| ExitCode::SUCCESS))
}

/// Runs this program as a child that is started again after a crash.
fn restart_after_crashes(log: &LogFlags) -> ExitCode {
    let signals = restart::block_signals();
    klog::init(log);

    let status = signals.and_then(|signals| restart::run(&signals));
    exit_code(status.map(ExitCode::from))
}

/// Logs the error of a result, waits until the log lines are written, and returns the exit code.
fn exit_code(result: anyhow::Result<ExitCode>) -> ExitCode {
    let code = result.unwrap_or_else(|error| {
        // The alternate form (`#`) contains the chain of causes, but no backtrace.
        tracing::error!("{error:#}");
        ExitCode::from(FAILED)
    });

    // Lines are written by another thread, which ends with the process.
    klog::flush();
    code
}

/// Runs `run` until it returns. Cancelling [`Shutdown::stop`] begins the stop. If `run` has not
/// returned by the next signal, or within [`STOP_TIMEOUT`], it is aborted.
fn run_until_stopped<O, F, Fut>(program: Program, options: O, run: F) -> anyhow::Result<()>
where
    O: Options,
    F: FnOnce(O, Shutdown) -> Fut,
    Fut: Future<Output = anyhow::Result<()>>,
{
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(program.worker_threads.max(1))
        .enable_all()
        .build()
        .context("cannot start the runtime")?;

    let result = runtime.block_on(async {
        let signals = Signals::listen().context("cannot listen for signals")?;
        let shutdown = Shutdown::default();
        let lameduck = options.lameduck();

        tokio::select! {
            result = run(options, shutdown.clone()) => result,
            () = signals.cancel_on_signals(&shutdown, lameduck) => anyhow::bail!("a signal has ended the program while it was stopping"),
            () = wait_until_overdue(&shutdown) => anyhow::bail!("the program is still running {STOP_TIMEOUT:?} after the stop began"),
        }
    });

    // A blocking call, such as a read on a dead mount, delays the exit by at most one second.
    runtime.shutdown_timeout(Duration::from_secs(1));
    result
}

async fn wait_until_overdue(shutdown: &Shutdown) {
    shutdown.stop.cancelled().await;
    tokio::time::sleep(STOP_TIMEOUT).await;
}
