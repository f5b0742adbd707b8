//! Answers stay correct through all faults of the API server, and the records of a large cluster
//! fit into memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use apiserver::{Action, Options, Resource, Rule, Verb};
use serde_json::{Value, json};
use testkit::objects::{mk_cluster_ip, mk_endpoint_slice, mk_headless};
use testkit::processes::Usage;
use tokio::task::JoinSet;

use super::cluster::Cluster;
use super::process::Kubedns;

const WEB: &str = "web.apps.svc.cluster.local.";

/// A client that repeats a query for one name, and counts unexpected answers.
struct Client {
    asked: Arc<AtomicUsize>,
    wrong: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    task: JoinSet<()>,
}

impl Client {
    fn start(server: std::net::SocketAddr) -> Self {
        let (asked, wrong) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let stop = Arc::new(AtomicBool::new(false));
        let mut task = JoinSet::new();
        let (count, bad, ended) = (Arc::clone(&asked), Arc::clone(&wrong), Arc::clone(&stop));
        task.spawn(async move {
            while !ended.load(Ordering::Relaxed) {
                let query = testkit::query::Query::new(WEB, "A");
                let answer = testkit::client::ask(server, &query).await;
                count.fetch_add(1, Ordering::Relaxed);
                if answer.answer_data("A") != ["10.96.0.7"] {
                    bad.fetch_add(1, Ordering::Relaxed);
                }
                tokio::time::sleep(std::time::Duration::from_millis(2)).await;
            }
        });
        Self {
            asked,
            wrong,
            stop,
            task,
        }
    }

    async fn end(mut self) -> (usize, usize) {
        self.stop.store(true, Ordering::Relaxed);
        self.task
            .join_next()
            .await
            .expect("a task")
            .expect("it does not panic");
        (
            self.asked.load(Ordering::Relaxed),
            self.wrong.load(Ordering::Relaxed),
        )
    }
}

/// A fault, and its name in the log of the test.
type Weather<'a> = (&'static str, Box<dyn Fn() + 'a>);

fn weather(cluster: &Cluster) -> Vec<Weather<'_>> {
    let faults = &cluster.faults;
    let rule = |rule: Rule| {
        move || {
            faults.add(rule.clone());
        }
    };
    let broken_list = |action: Action| Rule::new(action).verbs([Verb::List]).times(3);
    let broken_watch = |action: Action| Rule::new(action).verbs([Verb::Watch]).times(4);
    vec![
        ("ended watches", Box::new(|| faults.drop_watches())),
        ("cut watches", Box::new(|| faults.cut_watches())),
        ("expired versions", Box::new(|| faults.gap(|_| ()))),
        ("a new history", Box::new(|| faults.restart())),
        (
            "refused lists",
            Box::new(rule(broken_list(Action::Refuse { code: 403 }))),
        ),
        (
            "failing watches",
            Box::new(rule(broken_watch(Action::Refuse { code: 500 }))),
        ),
        (
            "refused watches",
            Box::new(rule(broken_watch(Action::Refuse { code: 403 }))),
        ),
        (
            "garbage in watches",
            Box::new(rule(broken_watch(Action::Garbage))),
        ),
        (
            "garbage in lists",
            Box::new(rule(broken_list(Action::Garbage))),
        ),
        (
            "lists cut in the middle",
            Box::new(rule(broken_list(Action::Cut { after: 200 }))),
        ),
        (
            "slow lists",
            Box::new(rule(broken_list(Action::Delay { ms: 300 }))),
        ),
        (
            "errors in watches",
            Box::new(rule(broken_watch(Action::ErrorEvent { code: 410 }))),
        ),
    ]
}

#[tokio::test]
async fn answers_stay_right_under_faults() {
    let cluster = Cluster::start();
    cluster.set(mk_cluster_ip("apps", "web", &["10.96.0.7"], &["http:80"]));
    let kubedns = Kubedns::start(&cluster, &[]).await;
    kubedns.until_ready().await;
    let client = Client::start(kubedns.dns);
    for (round, (what, happens)) in weather(&cluster).into_iter().enumerate() {
        let ip = format!("10.96.1.{round}");
        happens();
        // Most faults have an effect only on new watches.
        cluster.faults.drop_watches();
        cluster.set(mk_cluster_ip("apps", "probe", &[&ip], &["http:80"]));
        println!("{what}");
        kubedns
            .until_answered("probe.apps.svc.cluster.local.", "A", &ip)
            .await;
        cluster.delete(Resource::Services, "apps", "probe");
        kubedns
            .until_answered("probe.apps.svc.cluster.local.", "A", "NXDOMAIN")
            .await;
    }
    let (asked, wrong) = client.end().await;
    assert!(asked > 100, "only {asked} queries");
    assert_eq!(wrong, 0, "of {asked}");
    kubedns.stop().await;
}

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
        let (namespace, name) = (
            format!("ns{}", number % 100),
            format!("service-{number:05}"),
        );
        let service = if number % 5 == 0 {
            mk_headless(&namespace, &name, &["http:80", "metrics:9090"])
        } else {
            let ip = format!("10.96.{}.{}", number / 256, number % 256);
            mk_cluster_ip(&namespace, &name, &[&ip], &["http:80", "metrics:9090"])
        };
        let addresses: Vec<String> = (0..3_u32)
            .map(|replica| number * 3 + replica)
            .map(|pod| format!("10.{}.{}.{}", 128 + pod / 65536, pod / 256 % 256, pod % 256))
            .collect();
        let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
        let slice = mk_endpoint_slice(
            &namespace,
            &name,
            "abcde",
            &addresses,
            &["http:80", "metrics:9090"],
        );
        [ballast(service), ballast(slice)]
    })
}

#[tokio::test]
async fn large_cluster_fits_in_memory() {
    let cluster = Cluster::with(Options {
        history: 100,
        ..Options::default()
    });
    cluster.store.load(large()).unwrap();
    let kubedns = Kubedns::start(&cluster, &[]).await;
    kubedns.until_ready().await;
    assert_eq!(
        kubedns
            .answers("service-09999.ns99.svc.cluster.local.", "A")
            .await,
        "10.96.39.15"
    );
    assert_eq!(
        kubedns
            .ask("service-09995.ns95.svc.cluster.local.", "A")
            .await
            .answer_data("A")
            .len(),
        3
    );
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
