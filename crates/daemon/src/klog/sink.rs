//! The tracing layer that filters, limits, formats and writes events.

use std::io::Write;
use std::time::Instant;

use chrono::Local;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::layer::Context;

use super::format::{Fields, Line};
use super::level::{Filter, basename};
use super::limit::Limiter;
use super::{Format, LogFlags};

/// Writes events. `W` makes a writer for each line. Each line is a single `write_all`.
pub(super) struct Layer<W> {
    filter: Filter,
    limiter: Limiter,
    format: Format,
    pid: u32,
    writer: W,
}

impl<W, O> Layer<W>
where
    W: Fn() -> O,
    O: Write,
{
    pub(super) fn new(flags: &LogFlags, writer: W) -> Self {
        Self {
            filter: Filter::new(flags.v, flags.vmodule.clone()),
            limiter: Limiter::default(),
            format: flags.log_format,
            pid: std::process::id(),
            writer,
        }
    }

    fn write(&self, level: tracing::Level, file: &str, number: u32, fields: &Fields) {
        let line = Line {
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

impl<S, W, O> tracing_subscriber::Layer<S> for Layer<W>
where
    S: Subscriber,
    W: Fn() -> O + 'static,
    O: Write,
{
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        self.filter.allows(metadata)
    }

    fn max_level_hint(&self) -> Option<tracing::level_filters::LevelFilter> {
        Some(self.filter.most())
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        let is_query = metadata.target().ends_with(super::QUERIES);
        let limited = *metadata.level() <= tracing::Level::INFO && !is_query;
        let now = Instant::now();
        if limited && !self.limiter.admit(metadata, now) {
            return;
        }
        for left_out in self.limiter.left_out(now) {
            let fields = Fields {
                message: "repeated log lines suppressed".to_owned(),
                others: vec![("count", left_out.count.into())],
            };
            self.write(tracing::Level::WARN, left_out.file, left_out.line, &fields);
        }
        let mut fields = Fields::default();
        event.record(&mut fields);
        let (file, line) = (
            metadata.file().unwrap_or("unknown"),
            metadata.line().unwrap_or_default(),
        );
        self.write(*metadata.level(), file, line, &fields);
    }
}
