//! The `apiserver` binary as a process.

use std::process::{ExitStatus, Stdio};

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::client::{PATIENCE, eventually, get};

fn apiserver(args: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_apiserver"))
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

/// Waits for its end; what it wrote to standard error.
async fn ended(mut child: Child) -> (ExitStatus, String) {
    let mut text = String::new();
    child.stderr.take().unwrap().read_to_string(&mut text).await.unwrap();
    let status = timeout(PATIENCE, child.wait()).await.expect("it ends in time").unwrap();
    (status, text)
}

/// The URL it prints.
async fn url(child: &mut Child) -> String {
    let mut line = String::new();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    timeout(PATIENCE, stdout.read_line(&mut line)).await.expect("a line in time").unwrap();
    line.trim().to_owned()
}

#[tokio::test]
async fn serves_manifests_and_follows_them() {
    let directory = tempfile::tempdir().unwrap();
    let write = |port: u16| {
        let text = format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: web}}\nspec: {{ports: [{{port: {port}}}]}}\n"
        );
        std::fs::write(directory.path().join("web.yaml"), text).unwrap();
    };
    write(80);
    let manifests = directory.path().to_str().unwrap();
    let mut child =
        apiserver(&["--listen", "127.0.0.1:0", "--manifests", manifests, "--manifests-period", "1"]);
    let url = url(&mut child).await;
    let address = url.strip_prefix("http://").unwrap().parse().unwrap();
    let port = async || {
        let service = get(address, "/api/v1/namespaces/default/services/web").await;
        if service.code == 200 { service.json()["spec"]["ports"][0]["port"].as_u64() } else { None }
    };
    assert_eq!(port().await, Some(80));
    write(81);
    eventually("the edit is followed", async || port().await == Some(81)).await;
    std::fs::write(directory.path().join("web.yaml"), "kind: [").unwrap();
    std::fs::write(
        directory.path().join("other.yaml"),
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: other}\n",
    )
    .unwrap();
    let other = async || get(address, "/api/v1/namespaces/default/configmaps/other").await.code == 200;
    eventually("the next file is read", other).await;
    assert_eq!(port().await, Some(81), "the last good state");

    let id = child.id().unwrap().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().await.unwrap().success());
    let (status, log) = ended(child).await;
    assert!(status.success(), "{log}");
    let complaints: Vec<&str> = log.lines().filter(|line| line.contains("web.yaml")).collect();
    assert!(matches!(complaints.as_slice(), [one] if one.contains("not understood")), "{log}");
}

#[tokio::test]
async fn mistakes_get_one_line() {
    let held = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = held.local_addr().unwrap().to_string();
    let cases: [(&[&str], i32, &str); 6] = [
        (&["--nonsense"], 2, "unexpected argument '--nonsense' found"),
        (&["--listen", "nowhere"], 2, "invalid value 'nowhere' for '--listen <ADDRESS>'"),
        (
            &["--service-cluster-ip-range", "10.0.0.0/16,10.1.0.0/16"],
            1,
            "service ranges: one, or one IPv4 and one IPv6",
        ),
        (
            &["--listen", "127.0.0.1:0", "--manifests", "/nonexistent"],
            1,
            "cannot read the manifests in /nonexistent",
        ),
        (&["--listen", &taken], 1, "cannot listen on 127.0.0.1:"),
        (&["--bookmark-period", "0"], 2, "invalid value '0'"),
    ];
    for (args, code, message) in cases {
        let (status, text) = ended(apiserver(args)).await;
        assert_eq!(status.code(), Some(code), "{args:?}: {text}");
        assert_eq!(text.lines().count(), 1, "{args:?}: {text}");
        assert!(text.starts_with("apiserver: ") && text.contains(message), "{args:?}: {text}");
    }
    drop(held);
}

#[tokio::test]
async fn help_says_what_there_is() {
    let output = apiserver(&["--help"]).wait_with_output().await.unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    for flag in ["--listen", "--manifests", "--service-cluster-ip-range", "--enable-faults"] {
        assert!(text.contains(flag), "{text}");
    }
}
