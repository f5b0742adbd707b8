//! Checks that three views of a pod agree about each fault: the sidecar's `/status`, the command
//! `kubedns check cluster`, and the Prometheus alerts. `/status` must never say "healthy" while a
//! client has had no usable answer for more than ten seconds.
//!
//! Each pod has its faults one after the other, and all pods run at the same time. A real
//! Prometheus (Debian: `prometheus`) evaluates the alerts. If Prometheus is not installed, the test
//! says so, and compares only `/status` and `check cluster`.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "--no-capture shows what was measured, and what could not be tested"
)]

#[path = "agreement/client.rs"]
mod client;
#[path = "agreement/fault.rs"]
mod fault;
#[path = "agreement/prometheus.rs"]
mod prometheus;

use std::sync::Arc;
use std::time::Duration;

use reports::finding::{FindingKind, FindingLevel};
use reports::sidecar::PodVerdict;
use serde_json::Value;
use testkit::process::Program;
use tests::chaos::Topology;
use tests::e2e::PATIENCE;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};

use self::client::Client;
use self::fault::{Expected, Fault, Stage, sidecar_status};
use self::prometheus::Prometheus;

/// The longest time for which the pod may be called healthy while a client gets no usable answer.
const OUTAGE: Duration = Duration::from_secs(10);
/// Maximum time until `/status` reports a fault, and from then until `check cluster` agrees.
const FOUND: Duration = Duration::from_secs(45);
/// Maximum time from the agreement of `/status` and `check cluster` until the alert fires. The
/// sidecar updates the metrics of its findings every five seconds, and Prometheus scrapes and
/// evaluates every second.
const ALERTED: Duration = Duration::from_secs(15);
/// Interval at which the test reads the verdict in `/status`, or the alerts.
const LOOK: Duration = Duration::from_millis(500);
/// Number of readings of the verdict in `/status` while a fault stays and no client sends
/// queries.
const LOOKS_WITHOUT_TRAFFIC: u32 = 6;

/// A pod with its faults, one after the other.
#[derive(Clone, Copy)]
struct Scene {
    topology: Topology,
    faults: &'static [Fault],
}

const fn scene(topology: Topology, faults: &'static [Fault]) -> Scene {
    Scene { topology, faults }
}

const REFUSALS: &[Fault] = &[Fault::UpstreamsServfail, Fault::UpstreamsRefuse];
const SILENCE: &[Fault] = &[Fault::UpstreamsSilent, Fault::StubServerServfails];
const LOOP: &[Fault] = &[Fault::StubNameUnresolved, Fault::LaterLoop];
const KUBEDNS: &[Fault] = &[Fault::ConfigMapRejected, Fault::KubednsFrozen];

