//! Runs the commands of the documentation's pages. The programs of the pod run as local processes,
//! with the objects of the example cluster. For each command that these tests do not run, a table
//! names another test that runs the command, or the reason why no test runs it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::Path;

use testkit::ports::free_port;
use testkit::process::binary;
use testkit::query::Query;
use testkit::{client, eventually, table};
use tests::docs::commands::Command;
use tests::e2e::{PATIENCE, Pod, Ports};
use tests::repository;
use tokio::time::{Duration, sleep};

use crate::commands::{Listed, listed};

/// The commands that these tests do not run. The first column is a page (`*`: any page). The second
/// is a section's title, or a part of the line `$ COMMAND`. The third is the test that runs the
/// command, as `file::function`, or the reason why no test does. The first matching row applies.
const ELSEWHERE: &str = "
    *                            | make test                     | runs these tests
    *                            | make images                   | needs podman, and builds or pushes images
    *                            | make release                  | needs podman, and builds or pushes images
    *                            | cargo                         | takes too long: builds, checks, tests or fuzzes the project
    *                            | podman                        | needs podman, and builds or pushes images
    *                            | helm template                 | tests/tests/chart.rs::pod_values_do_what_they_say
    *                            | helm install                  | needs a cluster with nodes and pods
    *                            | kubectl diff                  | needs an API server with dry runs; tests/tests/manifests.rs renders the manifests
    *                            | port-forward                  | needs a cluster with nodes and pods
    *                            | kubectl exec client           | needs a cluster with nodes and pods
    *                            |  logs deploy/                 | needs a cluster with nodes and pods
    *                            | REGISTRY=                     | needs the images in a registry
    README.md                    | make run                      | tests/tests/e2e.rs::guide_commands_work_when_pasted
    RELEASING.md                 | cosign verify                 | needs a published release
    RELEASING.md                 | gh attestation                | needs a published release
    charts/kube-dns-rs/README.md | annotate deployment           | needs a cluster with nodes and pods
    charts/kube-dns-rs/README.md | helm upgrade                  | needs a cluster with nodes and pods
    charts/kube-dns-rs/README.md | rollout status                | needs a cluster with nodes and pods
    charts/kube-dns-rs/README.md | delete deployment             | needs a cluster with nodes and pods
    docs/configmap.md            | openssl                       | asks a public resolver
    docs/etcd.md                 | kube-dns --etcd-zone          | is only the beginning of a command line
    docs/etcd.md                 | etcdctl                       | crates/kubedns/tests/api/etcd.rs::etcd_zones_are_served_beside_cluster
    docs/explain.md              | $ kube-dns explain            | crates/explain/src/tests/transcript.rs::documentation_matches_output
    docs/migrating.md            | > kube-dns-before.yaml        | tests/tests/migrating.rs::going_back
    docs/migrating.md            | > kube-dns-others-before.yaml | tests/tests/migrating.rs::going_back
    docs/migrating.md            | kube-dns-before.yaml          | tests/tests/migrating.rs::going_back
    docs/migrating.md            | kube-dns-others-before.yaml   | tests/tests/migrating.rs::going_back
    docs/migrating.md            | From 1.6 and later            | tests/tests/migrating.rs::from_1_36
    docs/migrating.md            | Without a lost query          | tests/tests/migrating.rs::from_1_36_loses_no_query
    docs/migrating.md            | From 1.5                      | tests/tests/migrating.rs::from_1_5
    docs/migrating.md            | From 1.4                      | tests/tests/migrating.rs::from_1_4
    docs/migrating.md            | From 1.2 and earlier          | needs one etcd with the API v2 and another with the API v3
    docs/migrating.md            | Going back                    | needs a cluster to migrate; was tried in a cluster with a real kubelet
    docs/migrating.md            | To a pod on each node         | needs a cluster to migrate; was tried in a cluster with a real kubelet
    docs/migrating.md            | check config --corefile       | crates/check/src/check_config/tests.rs::corefile_has_flags_of_deployment
    docs/migrating.md            | get deploy,rc                 | needs a cluster with nodes and pods
    docs/migrating.md            | make run                      | tests/tests/e2e.rs::guide_commands_work_when_pasted
    docs/migrating.md            | Trying it beside the old one  | needs a cluster to migrate; was tried in a cluster with a real kubelet
    docs/places.md               | GKE Standard                  | needs a cluster of this provider or tool; was not tried, as the page says
    docs/places.md               | kops                          | needs a cluster of this provider or tool; was not tried, as the page says
    docs/places.md               | RKE1                          | needs a cluster of this provider or tool; was not tried, as the page says
    docs/places.md               | Addon manager                 | needs a cluster of this provider or tool; was not tried, as the page says
    docs/search.md               | get pod web-0                 | needs an API server with admission policies; was tried in a cluster with a real kubelet
    docs/topologies.md           | EDE                           | crates/skydns/tests/forward/cache.rs::server_serves_stale_external_names
    docs/extended-errors.md      | EDE                           | crates/skydns/tests/server/extended_errors.rs::extended_error_names_cause
    docs/transfer.md             | kube-dns --transfer-to        | is only the beginning of a command line
    docs/transfer.md             | dig                           | crates/kubedns/tests/api/transfer.rs::transfer_needs_key_and_address
    docs/troubleshooting.md      | get pods                      | needs a cluster with nodes and pods
    docs/troubleshooting.md      | describe pods                 | needs a cluster with nodes and pods
    docs/troubleshooting.md      | get events                    | needs a cluster with nodes and pods
    docs/troubleshooting.md      | rbac.yaml                     | needs an API server with RBAC
    docs/troubleshooting.md      | patch configmap               | names servers that do not exist
    docs/troubleshooting.md      | tap --rcode=SERVFAIL          | needs upstreams that fail
    docs/troubleshooting.md      | hello.default                 | tests/tests/e2e.rs::guide_commands_work_when_pasted
    docs/coredns.md              | create clusterrole            | needs an API server with RBAC
    docs/queries.md              | create clusterrole            | needs an API server with RBAC
    docs/troubleshooting.md      | kubedns_forward_(tls          | needs an upstream over TLS
";

/// The commands whose output depends on a state that the test pod does not have. Only the presence
/// of some output is checked. Each row has a page, a part of the command, and the state.
const OTHER_STATE: &str = "
    docs/troubleshooting.md | check cluster    | an upstream of dnsmasq that is slow
    docs/troubleshooting.md | 8081/readiness   | before the first lists
    docs/troubleshooting.md | kubedns_forward_ | an upstream that is silent
    docs/troubleshooting.md | watch_connected  | no watch of Endpoints
";

fn fits(page: &str, part: &str, listed: &Listed) -> bool {
    let Listed {
        page: its_page,
        section,
        command,
    } = listed;
    let typed = format!("$ {}", command.text);
    (page == "*" || page == its_page) && (part == section || typed.contains(part))
}

fn elsewhere(listed: &Listed) -> Option<usize> {
    let rows = table::rows(ELSEWHERE);
    rows.into_iter()
        .position(|[page, part, _]| fits(page, part, listed))
}

fn has_other_state(listed: &Listed) -> bool {
    let rows = table::rows(OTHER_STATE);
    rows.into_iter()
        .any(|[page, part, _]| fits(page, part, listed))
}

#[test]
fn rows_are_needed_and_named_tests_exist() {
    let all = listed();
    let used: Vec<Option<usize>> = all.iter().map(elsewhere).collect();
    for (at, [page, part, instead]) in table::rows(ELSEWHERE).into_iter().enumerate() {
        assert!(
            used.contains(&Some(at)),
            "no command of {page} needs the row {part:?}"
        );
        if let Some((file, name)) = instead.split_once("::") {
            let text = std::fs::read_to_string(repository().join(file)).unwrap_or_default();
            assert!(
                text.contains(&format!("fn {name}(")),
                "{file} has no test {name}"
            );
        }
    }
    for [page, part, state] in table::rows(OTHER_STATE) {
        let is_it = |listed: &Listed| elsewhere(listed).is_none() && fits(page, part, listed);
        assert!(
            all.iter().any(is_it),
            "{page}: no command that the tests run needs the row {part:?} (state: {state})"
        );
    }
}

/// The ports that the pages show, and the corresponding port of the test pod.
fn purposes(ports: &Ports) -> [(&'static [&'static str], u16); 6] {
    [
        (&["5300", "7300"], ports.dns),
        (&["7301", "7451", "10053"], ports.kubedns),
        (&["7302", "7452", "8081"], ports.readiness),
        (&["7303", "7453", "10055"], ports.kubedns_metrics),
        (&["7304", "10054"], ports.sidecar),
        (&["7307", "10056"], ports.nanny),
    ]
}

