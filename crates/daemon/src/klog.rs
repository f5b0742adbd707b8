//! Log lines on standard error, in the format of klog or as JSON.
//!
//! The project logs through `tracing`. This module filters and formats the events. By default, a
//! line has the form of klog:
//!
//! ```text
//! I1121 01:02:03.000004      17 source.rs:123] configuration in force key="value"
//! ```
//!
//! `--v` selects the events that are written:
//!
//! | events | written |
//! | --- | --- |
//! | error, warn, info of our own crates | always |
//! | debug of our own crates, such as a line for each watch event | from `--v=4` on |
//! | trace of our own crates, such as a line for each query | from `--v=6` on |
//! | error, warn of other crates | always |
//! | info of other crates | from `--v=5` on |
//! | debug of other crates | from `--v=8` on |
//! | trace of other crates | from `--v=10` on |
//!
//! `--vmodule=watch=6,engine=4` sets the level of single source files. Unlike in klog, this level
//! may also be lower than `--v`.
//!
//! # Floods
//!
//! Every call site (a log macro in the source) may write 30 lines at once and then one line per
//! second, so that a flood does not fill a disk. Suppressed lines are counted for each call site.
//! The counts are logged before the next line that any call site writes, but at most once per
//! second. Debug and trace lines have no limit, because they are only written on request. Query
//! logs, whose target ends with `::queries`, are limited by the crate `querylog`.

mod format;
mod level;
mod limit;
mod queue;
mod sink;

use std::panic::PanicHookInfo;
use std::sync::Once;
use std::time::Duration;

use chrono::Local;
use tracing_subscriber::layer::SubscriberExt as _;

use self::format::{EventFields, KlogLine};
pub use self::level::{Verbosity, VmoduleLevels};
use self::queue::LineQueue;

/// The targets of query logs end with this suffix.
const QUERIES: &str = "::queries";
/// The queue of lines for standard error.
static STDERR: LineQueue = LineQueue::new();
/// Stack size of the writing thread.
const THREAD_STACK: usize = 256 << 10;
/// Timeout of [`flush`].
const LAST_LINES: Duration = Duration::from_secs(1);

/// Format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// klog lines.
    #[default]
    Klog,
    /// One JSON object per line.
    Json,
}

/// The logging flags of every binary; flatten them into its options.
///
/// Only `-v`, `--vmodule` and `--log-format` have an effect. The other flags are accepted because
/// manifests for the Go binaries set them. Most of the other flags are about log files, but this
/// project logs only to standard error.
#[derive(Clone, Debug, clap::Args)]
pub struct LogFlags {
    /// number for the log level verbosity
    #[arg(short = 'v', long = "v", value_name = "Level", default_value = "0")]
    pub v: Verbosity,
    // The help text is that of kube-dns. Here, the flag works with `--log-format=json`, too.
    /// comma-separated list of pattern=N settings for file-filtered logging (only works for the
    /// default text log format)
    #[arg(long, value_name = "moduleSpec", default_value = "")]
    pub vmodule: VmoduleLevels,
    /// format of log lines: klog or json
    #[arg(long, value_name = "string", value_enum, default_value_t)]
    pub log_format: LogFormat,
    /// Maximum number of seconds between log flushes
    #[arg(long, value_name = "duration", default_value = "5s")]
    pub log_flush_frequency: crate::flags::GoDuration,
    /// The other flags without effect.
    #[command(flatten)]
    pub old: OldLogFlags,
}

impl Default for LogFlags {
    fn default() -> Self {
        Self {
            v: Verbosity::default(),
            vmodule: VmoduleLevels::default(),
            log_format: LogFormat::default(),
            log_flush_frequency: crate::flags::GoDuration::from_secs(5),
            old: OldLogFlags::default(),
        }
    }
}

/// klog's help text for `--log_file_max_size`. It is not a doc comment, because clap drops the
/// final full stop of a doc comment.
const LOG_FILE_MAX_SIZE: &str = "Defines the maximum size a log file can grow to \
     (no effect when -logtostderr=true). Unit is megabytes. If the value is 0, \
     the maximum file size is unlimited.";