/// Before each fault, the pod must be healthy. The pod still reports some faults long after they
/// have ended. Such a fault is the last one of its scene.
const SCENES: [Scene; 23] = [
    scene(Topology::DropIn, REFUSALS),
    scene(Topology::Cache, REFUSALS),
    scene(Topology::Direct, REFUSALS),
    scene(Topology::Alone, REFUSALS),
    scene(Topology::DropIn, SILENCE),
    scene(Topology::Cache, SILENCE),
    scene(Topology::Direct, SILENCE),
    scene(Topology::Alone, SILENCE),
    scene(Topology::DropIn, LOOP),
    scene(Topology::Cache, LOOP),
    scene(Topology::Direct, LOOP),
    scene(Topology::Alone, LOOP),
    scene(Topology::DropIn, KUBEDNS),
    scene(Topology::Cache, KUBEDNS),
    scene(Topology::Direct, KUBEDNS),
    scene(Topology::Alone, KUBEDNS),
    scene(
        Topology::DropIn,
        &[Fault::OneUpstreamSilent, Fault::NannyFrozen],
    ),
    scene(
        Topology::Alone,
        &[Fault::OneUpstreamSilent, Fault::NoFirstLists],
    ),
    scene(
        Topology::Direct,
        &[Fault::DnsmasqAndNannyFrozen, Fault::DnsmasqKilledThrice],
    ),
    scene(Topology::DropIn, &[Fault::ApiServerAway]),
    scene(Topology::DropIn, &[Fault::DnsmasqHangsThrice]),
    scene(Topology::Alone, &[Fault::KubednsKilledThrice]),
    scene(Topology::Alone, &[Fault::ClientLimited]),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn all_views_agree_about_each_fault() {
    let prometheus = Arc::new(Prometheus::start().await);
    if prometheus.is_none() {
        eprintln!("NOT TESTED: the alerts, because prometheus is not installed");
    }

    let mut scenes = JoinSet::new();
    for (number, scene) in SCENES.into_iter().enumerate() {
        let prometheus = Arc::clone(&prometheus);
        scenes.spawn(async move {
            let pod = format!("pod-{number}");
            let played = play(&pod, scene, prometheus.as_ref().as_ref()).await;
            played.map_err(|error| format!("{pod}, {:?}: {error}", scene.topology))
        });
    }
    let played = scenes.join_all().await.into_iter();
    let errors: Vec<String> = played.filter_map(Result::err).collect();
    assert!(errors.is_empty(), "{}", errors.join("\n"));
}

/// Plays a scene, until the first error.
async fn play(pod: &str, scene: Scene, prometheus: Option<&Prometheus>) -> Result<(), String> {
    let stage = Stage::start(scene.topology).await;
    let views = Views {
        stage: &stage,
        pod,
        prometheus,
    };
    if let Some(prometheus) = prometheus {
        let has_nanny = scene.topology != Topology::Alone;
        prometheus.scrape(pod, stage.rig.pod.ports, has_nanny).await;
    }

    // The test checks only at the start that no alert fires: later, rates over a few minutes still
    // show the previous fault.
    views.become_healthy().await?;
    views.no_alert_fires().await?;
    for fault in scene.faults {
        let seen = match views.become_healthy().await {
            Ok(()) => views.see_fault(*fault).await,
            Err(error) => Err(error),
        };
        seen.map_err(|error| format!("{fault:?}: {error}"))?;
    }
    Ok(())
}

/// The views that an operator has of a pod: `/status`, `check cluster` and the alerts.
struct Views<'a> {
    stage: &'a Stage,
    pod: &'a str,
    prometheus: Option<&'a Prometheus>,
}

