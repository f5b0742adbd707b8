//! Answers stay correct through all faults of the API server, and the records of a large cluster
//! fit into memory.

use std::net::SocketAddr;
use std::time::Duration;

use apiserver::{Action, Options, Resource, Rule, RunningApiServer, Verb};
use serde_json::{Value, json};
use testkit::client;
use testkit::objects::{mk_cluster_ip, mk_endpoint_slice, mk_headless};
use testkit::processes::Usage;
use testkit::query::Query;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::cluster::with_web;
use super::process::Kubedns;

const WEB: &str = "web.apps.svc.cluster.local.";
const PROBE: &str = "probe.apps.svc.cluster.local.";

/// A client that repeats a query for one name.
struct Client {
    stop: CancellationToken,
    /// Returns the numbers of answers, and of unexpected answers.
    task: JoinSet<(usize, usize)>,
}

impl Client {
    fn start(server: SocketAddr) -> Self {
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut asked = 0;
            let mut wrong = 0;
            while !stopped.is_cancelled() {
                let answer = client::ask(server, &Query::new(WEB, "A")).await;
                asked += 1;
                if answer.answer_data("A") != ["10.96.0.7"] {
                    wrong += 1;
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            (asked, wrong)
        });
        Self { stop, task }
    }

    async fn end(self) -> (usize, usize) {
        self.stop.cancel();
        self.task.join_all().await[0]
    }
}

/// A fault, and its name in the log of the test.
type Weather<'a> = (&'static str, Box<dyn Fn() + 'a>);

fn weather(cluster: &RunningApiServer) -> Vec<Weather<'_>> {
    let faults = &cluster.faults;
    let lists = |action| Rule::new(action).verbs([Verb::List]).times(3);
    let watches = |action| Rule::new(action).verbs([Verb::Watch]).times(4);
    let refused = |code| Action::Refuse { code };
    let rules = [
        ("refused lists", lists(refused(403))),
        ("failing watches", watches(refused(500))),
        ("refused watches", watches(refused(403))),
        ("garbage in watches", watches(Action::Garbage)),
        ("garbage in lists", lists(Action::Garbage)),
        ("lists cut in the middle", lists(Action::Cut { after: 200 })),
        ("slow lists", lists(Action::Delay { ms: 300 })),
        (
            "errors in watches",
            watches(Action::ErrorEvent { code: 410 }),
        ),
    ];
    let mut weather: Vec<Weather<'_>> = vec![
        ("ended watches", Box::new(|| faults.drop_watches())),
        ("cut watches", Box::new(|| faults.cut_watches())),
        ("expired versions", Box::new(|| faults.gap(|_| ()))),
        ("a new history", Box::new(|| faults.restart())),
    ];
    for (name, rule) in rules {
        let add = move || {
            faults.add(rule.clone());
        };
        weather.push((name, Box::new(add)));
    }
    weather
}

#[tokio::test]
async fn answers_stay_right_under_faults() {
    let cluster = with_web();
    let kubedns = Kubedns::ready(&cluster, &[]).await;
    let client = Client::start(kubedns.dns);
    for (round, (what, happens)) in weather(&cluster).into_iter().enumerate() {
        let ip = format!("10.96.1.{round}");
        happens();
        // Most faults have an effect only on new watches.
        cluster.faults.drop_watches();
        cluster.set(mk_cluster_ip("apps", "probe", &[&ip], &["http:80"]));
        println!("{what}");
        kubedns.until_answered(PROBE, "A", &ip).await;
        cluster.delete(Resource::Services, "apps", "probe");
        kubedns.until_answered(PROBE, "A", "NXDOMAIN").await;
    }
    let (asked, wrong) = client.end().await;
    assert!(asked > 100, "only {asked} queries");
    assert_eq!(wrong, 0, "of {asked}");
    kubedns.stop().await;
}

const PORTS: &[&str] = &["http:80", "metrics:9090"];

/// Ten thousand Services with thirty thousand addresses. The objects have fields that kubedns does
/// not need, like real objects.
fn large() -> impl Iterator<Item = Value> {
    let ballast = |mut object: Value| {
        object["metadata"]["annotations"] =
            json!({ "kubectl.kubernetes.io/last-applied-configuration": "x".repeat(300) });
        object["metadata"]["managedFields"] =
            json!([{ "manager": "test", "fieldsV1": { "f:spec": { "f:ports": {} } } }]);
        object
    };
    (0..10_000_u32).flat_map(move |number| {
        let namespace = format!("ns{}", number % 100);
        let name = format!("service-{number:05}");
        let service = if number % 5 == 0 {
            mk_headless(&namespace, &name, PORTS)
        } else {
            let ip = format!("10.96.{}.{}", number / 256, number % 256);
            mk_cluster_ip(&namespace, &name, &[&ip], PORTS)
        };
        let addresses: Vec<String> = (0..3_u32)
            .map(|replica| number * 3 + replica)
            .map(|pod| format!("10.{}.{}.{}", 128 + pod / 65536, pod / 256 % 256, pod % 256))
            .collect();
        let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
        let slice = mk_endpoint_slice(&namespace, &name, "abcde", &addresses, PORTS);
        [ballast(service), ballast(slice)]
    })
}

#[tokio::test]
async fn large_cluster_fits_in_memory() {
    let cluster = RunningApiServer::start(Options {
        history: 100,
        ..Options::empty()
    });
    cluster.store.load(large()).unwrap();
    let kubedns = Kubedns::ready(&cluster, &[]).await;
    let last = "service-09999.ns99.svc.cluster.local.";
    assert_eq!(kubedns.answers(last, "A").await, "10.96.39.15");
    let headless = kubedns
        .ask("service-09995.ns95.svc.cluster.local.", "A")
        .await;
    assert_eq!(headless.answer_data("A").len(), 3);
    kubedns
        .until_metric("kubedns_addresses{kind=\"endpointslices\"}", 30_000.0)
        .await;
    let memory = Usage::of(kubedns.process.id()).unwrap().anonymous / 1024;
    println!("{memory} MB");
    assert!(memory < 20, "{memory} MB for 10,000 Services");
    cluster.set(mk_cluster_ip(
        "ns0",
        "one-more",
        &["10.97.0.1"],
        &["http:80"],
    ));
    kubedns
        .until_answered("one-more.ns0.svc.cluster.local.", "A", "10.97.0.1")
        .await;
}
