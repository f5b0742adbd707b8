//! Tests the command line of dnsmasq, and compares the servers file with recorded argument lists of
//! kube-dns' nanny.

use std::collections::BTreeMap;

use dnsclient::resolve::ResolvedNames;
use serde::Deserialize;
use wire::Nameserver;

use super::*;
use crate::config::routes::ComputedRoutes;
use crate::config::routes::tests::computed;

const FILE: &str = "/state/servers.conf";

fn words(line: &str) -> Vec<OsString> {
    line.split_whitespace().map(OsString::from).collect()
}

fn dnsmasq(version: &str) -> DnsmasqVersion {
    DnsmasqVersion {
        version: version.to_owned(),
        ..DnsmasqVersion::default()
    }
}

fn root_user() -> NannyUser {
    NannyUser::Root {
        user: "root".to_owned(),
        group: "root".to_owned(),
    }
}

fn plan_of(arguments: &DnsmasqArguments) -> LaunchPlan {
    let root = root_user();
    LaunchPlan::new(
        LaunchSettings {
            arguments,
            user: &root,
            dnsmasq: &dnsmasq("2.90"),
            forward: ForwardMode::Dnsmasq,
        },
        Ok(PathBuf::from(FILE)),
    )
}

fn plan(line: &str) -> LaunchPlan {
    plan_of(&DnsmasqArguments::from_words(words(line)))
}

fn text(argv: &[OsString]) -> String {
    argv.iter()
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}

fn argv(line: &str) -> String {
    text(&plan(line).argv(&Routes::default()))
}

#[test]
fn nanny_appends_its_options_to_user_arguments() {
    let stock = "-k --cache-size=1000 --no-negcache --dns-loop-detect --log-facility=- \
                 --server=/cluster.local/127.0.0.1#10053 --server=/in-addr.arpa/127.0.0.1#10053 \
                 --server=/ip6.arpa/127.0.0.1#10053";
    let kept = stock.replace("--dns-loop-detect ", "");
    let expected =
        format!("{kept} --no-resolv --servers-file={FILE} --pid-file --user=root --group=root");
    assert_eq!(argv(stock), expected);
    let bare = format!(
        "--keep-in-foreground --no-resolv --servers-file={FILE} --log-facility=- --pid-file \
         --user=root --group=root"
    );
    assert_eq!(argv(""), bare);
}

#[test]
fn user_options_are_not_repeated() {
    let given = "-d -R -8 /var/log/x -x /run/x -u me --group=us";
    assert_eq!(argv(given), format!("{given} --servers-file={FILE}"));
}

#[test]
fn conflicts_are_resolved_and_reported() {
    let usual = "/etc/resolv.conf";
    let unused = "--no-resolv: resolv.conf is not used";
    let replaced = "--resolv-file=/a, /b: used in place of /etc/resolv.conf";
    let removed = "--dns-loop-detect: left out, because the nanny itself detects loops";
    let kept = "--servers-file=/own: dnsmasq gets the lines of this file";
    for (line, resolv_files, extra, note) in [
        ("-k", usual, "", ""),
        ("-k -R", "", "", unused),
        ("-k -r /a --resolv-file=/b", "/a /b", "", replaced),
        ("-k --servers-file=/own", usual, "/own", kept),
        ("-k --dns-loop-detect", usual, "", removed),
    ] {
        let plan = plan(line);
        let files: Vec<String> = plan
            .resolv_files
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        assert_eq!(files.join(" "), resolv_files, "{line}");
        let extra = Some(PathBuf::from(extra)).filter(|_| !extra.is_empty());
        assert_eq!(plan.extra_servers, extra, "{line}");
        let notes = &plan.notes;
        assert!(notes.join("\n").contains(note), "{line}: {notes:?}");
        assert_eq!(notes.is_empty(), note.is_empty(), "{line}");
        let argv = text(&plan.argv(&Routes::default()));
        assert_eq!(argv.matches("servers-file").count(), 1, "{line}");
        assert!(!argv.contains("dns-loop-detect"), "{line}");
    }
    assert!(!plan("-k --no-poll").follow_resolv);
}

