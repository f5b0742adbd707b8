//! Upstreams that are silent, slow or lie.

use std::time::Duration;

use testkit::upstream::Upstream;
use tests::chaos::{Mood, Outside, Rig, Topology, names_outside_of_kubedns};
use tests::steady::{Question, Steady};

use super::{RATE, WHILE};

/// How an upstream can be bad.
const MOODS: [(Mood, &str); 8] = [
    (Mood::Silent, "silent"),
    (Mood::Slow(Duration::from_secs(3)), "3 s late"),
    (Mood::WrongId, "wrong IDs"),
    (Mood::WrongQuestion, "wrong questions"),
    (Mood::LiesThenTruth, "lies, then the truth"),
    (Mood::Oversized, "48 KB of answers"),
    (Mood::TruncatedForEver, "truncated for ever"),
    (Mood::Garbage, "garbage"),
];

/// Names that are aliases of each other: the upstream says so, and nobody may follow them for ever. `spin` is a Service
/// whose external name leads there.
fn circles(path: &'static str, port: u16) -> Vec<Question> {
    let (a, b) = ("loop-a.outside.test.", "loop-b.outside.test.");
    let spin = "spin.shop.svc.cluster.local.";
    vec![
        Question::new(path, port, a, "A", &format!("NOERROR -> {b}")),
        Question::new(path, port, spin, "A", &format!("NOERROR -> {a} -> {b}")),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_an_honest_upstream_left_a_bad_one_costs_no_answer_of_kubedns() {
    let (outside, honest) = (Outside::default(), Outside::default());
    let bad = Upstream::start(outside.handler()).await;
    let good = Upstream::start(honest.handler()).await;
    let addresses = [bad.addr(), good.addr()];
    let rig = Rig::with(Topology::DropIn, &[], &[], outside.clone(), bad, &addresses).await;
    rig.set(testkit::objects::mk_external_name("shop", "spin", "loop-a.outside.test"));
    super::resolves(&rig, &super::add_service(&rig, "marker", "10.96.9.9"), "10.96.9.9").await;

    let mut questions = rig.questions();
    // Asked of kubedns itself, which has the same two upstreams; dnsmasq's ways with two are its own.
    questions.extend(names_outside_of_kubedns("outside, from kubedns", rig.pod.ports.kubedns));
    questions.extend(circles("alias circles, from kubedns", rig.pod.ports.kubedns));
    let steady = Steady::start(questions, RATE * 2);
    for (mood, why) in MOODS {
        let excuse = steady.excuse(&["outside"], why);
        outside.is(mood);
        steady.answered_on("outside, from kubedns", WHILE).await;
        outside.is(Mood::Honest);
        excuse.ends().await;
    }
    steady.stop().await.check("two upstreams, the first silent, late, lying, oversized, truncating, garbage");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_bad_upstreams_only_cluster_names_lose_nothing_and_kubedns_answers_all() {
    let rig = Rig::start(Topology::DropIn, &[]).await;
    let mut questions = rig.questions();
    questions.extend(names_outside_of_kubedns("outside, from kubedns", rig.pod.ports.kubedns));
    let steady = Steady::start(questions, RATE * 2);
    for (mood, why) in MOODS {
        let excuse = steady.excuse(&["outside", "outside, from kubedns"], why);
        rig.outside.is(mood);
        steady.answered_on("kubedns", WHILE).await;
        rig.outside.is(Mood::Honest);
        excuse.ends().await;
    }
    let report = steady.stop().await;
    report.check("the only upstream silent, late, lying, oversized, truncating, garbage");
    let forwarded = &report.lines["outside, from kubedns"];
    assert_eq!(forwarded.excused_lost, 0, "where there is no answer kubedns says so: {report}");
    assert!(forwarded.excused_failed > 0, "the upstream was bad: {report}");
}
