//! Edits of the `ConfigMap` and of resolv.conf while dnsmasq runs.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use testkit::message::Message;
use testkit::ports::free_port;
use testkit::query::Query;
use testkit::reply::Reply;
use testkit::upstream::{Asked, Reaction, Upstream};
use testkit::{client, eventually};

use super::rig::{NannyRig, NannySetup, PATIENCE, at, routes, stubs};

#[tokio::test]
async fn swapped_servers_take_effect_within_second() {
    let outside = Upstream::answering("192.0.2.1").await;
    let stub = Upstream::answering("192.0.2.11").await;
    let with_stub = routes(&outside, &[("acme.test", &stub)]);
    let mut rig = NannySetup::new().forwarding_to(&outside).start().await;
    let mut times = Vec::new();
    for _ in 0..5 {
        // The answers have a TTL of an hour, so only a flush of the cache changes the answer.
        rig.until("www.acme.test.", "192.0.2.1").await;
        rig.config(&with_stub);
        times.push(timed(&rig, "192.0.2.11").await);
        rig.forward_to(&outside);
        times.push(timed(&rig, "192.0.2.1").await);
    }
    times.sort();
    println!("{times:?}");
    // Only the median is checked, because a busy machine is sometimes slow.
    assert!(times[times.len() / 2] < Duration::from_secs(1), "{times:?}");
    rig.end().await;
}

async fn timed(rig: &NannyRig, expected: &str) -> Duration {
    let swapped = Instant::now();
    rig.until("www.acme.test.", expected).await;
    swapped.elapsed()
}

#[tokio::test]
async fn query_for_removed_server_is_lost_only_by_hasty_reload() {
    let outside = Upstream::answering("192.0.2.1").await;
    let slow = Upstream::start(|asked: &Asked| {
        let reply =
            Reply::to(&asked.packet).answer(&format!("{} 60 IN A 192.0.2.11", asked.name()));
        Reaction::from(reply).after(Duration::from_millis(150))
    })
    .await;
    let with_stub = routes(&outside, &[("acme.test", &slow)]);
    let mut rig = NannySetup::new().forwarding_to(&outside).start().await;
    for round in 0..5 {
        rig.config(&with_stub);
        rig.until(&format!("before{round}.acme.test."), "192.0.2.11")
            .await;
        let query = Query::new(&format!("during{round}.acme.test."), "A").wire();
        let (server, asked) = (rig.server(), slow.count());
        let (answer, ()) =
            tokio::join!(client::udp(server, &query, Duration::from_secs(3)), async {
                eventually(PATIENCE, || std::future::ready(slow.count() > asked)).await;
                rig.forward_to(&outside);
            });
        let answer = answer.map(|wire| Message::parse(&wire).unwrap().answer_data("A").join(" "));
        assert!(
            answer.is_ok() || rig.hasty_reloads() > 0,
            "round {round}: the query was lost, although each reload waited until no query was pending"
        );
        let answer = answer.unwrap_or_else(|_| "192.0.2.11".to_owned());
        assert_eq!(answer, "192.0.2.11");
        rig.until(&format!("after{round}.acme.test."), "192.0.2.1")
            .await;
    }
    rig.end().await;
}

/// With `--query-port`, all forwarded queries share a socket, so the nanny cannot know whether one
/// of them waits for the removed server. It reloads without waiting, and counts a hasty reload.
#[tokio::test]
async fn reload_with_query_port_is_hasty() {
    let first = Upstream::answering("192.0.2.1").await;
    let second = Upstream::answering("192.0.2.2").await;
    let query_port = format!("--query-port={}", free_port());
    let plan = NannySetup::new().dnsmasq(query_port).forwarding_to(&first);
    let mut rig = plan.start().await;
    rig.until("before.outside.test.", "192.0.2.1").await;
    rig.forward_to(&second);
    rig.until("after.outside.test.", "192.0.2.2").await;
    assert_eq!(rig.hasty_reloads(), 1);
    rig.end().await;
}

