//! Failed starts and their error texts, faults that must not prevent a start, and the status and
//! metrics pages.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::Path;

use serde_json::Value;
use testkit::eventually;
use testkit::http;
use testkit::ports::{free_port, ipv6_is_here};
use testkit::process::Program;

use super::rig::{NannySetup, PATIENCE};

/// Starts the nanny with these arguments; returns its exit status and its standard error.
async fn fails(words: &[&str]) -> (i32, String) {
    let mut nanny = Program::at(Path::new(env!("CARGO_BIN_EXE_nanny")))
        .args(words)
        .start();
    let status = nanny.wait(PATIENCE).await;
    (status.code().unwrap(), nanny.stderr().join("\n"))
}

#[tokio::test]
async fn bad_flag_is_rejected_with_error_text_of_go() {
    let unknown = "flag provided but not defined: -no-such-flag";
    let sync = "invalid value \"5\" for flag -syncInterval: parse error";
    let restart = "invalid boolean value \"maybe\" for -restartDnsmasq: parse error";
    let log = "invalid value \"x\" for flag -logInterval: parse error";
    for (word, text) in [
        ("-no-such-flag", unknown),
        ("-syncInterval=5", sync),
        ("-restartDnsmasq=maybe", restart),
        ("-logInterval=x", log),
    ] {
        let (code, log) = fails(&[word]).await;
        assert_eq!(code, 2, "{log}");
        assert!(log.starts_with(text), "{log}");
    }
}

#[tokio::test]
async fn bad_values_exit_with_reason_in_last_line() {
    let missing = "cannot execute /nonexistent: No such file or directory";
    let echo = "/bin/echo is not dnsmasq: /bin/echo --version printed";
    let server = "-kubednsServer: cannot look up no.such.invalid:10053: ";
    let domain = "-kubednsDomain: \"a_b\" is not a domain name";
    let state = "cannot use the state directory \"/proc/nowhere\"";
    for (words, text) in [
        (&["-dnsmasqExec=/nonexistent"][..], missing),
        (&["-dnsmasqExec=/bin/echo"], echo),
        (&["-kubednsServer=no.such.invalid:10053"], server),
        (&["-kubednsDomain=a_b"], domain),
        (&["-stateDir=/proc/nowhere", "--", "-k"], state),
    ] {
        let (code, log) = fails(words).await;
        assert_eq!(code, 255, "{log}");
        let last = log.lines().last().unwrap_or_default();
        assert!(last.starts_with('E') && last.contains(text), "{log}");
    }
}

/// The nanny of Kubernetes' kube-dns starts with each of these command lines, so existing manifests
/// may have them.
#[tokio::test]
async fn odd_values_do_not_prevent_start() {
    for flags in [
        &["-syncInterval=-1s"][..],
        &["-syncInterval=0"],
        &["-kubednsServer=localhost:10053"],
        &["-kubednsServer=localhost"],
        &["false", "-no-such-flag"],
    ] {
        let plan = flags
            .iter()
            .fold(NannySetup::new(), |plan, flag| plan.flag(*flag));
        plan.start().await.end().await;
    }
}

#[tokio::test]
async fn port_in_use_is_reported_with_error_of_dnsmasq() {
    let plan = NannySetup::new();
    let _taken = UdpSocket::bind(plan.server()).unwrap();
    let (code, log) = plan.spawn().ended().await;
    assert_eq!(code, Some(255));
    let last = log.lines().last().unwrap_or_default();
    let start = "dnsmasq did not start: exit status 2 (it cannot use the network";
    let end = "failed to create listening socket for 127.0.0.1: Address already in use";
    assert!(last.contains(start) && last.ends_with(end), "{log}");
}

#[tokio::test]
async fn wrong_argument_is_reported_with_error_of_dnsmasq() {
    let plan = NannySetup::new().dnsmasq("--no-such-option");
    let (code, log) = plan.spawn().ended().await;
    assert_eq!(code, Some(255));
    let text = "exit status 1 (its arguments or configuration are wrong): bad command line options: try --help";
    let last = log.lines().last().unwrap_or_default();
    assert!(last.ends_with(text), "{log}");
}

#[tokio::test]
async fn missing_config_directory_and_taken_status_port_are_tolerated() {
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = taken.local_addr().unwrap();
    let plan = NannySetup::new()
        .flag(format!("-statusAddr={address}"))
        .flag("-configDir=/nonexistent/config");
    let mut rig = plan.start().await;
    let line = rig.logs("the status page is unavailable").await;
    assert!(
        line.contains(&format!(
            "cannot listen on {address}: Address already in use"
        )),
        "{line}"
    );

    drop(taken);
    eventually(PATIENCE, || async {
        http::get(address, "/healthz").await.is_ok()
    })
    .await;
    rig.end().await;
}

#[tokio::test]
async fn status_address_without_host_binds_wildcard() {
    let port = free_port();
    let rig = NannySetup::new()
        .flag(format!("-statusAddr=:{port}"))
        .start()
        .await;
    let mut addresses = vec![SocketAddr::from((Ipv4Addr::LOCALHOST, port))];
    addresses.extend(ipv6_is_here().then_some(SocketAddr::from((Ipv6Addr::LOCALHOST, port))));
    for address in addresses {
        let status = http::get(address, "/healthz").await.unwrap().status;
        assert_eq!(status, 200, "{address}");
    }
    rig.end().await;
}

#[tokio::test]
async fn status_health_and_metrics_are_served() {
    let (plan, page) = NannySetup::new().with_status_page();
    let mut rig = plan
        .config(&[("stubDomains", r#"{"acme.test": ["192.0.2.1"]}"#)])
        .start()
        .await;
    let get = |path| async move { http::get(page, path).await.unwrap() };
    assert_eq!(get("/healthz").await.status, 200);
    let status = get("/status").await.body;
    assert!(
        status.contains("\"acme.test\": [\n        \"192.0.2.1:53\"\n"),
        "{status}"
    );
    let good = ["nanny_dnsmasq_up 1", "nanny_config_error 0"];
    exports(page, &good).await;
    exports(page, &["nanny_stub_domains 1"]).await;
    rig.config(&[("stubDomains", "{")]);
    let has_error = |status: &Value| status["configuration"]["error"].is_object();
    rig.status_with("error", has_error).await;
    let bad = ["nanny_config_error 1", "nanny_config_rejected_total 1"];
    exports(page, &bad).await;
    exports(page, &["nanny_stub_domains 1"]).await;
    rig.end().await;
}

/// Checks that `/metrics` has these lines.
async fn exports(page: SocketAddr, lines: &[&str]) {
    let metrics = http::get(page, "/metrics").await.unwrap().body;
    for line in lines {
        let is_there = metrics.lines().any(|found| found == *line);
        assert!(is_there, "{line} is not in {metrics}");
    }
}
