//! The commands `kube-dns tap` and `kube-dns top`. They request a page from the status port of
//! kubedns or the nanny, and print the reply.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::CommandFactory as _;
use daemon::flags::{Exit, parse_subcommand};
use daemon::http::{GetError, Page, StreamingPage};
use serde::Deserialize;

use crate::ranking::RankingDocument;
use crate::tap_request::TapParameters;
use crate::{QueryLine, TapRequest};

const TAP_USAGE: &str = "\
Follows queries and their answers for --seconds, then exits.

  tap [--name GLOB] [--client NETWORK] [--rcode RCODE] [--type TYPE] [--seconds 30] [--rate 1000] [--json]
      [--dnsmasq] [--server URL]

The command connects to kubedns or, with --dnsmasq, to the nanny. If dnsmasq is in front of kubedns, use --dnsmasq:
only the nanny sees the clients then. The nanny sees them only while dnsmasq logs queries. To make dnsmasq log queries,
set queryLog in the ConfigMap, or add --log-queries=extra to the arguments of dnsmasq.

";
const TOP_USAGE: &str = "\
Ranks the clients and names with the most queries in the last few minutes.

  top [--json] [--dnsmasq] [--server URL]

The command connects to kubedns or, with --dnsmasq, to the nanny. If dnsmasq is in front of kubedns, use --dnsmasq:
only the nanny sees the clients then. The nanny sees them only while dnsmasq logs queries. To make dnsmasq log queries,
set queryLog in the ConfigMap, or add --log-queries=extra to the arguments of dnsmasq.

";
/// URL of the status port of kubedns in the manifests.
const KUBEDNS_ADDRESS: &str = "http://127.0.0.1:8081";
/// URL of the status port of the nanny in the manifests.
const NANNY_ADDRESS: &str = "http://127.0.0.1:10056";
/// Timeout for the whole reply to `top`, and for the header of the reply to `tap`.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of a line of the reply to `tap`, and of the whole reply to `top`, in octets.
const MAX_SIZE: usize = 1 << 20;

#[derive(Debug, Clone, clap::Parser)]
struct TapOptions {
    /// URL of the status port of kubedns (default `http://127.0.0.1:8081`); with --dnsmasq, URL of
    /// the status port of the nanny (default `http://127.0.0.1:10056`)
    #[arg(long, value_name = "string", default_value = "")]
    server: String,
    /// follow the queries that dnsmasq logs
    #[arg(long)]
    dnsmasq: bool,
    #[command(flatten)]
    parameters: TapParameters,
    /// print JSON lines
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, clap::Parser)]
struct TopOptions {
    /// URL of the status port of kubedns (default `http://127.0.0.1:8081`); with --dnsmasq, URL of
    /// the status port of the nanny (default `http://127.0.0.1:10056`)
    #[arg(long, value_name = "string", default_value = "")]
    server: String,
    /// rank the queries that dnsmasq logs
    #[arg(long)]
    dnsmasq: bool,
    /// print the ranking as JSON
    #[arg(long)]
    json: bool,
}

/// Error of a command. The error text is one line.
#[derive(Debug, thiserror::Error)]
enum CommandError {
    #[error("cannot query {0}: {1}; is the server running?")]
    Get(String, GetError),
    #[error("cannot use the reply of {0}: {1}")]
    Malformed(String, GetError),
    #[error("{0} answers: {1}")]
    Status(String, String),
    #[error("{0} returned an unexpected reply: the server may have a different version ({1})")]
    Foreign(String, serde_json::Error),
    #[error("the reply of {0} is incomplete ({1})")]
    Incomplete(String, serde_json::Error),
    #[error(
        "the reply of {authority} ended after {:.1} of {} s: the server has stopped, or dnsmasq no longer logs queries",
        after.as_secs_f64(),
        time.as_secs()
    )]
    Ended {
        authority: String,
        after: Duration,
        time: Duration,
    },
    #[error("cannot start the runtime: {0}")]
    Runtime(io::Error),
}

