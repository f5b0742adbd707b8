//! Errors in one line, with their causes and without the operating system's error number.

use std::error::Error;
use std::fmt::{self, Write as _};
use std::io;

/// Displays an error with its causes, separated by colons.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chain<'a>(pub(crate) &'a dyn Error);

impl fmt::Display for Chain<'_> {
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

/// The first line of an error and of each cause, separated by colons. A cause whose text is already in the result is
/// skipped, because library errors often repeat their causes.
pub fn brief(error: &dyn Error) -> String {
    let first_line =
        |error: &dyn Error| error.to_string().lines().next().unwrap_or_default().trim_end().to_owned();
    let mut line = first_line(error);
    let mut source = error.source();
    while let Some(cause) = source {
        let text = first_line(cause);
        if !line.contains(&text) {
            let _ = write!(line, ": {text}");
        }
        source = cause.source();
    }
    line
}

/// The text of an I/O error, without the error number.
pub fn without_number(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}
