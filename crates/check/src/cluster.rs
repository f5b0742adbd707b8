//! `kube-dns check cluster`: checks a running kube-dns, with advice for each failure.
//!
//! The command sends requests to the API server and to the status pages of the pod, and DNS queries
//! for names of every kind. The requests change nothing, and each has a timeout.

mod api;
mod names;
mod page;
mod pod;
mod report;
mod sidecar;

use std::ffi::OsString;
use std::time::Duration;

use daemon::flags::{Exit, parse_subcommand};
use wire::ServerAddr;

use super::mistake;
use ::cluster::domains::ClusterDomains;

use self::report::Check;
use self::sidecar::Status;

const NAME: &str = "kube-dns check cluster";
const USAGE: &str = "\
Checks a running kube-dns, one line per check, with advice for each failure.

  kube-dns check cluster [--output=json]

Run it in the container kubedns of the pod, where it reaches the other containers on loopback, or elsewhere with the
addresses and a kubeconfig. The exit status is 0 if no check failed, 1 if one did, 2 if the command line is wrong.

";
/// Timeout of all checks together.
const TIME: Duration = Duration::from_mins(1);

/// The forms of the report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    #[default]
    Text,
    Json,
}

/// The command line.
#[derive(Debug, clap::Parser)]
pub(crate) struct Options {
    /// the status port of kubedns
    #[arg(long, value_name = "string", default_value = "http://127.0.0.1:8081")]
    server: String,
    /// the status page of the sidecar; empty for none
    #[arg(long, value_name = "string", default_value = "http://127.0.0.1:10054")]
    sidecar: String,
    /// the DNS server that clients ask
    #[arg(long, value_name = "string", default_value = "127.0.0.1:53")]
    dns: String,
    /// domain of the cluster; several are separated by commas
    #[arg(long, value_name = "string", default_value = "cluster.local")]
    domain: ClusterDomains,
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
    /// kubeconfig file for the API server; without it and kube-master-url, the pod's service
    /// account is used
    #[arg(long, value_name = "string", default_value = "")]
    kubecfg_file: String,
    /// context of the kubecfg file to use in place of its current one
    #[arg(long, value_name = "string", default_value = "")]
    kubecfg_context: String,
    /// URL of the API server
    #[arg(long, value_name = "string", default_value = "")]
    kube_master_url: String,
    /// the form of the report: text or json
    #[arg(long, value_name = "string", value_enum, default_value_t)]
    output: Output,
    /// anything else
    #[arg(hide = true)]
    rest: Vec<String>,
}

/// Runs the command; `words` are the arguments after `check cluster`.
pub(super) fn command(words: impl IntoIterator<Item = OsString>) -> Exit {
    let options = match read(words) {
        Ok(options) => options,
        Err(exit) => return exit,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let checks = match runtime {
        Ok(runtime) => {
            let checks = runtime.block_on(run(&options));
            // A read of a file on a dead mount must not delay the report.
            runtime.shutdown_background();
            checks
        }
        Err(error) => return mistake(NAME, &format!("cannot start the runtime: {error}")),
    };
    let stdout = match options.output {
        Output::Text => report::text(&checks),
        Output::Json => report::json(&checks),
    };
    Exit {
        status: u8::from(!report::is_well(&checks)),
        stdout,
        stderr: String::new(),
    }
}

fn read(words: impl IntoIterator<Item = OsString>) -> Result<Options, Exit> {
    let options: Options = parse_subcommand(NAME, USAGE, words)?;
    if let Some(word) = options.rest.first() {
        return Err(mistake(
            NAME,
            &format!("unexpected word {word:?}: it accepts only flags, see {NAME} --help"),
        ));
    }
    for (flag, url) in [("server", &options.server), ("sidecar", &options.sidecar)] {
        let may_be_empty = flag == "sidecar" && url.is_empty();
        if !may_be_empty && daemon::http::authority(url).is_none() {
            return Err(mistake(
                NAME,
                &format!("--{flag} {url:?}: http://HOST:PORT is accepted"),
            ));
        }
    }
    if let Err(error) = options.dns.parse::<ServerAddr>() {
        return Err(mistake(NAME, &format!("--dns {:?}: {error}", options.dns)));
    }
    Ok(options)
}

async fn run(options: &Options) -> Vec<Check> {
    let checking = checks(options);
    tokio::time::timeout(TIME, checking)
        .await
        .unwrap_or_else(|_| {
            vec![Check::failed(
                "check",
                format!("the checks were stopped: they took longer than {TIME:?}"),
            )]
        })
}

async fn checks(options: &Options) -> Vec<Check> {
    let status = Status::read(&options.sidecar).await;
    let known = status.as_ref().ok();
    let (readiness, of_status, (mut checks, cluster)) = tokio::join!(
        pod::readiness(&options.server),
        pod::of_status(options, &status),
        api::checks(options, known),
    );
    let stub_domains = known.map(Status::stub_domains).unwrap_or_default();
    checks.push(readiness);
    checks.extend(of_status);
    checks.extend(names::checks(options, &cluster, &stub_domains).await);
    // Sort by group: several of these functions add checks to the same group, such as
    // configuration.
    let place = |check: &Check| {
        ["API server", "pod", "upstreams", "configuration"]
            .iter()
            .position(|group| *group == check.group)
    };
    checks.sort_by_key(|check| place(check).unwrap_or(usize::MAX));
    checks
}

#[cfg(test)]
mod tests;