#[tokio::test]
async fn previous_configuration_survives_bad_edit_and_restart() {
    let outside = Upstream::answering("192.0.2.1").await;
    let stub = Upstream::answering("192.0.2.11").await;
    let with_stub = routes(&outside, &[("acme.test", &stub)]);
    let mut rig = NannySetup::new().config(&with_stub).start().await;
    let before = rig.status();

    rig.config(&[
        ("upstreamNameservers", "[]"),
        ("stubDomains", r#"{"a\nserver=192.0.2.66": ["192.0.2.1"]}"#),
    ]);
    let has_error = |status: &Value| status["configuration"]["error"].is_object();
    let status = rig.status_with("error", has_error).await;
    assert_eq!(status["configuration"]["error"]["key"], "stubDomains");
    let text = status["configuration"]["error"]["text"].as_str().unwrap();
    assert!(
        text.starts_with(r#"invalid domain name: "a\nserver=192.0.2.66""#),
        "{text}"
    );
    assert_eq!(status["configuration"]["rejected"], 1);
    let found = &status["configuration"]["version"];
    assert_eq!(*found, before["configuration"]["version"]);
    assert_eq!(status["routes"], before["routes"]);
    rig.logs("configuration rejected, keeping the previous one")
        .await;

    rig.signal(Signal::SIGKILL);
    rig.restarted("died").await;
    rig.until("www.acme.test.", "192.0.2.11").await;
    rig.until("www.outside.test.", "192.0.2.1").await;
    rig.end().await;
}

#[tokio::test]
async fn unwritable_edit_stays_pending() {
    let first = Upstream::answering("192.0.2.1").await;
    let second = Upstream::answering("192.0.2.2").await;
    let mut rig = NannySetup::new().forwarding_to(&first).start().await;
    // A directory blocks the path of the new servers file. Other files can be written.
    let obstacle = rig.path("state/servers.conf.new");
    fs::create_dir(&obstacle).unwrap();
    rig.forward_to(&second);
    let (status, reason) = rig.pending_routes().await;
    let unwritable = "cannot write the servers file";
    assert!(reason.starts_with(unwritable), "{reason}");
    let upstreams = |status: &Value| status["routes"]["upstreams"].clone();
    assert_eq!(
        upstreams(&status),
        json!([at(&first)]),
        "the first server must be in force"
    );
    rig.until("before.outside.test.", "192.0.2.1").await;

    // A dnsmasq restarted meanwhile also has the old servers.
    rig.signal(Signal::SIGKILL);
    let status = rig.restarted("died").await;
    assert_eq!(
        upstreams(&status),
        json!([at(&first)]),
        "the first server must still be in force"
    );
    rig.until("meanwhile.outside.test.", "192.0.2.1").await;

    fs::remove_dir(&obstacle).unwrap();
    let is_pending = |status: &Value| !status["routes"]["pending"].is_null();
    let status = rig
        .status_with("no pending routes", |status| !is_pending(status))
        .await;
    assert_eq!(upstreams(&status), json!([at(&second)]));
    rig.until("after.outside.test.", "192.0.2.2").await;
    let told = rig.logged(unwritable);
    assert_eq!(told, 1, "the reason must be logged only once");
    rig.end().await;
}

#[tokio::test]
async fn resolv_conf_supplies_upstream_servers() {
    let outside = Upstream::answering("192.0.2.1").await;
    let plan = NannySetup::new().resolv_conf("nameserver 198.51.100.1\nnameserver 198.51.100.2\n");
    let mut rig = plan.start().await;
    let dnsmasq = rig.dnsmasq();
    let upstreams = |status: &Value| status["routes"]["upstreams"].clone();
    let forwarded = upstreams(&rig.status());
    assert_eq!(forwarded, json!(["198.51.100.1:53", "198.51.100.2:53"]));
    assert_eq!(rig.status()["routes"]["listsAllUpstreams"], true);

    rig.forward_to(&outside);
    rig.until("www.outside.test.", "192.0.2.1").await;
    let is_configured = |status: &Value| status["routes"]["upstreamsFrom"] == "configuration";
    rig.status_with("configured servers", is_configured).await;

    rig.resolv_conf("nameserver 198.51.100.3\n");
    rig.clear_config();
    rig.status_with("servers of the new file", |status| {
        upstreams(status) == json!(["198.51.100.3:53"])
    })
    .await;
    // The file is truncated and written again, as by an editor.
    rig.resolv_conf("");
    rig.resolv_conf("nameserver 198.51.100.4\n");
    rig.status_with("servers of the newest file", |status| {
        upstreams(status) == json!(["198.51.100.4:53"])
    })
    .await;
    let file = fs::read_to_string(rig.path("state/servers.conf")).unwrap();
    assert!(file.ends_with("\nserver=198.51.100.4\n"), "{file}");
    assert_eq!(rig.dnsmasq(), dnsmasq, "dnsmasq must not be restarted");
    rig.end().await;
}

#[tokio::test]
async fn user_options_are_honoured() {
    let own = Upstream::answering("192.0.2.5").await;
    let stub = Upstream::answering("192.0.2.11").await;
    let own_at = at(&own).replace(':', "#");
    let plan = NannySetup::new().resolv_conf("nameserver 198.51.100.1\n");
    // dnsmasq accepts comments that are not UTF-8.
    let mut lines = b"# caf\xe9\n".to_vec();
    lines.extend(format!("server=/own.test/{own_at}\n").into_bytes());
    fs::write(plan.path("own"), lines).unwrap();
    let own_file = format!("--servers-file={}", plan.path("own").display());
    let plan = plan
        .dnsmasq("--no-resolv")
        .dnsmasq(own_file)
        .dnsmasq(format!("--server=/fixed.test/{own_at}"));
    let stub_domains = [("stubDomains", stubs(&[("acme.test", &stub)]))];
    let mut rig = plan.config(&stub_domains).start().await;
    let routes = rig.status()["routes"].clone();
    assert_eq!(routes["upstreams"], json!([]), "--no-resolv");
    assert_eq!(routes["listsAllUpstreams"], false, "--servers-file");
    for (name, expected) in [
        ("www.own.test.", "192.0.2.5"),
        ("www.fixed.test.", "192.0.2.5"),
        ("www.acme.test.", "192.0.2.11"),
        ("www.outside.test.", "REFUSED"),
    ] {
        rig.until(name, expected).await;
    }
    rig.clear_config();
    rig.until("www.acme.test.", "REFUSED").await;
    rig.until("www.own.test.", "192.0.2.5").await;
    rig.end().await;
}

#[tokio::test]
async fn server_order_is_kept() {
    let first = Upstream::answering("192.0.2.1").await;
    let second = Upstream::answering("192.0.2.2").await;
    let servers = json!([at(&first), at(&second)]).to_string();
    let plan = NannySetup::new()
        .dnsmasq("--strict-order")
        .config(&[("upstreamNameservers", &servers)]);
    let rig = plan.start().await;
    rig.until_all("192.0.2.1").await;
    let has_asked = second.asked().iter().any(|asked| asked.rtype() == "A");
    assert!(
        !has_asked,
        "the second server must get only probes for loops"
    );
    rig.end().await;
}

#[tokio::test]
async fn configuration_is_read_once_if_restarts_are_disabled() {
    let outside = Upstream::answering("192.0.2.1").await;
    let stub = Upstream::answering("192.0.2.11").await;
    let plan = NannySetup::new()
        .flag("-restartDnsmasq=false")
        .flag("-syncInterval=100ms");
    let stub_domains = [("stubDomains", stubs(&[("acme.test", &stub)]))];
    let mut rig = plan.config(&stub_domains).start().await;
    assert_eq!(rig.status()["configuration"]["editsBy"], "none");
    rig.until("www.acme.test.", "192.0.2.11").await;
    rig.forward_to(&outside);
    // The nanny still follows resolv.conf. If the nanny still read the ConfigMap, it would apply
    // the edit before the new resolv.conf is in force.
    rig.resolv_conf("nameserver 198.51.100.9\n");
    let status = rig
        .status_with("the new file", |status| {
            status["routes"]["upstreams"] != json!([])
        })
        .await;
    assert_eq!(status["routes"]["upstreams"], json!(["198.51.100.9:53"]));
    assert_eq!(status["configuration"]["edits"], 0);
    rig.until("www.acme.test.", "192.0.2.11").await;
    rig.end().await;
}

#[tokio::test]
async fn edit_restarts_dnsmasq_only_after_accepted_trial() {
    let first = Upstream::answering("192.0.2.11").await;
    let second = Upstream::answering("192.0.2.12").await;
    let plan = NannySetup::new().with_own_servers_file();
    let stub_domains = |server| [("stubDomains", stubs(&[("acme.test", server)]))];
    let mut rig = plan.config(&stub_domains(&first)).start().await;
    assert_eq!(rig.status()["configuration"]["editsBy"], "restart");
    let before = rig.dnsmasq();
    rig.until("www.acme.test.", "192.0.2.11").await;
    rig.config(&stub_domains(&second));
    rig.until("www.acme.test.", "192.0.2.12").await;
    let status = rig.restarted("configuration").await;
    let end = &status["dnsmasq"]["lastEnd"];
    assert_eq!(*end, "exit status 0 (no error)");
    let replaced = rig.dnsmasq();
    assert_ne!(replaced, before);

    // Before a restart, the nanny tries the new arguments with `dnsmasq --test`. This trial fails
    // here, because the configuration file has an unknown option.
    fs::write(rig.path("dnsmasq.conf"), "no-such-option\n").unwrap();
    rig.config(&stub_domains(&first));
    let line = rig
        .logs("dnsmasq has not accepted the new arguments: exit status 1")
        .await;
    assert!(line.contains("bad option at line 1 of"), "{line}");
    rig.until("www.acme.test.", "192.0.2.12").await;
    assert_eq!(rig.dnsmasq(), replaced);
    let routed = |status: &Value| status["routes"]["stubDomains"]["acme.test"].clone();
    assert_eq!(
        routed(&rig.status()),
        json!([at(&second)]),
        "the second server must be in force"
    );

    // The trial is repeated without another edit.
    fs::write(rig.path("dnsmasq.conf"), "").unwrap();
    rig.until("www.acme.test.", "192.0.2.11").await;
    rig.status_with("new routes", |status| {
        routed(status) == json!([at(&first)]) && status["routes"]["pending"].is_null()
    })
    .await;
    rig.end().await;
}

#[tokio::test]
async fn edit_during_trial_takes_effect() {
    let first = Upstream::answering("192.0.2.11").await;
    let second = Upstream::answering("192.0.2.12").await;
    let third = Upstream::answering("192.0.2.13").await;
    let stub_domains = |server| [("stubDomains", stubs(&[("acme.test", server)]))];

    // A dnsmasq whose trials last until the test ends them.
    let setup = NannySetup::new().with_own_servers_file();
    let program = setup.path("dnsmasq.sh");
    let trial = setup.path("trial");
    let script = format!(
        "#!/bin/sh\n\
         if [ \"$1\" = --test ]; then\n\
           touch {trial}.begun\n\
           while [ ! -e {trial}.ended ]; do sleep 0.05; done\n\
         fi\n\
         exec /usr/sbin/dnsmasq \"$@\"\n",
        trial = trial.display()
    );
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    let setup = setup.flag(format!("-dnsmasqExec={}", program.display()));
    let mut rig = setup.config(&stub_domains(&first)).start().await;

    rig.config(&stub_domains(&second));
    eventually(PATIENCE, || {
        let begun = fs::metadata(trial.with_extension("begun"));
        async move { begun.map(drop).map_err(|error| error.to_string()) }
    })
    .await;
    rig.config(&stub_domains(&third));
    rig.status_with("second edit", |status| {
        status["configuration"]["edits"] == 2
    })
    .await;
    fs::write(trial.with_extension("ended"), "").unwrap();

    rig.until("www.acme.test.", "192.0.2.13").await;
    rig.end().await;
}