/// The command lines of `tap` and `top`, for manual pages and completions.
pub fn command_lines() -> [clap::Command; 2] {
    let tap = TapOptions::command()
        .name("tap")
        .about("Follows queries and their answers");
    let top = TopOptions::command()
        .name("top")
        .about("Ranks the clients and names with the most queries in the last few minutes");
    [tap, top]
}

/// Runs `tap` or `top` if the first word names one of them; otherwise returns `None`. `program` is
/// the name of the binary.
pub fn run_command(program: &str, mut words: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    match words.next()?.to_str()? {
        "tap" => Some(run_tap(program, words)),
        "top" => Some(run_top(program, words)),
        _ => None,
    }
}

/// Runs `tap`; `words` are the arguments. The exit code is 2 if the command line is wrong, 1 after
/// a [`CommandError`], and otherwise 0.
fn run_tap(program: &str, words: impl IntoIterator<Item = OsString>) -> ExitCode {
    let name = format!("{program} tap");
    let options = match parse_subcommand::<TapOptions>(&name, TAP_USAGE, words) {
        Ok(options) => options,
        Err(exit) => return exit.print(),
    };
    // The values are checked here too, not only by the server.
    let request = match TapRequest::new(&options.parameters) {
        Ok(request) => request,
        Err(error) => return Exit::mistake(&name, &error.to_string()).print(),
    };

    match parse_authority(&name, status_port(&options.server, options.dnsmasq)) {
        Ok(authority) => {
            let printing = print_tap(authority, &options, request.time, io::stdout());
            exit_code(&name, block_on(printing))
        }
        Err(exit) => exit.print(),
    }
}

/// The URL of the status port: `given` if it is not empty, otherwise the default URL of the nanny
/// (if `dnsmasq` is true) or of kubedns.
fn status_port(given: &str, dnsmasq: bool) -> &str {
    match (given, dnsmasq) {
        ("", true) => NANNY_ADDRESS,
        ("", false) => KUBEDNS_ADDRESS,
        (given, _) => given,
    }
}

/// Runs `top`; `words` are the arguments. The exit codes are those of [`run_tap`].
fn run_top(program: &str, words: impl IntoIterator<Item = OsString>) -> ExitCode {
    let name = format!("{program} top");
    let options = match parse_subcommand::<TopOptions>(&name, TOP_USAGE, words) {
        Ok(options) => options,
        Err(exit) => return exit.print(),
    };

    match parse_authority(&name, status_port(&options.server, options.dnsmasq)) {
        Ok(authority) => exit_code(&name, block_on(print_ranking(authority, options.json))),
        Err(exit) => exit.print(),
    }
}

/// Host and port of `--server`.
fn parse_authority<'s>(name: &str, server: &'s str) -> Result<&'s str, Exit> {
    daemon::http::authority(server).ok_or_else(|| {
        let mistake =
            format!("--server {server:?}: only HOST:PORT or http://HOST:PORT is accepted");
        Exit::mistake(name, &mistake)
    })
}

fn block_on(request: impl Future<Output = Result<(), CommandError>>) -> Result<(), CommandError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(CommandError::Runtime)?;
    runtime.block_on(request)
}

fn exit_code(name: &str, outcome: Result<(), CommandError>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => Exit::failure(name, &error).print(),
    }
}

/// The error for a failed request.
fn get_error(authority: &str, error: GetError) -> CommandError {
    let authority = authority.to_owned();
    match error {
        GetError::Large(_) | GetError::NotHttp(_) => CommandError::Malformed(authority, error),
        _ => CommandError::Get(authority, error),
    }
}

/// The error for a reply whose status is not 200.
fn status_error(authority: &str, page: Page) -> CommandError {
    CommandError::Status(authority.to_owned(), page.error_line())
}

