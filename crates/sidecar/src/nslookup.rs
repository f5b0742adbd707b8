//! Parses the lookups in a command of exechealthz, given by `--cmd`. The sidecar probes the names
//! in these lookups itself, and runs no command.

use std::str::FromStr;

use hickory_proto::rr::Name;
use thiserror::Error;
use wire::{FlagAddrError, ServerAddr};

use crate::spec::{ProbeSpecError, fully_qualified};

/// A command of manifests up to Kubernetes 1.5: `nslookup NAME SERVER >/dev/null`, or several
/// such lookups joined with `&&`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NslookupCommand(pub(crate) Vec<NslookupQuery>);

/// One `nslookup NAME SERVER`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NslookupQuery {
    pub(crate) name: Name,
    pub(crate) server: ServerAddr,
}

/// The error for a `--cmd` that is not a list of lookups.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum NslookupCommandError {
    /// A part of the command is not of the form `nslookup NAME SERVER`.
    #[error(
        "commands are not run; only \"nslookup NAME SERVER\" is accepted, or several of these joined with \"&&\""
    )]
    Form,
    /// `NAME` is not a domain name.
    #[error(transparent)]
    Name(#[from] ProbeSpecError),
    /// `SERVER` is not an address or name of a server.
    #[error(transparent)]
    Server(#[from] FlagAddrError),
}

impl FromStr for NslookupCommand {
    type Err = NslookupCommandError;

    fn from_str(text: &str) -> Result<Self, NslookupCommandError> {
        text.split("&&")
            .map(str::parse)
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

impl FromStr for NslookupQuery {
    type Err = NslookupCommandError;

    fn from_str(text: &str) -> Result<Self, NslookupCommandError> {
        // The target of a redirection may be a word of its own.
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let text = text.replace("> ", ">");
        let words: Vec<&str> = text
            .split(' ')
            .filter(|word| !is_redirection(word))
            .collect();

        let ["nslookup", name, server] = words.as_slice() else {
            return Err(NslookupCommandError::Form);
        };

        Ok(Self {
            name: fully_qualified(name)?,
            server: ServerAddr::from_flag(server)?,
        })
    }
}

/// Returns whether the word is a redirection to `/dev/null`, to `&1` or to `&2`.
fn is_redirection(word: &str) -> bool {
    matches!(
        word.trim_start_matches(['1', '2', '&']),
        ">/dev/null" | ">&1" | ">&2"
    )
}

#[cfg(test)]
mod tests;
