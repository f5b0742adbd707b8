//! The commands `kube-dns tap` and `kube-dns top`. They request a page from the status port of
//! kubedns or nanny, and print the reply.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

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

It connects to kubedns. Where dnsmasq is in front of kubedns, only the nanny sees the clients: --dnsmasq connects to it.
That works while dnsmasq logs queries: with queryLog in the ConfigMap, or with --log-queries=extra among its arguments.

";
const TOP_USAGE: &str = "\
Ranks the clients and names with the most queries in the last minutes.

  top [--server http://127.0.0.1:8081] [--json]

";
/// Status port of kubedns in the manifests.
const KUBEDNS: &str = "http://127.0.0.1:8081";
/// Status port of nanny in the manifests.
const NANNY: &str = "http://127.0.0.1:10056";
/// Timeout of a ranking, and of the header of a tap's reply.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of a line of a tap, and of a ranking, in octets.
const MAX_SIZE: usize = 1 << 20;

#[derive(Debug, Clone, clap::Parser)]
struct TapOptions {
    /// status port of kubedns (default `http://127.0.0.1:8081`); with --dnsmasq, status port of the
    /// nanny (default `http://127.0.0.1:10056`)
    #[arg(long, value_name = "string", default_value = "")]
    server: String,
    /// follow the queries that dnsmasq receives, where it logs them
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
    /// status port of kubedns
    #[arg(long, value_name = "string", default_value = KUBEDNS)]
    server: String,
    /// print the ranking as JSON
    #[arg(long)]
    json: bool,
}

/// Error of a command. The error text is one line.
#[derive(Debug, thiserror::Error)]
enum CommandError {
    #[error("cannot query {0}: {1}; is the server running?")]
    Get(String, GetError),
    #[error("{0} answers: {1}")]
    Status(String, String),
    #[error("{0} returned an unexpected reply: it may be of another version ({1})")]
    Foreign(String, serde_json::Error),
    #[error("cannot start the runtime: {0}")]
    Runtime(io::Error),
}

/// The command lines of `tap` and `top`, for manual pages and completions.
pub fn command_lines() -> [clap::Command; 2] {
    let tap = TapOptions::command()
        .name("tap")
        .about("Follows queries and their answers");
    let top = TopOptions::command().name("top");
    [
        tap,
        top.about("Ranks the clients and names with the most queries in the last minutes"),
    ]
}

/// Runs `tap` or `top` if the first word is its name; otherwise returns `None`. `program` is the
/// name of the binary.
pub fn command(program: &str, mut words: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    match words.next()?.to_str()? {
        "tap" => Some(tap(program, words)),
        "top" => Some(top(program, words)),
        _ => None,
    }
}

/// Runs `tap`; `words` are the arguments. The exit code is 0 after success, 1 if the request to the
/// status port fails, and 2 if the command line is wrong.
fn tap(program: &str, words: impl IntoIterator<Item = OsString>) -> ExitCode {
    let name = format!("{program} tap");
    let read = parse_subcommand::<TapOptions>(&name, TAP_USAGE, words).and_then(|options| {
        let choice = TapRequest::new(&options.parameters);
        choice.map_err(|error| Exit::mistake(&name, &error.to_string()))?;
        let usual = if options.dnsmasq { NANNY } else { KUBEDNS };
        let server = if options.server.is_empty() {
            usual
        } else {
            &options.server
        };
        Ok((authority(&name, server)?.to_owned(), options))
    });
    match read {
        Ok((authority, options)) => finish(&name, run(follow(&authority, &options))),
        Err(exit) => exit.print(),
    }
}

/// Runs `top`; `words` are the arguments. The exit codes are those of [`tap`].
fn top(program: &str, words: impl IntoIterator<Item = OsString>) -> ExitCode {
    let name = format!("{program} top");
    let read = parse_subcommand::<TopOptions>(&name, TOP_USAGE, words)
        .and_then(|options| Ok((authority(&name, &options.server)?.to_owned(), options)));
    match read {
        Ok((authority, options)) => finish(&name, run(rank(&authority, options.json))),
        Err(exit) => exit.print(),
    }
}

/// Host and port of `--server`.
fn authority<'s>(name: &str, server: &'s str) -> Result<&'s str, Exit> {
    let wrong = || {
        Exit::mistake(
            name,
            &format!("--server {server:?}: http://HOST:PORT is accepted"),
        )
    };
    daemon::http::authority(server).ok_or_else(wrong)
}

