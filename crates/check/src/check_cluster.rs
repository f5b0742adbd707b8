//! `kube-dns check cluster`: checks a running kube-dns, with advice for each failure.
//!
//! The command sends requests to the API server and to the status pages of the pod. It sends DNS
//! queries to the DNS server that clients query, and to upstreams. The requests and queries change
//! nothing, and each has a timeout.

mod api_server;
mod names;
mod nodes;
mod page;
mod pod;
mod report;
mod upstreams;

use std::ffi::OsString;
use std::time::Duration;

use daemon::flags::{Exit, parse_subcommand};
use reports::sidecar::SidecarStatus;
use wire::ServerAddr;

use super::usage_error;
use cluster::domains::ClusterDomains;
use cluster::namespaces::NamespaceList;

use self::report::CheckLine;

const NAME: &str = "kube-dns check cluster";
const USAGE: &str = "\
Checks a running kube-dns, and prints one line for each check, with advice for each failure.

  kube-dns check cluster [--output=json]

Run it in the kubedns container of the pod, where it reaches the other containers on loopback. Elsewhere, give it the
addresses (--server, --sidecar, --dns) and a kubeconfig. The exit status is 0 if no check failed, 1 if a check failed, and 2 if
the command line is wrong.

";
/// Timeout of all checks together.
const TIMEOUT: Duration = Duration::from_mins(1);

/// The forms of the report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum ReportForm {
    #[default]
    Text,
    Json,
}

/// The command line.
#[derive(Debug, clap::Parser)]
pub(crate) struct Options {
    /// URL of the status port of kubedns
    #[arg(long, value_name = "string", default_value = "http://127.0.0.1:8081")]
    server: String,
    /// URL of the status port of the sidecar; empty for none
    #[arg(long, value_name = "string", default_value = "http://127.0.0.1:10054")]
    sidecar: String,
    /// address or name of the DNS server that clients query; the default port is 53
    #[arg(long, value_name = "string", default_value = "127.0.0.1:53")]
    dns: String,
    /// domain of the cluster; several are separated by commas
    #[arg(long, value_name = "string", default_value = "cluster.local")]
    domain: ClusterDomains,
    /// the namespaces in the flag --namespaces of kubedns, separated by commas; empty for all
    #[arg(long, value_name = "string", default_value = "")]
    namespaces: NamespaceList,
    /// an external name to query; empty for none
    #[arg(long, value_name = "string", default_value = "example.com")]
    external_name: String,
    /// directory of the mounted ConfigMap; if it does not exist, the ConfigMap is read from the API
    /// server
    #[arg(long, value_name = "string", default_value = "/kube-dns-config")]
    config_dir: String,
    /// name of the ConfigMap
    #[arg(long, value_name = "string", default_value = "kube-dns")]
    config_map: String,
    /// namespace of the ConfigMap
    #[arg(long, value_name = "string", default_value = "kube-system")]
    config_map_namespace: String,
    /// kubeconfig file for the API server; with neither this flag nor --kube-master-url, the pod's
    /// service account is used
    #[arg(long, value_name = "string", default_value = "")]
    kubecfg_file: String,
    /// context in the kubeconfig file to use instead of its current context
    #[arg(long, value_name = "string", default_value = "")]
    kubecfg_context: String,
    /// URL of the API server
    #[arg(long, value_name = "string", default_value = "")]
    kube_master_url: String,
    /// the form of the report: text or json
    #[arg(long, value_name = "string", value_enum, default_value_t)]
    output: ReportForm,
    /// words that are not flags; they are rejected
    #[arg(hide = true)]
    rest: Vec<String>,
}

/// Runs the command; `words` are the arguments after `check cluster`.
pub(super) fn run_command(words: impl IntoIterator<Item = OsString>) -> Exit {
    let options = match parse_options(words) {
        Ok(options) => options,
        Err(exit) => return exit,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return usage_error(NAME, &format!("cannot start the runtime: {error}")),
    };

    let checks = runtime.block_on(check_in_time(&options));
    // This call does not wait for file reads: a read on a dead mount may never end.
    runtime.shutdown_background();

    let stdout = match options.output {
        ReportForm::Text => report::render_text(&checks),
        ReportForm::Json => report::render_json(&checks),
    };
    Exit {
        status: u8::from(!report::is_healthy(&checks)),
        stdout,
        stderr: String::new(),
    }
}

fn parse_options(words: impl IntoIterator<Item = OsString>) -> Result<Options, Exit> {
    let options: Options = parse_subcommand(NAME, USAGE, words)?;
    if let Some(word) = options.rest.first() {
        return Err(usage_error(
            NAME,
            &format!("unexpected word {word:?}: the command accepts only flags, see {NAME} --help"),
        ));
    }

    // A mistake in a flag must not look like a failure of kube-dns.
    check_url("server", &options.server)?;
    if !options.sidecar.is_empty() {
        check_url("sidecar", &options.sidecar)?;
    }
    if let Err(error) = options.dns.parse::<ServerAddr>() {
        let reason = format!("--dns {:?}: {error}", options.dns);
        return Err(usage_error(NAME, &reason));
    }
    Ok(options)
}

fn check_url(flag: &str, url: &str) -> Result<(), Exit> {
    match daemon::http::authority(url) {
        Some(_) => Ok(()),
        None => Err(usage_error(
            NAME,
            &format!("--{flag} {url:?}: only HOST:PORT or http://HOST:PORT is accepted"),
        )),
    }
}

/// The results of all checks, or a single failed check if they take too long.
async fn check_in_time(options: &Options) -> Vec<CheckLine> {
    let checks = tokio::time::timeout(TIMEOUT, check_all(options)).await;
    checks.unwrap_or_else(|_| {
        let text = format!("the checks were stopped: they took longer than {TIMEOUT:?}");
        vec![CheckLine::failed("check", text)]
    })
}

async fn check_all(options: &Options) -> Vec<CheckLine> {
    let status = pod::read_status(&options.sidecar).await;
    let known = status.as_ref().ok();

    // The checks of names need the Services that the API server lists, so they run after all other
    // checks. The other checks run concurrently.
    let (readiness, of_status, api_server) = tokio::join!(
        pod::check_readiness(&options.server),
        pod::check_status(options, &status),
        api_server::check_api_server(options, known),
    );
    let stub_domains = known.map(SidecarStatus::stub_domains).unwrap_or_default();
    let of_names = names::check_names(options, &api_server.services, &stub_domains).await;

    // Several functions add checks to the same group, such as "configuration". So the checks are
    // sorted by group.
    let mut checks = api_server.checks;
    checks.push(readiness);
    checks.extend(of_status);
    checks.extend(of_names);
    checks.sort_by_key(|check| group_position(check.group));
    checks
}

/// The place of a group in the report.
fn group_position(group: &str) -> usize {
    ["API server", "nodes", "pod", "upstreams", "configuration"]
        .iter()
        .position(|known| *known == group)
        .unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
