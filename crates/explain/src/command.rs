//! `kube-dns explain`: requests an explanation from a running kubedns and prints it.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use daemon::flags::{Exit, parse_subcommand};
use daemon::http::{GetError, Page, authority};

use crate::document::Explanation;
use crate::request::{ExplainParameters, ExplainRequest, ExplainRequestError};
use crate::text;

const NAME: &str = "kube-dns explain";
const USAGE: &str = "\
Explains how a name resolves, or why it does not.

  kube-dns explain NAME [TYPE] [--search NAMESPACE] [--server http://127.0.0.1:8081] [--json]

NAME is the name that an application looks up, or an address. No search list is applied to a name with a dot at its end.
TYPE is a record type; the default is A, AAAA and SRV, or PTR for an address.

";
/// Timeout of the request and its response together.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The largest response, in octets.
const MAX_SIZE: usize = 4 << 20;

/// The command line of `kube-dns explain`.
#[derive(Debug, Clone, clap::Parser)]
pub struct Options {
    /// URL of the status port of kubedns
    #[arg(long, value_name = "string", default_value = "http://127.0.0.1:8081")]
    server: String,
    #[command(flatten)]
    pub(crate) parameters: ExplainParameters,
    /// further words after the name and the type; they are rejected
    #[arg(hide = true)]
    rest: Vec<String>,
    /// print the explanation as JSON
    #[arg(long)]
    json: bool,
}

/// Failure to get an explanation; the message is one line.
#[derive(Debug, thiserror::Error)]
enum ExplainCommandError {
    #[error("cannot ask {0}: {1}; is kubedns running there, and is this port its --healthz-port?")]
    Get(String, GetError),
    #[error("{0} does not answer within {TIMEOUT:?}")]
    Slow(String),
    #[error("{0} sends a response of more than {MAX_SIZE} bytes")]
    Large(String),
    #[error("{0} answers: {1}")]
    Status(String, String),
    #[error("the response of {0} is not an explanation: the server may have another version ({1})")]
    Foreign(String, serde_json::Error),
    #[error("cannot start the runtime: {0}")]
    Runtime(io::Error),
}

/// Runs the command; `words` are the arguments after `explain`. The exit code is 0 if kubedns
/// explained the name, even if the name does not resolve. The exit code is also 0 for `--help` and
/// `--version`. It is 1 if the command gets no explanation, and 2 for an invalid command line.
pub fn command(words: impl IntoIterator<Item = OsString>) -> ExitCode {
    let exit = parse_words(words).map_or_else(|exit| exit, |options| run_command(&options));
    let code = exit.print();

    // Flush before the process ends. A closed output stream is not an error.
    let _ = io::stdout().lock().flush();
    code
}

/// Parses the arguments after `explain`.
pub(crate) fn parse_words(words: impl IntoIterator<Item = OsString>) -> Result<Options, Exit> {
    let options: Options = parse_subcommand(NAME, USAGE, words)?;
    if let Some(word) = options.rest.first() {
        let text =
            format!("only one name and one type are accepted: {word:?} is one word too many");
        return Err(Exit::mistake(NAME, &text));
    }
    if authority(&options.server).is_none() {
        let text = format!(
            "--server {:?}: only HOST:PORT or http://HOST:PORT is accepted",
            options.server
        );
        return Err(Exit::mistake(NAME, &text));
    }

    // kubedns parses the same arguments again. They are also parsed here, so that invalid arguments
    // cause no request.
    match ExplainRequest::parse(&options.parameters) {
        Ok(_) => Ok(options),
        Err(ExplainRequestError::NoName) => Err(Exit::mistake(NAME, "no name was given")),
        Err(error) => Err(Exit::mistake(NAME, &error.to_string())),
    }
}

fn run_command(options: &Options) -> Exit {
    match fetch_explanation(options) {
        Ok(stdout) => Exit {
            status: 0,
            stdout,
            stderr: String::new(),
        },
        Err(error) => Exit::failure(NAME, &error),
    }
}

/// Requests the explanation. Returns it as text, or as the JSON of the server.
fn fetch_explanation(options: &Options) -> Result<String, ExplainCommandError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(ExplainCommandError::Runtime)?;

    let server = &options.server;
    let authority = authority(server).unwrap_or(server);
    let target = options.parameters.request_target();
    let page = runtime.block_on(daemon::http::get(authority, &target, TIMEOUT, MAX_SIZE));
    let body = successful_body(server, page)?;

    // The JSON is parsed even if it is printed unchanged, because a page that is not an explanation
    // is an error.
    let explanation: Explanation = serde_json::from_slice(&body)
        .map_err(|error| ExplainCommandError::Foreign(server.clone(), error))?;
    if options.json {
        return Ok(String::from_utf8_lossy(&body).into_owned());
    }
    Ok(text::render_explanation(&explanation))
}

/// The body of a response with status 200; an error for other responses and for failed requests.
fn successful_body(
    server: &str,
    page: Result<Page, GetError>,
) -> Result<Vec<u8>, ExplainCommandError> {
    let server = server.to_owned();
    match page {
        Ok(Page {
            status: 200, body, ..
        }) => Ok(body),
        Ok(page) => Err(ExplainCommandError::Status(server, page.error_line())),
        Err(GetError::Slow(_)) => Err(ExplainCommandError::Slow(server)),
        Err(GetError::Large(_)) => Err(ExplainCommandError::Large(server)),
        Err(error) => Err(ExplainCommandError::Get(server, error)),
    }
}

#[cfg(test)]
mod tests;
