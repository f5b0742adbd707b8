//! Faults of failing pods, the verdict on a series of faults, and the exported metrics.

use std::time::Duration;

use reports::sidecar::{
    ContainerEnd, ContainerHistory, ContainerRestart, DnsmasqUpstream, PeerReport, PodPart,
    ProbeResult, ProbeState, ProbeStatus, UpstreamCondition,
};

use testkit::table;

use super::*;
use crate::example::{good, probe, told, upstream};

/// The kind, text and detail of each fault.
fn found(status: &SidecarStatus) -> Vec<String> {
    let show = |found: &PodFault| {
        let detail = if found.detail.is_empty() {
            String::new()
        } else {
            format!(" ({})", found.detail)
        };
        format!("{}: {}{detail}", found.kind.label(), found.text)
    };
    find_faults(status).iter().map(show).collect()
}

fn kubedns(text: &str) -> SidecarStatus {
    let base = "kubedns_synced 1\nkubedns_watch_connected{kind=\"services\"} 1\n";
    SidecarStatus {
        kubedns: told(KubednsReport::from_metrics(&format!("{base}{text}"))),
        ..good()
    }
}

fn nanny(json: &str) -> SidecarStatus {
    SidecarStatus {
        nanny: told(NannyStatus::parse(json).unwrap()),
        ..good()
    }
}

fn probed(probes: Vec<ProbeStatus>) -> SidecarStatus {
    SidecarStatus { probes, ..good() }
}

/// dnsmasq with these upstreams.
fn forwarding(upstreams: Vec<DnsmasqUpstream>) -> SidecarStatus {
    let mut status = good();
    status.dnsmasq.as_mut().unwrap().upstreams = upstreams;
    status
}

