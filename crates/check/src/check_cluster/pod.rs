//! Checks the readiness of kubedns. The other checks use the sidecar's status. They check the
//! sidecar's probes, the nanny, the upstreams and the configuration.

use futures::future::join_all;
use reports::finding::{FindingGroup, FindingKind, PodFinding};
use reports::sidecar::{ProbeStatus, SidecarStatus};

use super::Options;
use super::page::read_page;
use super::report::{CheckLine, milliseconds};
use super::upstreams;

const GROUP: &str = "pod";
const UPSTREAMS: &str = upstreams::GROUP;
const CONFIGURATION: &str = "configuration";
/// Maximum size of a page other than the sidecar's status, in octets.
const MAX_PAGE: usize = 64 << 10;
/// Maximum size of the sidecar's status, in octets.
const MAX_STATUS: usize = 8 << 20;

/// Reads the status from a sidecar, given as `HOST:PORT` or `http://HOST:PORT`.
pub(super) async fn read_status(sidecar: &str) -> Result<SidecarStatus, String> {
    let page = read_page(sidecar, "/status", MAX_STATUS).await?;
    serde_json::from_slice(&page.body)
        .map_err(|error| format!("the page /status is not the status of a sidecar: {error}"))
}

/// Checks that kubedns is ready. Services send queries only to ready pods.
pub(super) async fn check_readiness(server: &str) -> CheckLine {
    let page = match read_page(server, "/readiness", MAX_PAGE).await {
        Ok(page) => page,
        Err(error) => {
            return CheckLine::failed(GROUP, format!("kubedns does not answer at {server}"))
                .with_detail(error)
                .with_advice_for(FindingKind::KubednsSilent);
        }
    };
    if page.status == 200 {
        return CheckLine::passed(GROUP, "kubedns is ready");
    }

    // The body of the response says why kubedns is not ready.
    let reason = String::from_utf8_lossy(&page.body).trim().to_owned();
    CheckLine::failed(GROUP, "kubedns is not ready")
        .with_detail(reason)
        .with_advice_for(FindingKind::NotSynced)
}

/// The checks that use the sidecar's status. Without a status, the result is a single line.
pub(super) async fn check_status(
    options: &Options,
    status: &Result<SidecarStatus, String>,
) -> Vec<CheckLine> {
    if options.sidecar.is_empty() {
        return vec![CheckLine::skipped(
            GROUP,
            "no sidecar is given: dnsmasq, the upstreams and the configuration in force are not checked",
        )];
    }
    let status = match status {
        Ok(status) => status,
        Err(error) => {
            let text = format!(
                "cannot read the status of the sidecar at {}",
                options.sidecar
            );
            let action = "Read the log of the sidecar. Without its status, this command cannot check dnsmasq, the upstreams or the configuration in force.";
            let check = CheckLine::failed(GROUP, text).with_detail(error);
            return vec![check.with_advice(action, "no-answers")];
        }
    };

    let mut checks = check_probes(&options.sidecar, status).await;
    checks.extend(check_nanny(status));
    checks.extend(findings_in(status, FindingGroup::Pod));
    checks.extend(check_upstreams(options, status).await);
    checks.extend(check_configuration(status));
    checks
}

/// Requests the health check of each probe.
async fn check_probes(sidecar: &str, status: &SidecarStatus) -> Vec<CheckLine> {
    let probes = status.probes.iter();
    join_all(probes.map(|probe| check_probe(sidecar, probe))).await
}

async fn check_probe(sidecar: &str, probe: &ProbeStatus) -> CheckLine {
    let target = format!("/healthcheck/{}", probe.label);
    // The liveness probes of kubedns and dnsmasq send the same requests. After several failures,
    // the kubelet restarts the container.
    let reason = match read_page(sidecar, &target, MAX_PAGE).await {
        Ok(page) if page.status == 200 => {
            let time = milliseconds(probe.latency());
            return CheckLine::passed(GROUP, format!("{target} passes ({time})"));
        }
        Ok(page) => String::from_utf8_lossy(&page.body).trim().to_owned(),
        Err(error) => error,
    };

    let text =
        format!("{target} fails: the kubelet restarts a container that has this liveness probe");
    CheckLine::failed(GROUP, text)
        .with_detail(reason)
        .with_advice(
            "The other lines of this group show which part does not answer.",
            "no-answers",
        )
}