/// Writes the lines of `/tap` to `out` until the reply ends. A reply that ends before `time` is an
/// error: the server may have stopped, and lines may be missing.
async fn print_tap(
    authority: &str,
    options: &TapOptions,
    time: Duration,
    mut out: impl io::Write,
) -> Result<(), CommandError> {
    let started = Instant::now();
    let target = options.parameters.request_target();
    let page = daemon::http::get_streaming(authority, &target, TIMEOUT)
        .await
        .map_err(|error| get_error(authority, error))?;
    let mut lines = page.map_err(|page| status_error(authority, page))?;

    while let Some(line) = next_line(authority, &mut lines).await? {
        let shown = if options.json {
            line
        } else {
            format_line(&line).map_err(|error| foreign_reply(authority, error))?
        };
        // A failed write ends the command without an error. Usually, the reader of standard output
        // is gone.
        if writeln!(out, "{shown}").is_err() {
            return Ok(());
        }
    }

    let after = started.elapsed();
    // The clock of the server may be slightly faster than the clock of this machine.
    if after + time / 1000 < time {
        let authority = authority.to_owned();
        return Err(CommandError::Ended {
            authority,
            after,
            time,
        });
    }
    Ok(())
}

async fn next_line(
    authority: &str,
    lines: &mut StreamingPage,
) -> Result<Option<String>, CommandError> {
    let line = lines.line(MAX_SIZE).await;
    line.map_err(|error| get_error(authority, error))
}

fn foreign_reply(authority: &str, error: serde_json::Error) -> CommandError {
    CommandError::Foreign(authority.to_owned(), error)
}

/// A line of `/tap`.
#[derive(Deserialize)]
#[serde(untagged)]
enum TapLine {
    Omitted {
        #[serde(rename = "leftOut")]
        left_out: u64,
    },
    Query(QueryLine),
}

/// Converts a line of JSON to text for people.
fn format_line(json: &str) -> Result<String, serde_json::Error> {
    let text = match serde_json::from_str(json)? {
        TapLine::Query(line) => line.with_time(),
        TapLine::Omitted { left_out } => format!("... {left_out} queries left out"),
    };

    // The text contains names from queries, which may contain control characters.
    Ok(text.replace(char::is_control, "?"))
}