/// kubedns with these routes and upstreams, each up (1) or down (0).
fn routes(routes: &[(&str, &str, u8)]) -> SidecarStatus {
    let lines = routes.iter().map(|(route, upstream, up)| {
        format!("kubedns_forward_upstream_up{{route=\"{route}\",upstream=\"{upstream}\"}} {up}\n")
    });
    let status = kubedns(&lines.collect::<String>());
    SidecarStatus {
        nanny: told(NannyStatus::parse(r#"{"routes":{"upstreamsFrom":"kubedns"}}"#).unwrap()),
        dnsmasq: None,
        ..status
    }
}

#[test]
fn healthy_pod_has_no_faults() {
    assert_eq!(found(&good()), [""; 0]);
    // Unknown values are not faults.
    let unknown = SidecarStatus {
        kubedns: PeerReport::default(),
        nanny: PeerReport {
            error: Some("refused".to_owned()),
            ..PeerReport::default()
        },
        ..good()
    };
    assert_eq!(found(&unknown), [""; 0]);
}

/// The probes while kubedns refuses cluster names.
fn refused_probes() -> Vec<ProbeStatus> {
    vec![
        probe(PodPart::Kubedns, ProbeState::SelfOnly, "no RRs"),
        probe(PodPart::Dnsmasq, ProbeState::SelfOnly, "no RRs"),
    ]
}

#[test]
fn probe_results_give_expected_faults() {
    let timeout = |part, state| probe(part, state, "i/o timeout");
    let kubedns_fails = timeout(PodPart::Kubedns, ProbeState::Failed);
    // The time of the status `good` is 1,795,208,055,000, in milliseconds since 1970.
    let failed_twice_after = |answer| ProbeStatus {
        failures: 2,
        history: vec![ProbeResult {
            at: answer,
            state: ProbeState::Ok,
            latency_ms: 0.7,
        }],
        ..kubedns_fails.clone()
    };
    let lost = failed_twice_after(1_795_208_050_000);
    let silent = failed_twice_after(1_795_208_047_000);
    let waiting = ProbeStatus {
        failures: 0,
        ..probe(PodPart::Kubedns, ProbeState::Waiting, "")
    };
    let kubedns_well = probe(PodPart::Kubedns, ProbeState::Ok, "");
    let dnsmasq_alone = timeout(PodPart::Dnsmasq, ProbeState::SelfOnly);
    let dnsmasq_fails = timeout(PodPart::Dnsmasq, ProbeState::Failed);
    let other_fails = probe(PodPart::Other, ProbeState::Failed, "no RRs");
    let refusing = |metrics| SidecarStatus {
        probes: refused_probes(),
        ..kubedns(metrics)
    };

    let hangs = "kubedns_silent: kubedns does not answer (i/o timeout)";
    let cut_off = "names_unanswered: dnsmasq does not answer kubernetes.default.svc.cluster.local. (i/o timeout)";
    let dnsmasq_hangs = "dnsmasq_silent: dnsmasq does not answer (i/o timeout)";
    let own = "probe_fails: the probe other fails (no RRs)";
    let starting = "starting: no probe has ended yet";
    let not_synced = "not_synced: kubedns refuses cluster names: its first lists from the API server are incomplete";
    let not_yet = "starting: kubedns waits for its first lists from the API server";
    let hung = probed(vec![kubedns_fails, dnsmasq_alone.clone()]);
    let separated = probed(vec![kubedns_well, dnsmasq_alone]);
    let late = refusing("kubedns_synced 0\nkubedns_initial_sync_overdue 1\n");
    let early = refusing("kubedns_synced 0\nkubedns_initial_sync_overdue 0\n");
    let stale = SidecarStatus {
        probes: vec![probe(PodPart::Kubedns, ProbeState::SelfOnly, "no RRs")],
        ..kubedns("kubedns_synced 0\nkubedns_stale 1\n")
    };
    let missing =
        "names_unanswered: kubedns does not answer kubernetes.default.svc.cluster.local. (no RRs)";
    let of_snapshot = "serving_stale: kubedns serves the records of its snapshot file";
    assert_eq!(found(&stale), [missing, of_snapshot]);
    for (case, status, expected) in [
        ("lost packets", probed(vec![lost]), None),
        ("silence", probed(vec![silent]), Some(hangs)),
        ("kubedns hangs", hung, Some(hangs)),
        ("dnsmasq is cut off from kubedns", separated, Some(cut_off)),
        (
            "dnsmasq hangs",
            probed(vec![dnsmasq_fails]),
            Some(dnsmasq_hangs),
        ),
        (
            "a probe of the user's own",
            probed(vec![other_fails]),
            Some(own),
        ),
        ("the first seconds", probed(vec![waiting]), Some(starting)),
        ("not synced", late, Some(not_synced)),
        ("not synced yet", early, Some(not_yet)),
    ] {
        assert_eq!(found(&status), Vec::from_iter(expected), "{case}");
    }
}

/// With `--health=through`, a server that refuses the probed name has the state `Failed`, like a
/// silent server.
#[test]
fn server_that_refuses_the_name_is_not_silent() {
    let refuses = |part| ProbeStatus {
        rcode: "REFUSED".to_owned(),
        ..probe(part, ProbeState::Failed, "no RRs")
    };
    let parts = [PodPart::Kubedns, PodPart::Dnsmasq];
    let texts = found(&probed(parts.map(refuses).to_vec()));
    let name = "kubernetes.default.svc.cluster.local.";
    let unanswered = ["kubedns", "dnsmasq"]
        .map(|part| format!("names_unanswered: {part} does not answer {name} (no RRs)"));
    assert_eq!(texts, unanswered);
}

#[test]
fn upstreams_are_judged_per_route() {
    let [live, other] = ["192.0.2.1:53", "192.0.2.2:53"];
    let silent = |address, serves: &[&str]| upstream(address, serves, "i/o timeout");
    let fails = |address, serves: &[&str]| DnsmasqUpstream {
        condition: UpstreamCondition::Fails,
        ..silent(address, serves)
    };
    let none = "upstreams_down: external names are not answered: no upstream gives usable answers (192.0.2.2:53)";
    let one =
        "upstream_down: 1 of 2 upstreams for external names gives no usable answers: 192.0.2.2:53";
    let stub = "stub_domain_down: names of acme.local are not answered: none of their servers gives usable answers (192.0.2.2:53)";
    let unproven = "upstreams_unproven: no upstream has given a usable answer for external names yet: 192.0.2.2:53";
    let mixed = "upstreams_unproven: no upstream gives usable answers for external names (down: 192.0.2.1:53; no usable answer yet: 192.0.2.2:53)";
    let refuses_from_start = |serves: &[&str]| DnsmasqUpstream {
        has_answered: false,
        ..fails(other, serves)
    };
    let live_and = |second| forwarding(vec![upstream(live, &["."], ""), second]);
    let only = |upstream| forwarding(vec![upstream]);
    let acme = ["acme.local"];
    let dead = (".", other, 0);
    let up = (".", live, 1);
    let dead_stub = ("acme.local", other, 0);
    for (case, status, expected) in vec![
        ("only one, silent", only(silent(other, &["."])), Some(none)),
        ("unknown domains", only(silent(other, &[])), Some(none)),
        ("one of two", live_and(silent(other, &["."])), Some(one)),
        ("stub silent", live_and(silent(other, &acme)), Some(stub)),
        ("stub fails", only(fails(other, &acme)), Some(stub)),
        (
            "refused after answers",
            only(fails(other, &["."])),
            Some(none),
        ),
        (
            "one of two refused after answers",
            live_and(fails(other, &["."])),
            Some(one),
        ),
        (
            "refused from the start",
            only(refuses_from_start(&["."])),
            Some(unproven),
        ),
        (
            "one is silent, one refuses from the start",
            forwarding(vec![silent(live, &["."]), refuses_from_start(&["."])]),
            Some(mixed),
        ),
        (
            "of unknown purpose, refused from the start",
            only(refuses_from_start(&[])),
            Some(unproven),
        ),
        (
            "one of two refused from the start",
            live_and(refuses_from_start(&[])),
            None,
        ),
        ("the only one of kubedns", routes(&[dead]), Some(none)),
        ("one of two of kubedns", routes(&[up, dead]), Some(one)),
        (
            "stub domain of kubedns",
            routes(&[up, dead_stub]),
            Some(stub),
        ),
    ] {
        assert_eq!(found(&status), Vec::from_iter(expected), "{case}");
    }
}

/// Routes that the nanny reports, and the routes of kubedns that are then reported as down. kubedns
/// is at 127.0.0.1:10053, has the routes `.` and `corp.test`, and all its upstreams are down.
const ROUTES_TO_KUBEDNS: &str = r#"
    {"upstreams":["192.0.2.9:53"],"stubDomains":{"corp.test":["192.0.2.8:53"]}}    |
    {"upstreams":["192.0.2.9:53"],"stubDomains":{"corp.test":["127.0.0.1:10053"]}} | corp.test
    {"upstreams":["192.0.2.9:53"]}                                                 |
    {"upstreams":["127.0.0.1:10053"],"upstreamsFrom":"kubedns"}                    | . corp.test
    {"upstreams":["127.0.0.1:9"],"upstreamsFrom":"kubedns","stubDomains":{"corp.test":["192.0.2.8:53"]}} | .
    {"argumentServers":["127.0.0.1:10053"],"upstreamsFrom":"resolv.conf"}          | . corp.test
    {"argumentServers":["192.0.2.9:53"],"upstreamsFrom":"resolv.conf"}             |
    {"argumentServers":["127.0.0.1:10053"],"loops":["127.0.0.1:10053"]}            |
"#;

#[test]
fn servers_of_kubedns_count_if_dnsmasq_forwards_to_it() {
    let dead = [(".", "192.0.2.1:53", 0), ("corp.test", "192.0.2.2:53", 0)];
    let kubedns = routes(&dead).kubedns;
    for [json, expected] in table::rows(ROUTES_TO_KUBEDNS) {
        let mut of_nanny: serde_json::Value = serde_json::from_str(json).unwrap();
        of_nanny["kubednsServer"] = "127.0.0.1:10053".into();
        let document = serde_json::json!({ "routes": of_nanny }).to_string();
        let status = SidecarStatus {
            kubedns: kubedns.clone(),
            nanny: told(NannyStatus::parse(&document).unwrap()),
            ..forwarding(Vec::new())
        };

        let counted: Vec<String> = routes::route_servers(&status).into_keys().collect();
        assert_eq!(counted.join(" "), expected, "{json}");
        let faults = routes::route_faults(&status);
        let down: Vec<_> = faults.iter().map(|fault| fault.subject.as_str()).collect();
        assert_eq!(down.join(" "), expected, "{json}");
    }
}

/// Routes of the nanny, a route of kubedns with its number of servers, and the program that has no
/// upstream. In all cases, the sidecar's report of dnsmasq has no upstreams.
const MISSING_UPSTREAMS: &str = r#"
    {"upstreamsFrom":"resolv.conf","listsAllUpstreams":true}                                    | . 1 | dnsmasq
    {"upstreamsFrom":"resolv.conf","listsAllUpstreams":false}                                   | . 0 |
    {"upstreamsFrom":"","listsAllUpstreams":true}                                               | . 0 |
    {"upstreamsFrom":"resolv.conf","listsAllUpstreams":true,"upstreams":["192.0.2.9:53"]}       | . 0 |
    {"upstreamsFrom":"resolv.conf","listsAllUpstreams":true,"argumentServers":["192.0.2.9:53"]} | . 0 |
    {"upstreamsFrom":"kubedns","upstreams":["127.0.0.1:10053"]}                                 | . 0 | kubedns
    {"upstreamsFrom":"kubedns","upstreams":["127.0.0.1:10053"]}                                 | . 1 |
    {"upstreamsFrom":"kubedns","upstreams":["127.0.0.1:10053"]}                                 | corp.test 0 |
"#;

#[test]
fn missing_upstreams_are_outage_after_15_seconds() {
    for [json, servers, program] in table::rows(MISSING_UPSTREAMS) {
        let (route, count) = servers.split_once(' ').unwrap();
        let metrics = format!("kubedns_forward_route_servers{{route=\"{route}\"}} {count}\n");
        let document = format!("{{\"routes\":{json}}}");
        let status = SidecarStatus {
            kubedns: kubedns(&metrics).kubedns,
            nanny: told(NannyStatus::parse(&document).unwrap()),
            ..forwarding(Vec::new())
        };

        let mut faults = routes::route_faults(&status).into_iter();
        let fault = faults.next().map(|fault| (fault.text, fault.passes_within));
        let expected = (!program.is_empty()).then(|| {
            let text = format!("external names are not answered: {program} has no upstream");
            (text, Duration::from_secs(15))
        });
        assert_eq!(fault, expected, "{json} {servers}");
        assert_eq!(faults.next(), None);
    }

    let alone = SidecarStatus {
        dnsmasq: None,
        nanny: PeerReport::not_read(),
        ..kubedns("kubedns_forward_route_servers{route=\".\"} 0\n")
    };
    let text = "upstreams_down: external names are not answered: kubedns has no upstream";
    assert_eq!(found(&alone), [text]);
}

/// Each series of `kubedns_upstream_up` is for one route and one of its servers. The series ends
/// when the route no longer has the server.
#[test]
fn upstreams_are_exported_per_route() {
    let metrics = Metrics::new("x").unwrap();
    let verdicts = Verdicts::new("kubedns", true, &metrics).unwrap();
    let exported = |status: &SidecarStatus| {
        verdicts.export_upstreams(status);
        let text = metrics.render().unwrap();
        let lines = text.lines();
        let lines = lines.filter_map(|line| line.strip_prefix("kubedns_upstream_up"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };

    let private = DnsmasqUpstream {
        condition: UpstreamCondition::Fails,
        has_answered: false,
        ..upstream("192.0.2.2:53", &["."], "REFUSED")
    };
    let silent = upstream("192.0.2.3:53", &["acme.local"], "i/o timeout");
    let of_dnsmasq = [
        r#"{route=".",upstream="192.0.2.2:53"} 1"#,
        r#"{route="acme.local",upstream="192.0.2.3:53"} 0"#,
    ];
    assert_eq!(exported(&forwarding(vec![private, silent])), of_dnsmasq);

    let servers = [(".", "192.0.2.2:53", 0), (".", "tls://192.0.2.4:853", 1)];
    let of_kubedns = [
        r#"{route=".",upstream="192.0.2.2:53"} 0"#,
        r#"{route=".",upstream="tls://192.0.2.4:853"} 1"#,
    ];
    assert_eq!(exported(&routes(&servers)), of_kubedns);
}

/// Loops through kubedns or dnsmasq, with and without another server for external names. Without
/// another server, the outage is reported instead of the loop.
#[test]
fn loop_without_other_server_is_outage() {
    let outage = "upstreams_down: external names are not answered: each of their upstreams forwards back to this pod";
    let is_outage = |status: &SidecarStatus| {
        let found = found(status);
        let is_loop = |text: &String| text.starts_with("forwarding_loop: ");
        let is_outage = found.iter().any(|text| text.starts_with(outage));
        assert_ne!(is_outage, found.iter().any(is_loop), "{found:?}");
        is_outage
    };

    let of_kubedns = |servers: &[(&str, &str, u8)]| {
        let mut status = routes(servers);
        let kubedns = status.kubedns.known.as_mut().unwrap();
        kubedns.forward_loops = 1.0;
        status
    };
    assert!(is_outage(&of_kubedns(&[("acme.local", "192.0.2.1:53", 1)])));
    assert!(!is_outage(&of_kubedns(&[(".", "192.0.2.1:53", 1)])));

    let of_dnsmasq = |servers: &[&str]| SidecarStatus {
        nanny: told(NannyStatus::parse(r#"{"routes":{"loops":["192.0.2.1:53"]}}"#).unwrap()),
        ..forwarding(
            servers
                .iter()
                .map(|server| upstream(server, &["."], ""))
                .collect(),
        )
    };
    assert!(is_outage(&of_dnsmasq(&[])));
    assert!(is_outage(&of_dnsmasq(&["192.0.2.1:53"])));
    assert!(!is_outage(&of_dnsmasq(&["192.0.2.1:53", "192.0.2.2:53"])));
}

#[test]
fn repeated_ends_of_dnsmasq_are_fault() {
    // The time of the status is 20:54:15.
    let hang = "a hang: it did not answer its probes, and the nanny killed it";
    let old = ("2026-11-20T20:44:10Z", hang);
    let [first, second] = [
        ("2026-11-20T20:45:00Z", hang),
        ("2026-11-20T20:50:00Z", hang),
    ];
    let killed = ("2026-11-20T20:54:00Z", "killed by SIGKILL");
    let twice = "dnsmasq_restarts: dnsmasq ended 3 times within ten minutes (2 \u{d7} a hang: it did not answer its probes, and the nanny killed it; 1 \u{d7} killed by SIGKILL)";
    for (ends, expected) in [
        (vec![first, second, killed], Some(twice)),
        (vec![old, second, killed], None),
        (vec![second, killed], None),
        (vec![("yesterday", hang), second, killed], None),
    ] {
        let recent: Vec<_> = ends
            .iter()
            .map(|(at, how)| serde_json::json!({"at": at, "how": how}))
            .collect();
        let json = serde_json::json!({"dnsmasq": {"recentEnds": recent}}).to_string();
        assert_eq!(found(&nanny(&json)), Vec::from_iter(expected), "{ends:?}");
    }
}

#[test]
fn repeated_restarts_of_container_are_fault() {
    let now = good().time;
    let restart = |age: &u64| ContainerRestart {
        at: now - age * 60_000,
        end: if *age == 5 {
            ContainerEnd::Hang
        } else {
            ContainerEnd::Death
        },
    };
    let text = "container_restarts: the container kubedns was restarted 3 times within ten minutes \
                (2 \u{d7} a crash, an error, or a kill, for example because of the memory limit; \
                1 \u{d7} a hang: requests to the container timed out before the restart)";
    for (ages, expected) in [
        (vec![9, 5, 0], Some(text)),
        (vec![11, 9, 5, 0], Some(text)),
        (vec![11, 5, 0], None),
    ] {
        let container = ContainerHistory {
            name: "kubedns".to_owned(),
            restarts: ages.iter().map(restart).collect(),
            ..ContainerHistory::default()
        };
        let status = SidecarStatus {
            containers: vec![container],
            ..good()
        };
        assert_eq!(found(&status), Vec::from_iter(expected), "{ages:?}");
    }
}

#[test]
fn refused_clients_are_fault_for_five_minutes() {
    let limited = |ago| SidecarStatus {
        clients_limited_at: Some(good().time - ago),
        ..good()
    };
    let text = "clients_limited: clients over --client-qps get REFUSED";
    assert_eq!(found(&limited(299_999)), [text]);
    assert_eq!(found(&limited(300_000)), [""; 0]);
}

#[test]
fn clients_of_node_answered_elsewhere_are_fault() {
    let answered_by = |servers| {
        let node = NodeReport {
            name: "node-1".to_owned(),
            servers,
            elsewhere: Some(7),
        };
        let mut status = good();
        status.kubedns.known.as_mut().unwrap().node = Some(node);
        found(&status)
    };
    let share = "7 % of the queries to this pod are not from pods of this node";
    for (servers, expected) in [
        (Some(NodeServers::Own), None),
        (None, None),
        (
            Some(NodeServers::Others),
            Some("the DNS pods of other nodes, because no DNS pod of this node is ready"),
        ),
        (
            Some(NodeServers::Any),
            Some(
                "the DNS pods of all nodes, because not every ready endpoint of the DNS Service has \
                 a hint for a node",
            ),
        ),
    ] {
        let expected = expected.map(|by| {
            format!("node_answered_elsewhere: clients on node-1 are answered by {by}; {share}")
        });
        assert_eq!(
            answered_by(servers),
            Vec::from_iter(expected),
            "{servers:?}"
        );
    }
}

#[test]
fn missing_report_is_fault_unless_program_is_silent() {
    let container = |name: &str| ContainerHistory {
        name: name.to_owned(),
        is_report_missing: true,
        ..ContainerHistory::default()
    };
    let [metrics, page] = [
        "http://127.0.0.1:10055/metrics",
        "http://127.0.0.1:10056/status",
    ];
    let status = SidecarStatus {
        containers: vec![container("kubedns"), container("dnsmasq")],
        kubedns: PeerReport::of_request(metrics.to_owned(), Err("refused".to_owned())),
        nanny: PeerReport::of_request(page.to_owned(), Err("refused".to_owned())),
        ..good()
    };
    let of_nanny = "report_missing: the nanny does not report its state at http://127.0.0.1:10056/status (refused)";
    let of_kubedns = "report_missing: kubedns does not report its state at http://127.0.0.1:10055/metrics (refused)";
    assert_eq!(found(&status), [of_kubedns, of_nanny]);

    let hung = SidecarStatus {
        probes: vec![probe(PodPart::Kubedns, ProbeState::Failed, "i/o timeout")],
        ..status
    };
    let silent = "kubedns_silent: kubedns does not answer (i/o timeout)";
    assert_eq!(
        found(&hung),
        [silent, of_nanny],
        "the missing report of a silent kubedns must not be a fault"
    );
}

const REJECTED: &str = r#"{"configuration":{"version":"00ff","error":{"text":"bad IP"}}}"#;

/// Statuses of the nanny, and the fault that each of them has.
const FAULTS_OF_NANNY: &str = r#"
    {"configuration":{"version":"00ff","error":{"text":"bad IP"}}} | config_rejected: the newest ConfigMap is rejected (bad IP)
    {"configuration":{"warnings":["keys: did you mean key?"]}}     | config_unknown_keys: keys of the ConfigMap are unknown and ignored (keys: did you mean key?)
    {"routes":{"pending":{"reason":"no space"}}}                   | routes_pending: dnsmasq does not have the newest servers (no space)
    {"configuration":{"version":"1"},"routes":{"kubednsConfiguration":"2"}} | config_differs: kubedns and dnsmasq have different configurations in force
    {"routes":{"unresolved":["a.test","b.test"]}}                  | stub_server_unresolved: servers of stub domains have no address: a.test, b.test
    {"routes":{"loops":["127.0.0.53"]}}                            | forwarding_loop: dnsmasq does not use upstreams that forward queries back to it: 127.0.0.53
"#;

/// Metrics of kubedns, and the fault that each of them shows.
const FAULTS_OF_KUBEDNS: &str = r#"
    kubedns_config_current 0          | config_rejected: the newest ConfigMap is rejected (kubedns rejects it and logs the reason)
    kubedns_config_unknown_keys 1     | config_unknown_keys: keys of the ConfigMap are unknown and ignored (the log of kubedns names them)
    kubedns_forward_loops 1           | forwarding_loop: an upstream of kubedns forwards queries back to kubedns: until the loop ends, kubedns does not send it the queries that would come back
    kubedns_forward_loops 2           | forwarding_loop: 2 upstreams of kubedns forward queries back to kubedns: until the loops end, kubedns does not send them the queries that would come back
    kubedns_stub_servers_unresolved 1 | stub_server_unresolved: kubedns has no address for some servers of stub domains
    kubedns_stale 1                   | serving_stale: kubedns serves the records of its snapshot file
    kubedns_watch_connected{kind="services"} 0 | api_server_lost: kubedns has no open watch of services: it does not see their changes
    kubedns_watch_connected{kind="endpoints"} 0 | api_server_lost: kubedns has no open watch of endpoints: it does not see their changes
    kubedns_watch_connected{kind="namespaces"} 0 | api_server_lost: kubedns has no open watch of namespaces: it does not see their changes
    kubedns_watch_connected{kind="pods"} 0 | api_server_lost: kubedns has no open watch of pods: it does not see their changes
    kubedns_watch_connected{kind="configmaps"} 0 | api_server_lost: kubedns has no open watch of configmaps: it does not see their changes
    kubedns_forward_tls_trusted{upstream="tls://192.0.2.3:853"} 0 | upstream_not_trusted: the TLS certificate of the upstream tls://192.0.2.3:853 is not trusted
"#;

#[test]
fn faults_of_kubedns_and_nanny_are_found() {
    for [json, expected] in table::rows(FAULTS_OF_NANNY) {
        assert_eq!(found(&nanny(json)), [expected]);
    }
    for [metric, expected] in table::rows(FAULTS_OF_KUBEDNS) {
        assert_eq!(found(&kubedns(&format!("{metric}\n"))), [expected]);
    }
    // kubedns makes its records from EndpointSlices, and their watch is closed. The open watch of
    // Endpoints does not matter.
    let refused_slices = kubedns(
        "kubedns_watch_connected{kind=\"endpoints\"} 1\n\
         kubedns_watch_connected{kind=\"endpointslices\"} 0\n\
         kubedns_endpoints_source{kind=\"endpointslices\"} 1\n",
    );
    assert_eq!(
        found(&refused_slices),
        [
            "api_server_lost: kubedns has no open watch of endpointslices: it does not see their \
             changes"
        ]
    );

    let without_dispensable = kubedns(
        "kubedns_watch_connected{kind=\"nodes\"} 0\n\
         kubedns_watch_connected{kind=\"serviceimports\"} 0\n\
         kubedns_watch_connected{kind=\"imported_endpointslices\"} 0\n",
    );
    assert_eq!(found(&without_dispensable), [""; 0]);
    let both = SidecarStatus {
        nanny: nanny(REJECTED).nanny,
        ..kubedns("kubedns_config_current 0\n")
    };
    assert_eq!(
        found(&both).len(),
        1,
        "a ConfigMap that both kubedns and the nanny reject must cause only one fault"
    );
}

/// A stub domain without a usable server: dnsmasq forwards queries for the domain to the nanny's
/// SERVFAIL server (127.0.0.1:9), or kubedns has no server for the domain. In the case `one of
/// two`, the domain has a usable server.
#[test]
fn stub_domain_without_server_is_fault() {
    let of_dnsmasq = |servers: &[&str], unresolved: &[&str]| {
        let json = serde_json::json!({
            "configuration": {"stubDomains": {"corp.test": ["ns.test:5353", "192.0.2.1"]}},
            "routes": {
                "nowhere": "127.0.0.1:9",
                "stubDomains": {"corp.test": servers},
                "unresolved": unresolved,
            },
        });
        nanny(&json.to_string())
    };
    let of_kubedns = |unresolved: u8| {
        kubedns(&format!(
            "kubedns_forward_route_servers{{route=\".\"}} 0\n\
             kubedns_forward_route_servers{{route=\"corp.test\"}} 0\n\
             kubedns_forward_route_servers{{route=\"acme.test\"}} 1\n\
             kubedns_stub_servers_unresolved {unresolved}\n"
        ))
    };
    let unresolved =
        "stub_server_unresolved: names of corp.test are not answered: no address for ns.test";
    let unusable =
        "stub_domain_down: names of corp.test are not answered: none of their servers is usable";
    let in_kubedns = "stub_server_unresolved: names of corp.test are not answered: no address for some servers of stub domains";
    let one_of_two = "stub_server_unresolved: servers of stub domains have no address: ns.test";
    let nowhere = ["127.0.0.1:9"];
    for (case, status, expected) in [
        ("no address", of_dnsmasq(&nowhere, &["ns.test"]), unresolved),
        (
            "all servers left out because of a loop",
            of_dnsmasq(&nowhere, &[]),
            unusable,
        ),
        (
            "one of two",
            of_dnsmasq(&["192.0.2.1:53"], &["ns.test"]),
            one_of_two,
        ),
        ("kubedns, no address", of_kubedns(1), in_kubedns),
        (
            "both, no address in kubedns",
            SidecarStatus {
                kubedns: of_kubedns(1).kubedns,
                ..of_dnsmasq(&nowhere, &[])
            },
            in_kubedns,
        ),
        (
            "kubedns, all servers left out because of a loop",
            of_kubedns(0),
            unusable,
        ),
    ] {
        assert_eq!(found(&status), [expected], "{case}");
    }
}

#[test]
fn argument_servers_are_fault_unless_resolv_conf_is_used() {
    let added = "servers_added: for external names, dnsmasq also queries servers from its arguments: 192.0.2.9:53";
    for (origin, expected) in [
        ("configuration", Some(added)),
        ("kubedns", Some(added)),
        ("resolv.conf", None),
    ] {
        let json = serde_json::json!({"routes": {
            "upstreams": ["192.0.2.1:53"],
            "upstreamsFrom": origin,
            "argumentServers": ["192.0.2.1:53", "192.0.2.9:53"],
        }});
        let found = found(&nanny(&json.to_string()));
        assert_eq!(found, Vec::from_iter(expected), "{origin}");
    }
}

#[test]
fn worst_finding_is_the_verdict() {
    let metrics = Metrics::new("x").unwrap();
    let verdicts = Verdicts::new("kubedns", true, &metrics).unwrap();
    let at = |seconds| Now::at(Duration::from_secs(seconds));
    let exported = || {
        let text = metrics.render().unwrap();
        let lines = text.lines().filter(|line| !line.ends_with("} 0"));
        let lines = lines.filter_map(|line| line.strip_prefix("kubedns_verdict"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(
        verdicts.judge(Vec::new(), at(0)).level,
        FindingLevel::Healthy
    );
    assert_eq!(exported(), [" 0"]);

    let finding = |kind, text: &str| PodFault::new(kind, "it", text);
    let rejected = || finding(FindingKind::ConfigRejected, "rejected");
    verdicts.judge(vec![rejected()], at(10));
    let silent = finding(FindingKind::KubednsSilent, "silent, from port 1");
    verdicts.judge(vec![rejected(), silent], at(20));
    let silent = finding(FindingKind::KubednsSilent, "silent, from port 2");
    let verdict = verdicts.judge(vec![rejected(), silent], at(30));
    assert_eq!(verdict.level, FindingLevel::Down);
    let kept = verdict.findings.iter();
    let kept: Vec<_> = kept
        .map(|found| (found.kind.unwrap(), found.since))
        .collect();
    let silent = (FindingKind::KubednsSilent, 20_000);
    assert_eq!(kept, [silent, (FindingKind::ConfigRejected, 10_000)]);
    let findings = ["config_rejected", "kubedns_silent"];
    let [first, second] = findings.map(|kind| format!("_findings{{kind=\"{kind}\"}} 1"));
    assert_eq!(exported(), [" 2", &first, &second]);

    let verdict = verdicts.judge(vec![rejected()], at(40));
    assert_eq!(verdict.level, FindingLevel::Degraded);
    verdicts.judge(Vec::new(), at(50));
    let verdict = verdicts.judge(vec![rejected()], at(60));
    assert_eq!(
        verdict.findings[0].since, 60_000,
        "a fault that comes back must be new"
    );
}

#[test]
fn short_fault_is_no_finding() {
    let verdicts = Verdicts::new("kubedns", true, &Metrics::new("x").unwrap()).unwrap();
    let lost = || vec![PodFault::new(FindingKind::ApiServerLost, "", "lost")];
    let at = |seconds| Now::at(Duration::from_secs(seconds));
    assert_eq!(verdicts.judge(lost(), at(0)).level, FindingLevel::Healthy);
    assert_eq!(verdicts.judge(lost(), at(29)).level, FindingLevel::Healthy);
    let verdict = verdicts.judge(lost(), at(30));
    assert_eq!(verdict.level, FindingLevel::Degraded);
    assert_eq!(verdict.findings[0].since, 0);
}

#[test]
fn clock_change_does_not_affect_fault_age() {
    let verdicts = Verdicts::new("kubedns", true, &Metrics::new("x").unwrap()).unwrap();
    let lost = || vec![PodFault::new(FindingKind::ApiServerLost, "", "lost")];
    let at = |seconds| Now::at(Duration::from_secs(seconds));
    let day = std::time::UNIX_EPOCH + Duration::from_hours(24);
    assert_eq!(
        verdicts.judge(lost(), at(3600)).level,
        FindingLevel::Healthy
    );
    let verdict = verdicts.judge(lost(), at(3601).set_to(day));
    assert_eq!(verdict.level, FindingLevel::Healthy, "set forward");
    let minute = std::time::UNIX_EPOCH + Duration::from_mins(1);
    let verdict = verdicts.judge(lost(), at(3630).set_to(minute));
    assert_eq!(verdict.level, FindingLevel::Degraded, "set back");
    assert_eq!(verdict.findings[0].since, 30_000);
}
