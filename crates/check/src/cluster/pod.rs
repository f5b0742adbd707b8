//! Checks the status pages of the containers: readiness, probes, upstreams and configuration.

use futures::future::join_all;

use super::Options;
use super::page::page;
use super::report::{Check, milliseconds};
use super::sidecar::{DnsmasqUpstream, Finding, Status};

const GROUP: &str = "pod";
const UPSTREAMS: &str = "upstreams";
const CONFIGURATION: &str = "configuration";
/// Bound of a page in octets, except for the sidecar's status.
const SIZE: usize = 64 << 10;

/// Checks that kubedns is ready; Services send queries to ready pods alone.
pub(super) async fn readiness(server: &str) -> Check {
    let page = match page(server, "/readiness", SIZE).await {
        Ok(page) => page,
        Err(error) => {
            return Check::failed(GROUP, format!("kubedns does not answer at {server}"))
                .with_detail(error)
                .with_advice(
                    "Read the log of kubedns and its CPU limit; the kubelet restarts it.",
                    "no-answers",
                );
        }
    };
    if page.status == 200 {
        return Check::passed(GROUP, "kubedns is ready");
    }
    let said = String::from_utf8_lossy(&page.body).trim().to_owned();
    Check::failed(GROUP, "kubedns is not ready")
        .with_detail(said)
        .with_advice(
            "Read the log of kubedns: it says why the API server gives no lists.",
            "not-synced",
        )
}

/// The checks of the sidecar's status. A missing status leads to a single check.
pub(super) async fn of_status(options: &Options, status: &Result<Status, String>) -> Vec<Check> {
    if options.sidecar.is_empty() {
        return vec![Check::skipped(
            GROUP,
            "no sidecar is asked: dnsmasq, upstreams and configuration are not checked",
        )];
    }
    match status {
        Ok(status) => {
            let mut checks = probes(&options.sidecar, status).await;
            checks.extend(nanny(status));
            checks.extend(findings(status, GROUP));
            checks.extend(upstreams(status));
            checks.extend(configuration(status));
            checks
        }
        Err(error) => vec![
            Check::failed(
                GROUP,
                format!("the sidecar does not answer at {}", options.sidecar),
            )
            .with_detail(error)
            .with_advice(
                "Read the log of the sidecar. Upstreams and configuration are not checked.",
                "no-answers",
            ),
        ],
    }
}

/// Requests the health check of each probe, as the kubelet does.
async fn probes(sidecar: &str, status: &Status) -> Vec<Check> {
    let asked = status.probes.iter().map(|probe| async move {
        let target = format!("/healthcheck/{}", probe.label);
        let said = match page(sidecar, &target, SIZE).await {
            Ok(page) if page.status == 200 => {
                let time = probe.latency();
                return Check::passed(GROUP, format!("{target} passes ({})", milliseconds(time)));
            }
            Ok(page) => String::from_utf8_lossy(&page.body).trim().to_owned(),
            Err(error) => error,
        };
        Check::failed(
            GROUP,
            format!("{target} fails: the kubelet restarts the container"),
        )
        .with_detail(said)
        .with_advice("Check below which part does not answer.", "no-answers")
    });
    join_all(asked).await
}

fn nanny(status: &Status) -> Option<Check> {
    if status.nanny.source.is_empty() {
        return None;
    }
    let Some(nanny) = &status.nanny.known else {
        let error = status.nanny.error.clone().unwrap_or_default();
        return Some(
            Check::failed(
                GROUP,
                format!("the nanny does not answer at {}", status.nanny.source),
            )
            .with_detail(error)
            .with_advice("Read the log of the container dnsmasq.", "no-answers"),
        );
    };
    let version = nanny
        .dnsmasq
        .version
        .as_deref()
        .unwrap_or("of an unknown version");
    Some(Check::passed(
        GROUP,
        format!("the nanny answers, and runs dnsmasq {version}"),
    ))
}

/// The group of the report for a kind of finding.
fn group_of(kind: &str) -> &'static str {
    match kind {
        "upstreams_down"
        | "stub_domain_down"
        | "upstream_down"
        | "upstream_not_trusted"
        | "forwarding_loop"
        | "stub_server_unresolved" => UPSTREAMS,
        "config_rejected" | "config_unknown_keys" | "config_differs" | "routes_pending" => {
            CONFIGURATION
        }
        _ => GROUP,
    }
}

