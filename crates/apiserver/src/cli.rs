//! The command line of the `apiserver` binary, and what it runs.

use std::ffi::OsString;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::{ArgAction, Parser};
use ipnet::IpNet;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::{ApiServer, DEFAULT_HISTORY, Options};

/// An embedded Kubernetes API server for laptops and tests.
#[derive(Debug, Parser)]
#[command(name = "apiserver")]
struct Args {
    /// Address to listen on; port 0 takes any free one
    #[arg(long, default_value = "127.0.0.1:8001", value_name = "ADDRESS")]
    listen: SocketAddr,
    /// Directory of YAML manifests to load and follow
    #[arg(long, value_name = "DIR")]
    manifests: Option<PathBuf>,
    /// Seconds after which the manifests are read again even if no change was noticed
    #[arg(long, default_value_t = 5, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    manifests_period: u64,
    /// Range of cluster IPs, or two of different families, the default family first
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "10.96.0.0/16,fd00:10:96::/112",
        value_name = "CIDR[,CIDR]"
    )]
    service_cluster_ip_range: Vec<IpNet>,
    /// Events remembered per resource; watches from before get 410
    #[arg(long, default_value_t = DEFAULT_HISTORY, value_name = "COUNT")]
    history: usize,
    /// Seconds between bookmarks on watches that allow them; none while nothing changes
    #[arg(long, default_value_t = 60, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    bookmark_period: u64,
    /// Start without the namespaces and the kubernetes Service that every cluster has
    #[arg(long)]
    empty: bool,
    /// Mirror Endpoints into EndpointSlices, as controllers do in a real cluster
    #[arg(long, default_value_t = true, action = ArgAction::Set, value_name = "BOOL")]
    mirror_endpoints: bool,
    /// Serve /_faults, where things can be made to go wrong
    #[arg(long)]
    enable_faults: bool,
    /// Bearer token that every request must carry
    #[arg(long, value_name = "TOKEN")]
    token: Option<String>,
}

/// Runs the binary with these arguments, the name of the program first.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args = match Args::try_parse_from(args) {
        Ok(args) => args,
        Err(error) if error.exit_code() == 0 => {
            return if error.print().is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
        }
        Err(error) => {
            // The first line says it all; usage is a --help away.
            let text = error.to_string();
            complain(text.lines().next().unwrap_or_default().trim_start_matches("error: "));
            return ExitCode::from(2);
        }
    };
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_target(false).with_ansi(false).init();
    match run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn complain(what: &str) {
    // Nothing is left to do when stderr is gone.
    drop(writeln!(std::io::stderr(), "apiserver: {what}"));
}

fn run(args: Args) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start")?;
    runtime.block_on(serve(args))
}

async fn serve(args: Args) -> anyhow::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let options = Options {
        service_ranges: args.service_cluster_ip_range,
        history: args.history,
        bookmark_period: Duration::from_secs(args.bookmark_period),
        bootstrap: !args.empty,
        mirror_endpoints: args.mirror_endpoints,
        control: args.enable_faults,
        token: args.token,
        ..Options::default()
    };
    let server = ApiServer::bind(args.listen, options)?;
    let manifests = match args.manifests {
        Some(directory) => {
            let mut manifests = server.manifests(directory);
            let objects = manifests.load()?;
            tracing::info!(objects, "loaded manifests");
            Some(manifests)
        }
        None => None,
    };
    let url = format!("http://{}", server.local_addr());
    writeln!(std::io::stdout(), "{url}").context("cannot write to stdout")?;

    let stop = CancellationToken::new();
    let period = Duration::from_secs(args.manifests_period);
    let follow = {
        let stop = stop.clone();
        async move {
            match manifests {
                Some(manifests) => manifests.run(period, stop).await,
                None => stop.cancelled().await,
            }
        }
    };
    let signals = async {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        stop.cancel();
    };
    tokio::join!(server.run(stop.clone()), follow, signals);
    Ok(())
}