/// Checks that the nanny answers, if the sidecar reads the nanny's status. A missing report of the
/// nanny adds no line if the sidecar has a finding about any missing report.
fn check_nanny(status: &SidecarStatus) -> Option<CheckLine> {
    let report = &status.nanny;
    if report.source.is_empty() {
        return None;
    }

    if let Some(nanny) = &report.known {
        let version = nanny.dnsmasq.version.as_deref();
        let version = version.unwrap_or("of an unknown version");
        let text = format!("the nanny answers, and runs dnsmasq {version}");
        return Some(CheckLine::passed(GROUP, text));
    }
    if has_finding(status, FindingKind::ReportMissing) {
        return None;
    }

    // The nanny may be that of the original kube-dns, which has no status page.
    let text = format!("the nanny does not report its state at {}", report.source);
    let check = CheckLine::warning(GROUP, text)
        .with_detail(report.error.clone().unwrap_or_default())
        .with_advice_for(FindingKind::ReportMissing);
    Some(check)
}

fn has_finding(status: &SidecarStatus, kind: FindingKind) -> bool {
    let mut findings = status.verdict.findings.iter();
    findings.any(|finding| finding.kind == Some(kind))
}

/// The findings of one group, with the text of the sidecar.
fn findings_in(status: &SidecarStatus, group: FindingGroup) -> Vec<CheckLine> {
    let mut checks = Vec::new();
    for finding in &status.verdict.findings {
        // A finding of a newer sidecar may have a kind that is unknown here. Such a finding is
        // shown in the group of the pod.
        let group_of_kind = finding.kind.map_or(FindingGroup::Pod, FindingKind::group);
        if group_of_kind == group {
            checks.push(check_of_finding(finding, group));
        }
    }
    checks
}

fn check_of_finding(finding: &PodFinding, group: FindingGroup) -> CheckLine {
    let group = match group {
        FindingGroup::Pod => GROUP,
        FindingGroup::Upstreams => UPSTREAMS,
        FindingGroup::Configuration => CONFIGURATION,
    };

    let text = finding.text.as_str();
    let check = if finding.kind.is_some_and(FindingKind::keeps_answers) {
        CheckLine::warning(group, text)
    } else {
        CheckLine::failed(group, text)
    };

    // The sidecar links to sections of its own page. The output of this command links to the same
    // sections of the online runbooks.
    check
        .with_detail(finding.detail.as_str())
        .with_advice(finding.action.as_str(), finding.section())
}

/// Queries each upstream, and appends the sidecar's findings about upstreams.
async fn check_upstreams(options: &Options, status: &SidecarStatus) -> Vec<CheckLine> {
    let routes = upstreams::list_upstreams(status);
    let mut checks = upstreams::query_upstreams(&routes, &options.external_name).await;
    if checks.is_empty() {
        let text = "there are no upstreams, or they are not known yet";
        checks.push(CheckLine::warning(UPSTREAMS, text));
    }

    checks.extend(findings_in(status, FindingGroup::Upstreams));
    if has_loop(status) == Some(false) {
        checks.push(CheckLine::passed(
            UPSTREAMS,
            "no upstream forwards back to this pod",
        ));
    }
    checks
}

/// Whether an upstream forwards queries back to the pod; `None` if the report of kubedns is
/// missing, or if the sidecar reads the nanny's status but gets no report.
fn has_loop(status: &SidecarStatus) -> Option<bool> {
    let of_kubedns = status.kubedns.known.as_ref()?.forward_loops > 0.0;
    let of_dnsmasq = match &status.nanny.known {
        Some(nanny) => !nanny.routes.loops.is_empty(),
        // The sidecar reads no status of a nanny, for example in a pod without dnsmasq.
        None if status.nanny.source.is_empty() => false,
        None => return None,
    };
    Some(of_kubedns || of_dnsmasq)
}

/// The findings about the configuration. If there are none, a passed check says that the newest
/// configuration is in force.
fn check_configuration(status: &SidecarStatus) -> Vec<CheckLine> {
    let findings = findings_in(status, FindingGroup::Configuration);
    if !findings.is_empty() {
        return findings;
    }

    let version = match status.configuration_version() {
        Some(version) => format!(" (version {version})"),
        None => String::new(),
    };
    let text = format!("the newest configuration in the pod is in force{version}");
    vec![CheckLine::passed(CONFIGURATION, text)]
}

#[cfg(test)]
mod tests;