/// Flags of klog that are accepted and have no effect.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = crate::flags::OLD_LOGGING)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "these are klog's flags, not a state"
)]
pub struct OldLogFlags {
    /// log to standard error instead of files
    #[arg(long, action = clap::ArgAction::Set, default_value = "true")]
    logtostderr: bool,
    /// log to standard error as well as files (no effect when -logtostderr=true)
    #[arg(long)]
    alsologtostderr: bool,
    /// logs at or above this threshold go to stderr when writing to files and stderr (no effect
    /// when -logtostderr=true or -alsologtostderr=true)
    #[arg(long, value_name = "value", default_value = "2")]
    stderrthreshold: String,
    /// If non-empty, write log files in this directory (no effect when -logtostderr=true)
    #[arg(long = "log_dir", value_name = "string", default_value = "")]
    log_dir: String,
    /// If non-empty, use this log file (no effect when -logtostderr=true)
    #[arg(long = "log_file", value_name = "string", default_value = "")]
    log_file: String,
    /// The size of a log file.
    #[arg(
        long = "log_file_max_size",
        value_name = "uint",
        default_value = "1800",
        value_parser = crate::flags::int::<u64>,
        help = LOG_FILE_MAX_SIZE
    )]
    log_file_max_size: u64,
    /// If true, only write logs to their native severity level (vs also writing to each lower
    /// severity level; no effect when -logtostderr=true)
    #[arg(long = "one_output")]
    one_output: bool,
    /// If true, avoid header prefixes in the log messages
    #[arg(long = "skip_headers")]
    skip_headers: bool,
    /// If true, avoid headers when opening log files (no effect when -logtostderr=true)
    #[arg(long = "skip_log_headers")]
    skip_log_headers: bool,
    /// If true, adds the file directory to the header of the log messages
    #[arg(long = "add_dir_header")]
    add_dir_header: bool,
    /// A line in the source.
    #[arg(
        long = "log_backtrace_at",
        help = "when logging hits line file:N, emit a stack trace",
        value_name = "value",
        default_value = ""
    )]
    log_backtrace_at: String,
}

/// Starts logging for the whole process and logs panics in one line. Only the first call has an
/// effect.
pub fn init(flags: &LogFlags) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        start_writing(flags.log_format);
        let layer = sink::KlogLayer::new(flags, || &STDERR);
        // A test may have set another subscriber already.
        let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry().with(layer));
        std::panic::set_hook(Box::new(log_panic));
    });
}

fn log_panic(info: &PanicHookInfo<'_>) {
    let place = info
        .location()
        .map(|at| format!("{}:{}", at.file(), at.line()))
        .unwrap_or_default();
    let why = info.payload_as_str().unwrap_or("unknown reason");
    tracing::error!(place, why, "a bug: this thread panicked");

    // The process may end after this function, so the queued lines are written first.
    flush();
}

/// Starts the writing thread. If the thread cannot start, each logging thread writes its own lines.
fn start_writing(format: LogFormat) {
    STDERR.open();
    let started = std::thread::Builder::new()
        .name("log".to_owned())
        .stack_size(THREAD_STACK)
        .spawn(move || STDERR.run(std::io::stderr(), |count| lost_lines(count, format)));
    if started.is_err() {
        STDERR.close();
    }
}

/// The line that reports lost lines.
fn lost_lines(count: u64, format: LogFormat) -> String {
    let fields = EventFields {
        message: "log lines lost: standard error was not read".to_owned(),
        others: vec![("count", count.into())],
    };
    let line = KlogLine {
        time: Local::now(),
        level: tracing::Level::WARN,
        pid: std::process::id(),
        file: "klog.rs",
        number: line!(),
        fields: &fields,
    };
    line.render(format)
}

/// Queues a formatted line, which must end with a line feed.
pub fn write_line(line: &str) {
    STDERR.push(line.as_bytes());
}

/// Waits until the queued lines are written, one second at most.
pub fn flush() {
    STDERR.flush(LAST_LINES);
}

#[cfg(test)]
mod tests;
