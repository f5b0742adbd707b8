//! The output for the user: whole lines on standard error. Each line begins with the name of the
//! process that wrote it.
//!
//! When the pod is ready, a guide for the user is printed. The guide goes to standard output (see
//! [`Console::guide`]), so that it can be separated from the logs.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;

use parking_lot::Mutex;

/// Width of the column of process names; the longest name is `apiserver`.
const NAME_WIDTH: usize = 9;

/// A sink of lines. Cheap to clone; lines of concurrent writers never mix.
#[derive(Clone)]
pub struct Console {
    sink: Arc<Mutex<Box<dyn Write + Send>>>,
    colour: bool,
}

impl Console {
    /// Writes to standard error, in colour when it is a terminal and `NO_COLOR` is not set.
    pub fn stderr() -> Self {
        let colour = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Self::to(Box::new(io::stderr()), colour)
    }

    /// Writes to any sink.
    fn to(sink: Box<dyn Write + Send>, colour: bool) -> Self {
        Self {
            sink: Arc::new(Mutex::new(sink)),
            colour,
        }
    }

    /// Writes a line of localpod itself.
    pub fn say(&self, text: &str) {
        self.line("localpod", text);
    }

    /// Writes a line of the process `name`. Write errors are ignored: a closed terminal must not
    /// stop the pod.
    pub fn line(&self, name: &str, text: &str) {
        let line = if self.colour {
            format!(
                "\x1b[{}m{name:<NAME_WIDTH$} |\x1b[0m {text}\n",
                colour_of(name)
            )
        } else {
            format!("{name:<NAME_WIDTH$} | {text}\n")
        };
        let mut sink = self.sink.lock();
        let _ = sink.write_all(line.as_bytes()).and_then(|()| sink.flush());
    }

    /// Prints the guide on standard output. Meanwhile, no log line is written.
    pub fn guide(&self, text: &str) {
        let _held = self.sink.lock();
        let mut stdout = io::stdout().lock();
        let _ = stdout
            .write_all(text.as_bytes())
            .and_then(|()| stdout.flush());
    }
}

/// The ANSI colour of a name: fixed, so that a container looks the same in every run.
fn colour_of(name: &str) -> u8 {
    match name {
        "kubedns" => 36,
        "dnsmasq" => 33,
        "sidecar" => 35,
        "apiserver" => 34,
        _ => 32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A writer that collects its input in memory.
    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Console {
        /// A console that writes to memory, and a function that returns the text written so far.
        pub(crate) fn kept(colour: bool) -> (Self, impl Fn() -> String) {
            let kept = Kept::default();
            let text = kept.0.clone();
            (Self::to(Box::new(kept), colour), move || {
                String::from_utf8(text.lock().clone()).unwrap()
            })
        }
    }

    #[test]
    fn console_aligns_and_colours_names() {
        let (console, shown) = Console::kept(false);
        console.line("kubedns", "one");
        console.line("apiserver", "two");
        assert_eq!(shown(), "kubedns   | one\napiserver | two\n");
        let (console, shown) = Console::kept(true);
        console.line("sidecar", "text");
        assert_eq!(shown(), "\x1b[35msidecar   |\x1b[0m text\n");
    }
}