/// Tests `-forward=kubedns`. Each case has further arguments of the user, those of them that the
/// nanny keeps, the option that the nanny does not add, and a part of the note.
#[test]
fn forward_to_kubedns_adds_options_that_user_did_not_give() {
    let root = root_user();
    let ours = format!(
        "--no-resolv --servers-file={FILE} --dns-forward-max=600 --all-servers --fast-dns-retry=500,4000 --pid-file \
         --user=root --group=root"
    );
    let beside = "--server=192.0.2.1: dnsmasq sends queries to this server and to kubedns";
    let no_resolv = "--no-resolv: has no effect, because kubedns, not dnsmasq, asks the servers";
    let retry = "--fast-dns-retry=500,4000 ";
    let route = " --server=/a.example/192.0.2.1";
    for (further, kept, without, note) in [
        ("", "", "", ""),
        (
            " --dns-loop-detect",
            "",
            "",
            "--dns-loop-detect: left out, because kubedns",
        ),
        (" -0 7", " -0 7", "--dns-forward-max=600 ", ""),
        (" -S 192.0.2.1", "", "", beside),
        (" --fast-dns-retry", " --fast-dns-retry", retry, ""),
        (" -o", " -o", "--all-servers ", ""),
        (route, route, "", ""),
        (" -R", " -R", "--no-resolv ", no_resolv),
    ] {
        let line = format!("-k -8 -{further}");
        let plan = plan_of_forward_to_kubedns(&line, &root, "2.90", Ok(PathBuf::from(FILE)));
        let ours = ours.replace(without, "");
        let argv = text(&plan.argv(&Routes::default()));
        assert_eq!(argv, format!("-k -8 -{kept} {ours}"), "{line}");
        let notes = &plan.notes;
        assert_eq!(notes.is_empty(), note.is_empty(), "{line}: {notes:?}");
        assert!(notes.join("\n").contains(note), "{line}: {notes:?}");
        assert!(plan.resolv_files.is_empty(), "{line}");
    }
}

/// The plan for the dnsmasq arguments in `line`, with `-forward=kubedns`.
fn plan_of_forward_to_kubedns(
    line: &str,
    user: &NannyUser,
    version: &str,
    servers_file: Result<PathBuf, String>,
) -> LaunchPlan {
    let settings = LaunchSettings {
        arguments: &DnsmasqArguments::from_words(words(line)),
        user,
        dnsmasq: &dnsmasq(version),
        forward: ForwardMode::Kubedns,
    };
    LaunchPlan::new(settings, servers_file)
}

#[test]
fn forward_to_kubedns_without_servers_file_passes_server_as_argument() {
    let routes = Routes {
        upstreams: vec!["127.0.0.1:10053".parse().unwrap()],
        upstreams_from: UpstreamOrigin::Kubedns,
        ..Routes::default()
    };
    let line = "-k -8 - --dns-loop-detect";
    let plan =
        plan_of_forward_to_kubedns(line, &NannyUser::Other, "2.85", Err("no place".to_owned()));
    let expected = "-k -8 - --server 127.0.0.1#10053 --no-resolv --dns-forward-max=600 --all-servers --pid-file";
    assert_eq!(text(&plan.argv(&routes)), expected);
}

#[test]
fn servers_become_arguments_if_servers_file_is_impossible() {
    let line = "-k --server=192.0.2.9@eth0 --servers-file=/own --dns-loop-detect";
    let arguments = DnsmasqArguments::from_words(words(line));
    let stub_servers = vec!["192.0.2.1:54".parse().unwrap()];
    let routes = Routes {
        stub_domains: BTreeMap::from([("a.example".to_owned(), stub_servers)]),
        argument_servers: arguments.movable_servers(),
        upstreams: vec!["192.0.2.2".parse().unwrap()],
        upstreams_from: UpstreamOrigin::Configuration,
        ..Routes::default()
    };
    let plan = LaunchPlan::new(
        LaunchSettings {
            arguments: &arguments,
            user: &NannyUser::Other,
            dnsmasq: &dnsmasq("2.90"),
            forward: ForwardMode::Dnsmasq,
        },
        Err("no place for it".to_owned()),
    );
    assert_eq!(plan.mode, EditMode::Restart);
    assert_eq!(plan.restart_reason.as_deref(), Some("no place for it"));
    // The nanny reads resolv.conf here, although there is no servers file.
    assert_eq!(plan.resolv_files, [PathBuf::from("/etc/resolv.conf")]);
    assert_eq!(
        text(&plan.argv(&routes)),
        "-k --servers-file=/own --server /a.example/192.0.2.1#54 --server 192.0.2.9@eth0 --server 192.0.2.2 --no-resolv \
         --log-facility=- --pid-file"
    );
}

