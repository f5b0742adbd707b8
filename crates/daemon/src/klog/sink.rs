//! The tracing layer that filters, limits, formats and writes events.

use std::io::Write;
use std::time::Instant;

use chrono::Local;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::layer::Context;

use super::format::{EventFields, KlogLine};
use super::level::{LogFilter, basename};
use super::limit::LineLimiter;
use super::{LogFlags, LogFormat};

/// Writes events. `W` makes a writer for each line. Each line is written with one call of
/// `write_all`.
pub(super) struct KlogLayer<W> {
    filter: LogFilter,
    limiter: LineLimiter,
    format: LogFormat,
    pid: u32,
    writer: W,
}

impl<W, O> KlogLayer<W>
where
    W: Fn() -> O,
    O: Write,
{
    pub(super) fn new(flags: &LogFlags, writer: W) -> Self {
        Self {
            filter: LogFilter::new(flags.v, flags.vmodule.clone()),
            limiter: LineLimiter::default(),
            format: flags.log_format,
            pid: std::process::id(),
            writer,
        }
    }

    /// Writes a log line with the call site `file`:`number`.
    fn write_line(&self, level: tracing::Level, file: &str, number: u32, fields: &EventFields) {
        let line = KlogLine {
            time: Local::now(),
            level,
            pid: self.pid,
            file: basename(file),
            number,
            fields,
        };
        // A closed standard error must not end the service.
        let _ = (self.writer)().write_all(line.render(self.format).as_bytes());
    }
}

impl<S, W, O> tracing_subscriber::Layer<S> for KlogLayer<W>
where
    S: Subscriber,
    W: Fn() -> O + 'static,
    O: Write,
{
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        self.filter.allows(metadata)
    }

    fn max_level_hint(&self) -> Option<tracing::level_filters::LevelFilter> {
        Some(self.filter.most_detailed())
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        let is_query = metadata.target().ends_with(super::QUERIES);
        // DEBUG and TRACE events have no limit, because they are written only on request. The query
        // log has a limit of its own.
        let limited = *metadata.level() <= tracing::Level::INFO && !is_query;
        let now = Instant::now();
        if limited && !self.limiter.admit(metadata, now) {
            return;
        }

        // The line that reports suppressed lines has their call site.
        for suppressed in self.limiter.take_suppressed(now) {
            let fields = EventFields {
                message: "repeated log lines suppressed".to_owned(),
                others: vec![("count", suppressed.count.into())],
            };
            self.write_line(
                tracing::Level::WARN,
                suppressed.file,
                suppressed.line,
                &fields,
            );
        }

        let mut fields = EventFields::default();
        event.record(&mut fields);
        let file = metadata.file().unwrap_or("unknown");
        let line = metadata.line().unwrap_or_default();
        self.write_line(*metadata.level(), file, line, &fields);
    }
}
