//! Changes the cluster during the soak test: Services are added, changed and removed, Endpoints are
//! changed, and the ConfigMap is edited.

use std::cell::RefCell;
use std::time::Duration;

use anyhow::{Error, ensure};
use apiserver::Resource;
use serde_json::json;
use testkit::client;
use testkit::objects::{mk_cluster_ip, mk_endpoints, mk_headless};
use testkit::query::Query;
use testkit::upstream::Upstream;
use tokio::time::{Instant, interval, sleep};

use crate::chaos::{Rig, corporate};
use crate::lab::in_a_line;
use crate::steady::Question;

const NAMESPACE: &str = "churn";
/// Number of Services that are changed in turn.
const SERVICES: u32 = 32;
/// Number of Service changes from one measured change to the next. For a measured change, the test
/// measures the time until an answer shows the change.
const MEASURED: u32 = 10;
/// Number of Service changes between two edits of the ConfigMap.
const EDIT: u32 = 150;
/// Maximum time between a change and the first answer that shows the change.
const LATE: Duration = Duration::from_mins(1);

/// Counts of the changes.
#[derive(Debug, Clone, Default)]
pub(super) struct Counts {
    /// Changes of Services and Endpoints.
    pub(super) changes: u32,
    /// Edits of the ConfigMap.
    pub(super) edits: u32,
    /// The times from a change to the first answer of kubedns that shows the change.
    pub(super) delays: Vec<Duration>,
}

/// Changes the rig's cluster and ConfigMap.
pub(super) struct Churn<'a> {
    rig: &'a Rig,
    corporate: Upstream,
    counts: RefCell<Counts>,
}

/// The state of a changing Service: one of two cluster IPs, or deleted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Old,
    New,
    Gone,
}

impl Stage {
    fn at(step: u32) -> Self {
        match step % 3 {
            0 => Self::Old,
            1 => Self::New,
            _ => Self::Gone,
        }
    }

    fn answer(self, service: u32) -> String {
        match self {
            Self::Old => format!("NOERROR 10.97.0.{service}"),
            Self::New => format!("NOERROR 10.98.0.{service}"),
            Self::Gone => "NXDOMAIN".to_owned(),
        }
    }
}

impl<'a> Churn<'a> {
    pub(super) async fn start(rig: &'a Rig) -> Self {
        let corporate = corporate().await;
        rig.set(mk_headless(NAMESPACE, "pods", &["http:80"]));
        Self {
            rig,
            corporate,
            counts: RefCell::default(),
        }
    }

    pub(super) fn counts(&self) -> Counts {
        self.counts.borrow().clone()
    }

    /// Queries for the changing names. An answer is right if it fits any of the states that the
    /// name can have.
    pub(super) fn questions(&self) -> Vec<Question> {
        let port = self.rig.pod.ports.dns;
        let services = (0..SERVICES).map(|service| {
            let question = Question::new("churn", port, &name(service), "A", "NXDOMAIN");
            let [old, new] = [Stage::Old, Stage::New].map(|stage| stage.answer(service));
            question.or(&old).or(&new)
        });
        let pods = "pods.churn.svc.cluster.local.";
        let pods = Question::new("churn", port, pods, "A", "NOERROR 10.245.0.1")
            .or("NOERROR 10.245.0.1 10.245.0.2");
        let pods = pods.or("NXDOMAIN").or("NOERROR");
        let stub = Question::new("stub domain", port, "host.corp.test.", "A", "NXDOMAIN")
            .or("NOERROR 192.0.2.7");
        services.chain([pods, stub]).collect()
    }

    /// Changes the Services in turn, `changes` times a second. Each time, also changes the
    /// Endpoints of the headless Service `pods`. Returns the first error, for example that no
    /// answer of kubedns shows a measured change in time. If `changes` is 0, never returns.
    pub(super) async fn go_on(&self, changes: u32) -> anyhow::Error {
        if changes == 0 {
            return std::future::pending().await;
        }
        let mut ticks = interval(Duration::from_secs(1) / changes);
        for step in 0_u32.. {
            ticks.tick().await;
            if let Err(error) = self.change(step).await {
                return error;
            }
        }
        anyhow::anyhow!("the counter of the changes has reached its maximum")
    }

    async fn change(&self, step: u32) -> anyhow::Result<()> {
        let service = step % SERVICES;
        let stage = Stage::at(step / SERVICES);
        self.apply(service, stage);
        let count = if step.is_multiple_of(2) { 1..=1 } else { 1..=2 };
        let addresses: Vec<String> = count.map(|n| format!("10.245.0.{n}")).collect();
        let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
        self.rig
            .set(mk_endpoints(NAMESPACE, "pods", &addresses, &["http:80"]));
        self.counts.borrow_mut().changes += 2;
        if step.is_multiple_of(EDIT) {
            self.edit(step / EDIT);
        }
        if step.is_multiple_of(MEASURED) {
            let delay = self.answered(service, stage).await?;
            self.counts.borrow_mut().delays.push(delay);
        }
        Ok(())
    }

    fn apply(&self, service: u32, stage: Stage) {
        let object = format!("web-{service}");
        let network = match stage {
            Stage::Gone => return self.rig.delete(Resource::Services, NAMESPACE, &object),
            Stage::Old => 97,
            Stage::New => 98,
        };
        let address = format!("10.{network}.0.{service}");
        self.rig
            .set(mk_cluster_ip(NAMESPACE, &object, &[&address], &["http:80"]));
    }

    fn edit(&self, number: u32) {
        let server = self.corporate.addr().to_string();
        let stub_domains = json!({"corp.test": [server]}).to_string();
        let entry = if number.is_multiple_of(2) {
            stub_domains.as_str()
        } else {
            "{}"
        };
        self.rig.configure(&[("stubDomains", entry)]);
        self.counts.borrow_mut().edits += 1;
    }

    /// Waits until an answer of kubedns shows the last change, and returns the duration of the
    /// wait.
    async fn answered(&self, service: u32, stage: Stage) -> anyhow::Result<Duration> {
        let begun = Instant::now();
        let server = ([127, 0, 0, 1], self.rig.pod.ports.kubedns).into();
        let query = Query::new(&name(service), "A");
        loop {
            let message = client::try_ask(server, &query, LATE)
                .await
                .map_err(Error::msg)?;
            let (line, right) = (in_a_line(&message), stage.answer(service));
            if line == right {
                return Ok(begun.elapsed());
            }
            ensure!(
                begun.elapsed() < LATE,
                "no answer for {} shows the change: {right} is expected, but the answer is still {line}",
                name(service)
            );
            sleep(Duration::from_millis(1)).await;
        }
    }
}

fn name(service: u32) -> String {
    format!("web-{service}.{NAMESPACE}.svc.cluster.local.")
}