/// The nanny cannot read the options that the script of `--conf-script` prints. One of these
/// options may name the resolv.conf files.
#[test]
fn nanny_reads_no_resolv_conf_if_options_are_unknown() {
    let plan = plan_of(&DnsmasqArguments::read(words("-k --conf-script=/x")));
    assert_eq!(plan.resolv_files, Vec::<PathBuf>::new());
    for (upstreams_from, expected) in [
        (UpstreamOrigin::ResolvConf, ""),
        (UpstreamOrigin::Configuration, "--no-resolv "),
        (UpstreamOrigin::Kubedns, "--no-resolv "),
    ] {
        let routes = Routes {
            upstreams_from,
            ..Routes::default()
        };
        assert_eq!(
            text(&plan.argv(&routes)),
            format!(
                "-k --conf-script=/x {expected}--log-facility=- --pid-file --user=root --group=root"
            )
        );
    }
}

/// The nanny cannot remove an option from a configuration file of the user.
#[test]
fn server_and_loop_detection_in_file_are_reported() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("dnsmasq.conf");
    std::fs::write(&file, "dns-loop-detect\nserver=192.0.2.1\n").unwrap();
    let arguments = DnsmasqArguments::read(vec!["-C".into(), file.into()]);
    let plan = plan_of(&arguments);
    assert_eq!(
        plan.notes,
        [
            "server=192.0.2.1: stays in dnsmasq's own configuration, so the nanny cannot remove this server, even if the server forwards back to dnsmasq"
        ]
    );
    assert_eq!(
        plan.warnings,
        [
            "dns-loop-detect in dnsmasq's configuration file: remove it, because a loop through an upstream of kubedns can make dnsmasq stop using kubedns"
        ]
    );
}

#[test]
fn argv_without_servers_file_of_nanny_has_servers() {
    let routes = Routes {
        upstreams: vec!["192.0.2.2".parse().unwrap()],
        ..Routes::default()
    };
    let plan = plan("-k --servers-file=/own");
    assert_eq!(
        text(&plan.argv_without_file(&routes)),
        "-k --servers-file=/own --server 192.0.2.2 --no-resolv --log-facility=- --pid-file \
         --user=root --group=root"
    );
}

