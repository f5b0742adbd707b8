//! Events and the lines that are written for them.

use std::io::Write;
use std::sync::{Arc, Mutex};

use tracing_subscriber::layer::SubscriberExt as _;

use super::*;

#[derive(Clone, Default)]
struct LogBuffer(Arc<Mutex<Vec<u8>>>);

impl Write for LogBuffer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The lines written while `act` runs. Of each line, only the letter of the level, the message and
/// the fields remain.
fn written(flags: &LogFlags, act: impl FnOnce()) -> Vec<String> {
    let buffer = LogBuffer::default();
    let writer = buffer.clone();
    let layer = sink::KlogLayer::new(flags, move || writer.clone());
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), act);
    let bytes = buffer.0.lock().unwrap().clone();
    let text = String::from_utf8(bytes).unwrap();
    text.lines()
        .map(|line| {
            let (head, rest) = line.split_once(' ').unwrap();
            let message = rest.split_once("] ").map_or(rest, |(_, message)| message);
            format!("{}{message}", &head[..1])
        })
        .collect()
}

fn log_at_all_levels() {
    tracing::error!("an error");
    tracing::info!(count = 3, who = "me", "an info");
    tracing::debug!("a debug");
    tracing::trace!("a trace");
    tracing::error!(target: "hyper::proto", "their error");
    tracing::info!(target: "hickory_server", "their info");
}

#[test]
fn verbosity_chooses_what_is_written() {
    let at = |v| {
        written(
            &LogFlags {
                v: Verbosity(v),
                ..LogFlags::default()
            },
            log_at_all_levels,
        )
    };
    let quiet = ["Ean error", "Ian info count=3 who=\"me\"", "Etheir error"];
    assert_eq!(at(0), quiet);
    assert_eq!(at(3), quiet);
    assert_eq!(
        at(4),
        [
            "Ean error",
            "Ian info count=3 who=\"me\"",
            "Ia debug",
            "Etheir error"
        ]
    );
    assert_eq!(at(6).len(), 6);
}

#[test]
fn vmodule_raises_verbosity_of_named_file_only() {
    let flags = LogFlags {
        vmodule: "tests=6".parse().unwrap(),
        ..LogFlags::default()
    };
    assert_eq!(written(&flags, log_at_all_levels).len(), 6);
    let flags = LogFlags {
        vmodule: "other=6".parse().unwrap(),
        ..LogFlags::default()
    };
    assert_eq!(written(&flags, log_at_all_levels).len(), 3);
}

#[test]
fn errors_tell_their_causes() {
    let lines = written(&LogFlags::default(), || {
        let inner = std::io::Error::other("disk on fire");
        let outer = crate::tasks::TaskError::Failed {
            task: "writing",
            source: Box::new(inner),
        };
        tracing::error!(error = &outer as &dyn std::error::Error, "failed");
    });
    assert_eq!(lines, ["Efailed error=\"writing: disk on fire\""]);
}

#[test]
fn repeated_lines_are_limited_and_counted() {
    let lines = written(&LogFlags::default(), || {
        for _ in 0..500 {
            tracing::warn!("upstream down");
        }
        tracing::info!("something else");
    });
    assert_eq!(lines.len(), 32);
    assert_eq!(
        &lines[29..],
        [
            "Wupstream down",
            "Wrepeated log lines suppressed count=470",
            "Isomething else"
        ]
    );
}

#[test]
fn trace_lines_are_not_limited() {
    let flags = LogFlags {
        v: Verbosity(6),
        ..LogFlags::default()
    };
    let lines = written(&flags, || {
        (0..500).for_each(|query| tracing::trace!(query, "asked"));
    });
    assert_eq!(lines.len(), 500);
}
