//! Runs one scenario: starts the server, then applies the events and sends the questions of each
//! step.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::Played;
use super::ask::ask_all;
use super::cluster::Cluster;
use super::place::Place;
use super::server::{Server, Target};
use super::settle::Markers;
use crate::conformance::difference::{Differences, Mode};
use crate::conformance::memory::Memory;
use crate::conformance::vector::{ApiServer, Scenario, Step};
use crate::conformance::verdict::{Bench, Outcome, Verdict};

/// The pause after a change without a marker. A marker ([`Markers`]) is an object whose records
/// show that the server has applied the change. The pause is three times the `--config-period` of
/// the scenarios. After the pause, the server has certainly read a new configuration. Without the
/// pause, a step that expects unchanged answers could pass before the server has read its
/// configuration.
const NO_EFFECT: Duration = Duration::from_millis(900);

/// The time within which a change without a marker ([`Markers`]) must take effect.
const UNMARKED: Duration = Duration::from_secs(10);

struct Stage<'a> {
    target: &'a Target,
    bench: Bench<'a>,
    place: Place,
    cluster: Cluster,
    server: Server,
    markers: Markers,
}

/// Runs a scenario from the start of the server to its last question.
pub(super) async fn play(
    target: &Target,
    differences: &Differences,
    mode: Mode,
    memory: &Arc<Memory>,
    scenario: &Scenario,
) -> anyhow::Result<Played> {
    let cluster = if target.reads_slices() {
        Cluster::start_with_slices()
    } else {
        Cluster::start()
    };
    let mut place = Place::new(memory, &cluster.url()).await?;
    if let Some(why) = obstacle(target, scenario, &mut place).await {
        return Ok(Played::Skipped(why));
    }
    cluster.load(&filled(&scenario.initial, &place)?)?;
    if let Some(files) = &scenario.config_dir {
        place.write_config_dir(files)?;
    }
    let mut flags: Vec<String> = scenario.flags.iter().map(|flag| place.fill(flag)).collect();
    if target.is_ours() {
        let path = place.write_resolv_conf(scenario.resolv_conf.as_deref().unwrap_or_default())?;
        flags.push(format!("--resolv-conf={}", path.display()));
    }
    let server = Server::start(target, flags, Vec::new());
    let bench = Bench {
        differences,
        mode,
        scenario,
    };
    let markers = Markers::new(&scenario.domain);
    let mut stage = Stage {
        target,
        bench,
        place,
        cluster,
        server,
        markers,
    };
    stage
        .play()
        .await
        .map(Played::Asked)
        .map_err(|error| error.context(scenario.name.clone()))
}

/// The reason why the scenario cannot run with this binary or on this machine, if there is one.
async fn obstacle(target: &Target, scenario: &Scenario, place: &mut Place) -> Option<String> {
    let of_its_own = scenario
        .flags
        .iter()
        .any(|flag| flag.starts_with("--nameservers="));
    if !target.is_ours() && !of_its_own {
        return Some(
            "the scenario needs its own resolv.conf, but only our kubedns has --resolv-conf"
                .to_owned(),
        );
    }
    if scenario
        .resolv_conf
        .as_deref()
        .is_some_and(|content| content.contains("$RESOLV_IP"))
    {
        return place
            .listen_on_port_53()
            .await
            .err()
            .map(|error| format!("{error:#}"));
    }
    None
}

fn filled(objects: &[Value], place: &Place) -> anyhow::Result<Vec<Value>> {
    objects
        .iter()
        .map(|object| Ok(serde_json::from_str(&place.fill(&object.to_string()))?))
        .collect()
}

impl Stage<'_> {
    async fn play(&mut self) -> anyhow::Result<Vec<Verdict>> {
        match self.bench.scenario.api_server {
            ApiServer::Reachable => self.begin().await?,
            ApiServer::Unreachable => self.server.answers().await?,
        }
        let mut verdicts = Vec::new();
        for (at, step) in self.bench.scenario.steps.iter().enumerate() {
            self.happen(step).await?;
            verdicts.extend(self.ask(at, step).await?);
        }
        Ok(verdicts)
    }

    /// Waits until the server has applied the initial objects. A server that reads EndpointSlices
    /// may be ready before the API server has mirrored all Endpoints, so the test also waits for a
    /// marker.
    async fn begin(&mut self) -> anyhow::Result<()> {
        self.server.ready().await?;
        if self.target.reads_slices() {
            self.markers
                .endpoints(&self.cluster, &mut self.server)
                .await?;
        }
        Ok(())
    }

    /// Applies the events and the new configuration of a step. Waits until the server has applied
    /// the events of Services and Endpoints, and pauses after other changes.
    async fn happen(&mut self, step: &Step) -> anyhow::Result<()> {
        let events = filled(&step.events, &self.place)?;
        if step.gap {
            self.unseen(&events).await?;
        } else {
            for event in &events {
                self.cluster.apply(event)?;
                let object = event.get("object").unwrap_or(&Value::Null);
                self.markers
                    .follow(object, &self.cluster, &mut self.server)
                    .await?;
            }
        }
        self.markers.remove(&self.cluster, &mut self.server).await?;
        if let Some(files) = &step.config_dir {
            self.place.write_config_dir(files)?;
        }
        if step.is_unmarked() {
            tokio::time::sleep(NO_EFFECT).await;
        }
        Ok(())
    }

    /// Applies events while no watch is open. The server has to list again.
    async fn unseen(&mut self, events: &[Value]) -> anyhow::Result<()> {
        self.cluster.apply_unseen(events)?;
        self.markers
            .services(&self.cluster, &mut self.server)
            .await?;
        self.markers
            .endpoints(&self.cluster, &mut self.server)
            .await
    }

    /// Sends the questions of a step. After a change without a marker, repeats all questions until
    /// the answers are right, or until the timeout.
    async fn ask(&mut self, at: usize, step: &Step) -> anyhow::Result<Vec<Verdict>> {
        let deadline = Instant::now() + UNMARKED;
        loop {
            let answers = ask_all(step, &self.place, self.target, &mut self.server).await?;
            let verdicts: Vec<Verdict> = answers
                .iter()
                .enumerate()
                .map(|(query, answer)| self.bench.verdict(at, query, answer))
                .collect();
            let right = verdicts
                .iter()
                .all(|verdict| !matches!(verdict.outcome, Outcome::Unlisted(_)));
            if right || !step.is_unmarked() || Instant::now() >= deadline {
                self.server.process.check().map_err(anyhow::Error::msg)?;
                return Ok(verdicts);
            }
        }
    }
}

impl Step {
    /// Returns whether the step changes the configuration, or objects other than Services and
    /// Endpoints. Such changes have no marker.
    fn is_unmarked(&self) -> bool {
        let kind = |event: &Value| {
            event
                .pointer("/object/kind")
                .and_then(Value::as_str)
                .map(str::to_owned)
        };
        let marked = |kind: &str| matches!(kind, "Service" | "Endpoints");
        self.config_dir.is_some()
            || self
                .events
                .iter()
                .filter_map(kind)
                .any(|kind| !marked(&kind))
    }
}