#[test]
fn edits_need_restarts_if_nanny_can_have_no_servers_file() {
    for line in [
        "--conf-script=/x",
        "--servers-file=/a --servers-file=/b",
        "-C /no/such/file",
    ] {
        let arguments = DnsmasqArguments::read(words(line));
        assert_eq!(plan_of(&arguments).mode, EditMode::Restart, "{line}");
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("dnsmasq.conf");
    std::fs::write(&file, "servers-file=/own\n").unwrap();
    let arguments = DnsmasqArguments::read(vec!["-C".into(), file.into()]);
    assert_eq!(plan_of(&arguments).mode, EditMode::Restart);
}

/// A recorded case: the files of the configuration, the arguments after `--`, and the arguments
/// that kube-dns passed to dnsmasq.
#[derive(Debug, Deserialize)]
struct Case {
    #[serde(rename = "case")]
    name: String,
    files: BTreeMap<String, String>,
    args: Vec<String>,
    argv: Vec<String>,
}

/// The effect of an argument list or a servers file: the servers, and whether dnsmasq uses the
/// servers of resolv.conf.
#[derive(Debug, PartialEq, Eq)]
struct Effect {
    servers: Vec<String>,
    reads_resolv_conf: bool,
}

impl Effect {
    /// Parses arguments in the form of kube-dns (`--server X`). Brackets and default ports are
    /// removed. The servers in `known`, which the user's arguments name, are left out.
    fn of_arguments(argv: &[String], known: &[String]) -> Self {
        let arguments = DnsmasqArguments::from_words(argv.iter().map(OsString::from).collect());
        let servers = arguments.option_values("server").into_iter().map(|value| {
            let plain = value.replace(['[', ']'], "");
            plain.strip_suffix("#53").unwrap_or(&plain).to_owned()
        });
        let servers = servers.filter(|server| !known.contains(server)).collect();
        Self {
            servers,
            reads_resolv_conf: !arguments.has_option("no-resolv"),
        }
    }

    fn of_file(text: &str) -> Self {
        let servers: Vec<String> = text
            .lines()
            .filter_map(|line| line.strip_prefix("server="))
            .map(str::to_owned)
            .collect();
        // The test's resolv.conf has only this server, so the server shows that resolv.conf is
        // used.
        let marker = |server: &String| server == "198.51.100.53";
        Self {
            reads_resolv_conf: servers.iter().any(marker),
            servers: servers
                .into_iter()
                .filter(|server| !marker(server))
                .collect(),
        }
    }
}

/// The recorded server names, with their addresses at the time of the recording.
fn names() -> ResolvedNames {
    let several = (21..=40)
        .map(|last| format!("203.0.113.{last}").parse().unwrap())
        .collect();
    ResolvedNames::from([
        ("www.outside.test", vec!["198.51.100.10".parse().unwrap()]),
        ("some.outside.test", several),
        (
            "ns.apps.svc.cluster.local",
            vec!["10.96.3.53".parse().unwrap()],
        ),
    ])
}

/// Changes the recorded effect of cases in which this nanny differs from kube-dns on purpose.
fn mended(case: &str, effect: &mut Effect) {
    match case {
        // kube-dns uses one random address of a name; this nanny uses all addresses.
        "stub server by name with several addresses" => {
            effect.servers = (21..=40)
                .map(|last| format!("/acme.example/203.0.113.{last}"))
                .collect();
        }
        // kube-dns passes the name to dnsmasq, which then does not start. Until the name resolves,
        // this nanny routes the stub domain to the SERVFAIL server (127.0.0.1#9999 in this test).
        "stub server by name that does not resolve"
        | "stub server by cluster name that is not there" => {
            effect.servers = vec!["/acme.example/127.0.0.1#9999".to_owned()];
        }
        // kube-dns rejects a ConfigMap with more than three upstream servers.
        "four upstream servers" => {
            effect.servers = (1..=4).map(|last| format!("192.0.2.{last}")).collect();
            effect.reads_resolv_conf = false;
        }
        // kube-dns rejects a port after a name.
        "stub server by name with port" => {
            effect.servers = vec!["/acme.example/198.51.100.10#5353".to_owned()];
        }
        "stub server by cluster name with port" => {
            effect.servers = vec!["/acme.example/10.96.3.53#5353".to_owned()];
        }
        _ => {}
    }
}

#[test]
fn recorded_cases_of_kube_dns_have_expected_effect() {
    let mut cases: Vec<Case> =
        serde_json::from_str(include_str!("../../../tests/data/kube-dns-argv.json")).unwrap();
    let names = names();
    assert!(cases.len() > 20);
    for case in &mut cases {
        // When the nanny reads a configuration directory, it ignores hidden files and
        // subdirectories.
        case.files
            .retain(|name, _| !name.starts_with('.') && !name.contains('/'));
        let data = case
            .files
            .iter()
            .map(|(key, value)| (key.clone(), value.clone().into_bytes()));
        let config = dnsconfig::parse(&data.collect()).unwrap_or_default();
        let arguments =
            DnsmasqArguments::from_words(case.args.iter().map(OsString::from).collect());
        // The servers of the node's resolv.conf.
        let resolv_conf: Vec<Nameserver> = vec!["198.51.100.53".parse().unwrap()];
        // dnsmasq listens on loopback only. Otherwise a recorded server with an address of this
        // machine would be taken for dnsmasq itself, and left out.
        let listening = DnsmasqArguments::from_words(vec!["--listen-address=127.0.0.1".into()]);
        let ComputedRoutes { routes, .. } = computed(&config, &resolv_conf, &names, &listening);

        let argv = plan_of(&arguments).argv(&routes);
        assert!(
            text(&argv).starts_with(&case.args.join(" ")),
            "{}: the user's arguments must come first",
            case.name
        );
        let mut expected = Effect::of_arguments(&case.argv, &arguments.option_values("server"));
        mended(&case.name, &mut expected);
        let octets = servers_file::render(&routes, b"");
        let actual = Effect::of_file(str::from_utf8(&octets).unwrap());
        assert_eq!(actual, expected, "{}", case.name);
    }
}
