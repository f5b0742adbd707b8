//! The plugin `kubectl dns`: the pod that it selects, and the arguments that it passes on.
//!
//! The plugin calls `kubectl` to select a pod of an embedded API server, and then calls `kubectl
//! exec`. That API server does not support `exec`, so the plugin finds a script in place of
//! `kubectl`.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on has to end there"
)]

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use apiserver::{Options, RunningApiServer};
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::objects::{mk_pod, with_labels};
use testkit::table;

/// The script in place of kubectl. For `kubectl exec`, it prints its arguments, copies standard
/// input to standard output if `--stdin` is given, and exits with status 3. For everything else, it
/// runs the real kubectl.
const KUBECTL: &str = "\
#!/bin/sh
case \" $* \" in
*' exec '*)
    echo \"$*\"
    case \" $* \" in *' --stdin '*) cat ;; esac
    exit 3
    ;;
esac
exec \"$REAL\" --server=\"$SERVER\" \"$@\"
";

fn plugin() -> String {
    format!("{}/../plugins/kubectl-dns", env!("CARGO_MANIFEST_DIR"))
}

fn real_kubectl() -> String {
    let path = std::env::var("PATH").unwrap();
    let mut all = path
        .split(':')
        .map(|directory| format!("{directory}/kubectl"));
    all.find(|file| Path::new(file).exists()).unwrap()
}

/// Creates a directory with the plugin and the script in place of kubectl.
fn mk_directory() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("kubectl");
    fs::write(&script, KUBECTL).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    symlink(plugin(), directory.path().join("kubectl-dns")).unwrap();
    directory
}

/// Runs `kubectl dns` with arguments separated by spaces: the real kubectl finds and starts the
/// plugin.
fn run(directory: &TempDir, server: &RunningApiServer, args: &str) -> Output {
    let path = std::env::var("PATH").unwrap();
    Command::new(real_kubectl())
        .arg("dns")
        .args(args.split_whitespace())
        .current_dir(directory.path())
        .env("PATH", format!("{}:{path}", directory.path().display()))
        .env("REAL", real_kubectl())
        .env("SERVER", format!("http://{}", server.address))
        .env("HOME", directory.path())
        .env("KUBECONFIG", "/dev/null")
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn mk_dns_pod(namespace: &str, name: &str, phase: &str, ready: &str) -> Value {
    let pod = mk_pod(namespace, name, phase, &["10.244.0.2"]);
    let mut pod = with_labels(pod, &[("k8s-app", "kube-dns")]);
    pod["status"]["conditions"] = json!([
        {"type": "Initialized", "status": "True"},
        {"type": "Ready", "status": ready},
    ]);
    pod
}

fn texts(output: &Output) -> (Option<i32>, String, String) {
    let [stdout, stderr] =
        [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    (output.status.code(), stdout, stderr)
}

/// The arguments of `kubectl dns`, and the arguments with which the plugin runs `kubectl exec`. The
/// latter begin with `--namespace=`, which is left out here.
const EXECUTED: &str = "
    explain web.apps A --search apps           | kube-system exec dns-d --container=kubedns -- /kube-dns explain web.apps A --search apps
    -n other check cluster                     | other exec dns-c --container=kubedns -- /kube-dns check cluster
    --namespace=other --pod=dns-z tap --type A | other exec dns-z --container=kubedns -- /kube-dns tap --type A
    explain --help                             | kube-system exec dns-d --container=kubedns -- /kube-dns explain --help
";

#[tokio::test(flavor = "multi_thread")]
async fn plugin_prefers_ready_pod() {
    let server = RunningApiServer::start(Options::default());
    let directory = mk_directory();
    let none =
        "kubectl dns: no pod with the label k8s-app=kube-dns runs in namespace kube-system\n";
    let output = run(&directory, &server, "top");
    assert_eq!(texts(&output), (Some(1), String::new(), none.to_owned()));

    for (namespace, name, phase, ready) in [
        ("kube-system", "dns-a", "Failed", "False"),
        ("kube-system", "dns-b", "Running", "False"),
        ("other", "dns-c", "Running", "True"),
    ] {
        let pod = mk_dns_pod(namespace, name, phase, ready);
        server.store.set(pod).unwrap();
    }
    let unready = "kubectl dns: no pod is ready, asking dns-b\n";
    let asked = "--namespace=kube-system exec dns-b --container=kubedns -- /kube-dns top --json\n";
    let output = run(&directory, &server, "top --json");
    let expected = (Some(3), asked.to_owned(), unready.to_owned());
    assert_eq!(
        texts(&output),
        expected,
        "the exit status must be the status of exec"
    );

    let ready = mk_dns_pod("kube-system", "dns-d", "Running", "True");
    server.store.set(ready).unwrap();
    for [args, exec] in table::rows(EXECUTED) {
        let output = run(&directory, &server, args);
        let expected = (Some(3), format!("--namespace={exec}\n"), String::new());
        assert_eq!(texts(&output), expected, "{args}");
    }
}

/// The arguments of `kubectl dns check config`, the arguments that the pod gets, and the text that
/// the pod gets on standard input. In the working directory, `check` is a directory and `config` is
/// a file.
const CONFIGS: &str = "
    --domain=x.test map.yaml | --domain=x.test -      | kind: ConfigMap
    map.yaml --corefile      | - --corefile           | kind: ConfigMap
    config                   | -                      | kind: Config
    -                        | -                      |
    /dev/null                | -                      |
    missing.yaml             | missing.yaml           |
";

#[tokio::test(flavor = "multi_thread")]
async fn plugin_sends_local_configmap() {
    let server = RunningApiServer::start(Options::default());
    let directory = mk_directory();
    fs::write(directory.path().join("map.yaml"), "kind: ConfigMap").unwrap();
    fs::write(directory.path().join("config"), "kind: Config").unwrap();
    fs::create_dir(directory.path().join("check")).unwrap();

    for [args, exec, stdin] in table::rows(CONFIGS) {
        let output = run(&directory, &server, &format!("--pod=a check config {args}"));
        let exec = format!(
            "--namespace=kube-system exec --stdin a --container=kubedns -- /kube-dns check config {exec}\n"
        );
        let expected = (Some(3), format!("{exec}{stdin}"), String::new());
        assert_eq!(texts(&output), expected, "{args}");
    }

    fs::remove_file(directory.path().join("config")).unwrap();
    fs::create_dir(directory.path().join("config")).unwrap();
    let output = run(&directory, &server, "--pod=a check config map.yaml");
    assert_eq!(output.status.code(), Some(3), "{output:?}");
}

/// The arguments of `kubectl dns`, and the error that they cause.
const MISTAKES: &str = "
                   | no command: one of explain, check, tap, top is accepted
    explian web    | unknown word explian: one of explain, check, tap, top is accepted
    --pod          | --pod needs a value
    check config . | . is a directory: a file or - is accepted
";

#[tokio::test(flavor = "multi_thread")]
async fn wrong_arguments_are_reported_with_hint() {
    let server = RunningApiServer::start(Options::default());
    let directory = mk_directory();
    for [args, mistake] in table::rows(MISTAKES) {
        let output = run(&directory, &server, args);
        let stderr = format!("kubectl dns: {mistake}\nsee kubectl dns --help\n");
        assert_eq!(texts(&output), (Some(2), String::new(), stderr), "{args}");
    }
    let (status, help, stderr) = texts(&run(&directory, &server, "--help"));
    assert_eq!((status, stderr.as_str()), (Some(0), ""));
    assert!(help.starts_with("Runs a command of kube-dns in a pod of kube-dns.\n"));
}
