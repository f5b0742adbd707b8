//! Collects the message and the fields of an event, and formats a [`KlogLine`] as text.

use std::fmt::{self, Write as _};

use chrono::{DateTime, Local};
use serde_json::{Map, Value};
use tracing::Level;
use tracing::field::{Field, Visit};

use super::LogFormat;
use crate::error_chain::ErrorChain;
use crate::flags::quote;

/// Maximum length of the message and of each value, in bytes. After a truncated text, a note with
/// the number of missing bytes is added.
const LONGEST: usize = 4096;

/// The content of a line.
pub(super) struct KlogLine<'a> {
    pub(super) time: DateTime<Local>,
    pub(super) level: Level,
    pub(super) pid: u32,
    pub(super) file: &'a str,
    pub(super) number: u32,
    pub(super) fields: &'a EventFields,
}

impl KlogLine<'_> {
    /// The text of the line with its line feed. Line feeds in the message and in the values are
    /// escaped, so the text is a single line.
    pub(super) fn render(&self, format: LogFormat) -> String {
        match format {
            LogFormat::Klog => self.render_klog(),
            LogFormat::Json => self.render_json(),
        }
    }

    fn render_klog(&self) -> String {
        let mut text = String::with_capacity(128);
        let time = self.time.format("%m%d %H:%M:%S%.6f");
        let _ = write!(
            text,
            "{}{time} {:7} {}:{}] ",
            self.severity_letter(),
            self.pid,
            self.file,
            self.number
        );

        // A control character could begin another line.
        for c in self.fields.message.chars() {
            if c.is_control() {
                let _ = write!(text, "{}", c.escape_default());
            } else {
                text.push(c);
            }
        }

        for (name, value) in &self.fields.others {
            let _ = match value {
                Value::String(value) => write!(text, " {name}={}", quote(value)),
                value => write!(text, " {name}={value}"),
            };
        }

        text.push('\n');
        text
    }

    fn render_json(&self) -> String {
        let time = self
            .time
            .to_rfc3339_opts(chrono::SecondsFormat::Micros, false);
        let level = self.level.to_string().to_ascii_lowercase();
        let caller = format!("{}:{}", self.file, self.number);
        let mut object = Map::new();
        object.insert("ts".into(), time.into());
        object.insert("level".into(), level.into());
        object.insert("caller".into(), caller.into());
        object.insert("msg".into(), self.fields.message.as_str().into());

        for (name, value) in &self.fields.others {
            // A field must not replace a standard key.
            let name = if object.contains_key(*name) {
                format!("{name}_")
            } else {
                (*name).to_owned()
            };
            object.insert(name, value.clone());
        }

        let mut text = Value::Object(object).to_string();
        text.push('\n');
        text
    }

    fn severity_letter(&self) -> char {
        match self.level {
            Level::ERROR => 'E',
            Level::WARN => 'W',
            Level::INFO | Level::DEBUG | Level::TRACE => 'I',
        }
    }
}

/// The message and the fields of an event.
#[derive(Debug, Default)]
pub(super) struct EventFields {
    pub(super) message: String,
    pub(super) others: Vec<(&'static str, Value)>,
}

impl EventFields {
    fn push_field(&mut self, field: &Field, value: Value) {
        match (field.name(), value) {
            ("message", Value::String(text)) => self.message = text,
            // Some crates log a message that is not text.
            ("message", value) => self.message = value.to_string(),
            (name, value) => self.others.push((name, value)),
        }
    }
}

impl Visit for EventFields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.push_field(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.push_field(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.push_field(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.push_field(field, value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.push_field(field, truncate(format_args!("{value}")).into());
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.push_field(
            field,
            truncate(format_args!("{}", ErrorChain(value))).into(),
        );
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.push_field(field, truncate(format_args!("{value:?}")).into());
    }
}

/// The text, truncated at [`LONGEST`] bytes.
fn truncate(text: fmt::Arguments<'_>) -> String {
    let mut truncated = TruncatedText::default();
    let _ = truncated.write_fmt(text);
    match truncated.omitted {
        0 => truncated.text,
        omitted => format!("{}... ({omitted} more bytes)", truncated.text),
    }
}

/// The beginning of a text, at most [`LONGEST`] bytes, and the number of bytes after it.
#[derive(Default)]
struct TruncatedText {
    text: String,
    omitted: usize,
}

impl fmt::Write for TruncatedText {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        // After bytes were omitted, nothing is added, not even a piece that is short enough to fit.
        let room = if self.omitted == 0 {
            LONGEST - self.text.len()
        } else {
            0
        };
        let (shown, rest) = more.split_at(more.floor_char_boundary(room));
        self.text.push_str(shown);
        self.omitted += rest.len();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
