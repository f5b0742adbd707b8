//! The API server is unreachable or frozen, restarts without its history of watch events, sends
//! invalid data, or answers with errors. No query may be lost.

use apiserver::{Action, Faults, Rule, RuleId};
use tests::chaos::{Rig, Topology};
use tests::steady::Steady;

use super::{RATE, WHILE, add_service, wait_until_kubedns_resolves};

/// The name of a fault of the API server, and a function that starts the fault. If the function
/// returns a rule, the fault ends when the test removes the rule.
type Fault = (&'static str, fn(&Faults) -> Option<RuleId>);

const FAULTS: [Fault; 5] = [
    ("away", |faults| {
        faults.down();
        None
    }),
    ("frozen", |faults| {
        faults.freeze();
        None
    }),
    ("restarted without its history", |faults| {
        faults.restart();
        None
    }),
    ("garbage", |faults| {
        let rule = faults.add(Rule::new(Action::Garbage));
        faults.cut_watches();
        Some(rule)
    }),
    ("failing", |faults| {
        let rule = faults.add(Rule::new(Action::Refuse { code: 500 }));
        faults.expire();
        faults.cut_watches();
        Some(rule)
    }),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn api_server_faults_lose_no_query() {
    let rig = Rig::start(Topology::DropIn, &[]).await;
    let steady = Steady::start(rig.questions(), RATE);
    for (number, (name, begin)) in FAULTS.into_iter().enumerate() {
        let rule = begin(rig.api_faults());
        let address = format!("10.96.9.{number}");
        let service = add_service(&rig, &format!("late-{number}"), &address);
        steady.answered(WHILE).await;
        rig.api_faults().up();
        rule.map(|rule| rig.api_faults().remove(rule));
        wait_until_kubedns_resolves(&rig, &service, &address).await;
        assert_eq!(rig.pod.status().containers["kubedns"].restarts, 0, "{name}");
    }
    steady
        .stop()
        .await
        .check("API server away, frozen, restarted without its history, garbage, failing");

    let log = rig.pod.process.stderr();
    let mounted = log.iter().find(|line| line.contains("ConfigMap kube-dns"));
    assert_eq!(
        mounted, None,
        "an unchanged ConfigMap must not be mounted again"
    );
}