impl Views<'_> {
    /// Begins a fault, waits until all views report the fault, and ends the fault.
    async fn see_fault(&self, fault: Fault) -> Result<(), String> {
        let Expected {
            lost,
            finding,
            alert,
        } = fault.expected();
        let port = self.stage.rig.pod.ports.dns;
        let client = lost.map(|name| Client::start(port, name));
        let begun = Instant::now();
        self.stage.begin(fault).await;

        self.find(finding, client.as_ref()).await?;
        self.check_agrees(finding).await?;
        self.alert_fires(alert, finding).await?;
        println!(
            "{} {:?} {fault:?}: all views report the fault after {:.1?}",
            self.pod,
            self.stage.rig.topology,
            begun.elapsed()
        );

        // The traffic stops, and the fault stays.
        drop(client);
        let mut looks = interval(LOOK);
        for _ in 0..LOOKS_WITHOUT_TRAFFIC {
            looks.tick().await;
            if self.verdict().await?.level == FindingLevel::Healthy {
                return Err(
                    "/status calls the pod healthy without traffic, although the fault stays"
                        .to_owned(),
                );
            }
        }
        self.stage.end(fault).await;
        Ok(())
    }

    /// Waits until `/status` and `check cluster` call the pod healthy.
    async fn become_healthy(&self) -> Result<(), String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let verdict = self.verdict().await?;
            let report = self.check().await;
            if verdict.level == FindingLevel::Healthy && report["healthy"] == true {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(format!(
                    "the pod never becomes healthy: {verdict:#?}\n{report:#}"
                ));
            }
        }
    }

    async fn no_alert_fires(&self) -> Result<(), String> {
        let Some(prometheus) = self.prometheus else {
            return Ok(());
        };
        let alerts = prometheus.alerts(self.pod).await;
        if alerts.is_empty() {
            Ok(())
        } else {
            Err(format!(
                "alerts fire although the pod is healthy: {alerts:?}"
            ))
        }
    }

    /// Waits for a finding of this kind. If there is a client, also waits until the client has had
    /// no usable answer for longer than [`OUTAGE`].
    async fn find(&self, kind: FindingKind, client: Option<&Client>) -> Result<(), String> {
        let deadline = Instant::now() + FOUND;
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            looks.tick().await;
            let outage = client.map_or(Duration::ZERO, Client::outage);
            let verdict = self.verdict().await?;
            if outage > OUTAGE && verdict.level == FindingLevel::Healthy {
                let last = client.map(Client::last).unwrap_or_default();
                return Err(format!(
                    "/status calls the pod healthy, although the client has had no usable answer for \
                     {outage:.1?}; the last result: {last}"
                ));
            }

            let mut findings = verdict.findings.iter();
            let is_found = findings.any(|finding| finding.kind == Some(kind));
            if is_found && (client.is_none() || outage > OUTAGE) {
                return Ok(());
            }
            if Instant::now() > deadline {
                let status = sidecar_status(self.stage.rig.pod.ports).await?;
                return Err(format!(
                    "the finding {kind:?} is missing, or the client has been without a usable answer \
                     for only {outage:.1?}: {status:#?}"
                ));
            }
        }
    }

    /// Compares the report of `check cluster` with the text of the finding in `/status`. The text
    /// may change while `check cluster` runs, for example if another upstream fails. Then a new
    /// report is compared with the new text.
    async fn check_agrees(&self, kind: FindingKind) -> Result<(), String> {
        let deadline = Instant::now() + FOUND;
        loop {
            let before = self.finding_text(kind).await?;
            let report = self.check().await;
            if report["healthy"] == true && !kind.keeps_answers() {
                return Err(format!("check cluster calls the pod healthy: {report:#}"));
            }

            let mut lines = report["checks"].as_array().into_iter().flatten();
            let text = before.as_deref();
            if lines.any(|line| line["text"].as_str() == text && line["outcome"] != "passed") {
                return Ok(());
            }
            if self.finding_text(kind).await? == before || Instant::now() > deadline {
                return Err(format!(
                    "check cluster does not report {before:?}: {report:#}"
                ));
            }
        }
    }

    /// The text of the finding of this kind in `/status`, if there is one.
    async fn finding_text(&self, kind: FindingKind) -> Result<Option<String>, String> {
        let findings = self.verdict().await?.findings.into_iter();
        let mut texts = findings.filter(|finding| finding.kind == Some(kind));
        Ok(texts.next().map(|finding| finding.text))
    }

    async fn alert_fires(&self, alert: &str, kind: FindingKind) -> Result<(), String> {
        let Some(prometheus) = self.prometheus else {
            return Ok(());
        };
        let deadline = Instant::now() + ALERTED;
        let mut looks = interval(LOOK);
        loop {
            let alerts = prometheus.alerts(self.pod).await;
            if let Some(severity) = alerts.get(alert) {
                let is_critical = severity == "critical";
                if is_critical == (kind.level() == FindingLevel::Down) {
                    return Ok(());
                }
                return Err(format!(
                    "the alert {alert} is {severity}, but the level of the finding {kind:?} is {:?}",
                    kind.level()
                ));
            }
            if Instant::now() > deadline {
                return Err(format!(
                    "the alert {alert} does not fire; these alerts fire: {alerts:?}"
                ));
            }
            looks.tick().await;
        }
    }

    async fn verdict(&self) -> Result<PodVerdict, String> {
        let status = sidecar_status(self.stage.rig.pod.ports).await?;
        Ok(status.verdict)
    }

    /// The report of `check cluster`.
    async fn check(&self) -> Value {
        let rig = &self.stage.rig;
        let ports = rig.pod.ports;
        let mut process = Program::named("kubedns")
            .args(["check", "cluster", "--output=json", "--config-dir="])
            .args([
                format!("--server=http://127.0.0.1:{}", ports.readiness),
                format!("--sidecar=http://127.0.0.1:{}", ports.sidecar),
                format!("--dns=127.0.0.1:{}", ports.dns),
                format!("--kube-master-url={}", rig.api_url()),
                "--external-name=host-0.outside.test".to_owned(),
            ])
            .start();
        process.wait(PATIENCE).await;
        serde_json::from_str(&process.stdout().join("\n")).unwrap_or_default()
    }
}
