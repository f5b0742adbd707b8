//! Upstreams with the faults in [`MOODS`] or with a CNAME loop, and an upstream that is the pod
//! itself. A further test is about servers that kubedns can query and dnsmasq cannot.

use std::time::Duration;

use serde_json::json;
use testkit::message::Message;
use testkit::objects::mk_external_name;
use testkit::query::Query;
use testkit::upstream::Upstream;
use testkit::{client, eventually};
use tests::chaos::{Mood, Outside, Rig, Topology, corporate, names_forwarded_by_kubedns};
use tests::e2e::{PATIENCE, get};
use tests::steady::{Question, Steady};
use tokio::task::JoinSet;
use wire::Transport;

use super::{RATE, WHILE};

/// The faults of an upstream, each with its name in the report.
const MOODS: [(Mood, &str); 8] = [
    (Mood::Silent, "silent"),
    (Mood::Slow(Duration::from_secs(3)), "3 s late"),
    (Mood::WrongId, "wrong IDs"),
    (Mood::WrongQuestion, "wrong questions"),
    (Mood::LiesThenTruth, "lies, then the truth"),
    (Mood::Oversized, "answers of 48 KB"),
    (Mood::TruncatedForEver, "truncated for ever"),
    (Mood::Garbage, "garbage"),
];

/// Queries for a name in a CNAME loop of the upstream, and for `spin`, an ExternalName Service
/// whose target is in the loop. kubedns must stop following the loop.
fn looping_names(path: &'static str, port: u16) -> Vec<Question> {
    let (a, b) = ("loop-a.outside.test.", "loop-b.outside.test.");
    let spin = "spin.shop.svc.cluster.local.";
    vec![
        Question::new(path, port, a, "A", &format!("NOERROR -> {b}")),
        Question::new(path, port, spin, "A", &format!("NOERROR -> {a} -> {b}")),
    ]
}