/// Words in the pages, and their replacements for the test pod.
const REPLACEMENTS: &str = "
    kubectl -n kube-system exec deploy/kube-dns -c kubedns -- /kube-dns      | kube-dns
    kubectl -n kube-system exec deploy/kube-dns -c dnsmasq -- /dnsmasq-nanny | dnsmasq-nanny
    --server=http://127.0.0.1:5305                                           |
    POD-ADDRESS                                                              | 127.0.0.1
    @10.96.0.10                                                              | @127.0.0.1
    --client=10.244.0.9                                                      | --client=127.0.0.1
    NAME                                                                     | web.default
    --seconds=10                                                             | --seconds=2
";

/// Adapts a command to the test pod.
fn typed_here(command: &str, ports: &Ports) -> String {
    let replace = |text: String, [page, here]: [&str; 2]| text.replace(page, here);
    let text = table::rows(REPLACEMENTS)
        .into_iter()
        .fold(command.to_owned(), replace);
    with_programs(&with_ports(&text, ports), ports)
}

/// Replaces the ports in two steps, because a port of the test pod may have another purpose in the
/// pages.
fn with_ports(text: &str, ports: &Ports) -> String {
    let mut text = text.to_owned();
    if !text.contains(" -p ") {
        text = text.replace("dig ", "dig -p 5300 ");
    }
    let purposes = purposes(ports);
    for (at, (pages, _)) in purposes.iter().enumerate() {
        for page in *pages {
            text = text.replace(&format!("127.0.0.1:{page}"), &format!("127.0.0.1:<{at}>"));
            text = text.replace(&format!("-p {page} "), &format!("-p <{at}> "));
        }
    }
    for (at, (_, port)) in purposes.iter().enumerate() {
        text = text.replace(&format!("<{at}>"), &port.to_string());
    }
    text
}