/// The findings of one group, with the text of the sidecar.
fn findings(status: &Status, group: &'static str) -> impl Iterator<Item = Check> {
    let of_group = status
        .verdict
        .findings
        .iter()
        .filter(move |finding| group_of(&finding.kind) == group);
    of_group.map(move |finding| found(group, finding))
}

fn found(group: &'static str, finding: &Finding) -> Check {
    let Finding {
        kind,
        text,
        detail,
        action,
        runbook,
    } = finding.clone();
    // DNS names still resolve with these findings, so they are warnings.
    let passes = matches!(
        kind.as_str(),
        "starting" | "upstream_down" | "config_unknown_keys"
    );
    let check = if passes {
        Check::warning(group, text)
    } else {
        Check::failed(group, text)
    };
    // The sidecar links to sections of its own page; the report links to the same sections of the
    // online runbooks.
    let section = runbook.rsplit_once('#').map_or("", |(_, section)| section);
    Check { detail, ..check }.with_advice(action, section)
}

/// Checks each upstream, and appends the sidecar's findings about upstreams.
fn upstreams(status: &Status) -> Vec<Check> {
    let by_kubedns = status.is_forwarding_by_kubedns();
    let mut checks: Vec<Check> = match &status.dnsmasq {
        Some(dnsmasq) => dnsmasq
            .upstreams
            .iter()
            .filter(|up| !up.serves.is_empty())
            .map(of_dnsmasq)
            .collect(),
        None => Vec::new(),
    };
    if by_kubedns {
        checks.extend(of_kubedns(status));
    }
    if checks.is_empty() {
        checks.push(Check::warning(
            UPSTREAMS,
            "there are none, or they are not known yet",
        ));
    }
    checks.extend(findings(status, UPSTREAMS));
    if !status
        .verdict
        .findings
        .iter()
        .any(|finding| finding.kind == "forwarding_loop")
    {
        checks.push(Check::passed(UPSTREAMS, "none forwards back to this pod"));
    }
    checks
}

fn of_dnsmasq(upstream: &DnsmasqUpstream) -> Check {
    let DnsmasqUpstream {
        address,
        serves,
        condition,
        latency_ms,
        error,
    } = upstream;
    let names = serves
        .iter()
        .map(|domain| names_of(domain))
        .collect::<Vec<_>>()
        .join(", ");
    match condition.as_str() {
        "answers" => {
            let time = latency_ms
                .map(|time| format!(" in {time:.1} ms"))
                .unwrap_or_default();
            Check::passed(UPSTREAMS, format!("{address} answers{time}, for {names}"))
        }
        "waiting" => Check::skipped(
            UPSTREAMS,
            format!("{address} has not been probed yet, for {names}"),
        ),
        _ => Check::warning(UPSTREAMS, format!("{address} does not answer, for {names}"))
            .with_detail(error),
    }
}

fn of_kubedns(status: &Status) -> Vec<Check> {
    let Some(kubedns) = &status.kubedns.known else {
        return Vec::new();
    };
    let routes = kubedns.routes.iter().map(|(route, address, up)| {
        let names = names_of(route);
        let known = kubedns
            .upstreams
            .iter()
            .find(|upstream| upstream.address == *address);
        let mean = known.and_then(|upstream| upstream.mean_ms);
        let mean = mean
            .map(|time| format!(" in {time:.1} ms on average"))
            .unwrap_or_default();
        if *up {
            Check::passed(
                UPSTREAMS,
                format!("kubedns: {address} answers{mean}, for {names}"),
            )
        } else {
            Check::warning(
                UPSTREAMS,
                format!("kubedns: {address} does not answer, for {names}"),
            )
        }
    });
    routes.collect()
}

fn names_of(route: &str) -> String {
    if route == "." {
        "external names".to_owned()
    } else {
        format!("names of {route}")
    }
}

fn configuration(status: &Status) -> Vec<Check> {
    let found: Vec<Check> = findings(status, CONFIGURATION).collect();
    if !found.is_empty() {
        return found;
    }
    let version = status
        .configuration()
        .map(|version| format!(" (version {version})"))
        .unwrap_or_default();
    vec![Check::passed(
        CONFIGURATION,
        format!("the newest version in the pod is in force{version}"),
    )]
}

#[cfg(test)]
mod tests;
