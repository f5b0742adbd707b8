//! `kube-dns explain`: requests an explanation from a running kubedns and prints it.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use daemon::flags::{Exit, parse_subcommand};
use daemon::http::{GetError, Page, authority};

use crate::document::Explanation;
use crate::request::{Parameters, Request, RequestError};
use crate::{http, text};

const NAME: &str = "kube-dns explain";
const USAGE: &str = "\
Explains how a name resolves, or why it does not.

  kube-dns explain NAME [TYPE] [--search NAMESPACE] [--server http://127.0.0.1:8081] [--json]

NAME is the name that an application looks up, or an address; a dot at its end disables the search list.
TYPE is a record type; the default is A, AAAA and SRV, or PTR for an address.

";
/// Timeout of the response.
const TIME: Duration = Duration::from_secs(10);
/// The largest response, in octets.
const SIZE: usize = 4 << 20;

/// The command line of `kube-dns explain`.
#[derive(Debug, Clone, clap::Parser)]
pub struct Options {
    /// the status port of kubedns
    #[arg(long, value_name = "string", default_value = "http://127.0.0.1:8081")]
    server: String,
    #[command(flatten)]
    pub(crate) parameters: Parameters,
    /// anything else
    #[arg(hide = true)]
    rest: Vec<String>,
    /// print the answer as JSON
    #[arg(long)]
    json: bool,
}

/// Failure to get an explanation; the message is one line.
#[derive(Debug, thiserror::Error)]
enum CommandError {
    #[error("cannot ask {0}: {1}; is kubedns running there, with this --healthz-port?")]
    Get(String, GetError),
    #[error("{0} does not answer within {TIME:?}")]
    Slow(String),
    #[error("{0} answers more than {SIZE} bytes")]
    Large(String),
    #[error("{0} answers: {1}")]
    Status(String, String),
    #[error("{0} answers something else than an explanation: it may be of another version ({1})")]
    Foreign(String, serde_json::Error),
    #[error("cannot start the runtime: {0}")]
    Runtime(io::Error),
}

/// Runs the command; `words` are the arguments after `explain`. The exit code is 0 if kubedns
/// explained the name, even a name that does not resolve. The exit code is 1 without an
/// explanation, and 2 for an invalid command line.
pub fn command(words: impl IntoIterator<Item = OsString>) -> ExitCode {
    let exit = match read(words) {
        Err(exit) => exit,
        Ok(options) => match run(&options) {
            Ok(stdout) => Exit {
                status: 0,
                stdout,
                stderr: String::new(),
            },
            Err(error) => Exit::failure(NAME, &error),
        },
    };
    let code = exit.print();
    // Flush before the process ends. A closed output stream is not an error.
    let _ = io::stdout().lock().flush();
    code
}

/// Parses the arguments after `explain`.
pub(crate) fn read(words: impl IntoIterator<Item = OsString>) -> Result<Options, Exit> {
    let options: Options = parse_subcommand(NAME, USAGE, words)?;
    let wrong = |text: String| Exit::mistake(NAME, &text);
    if let Some(word) = options.rest.first() {
        return Err(wrong(format!(
            "one name and one type are accepted, and {word:?} is neither"
        )));
    }
    if authority(&options.server).is_none() {
        return Err(wrong(format!(
            "--server {:?}: http://HOST:PORT is accepted",
            options.server
        )));
    }
    match Request::new(&options.parameters) {
        Ok(_) => Ok(options),
        Err(RequestError::NoName) => Err(wrong("no name was given".to_owned())),
        Err(error) => Err(wrong(error.to_string())),
    }
}

fn run(options: &Options) -> Result<String, CommandError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.map_err(CommandError::Runtime)?;
    let (server, target) = (&options.server, http::target(&options.parameters));
    let authority = authority(server).unwrap_or(server);
    let page = runtime.block_on(daemon::http::get(authority, &target, TIME, SIZE));
    let body = body(server, page)?;
    let explanation: Explanation = serde_json::from_slice(&body)
        .map_err(|error| CommandError::Foreign(server.clone(), error))?;
    if options.json {
        return Ok(String::from_utf8_lossy(&body).into_owned());
    }
    Ok(text::render(&explanation))
}

/// The body of a response with a success status; an error for other responses.
fn body(server: &str, page: Result<Page, GetError>) -> Result<Vec<u8>, CommandError> {
    let server = server.to_owned();
    match page {
        Ok(Page {
            status: 200, body, ..
        }) => Ok(body),
        Ok(page) => Err(CommandError::Status(server, page.error_line())),
        Err(GetError::NotHttp(line)) => Err(CommandError::Status(server, line)),
        Err(GetError::Slow(_)) => Err(CommandError::Slow(server)),
        Err(GetError::Large(_)) => Err(CommandError::Large(server)),
        Err(error) => Err(CommandError::Get(server, error)),
    }
}

#[cfg(test)]
mod tests;