/// Adds the paths of our binaries, and the addresses of the test pod.
fn with_programs(text: &str, ports: &Ports) -> String {
    let (kubedns, nanny) = (
        binary("kubedns").display().to_string(),
        binary("nanny").display().to_string(),
    );
    let url = |port: u16| format!("http://127.0.0.1:{port}");
    let server = format!("--server={}", url(ports.readiness));
    let (api, sidecar) = (url(ports.api), url(ports.sidecar));
    let cluster = format!(
        "--dns=127.0.0.1:{} --sidecar={sidecar} --kube-master-url={api}",
        ports.dns
    );
    text.replace("kubectl ", &format!("kubectl --server={api} "))
        .replace("kube-dns check config", &format!("{kubedns} check config"))
        .replace(
            "kube-dns check cluster",
            &format!("{kubedns} check cluster {server} {cluster} --external-name=www.acme.example"),
        )
        .replace("kube-dns explain", &format!("{kubedns} explain {server}"))
        .replace("kube-dns tap", &format!("{kubedns} tap {server}"))
        .replace("kube-dns top", &format!("{kubedns} top {server}"))
        .replace(
            "dnsmasq-nanny tap",
            &format!("{nanny} tap --server={}", url(ports.nanny)),
        )
        .replace(
            "dnsmasq-nanny top",
            &format!("{nanny} top --server={}", url(ports.nanny)),
        )
        .replace("kube-dns --foo", &format!("{kubedns} --foo"))
        .replace(
            "dnsmasq-nanny --cache-size",
            &format!("{nanny} --cache-size"),
        )
}