fn run(asking: impl Future<Output = Result<(), CommandError>>) -> Result<(), CommandError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.map_err(CommandError::Runtime)?.block_on(asking)
}

fn finish(name: &str, outcome: Result<(), CommandError>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => Exit::failure(name, &error).print(),
    }
}

/// The error for a reply other than 200.
fn refusal(authority: &str, page: Page) -> CommandError {
    CommandError::Status(authority.to_owned(), page.error_line())
}

async fn follow(authority: &str, options: &TapOptions) -> Result<(), CommandError> {
    let failed = |error| CommandError::Get(authority.to_owned(), error);
    let target = options.parameters.target();
    let page = daemon::http::get_streaming(authority, &target, TIMEOUT)
        .await
        .map_err(failed)?;
    let mut following = page.map_err(|page| refusal(authority, page))?;
    while let Some(line) = next(authority, &mut following).await? {
        let shown = if options.json {
            line
        } else {
            text(&line).map_err(|error| foreign(authority, error))?
        };
        // Standard output is closed.
        if writeln!(io::stdout().lock(), "{shown}").is_err() {
            return Ok(());
        }
    }
    Ok(())
}

async fn next(
    authority: &str,
    following: &mut StreamingPage,
) -> Result<Option<String>, CommandError> {
    following
        .line(MAX_SIZE)
        .await
        .map_err(|error| CommandError::Get(authority.to_owned(), error))
}

fn foreign(authority: &str, error: serde_json::Error) -> CommandError {
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

fn text(json: &str) -> Result<String, serde_json::Error> {
    let text = match serde_json::from_str(json)? {
        TapLine::Query(line) => line.with_time(),
        TapLine::Omitted { left_out } => format!("... {left_out} left out"),
    };
    // The text contains names from queries, which may contain control characters.
    Ok(text.replace(char::is_control, "?"))
}

async fn rank(authority: &str, json: bool) -> Result<(), CommandError> {
    let page = daemon::http::get(authority, "/top", TIMEOUT, MAX_SIZE).await;
    let page = page.map_err(|error| CommandError::Get(authority.to_owned(), error))?;
    if page.status != 200 {
        return Err(refusal(authority, page));
    }
    let ranking: RankingDocument =
        serde_json::from_slice(&page.body).map_err(|error| foreign(authority, error))?;
    let text = if json {
        String::from_utf8_lossy(&page.body).into_owned()
    } else {
        ranking.to_string()
    };
    let _ = io::stdout().lock().write_all(text.as_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_tap_as_text() {
        let query = r#"{"time":"2026-01-31T12:00:00Z","client":"10.0.0.1","name":"a.","type":"A","rcode":"NOERROR","by":"auth"}"#;
        assert_eq!(
            text(query).unwrap(),
            "2026-01-31T12:00:00Z 10.0.0.1 - A a. NOERROR auth"
        );
        assert_eq!(text(r#"{"leftOut":3}"#).unwrap(), "... 3 left out");
        assert!(text("{}").is_err());
    }

    #[test]
    fn command_lines() {
        let tap = |words: &str| {
            let words = words.split_whitespace().map(OsString::from);
            parse_subcommand::<TapOptions>("kube-dns tap", TAP_USAGE, words)
        };
        let options =
            tap("--name=*.acme.example --client 10.0.0.0/8 --type A --seconds=5 --json").unwrap();
        assert_eq!(
            options.parameters.target(),
            "/tap?name=*.acme.example&client=10.0.0.0%2F8&type=A&seconds=5&rate=1000"
        );
        assert!(options.json);
        let help = tap("--help").unwrap_err();
        assert!(
            help.status == 0 && help.stderr.starts_with("Follows queries"),
            "{}",
            help.stderr
        );
        assert_eq!(tap("word").unwrap_err().status, 2);
        for (server, good) in [
            (KUBEDNS, true),
            ("[::1]:8081", true),
            ("https://a:1", false),
            ("a", false),
        ] {
            assert_eq!(authority("x", server).is_ok(), good, "{server}");
        }
        assert!(command("kube-dns", ["explain"].map(OsString::from).into_iter()).is_none());
    }
}
