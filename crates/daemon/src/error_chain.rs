//! An error and its causes in one line.

use std::error::Error;
use std::fmt::{self, Write as _};

/// Shows an error with its causes, separated by colons.
#[derive(Clone, Copy, Debug)]
pub struct Chain<'a>(pub &'a dyn Error);

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

/// The same for errors of libraries that repeat each other: the first line of each, and what was said already but once.
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