/// Runs a command once, in `directory`. Checks that the output has the first words of the lines
/// that the page shows. For a command in `OTHER_STATE`, only checks that there is output.
async fn run(listed: &Listed, ports: &Ports, directory: &Path) -> Result<(), String> {
    let text = typed_here(&listed.command.text, ports);
    let mut shell = tokio::process::Command::new("sh");
    shell
        .args(["-c", &text])
        .current_dir(directory)
        .env("HOME", directory)
        .env("KUBECONFIG", "/dev/null");
    let output = shell
        .env("REGISTRY", "registry.example/dns")
        .output()
        .await
        .unwrap();
    let printed = [output.stdout, output.stderr].concat();
    let printed = String::from_utf8_lossy(&printed);
    let lines: Vec<&str> = printed.lines().map(str::trim).collect();
    let (found, shown) = (
        Command::first_words(&lines),
        Command::first_words(&listed.command.output),
    );
    let lacks: Vec<&str> = shown
        .iter()
        .copied()
        .filter(|word| !found.contains(word))
        .collect();
    // A command may fail only if the page shows its output.
    let as_shown = lacks.is_empty() && (output.status.success() || !shown.is_empty());
    if printed.is_empty() || !(as_shown || has_other_state(listed)) {
        return Err(format!(
            "{}: {text}\n{}; missing words: {lacks:?}; output:\n{printed}",
            listed.page, output.status
        ));
    }
    Ok(())
}

/// Keeps sending queries that fail, for the commands that show or count failures.
async fn ask_in_vain(ports: Ports) {
    loop {
        for (port, name) in [
            (ports.kubedns, "nope.svc.cluster.local."),
            (ports.kubedns, "single."),
            (ports.dns, "nope.acme.example."),
        ] {
            let server = ([127, 0, 0, 1], port).into();
            let _ = client::try_ask(server, &Query::new(name, "A"), Duration::from_secs(1)).await;
        }
        sleep(Duration::from_millis(100)).await;
    }
}

/// Starts a pod for the commands of a page. For docs/troubleshooting.md, the upstream of the domain
/// corp.test does not answer. For docs/queries.md, dnsmasq logs queries.
async fn pod(page: &str) -> Pod {
    let dead = format!(
        "--dnsmasq-arg=--server=/corp.test/127.0.0.1#{}",
        free_port()
    );
    let args: &[&str] = match page {
        "docs/troubleshooting.md" => &[&dead, "--sidecar-arg=--upstream-probe-interval-ms=1000"],
        "docs/queries.md" => &["--dnsmasq-arg=--log-queries=extra"],
        _ => &[],
    };
    Pod::start_with(args).await
}

#[tokio::test]
async fn documented_commands_print_as_shown() {
    let mut by_page: BTreeMap<String, Vec<Listed>> = BTreeMap::new();
    let here = listed()
        .into_iter()
        .filter(|listed| elsewhere(listed).is_none());
    for listed in here {
        by_page.entry(listed.page.clone()).or_default().push(listed);
    }
    assert!(by_page.len() > 5, "{:?}", by_page.keys());
    for (page, commands) in by_page {
        let (pod, directory) = (pod(&page).await, tempfile::tempdir().unwrap());
        for name in ["examples", "manifests"] {
            symlink(
                repository().canonicalize().unwrap().join(name),
                directory.path().join(name),
            )
            .unwrap();
        }
        let (ports, left) = (pod.ports, RefCell::new(commands));
        let all_good = eventually(PATIENCE, || async {
            let mut faults = Vec::new();
            let commands = left.take();
            for listed in commands {
                if let Err(fault) = run(&listed, &ports, directory.path()).await {
                    faults.push(fault);
                    left.borrow_mut().push(listed);
                }
            }
            if faults.is_empty() {
                Ok(())
            } else {
                Err(faults.join("\n"))
            }
        });
        tokio::select! {
            () = all_good => {}
            () = ask_in_vain(ports) => {}
        }
    }
}