/// A pod with two upstreams. [`Rig::upstream_behaviour`] controls the first upstream. The second
/// upstream always answers correctly.
async fn rig_with_bad_upstream(topology: Topology) -> (Rig, Upstream) {
    let outside = Outside::default();
    let bad = Upstream::start(outside.handler()).await;
    let good = Upstream::start(Outside::default().handler()).await;
    let addresses = [bad.addr(), good.addr()];
    let rig = Rig::with(topology, &[], &[], outside, bad, &addresses).await;
    (rig, good)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cluster_names_resolve_while_upstream_is_bad() {
    let rig = Rig::start(Topology::DropIn, &[]).await;
    let mut questions = rig.questions();
    questions.extend(names_forwarded_by_kubedns(
        "outside, from kubedns",
        rig.pod.ports.kubedns,
    ));
    let steady = Steady::start(questions, RATE);
    for (mood, why) in MOODS {
        let excuse = steady.excuse(&["outside", "outside, from kubedns"], why);
        rig.upstream_behaviour.set_mood(mood);
        steady.answered_on("kubedns", WHILE).await;
        rig.upstream_behaviour.set_mood(Mood::Honest);
        excuse.ends().await;
    }
    let report = steady.stop().await;
    report
        .check("the only upstream is silent or late, or sends false, oversized or truncated answers, or garbage");
    let forwarded = &report.lines["outside, from kubedns"];
    assert_eq!(
        forwarded.excused_lost, 0,
        "kubedns must return SERVFAIL if the upstream does not answer: {report}"
    );
    assert!(
        forwarded.excused_failed > 0,
        "the bad upstream must cause some queries to fail: {report}"
    );
}

/// Number of names that are queried while no upstream answers.
const HANGING: u16 = 300;
/// Number of these queries that are sent at once. They must fit into dnsmasq's receive buffer.
const AT_ONCE: u16 = 50;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cache_topology_answers_while_one_upstream_is_bad() {
    let (rig, _good) = rig_with_bad_upstream(Topology::Cache).await;
    let spin = mk_external_name("shop", "spin", "loop-a.outside.test");
    rig.set(spin);
    let marker = super::add_service(&rig, "marker", "10.96.9.9");
    super::wait_until_kubedns_resolves(&rig, &marker, "10.96.9.9").await;

    let mut questions = rig.questions();
    questions.extend(names_forwarded_by_kubedns(
        "outside, with either upstream",
        rig.pod.ports.dns,
    ));
    questions.extend(looping_names(
        "CNAME loop, from kubedns",
        rig.pod.ports.kubedns,
    ));
    let steady = Steady::start(questions, RATE);
    for (mood, _) in MOODS {
        rig.upstream_behaviour.set_mood(mood);
        steady
            .answered_on("outside, with either upstream", WHILE)
            .await;
        rig.upstream_behaviour.set_mood(Mood::Honest);
    }
    steady.stop().await.check(
        "cache: the first of two upstreams is silent or late, or sends false, oversized or truncated answers, or garbage",
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cache_topology_gives_servfail_when_upstream_hangs() {
    every_name_gets_an_rcode_when_all_upstreams_hang(Topology::Cache).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn alone_topology_gives_servfail_when_upstream_hangs() {
    every_name_gets_an_rcode_when_all_upstreams_hang(Topology::Alone).await;
}

async fn every_name_gets_an_rcode_when_all_upstreams_hang(topology: Topology) {
    let rig = Rig::start(topology, &[]).await;
    let server = ([127, 0, 0, 1], rig.pod.ports.dns).into();
    rig.upstream_behaviour.set_mood(Mood::Silent);
    let ask = |number: u16| async move {
        let query = Query::new(&format!("hanging-{number}.outside.test."), "A").wire();
        let reply = client::udp(server, &query, PATIENCE).await;
        reply.map_or_else(
            |error| error.to_string(),
            |reply| Message::parse(&reply).unwrap().rcode_name(),
        )
    };
    let mut asking = JoinSet::new();
    for number in 0..HANGING {
        asking.spawn(ask(number));
        if (number + 1).is_multiple_of(AT_ONCE) {
            eventually(PATIENCE, || {
                std::future::ready(rig.upstream.count() > number.into())
            })
            .await;
        }
    }
    let said = asking.join_all().await;
    assert_eq!(said, vec!["SERVFAIL"; usize::from(HANGING)]);

    rig.upstream_behaviour.set_mood(Mood::Honest);
    rig.wait_until_resolved("host-1.outside.test", "198.51.100.1")
        .await;
    rig.assert_no_restarts();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cache_topology_drops_looping_upstreams() {
    let corporate = corporate().await;
    let rig = Rig::start(Topology::Cache, &[]).await;
    let name = super::add_service(&rig, "ns", "127.0.0.1");
    let stubs = json!({"corp.test": [format!("{name}:{}", corporate.addr().port())]}).to_string();
    let own = json!([format!("127.0.0.1:{}", rig.pod.ports.dns)]).to_string();
    rig.configure(&[("stubDomains", &stubs), ("upstreamNameservers", &own)]);
    rig.wait_until_resolved("host.corp.test", "192.0.2.7").await;
    eventually(PATIENCE, || async {
        let metrics = get(rig.pod.ports.kubedns_metrics, "/metrics").await;
        metrics.unwrap().metric("kubedns_forward_loops") == Some(1.0)
    })
    .await;
    let status = rig.pod.dig().status("host-3.outside.test").await;
    assert_eq!(status.as_deref(), Some("SERVFAIL"));
    rig.wait_until_resolved("host.corp.test", "192.0.2.7").await;

    rig.configure(&[("stubDomains", &stubs)]);
    rig.wait_until_resolved("host-3.outside.test", "198.51.100.3")
        .await;
}

/// dnsmasq cannot forward to `tcp://` servers. So in every topology, kubedns must query these
/// servers, and only over TCP.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tcp_servers_are_queried_over_tcp() {
    for topology in [
        Topology::DropIn,
        Topology::Cache,
        Topology::Direct,
        Topology::Alone,
    ] {
        let corporate = corporate().await;
        let rig = Rig::start(topology, &[]).await;
        let stubs = json!({"corp.test": [format!("tcp://{}", corporate.addr())]}).to_string();
        rig.configure(&[("stubDomains", &stubs)]);
        rig.wait_until_resolved("host.corp.test", "192.0.2.7").await;
        let asked = corporate.asked();
        assert!(
            asked.iter().all(|asked| asked.transport == Transport::Tcp),
            "{topology:?}: {asked:?}"
        );
    }
}
