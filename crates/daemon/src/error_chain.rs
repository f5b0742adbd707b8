//! Formats errors with their causes, and I/O errors without the operating system's error number.

use std::error::Error;
use std::fmt::{self, Write as _};
use std::io;

/// Displays an error with its causes, separated by colons.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ErrorChain<'a>(pub(crate) &'a dyn Error);

impl fmt::Display for ErrorChain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;

        let mut source = self.0.source();
        while let Some(cause) = source {
            write!(f, ": {cause}")?;
            source = cause.source();
        }

        Ok(())
    }
}

/// The first line of an error and of each cause, separated by colons. A cause whose text is already
/// in the result is skipped. Links to the documentation of a library are removed.
pub fn brief(error: &dyn Error) -> String {
    let mut line = own_text(error);
    let mut source = error.source();

    while let Some(cause) = source {
        let text = own_text(cause);
        // Library errors often repeat their causes.
        if !line.contains(&text) {
            let _ = write!(line, ": {text}");
        }
        source = cause.source();
    }

    line
}

/// The first line of an error, up to a link to the documentation of a library.
fn own_text(error: &dyn Error) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    let text = line
        .split_once(": https://docs.rs/")
        .map_or(line, |(text, _)| text);
    text.trim_end().to_owned()
}

/// The text of an I/O error, without the error number.
pub fn without_number(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brief_error_has_one_line_without_link() {
        let link =
            "https://docs.rs/rustls/latest/rustls/manual/_03_howto/index.html#unexpected-eof";
        let cause = io::Error::other(format!("peer closed connection: {link}"));
        let error = io::Error::new(io::ErrorKind::UnexpectedEof, cause);
        assert_eq!(brief(&error), "peer closed connection");
        assert_eq!(brief(&io::Error::other("first\nsecond")), "first");
    }
}