/// Prints the ranking of `/top`.
async fn print_ranking(authority: &str, json: bool) -> Result<(), CommandError> {
    let page = daemon::http::get(authority, "/top", TIMEOUT, MAX_SIZE).await;
    let page = page.map_err(|error| get_error(authority, error))?;
    if page.status != 200 {
        return Err(status_error(authority, page));
    }

    // A reply that is not a ranking is an error. With `--json`, the reply is parsed only for this
    // check, and is printed unchanged.
    let ranking: RankingDocument = serde_json::from_slice(&page.body).map_err(|error| {
        if error.is_eof() {
            CommandError::Incomplete(authority.to_owned(), error)
        } else {
            foreign_reply(authority, error)
        }
    })?;
    let text = if json {
        String::from_utf8_lossy(&page.body).into_owned()
    } else {
        ranking.to_string()
    };

    // A failed write is not an error, as in `print_tap`.
    let _ = io::stdout().lock().write_all(text.as_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
    use tokio::net::TcpListener;
    use tokio::task::JoinSet;

    use super::*;

    #[test]
    fn tap_line_is_formatted_as_text() {
        let query = concat!(
            r#"{"time":"2026-01-31T12:00:00Z","client":"10.0.0.1","name":"a.","#,
            r#""type":"A","rcode":"NOERROR","by":"auth"}"#
        );
        assert_eq!(
            format_line(query).unwrap(),
            "2026-01-31T12:00:00Z 10.0.0.1 - A a. NOERROR auth"
        );
        assert_eq!(
            format_line(r#"{"leftOut":3}"#).unwrap(),
            "... 3 queries left out"
        );
        assert!(format_line("{}").is_err());
    }

    /// A server that sends `reply` to its first client, and closes the connection.
    async fn serve_once(reply: &'static str) -> (String, JoinSet<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let mut server = JoinSet::new();
        server.spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = BufReader::new(&mut stream).lines();
            while request.next_line().await.unwrap().unwrap() != "" {}
            stream.write_all(reply.as_bytes()).await.unwrap();
        });
        (address, server)
    }

    /// The output and the error of `tap --json --seconds=60`. In the error, `SERVER` stands for the
    /// address, and `N` for the seconds after which the reply ended.
    async fn tap_for_minute(reply: &'static str) -> (String, String) {
        let (address, _server) = serve_once(reply).await;
        let options = parse_words("--json --seconds=60").unwrap();
        let minute = Duration::from_mins(1);
        let mut output = Vec::new();
        let error = print_tap(&address, &options, minute, &mut output)
            .await
            .unwrap_err()
            .to_string();

        let error = error.replace(&address, "SERVER");
        let (before, after) = error.split_once(" of 60 s").unwrap();
        let (before, _time) = before.rsplit_once(' ').unwrap();
        let output = String::from_utf8(output).unwrap();
        (output, format!("{before} N of 60 s{after}"))
    }

    #[tokio::test]
    async fn early_end_is_an_error() {
        let error = "the reply of SERVER ended after N of 60 s: the server has stopped, or dnsmasq no longer logs queries";
        for (reply, lines) in [
            ("HTTP/1.0 200 OK\r\n\r\n", ""),
            (
                "HTTP/1.0 200 OK\r\n\r\n{\"leftOut\":1}\n",
                "{\"leftOut\":1}\n",
            ),
            // The last line is cut, so it is not printed.
            (
                "HTTP/1.0 200 OK\r\n\r\n{\"leftOut\":1}\n{\"leftOut\":1",
                "{\"leftOut\":1}\n",
            ),
        ] {
            let expected = (lines.to_owned(), error.to_owned());
            assert_eq!(tap_for_minute(reply).await, expected, "{reply}");
        }
    }

    #[tokio::test]
    async fn reply_that_lasts_whole_time_is_success() {
        let (address, _server) = serve_once("HTTP/1.0 200 OK\r\n\r\n{\"leftOut\":1}\n").await;
        let options = parse_words("--json").unwrap();
        let mut output = Vec::new();
        print_tap(&address, &options, Duration::ZERO, &mut output)
            .await
            .unwrap();
        assert_eq!(output, b"{\"leftOut\":1}\n");
    }

    #[tokio::test]
    async fn cut_ranking_is_incomplete() {
        let (address, _server) = serve_once("HTTP/1.0 200 OK\r\n\r\n{\"seconds\":").await;
        let error = print_ranking(&address, true).await.unwrap_err().to_string();
        let expected = format!("the reply of {address} is incomplete (");
        assert!(error.starts_with(&expected), "{error}");
    }

    fn parse_words(words: &str) -> Result<TapOptions, Exit> {
        let words = words.split_whitespace().map(OsString::from);
        parse_subcommand::<TapOptions>("kube-dns tap", TAP_USAGE, words)
    }

    #[test]
    fn tap_command_line_is_parsed() {
        let options =
            parse_words("--name=*.acme.example --client 10.0.0.0/8 --type A --seconds=5 --json")
                .unwrap();
        assert_eq!(
            options.parameters.request_target(),
            "/tap?name=*.acme.example&client=10.0.0.0%2F8&type=A&seconds=5&rate=1000"
        );
        assert!(options.json);

        let help = parse_words("--help").unwrap_err();
        assert!(
            help.status == 0 && help.stdout.starts_with("Follows queries"),
            "{}",
            help.stdout
        );
        let version = parse_words("--version").unwrap_err();
        assert_eq!((version.status, version.stderr.as_str()), (0, ""));
        assert!(
            version.stdout.contains(", kube-dns tap, commit "),
            "{}",
            version.stdout
        );
        assert_eq!(parse_words("word").unwrap_err().status, 2);
        for (server, good) in [
            (KUBEDNS_ADDRESS, true),
            ("[::1]:8081", true),
            ("https://a:1", false),
            ("a", false),
        ] {
            assert_eq!(parse_authority("x", server).is_ok(), good, "{server}");
        }
        assert!(run_command("kube-dns", ["explain"].map(OsString::from).into_iter()).is_none());
    }
}
