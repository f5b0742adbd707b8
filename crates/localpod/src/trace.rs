//! Shows the log events of this process as lines of the [`Console`]. Lines of the embedded API
//! server, which runs in this process, have the name `apiserver`; others have the name `localpod`.

use std::io::{self, Write};

use tracing::{Level, Metadata};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::{self, MakeWriter};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::console::Console;

/// The filter, unless `RUST_LOG` sets another. The log of the Kubernetes client is off: localpod
/// reports the client's errors itself.
const DEFAULT_FILTER: &str =
    "warn,apiserver=info,localpod=info,kube_client=off,hickory_server=error";

/// Sends the log events of this process to `console`, if they pass the filter.
pub fn to_console(console: Console) {
    let asked = std::env::var("RUST_LOG")
        .ok()
        .and_then(|text| text.parse::<Targets>().ok());
    let filter = asked
        .or_else(|| DEFAULT_FILTER.parse().ok())
        .unwrap_or_default();
    let lines = fmt::layer()
        .with_ansi(false)
        .without_time()
        .with_target(false);
    let events = tracing_subscriber::registry()
        .with(lines.with_writer(EventLines { console }))
        .with(filter);
    // Fails only if another subscriber is set already; that subscriber shows the events.
    let _ = events.try_init();
}

/// Turns each event into one [`Line`].
struct EventLines {
    console: Console,
}

impl<'a> MakeWriter<'a> for EventLines {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line {
            console: &self.console,
            name: "localpod",
            text: Vec::new(),
        }
    }

    fn make_writer_for(&'a self, event: &Metadata<'_>) -> Line<'a> {
        let name = if event.target().starts_with("apiserver") {
            "apiserver"
        } else {
            "localpod"
        };
        let mut text = Vec::new();
        if *event.level() > Level::INFO {
            text.extend(format!("{}: ", event.target()).into_bytes());
        }
        Line {
            console: &self.console,
            name,
            text,
        }
    }
}

/// Collects the text of one event; shows it when dropped.
struct Line<'a> {
    console: &'a Console,
    name: &'static str,
    text: Vec<u8>,
}

impl Write for Line<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line<'_> {
    fn drop(&mut self) {
        if !self.text.is_empty() {
            self.console
                .line(self.name, String::from_utf8_lossy(&self.text).trim());
        }
    }
}
