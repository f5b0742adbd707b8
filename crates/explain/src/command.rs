//! `kubedns explain`: asks a running kubedns and prints what it says.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use daemon::flags::{Exit, Style, parse};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::document::Explanation;
use crate::request::{Parameters, Request, RequestError};
use crate::{http, text};

const NAME: &str = "kube-dns explain";
const USAGE: &str = "\
Says how a name resolves and why, or why it does not.

  kube-dns explain NAME [TYPE] [--search NAMESPACE] [--server http://127.0.0.1:8081] [--json]

NAME is what an application looks up, or an address; with a dot at its end no search list is applied.
TYPE is a record type; without one it is A, AAAA and SRV, or PTR for an address.

";
/// How long the answer may take.
const TIME: Duration = Duration::from_secs(10);
/// How large it may be.
const SIZE: u64 = 4 << 20;
/// There is no explanation.
const FAILED: u8 = 1;

/// The command line of `kubedns explain`.
#[derive(Debug, Clone, clap::Parser)]
pub(crate) struct Options {
    /// the name
    #[arg(default_value = "")]
    name: String,
    /// the record type
    #[arg(default_value = "")]
    qtype: String,
    /// anything else
    #[arg(hide = true)]
    rest: Vec<String>,
    /// the status port of the kubedns that is asked
    #[arg(long, value_name = "string", default_value = "http://127.0.0.1:8081")]
    server: String,
    /// the namespace of the pod that looks the name up, or the search list of its resolv.conf, separated by commas
    #[arg(long, value_name = "string", default_value = "default")]
    search: String,
    /// options ndots of the pod's resolv.conf
    #[arg(long, value_name = "int", default_value = "5")]
    ndots: String,
    /// print the answer as JSON
    #[arg(long)]
    json: bool,
}

/// Why there is nothing to print. One line each.
#[derive(Debug, thiserror::Error)]
enum CommandError {
    #[error("cannot ask {0}: {1}; is kubedns running there, with this --healthz-port?")]
    Connect(String, io::Error),
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

/// Runs the command; `words` are those behind `explain`. The exit code is 0 when there is an explanation (of a name
/// that resolves or not), 1 when nobody gives one, and 2 when the command line is wrong.
pub fn command(words: impl IntoIterator<Item = OsString>) -> ExitCode {
    let exit = match read(words) {
        Err(exit) => exit,
        Ok(options) => match run(&options) {
            Ok(stdout) => Exit { status: 0, stdout, stderr: String::new() },
            Err(error) => {
                Exit { status: FAILED, stdout: String::new(), stderr: format!("{NAME}: {error}\n") }
            }
        },
    };
    let code = exit.print();
    // Only so that what was printed is out before the process ends; a closed stream is not an error.
    let _ = io::stdout().lock().flush();
    code
}

/// Reads the words behind `explain`.
pub(crate) fn read(words: impl IntoIterator<Item = OsString>) -> Result<Options, Exit> {
    let options: Options = parse(NAME, Style::Pflag, words).map_err(|exit| match exit.status {
        0 => Exit { stderr: format!("{USAGE}{}", exit.stderr), ..exit },
        _ => exit,
    })?;
    let wrong = |text: String| {
        let stderr = format!("{NAME}: {text}\nUsage of {NAME}: see {NAME} --help\n");
        Exit { status: 2, stdout: String::new(), stderr }
    };
    if let Some(word) = options.rest.first() {
        return Err(wrong(format!("one name and one type are accepted, and {word:?} is neither")));
    }
    if authority(&options.server).is_none() {
        return Err(wrong(format!("--server {:?}: http://HOST:PORT is accepted", options.server)));
    }
    match Request::new(&options.parameters()) {
        Ok(_) => Ok(options),
        Err(RequestError::NoName) => Err(wrong("no name was given".to_owned())),
        Err(error) => Err(wrong(error.to_string())),
    }
}

impl Options {
    /// What is asked of the server.
    pub(crate) fn parameters(&self) -> Parameters {
        Parameters {
            name: self.name.clone(),
            qtype: self.qtype.clone(),
            search: self.search.clone(),
            ndots: self.ndots.clone(),
        }
    }
}

fn run(options: &Options) -> Result<String, CommandError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(CommandError::Runtime)?;
    let (server, target) = (&options.server, http::target(&options.parameters()));
    let body = runtime.block_on(async {
        match tokio::time::timeout(TIME, get(server, &target)).await {
            Ok(body) => body,
            Err(_) => Err(CommandError::Slow(server.clone())),
        }
    })?;
    let explanation: Explanation =
        serde_json::from_slice(&body).map_err(|error| CommandError::Foreign(server.clone(), error))?;
    if options.json {
        return Ok(String::from_utf8_lossy(&body).into_owned());
    }
    Ok(text::render(&explanation))
}

/// A GET of HTTP/1.0: one answer, not in chunks, then the end of the connection.
async fn get(server: &str, target: &str) -> Result<Vec<u8>, CommandError> {
    let authority = authority(server).unwrap_or(server);
    let connect = |error| CommandError::Connect(server.to_owned(), error);
    let mut stream = TcpStream::connect(authority).await.map_err(connect)?;
    let request = format!("GET {target} HTTP/1.0\r\nHost: {authority}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.map_err(connect)?;
    let mut reply = Vec::new();
    stream.take(SIZE + 1).read_to_end(&mut reply).await.map_err(connect)?;
    if reply.len() as u64 > SIZE {
        return Err(CommandError::Large(server.to_owned()));
    }
    body(server, &reply)
}

/// Host and port of a URL.
fn authority(server: &str) -> Option<&str> {
    let rest = server.strip_prefix("http://").unwrap_or(server);
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let is_authority = |c: char| c.is_ascii_alphanumeric() || ".-:[]%_".contains(c);
    let (host, port) = rest.rsplit_once(':')?;
    (!host.is_empty() && port.parse::<u16>().is_ok() && rest.chars().all(is_authority)).then_some(rest)
}

fn body(server: &str, reply: &[u8]) -> Result<Vec<u8>, CommandError> {
    let end = reply.windows(4).position(|window| window == b"\r\n\r\n");
    let (head, body) = match end {
        Some(end) => (reply.get(..end).unwrap_or_default(), reply.get(end + 4..).unwrap_or_default()),
        None => (reply, &[][..]),
    };
    if head.starts_with(b"HTTP/1.") && head.get(8..12) == Some(b" 200") {
        return Ok(body.to_vec());
    }
    let line = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        text.lines()
            .next()
            .unwrap_or_default()
            .chars()
            .filter(|c| !c.is_control())
            .take(200)
            .collect::<String>()
    };
    let said = match (line(head), line(body)) {
        (head, body) if body.is_empty() => head,
        (_, body) => body,
    };
    Err(CommandError::Status(server.to_owned(), said))
}

#[cfg(test)]
mod tests;
