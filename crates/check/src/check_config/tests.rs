use super::*;

fn check(words: &[&str]) -> (u8, String) {
    let exit = crate::command(words.iter().map(OsString::from));
    (exit.status, exit.stdout + &exit.stderr)
}

#[test]
fn each_mistake_has_a_line() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("map.yaml");
    let of = |data: &str| format!("kind: ConfigMap\nmetadata: {{name: kube-dns}}\ndata:\n{data}");
    let good = of("  stubDomains: |\n    {\"acme.example\": [\"192.0.2.1\"]}\n");
    let service = "kind: Service\nmetadata: {name: kube-dns}\n---\n";
    let wrong =
        of("  stubDomain: '{}'\n  upstreamNameservers: '[\"10.0.0.300\"]'\n  federations: x\n");
    let wrong_lines = [
        "kube-dns: error: invalid format, must be key=value (key federations",
        "kube-dns: error: bad IP address: \"10.0.0.300\" (key upstreamNameservers, value",
        "kube-dns: warning: unknown key \"stubDomain\" is ignored: did you mean stubDomains?",
    ];
    let wrong_names =
        of("  hosts: 192.0.2.1 a.cluster.local\n  aliases: '{\"b\": 1}'\n  host: ''\n");
    let names_lines = [
        "kube-dns: error: invalid JSON: invalid type: integer `1`, expected a string at line 1 column 7 (key aliases",
        "kube-dns: error: \"a.cluster.local\" is in the cluster domain, which is reserved for Services (key hosts",
        "kube-dns: warning: unknown key \"host\" is ignored: did you mean hosts?",
    ];
    let list = of("  upstreamNameservers: [192.0.2.1]\n");
    let not_text = "kube-dns: error: upstreamNameservers is not text: put the JSON in quotes";
    let twice = of("  hosts: 192.0.2.1 a\n  aliases: '{\"a\": \"b.c\"}'\n");
    let in_both = "kube-dns: error: \"a\" is in both keys, hosts and aliases (key aliases";
    let doubtful = of(
        "  upstreamNameservers: '[\"127.0.0.53\", \"[::1]:53\", \"192.0.2.1\"]'\n  stubDomains: \
         '{\"cluster.local\": [\"192.0.2.1\"], \"acme.test\": [\"127.0.0.1:54\", \"ns.acme.test\"], \
         \"corp.cluster.local\": [\"192.0.2.1\"]}'\n",
    );
    let loopback = |server: &str| {
        format!("kube-dns: warning: {server} is a loopback address, which is the pod itself")
    };
    let doubtful_servers = ["127.0.0.53:53", "[::1]:53", "127.0.0.1:54"].map(loopback);
    let [system, ipv6, stub] = &doubtful_servers;
    let of_cluster = "kube-dns: warning: key stubDomains: stub domain \"cluster.local\" is the cluster domain: dnsmasq may send \
                      queries for it to kubedns, to the servers of the stub domain, or to both; kubedns queries \
                      these servers only with --fallthrough; use a domain below the cluster domain";
    let doubtful_lines = [system.as_str(), ipv6, stub, of_cluster];
    let hosts = of("  hosts: |\n    192.0.2.1 db.acme.example\n");
    let [is_good, hosts_good] =
        ["stubDomains", "hosts"].map(|key| format!("kube-dns: good ({key})"));
    let unreadable = "kube-dns check config: /";
    for (text, status, lines) in [
        (good.clone(), 0, &[is_good.as_str()][..]),
        (format!("{service}{good}"), 0, &[&is_good]),
        (wrong, 1, &wrong_lines),
        (list, 1, &[not_text]),
        (hosts, 0, &[&hosts_good]),
        (doubtful, 1, &doubtful_lines),
        (wrong_names, 1, &names_lines),
        (twice, 1, &[in_both]),
        (service.to_owned(), 2, &[unreadable]),
        ("{".to_owned(), 2, &[unreadable]),
    ] {
        std::fs::write(&file, &text).unwrap();
        let (found, said) = check(&["config", file.to_str().unwrap()]);
        assert_eq!(found, status, "{text}: {said}");
        assert_eq!(said.lines().count(), lines.len(), "{text}: {said}");
        for (line, expected) in said.lines().zip(lines) {
            assert!(line.starts_with(expected), "{line}");
        }
    }
}

/// If a `ConfigMap` is made from files, the files that are not UTF-8 are in `binaryData`. The
/// second field of each row is the whole output.
#[test]
fn binary_data_is_checked() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("map.yaml");
    // The first value is `[]` in UTF-16.
    for (data, expected) in [
        (
            "binaryData: {upstreamNameservers: //5bAF0A}",
            "m: error: not UTF-8 (key upstreamNameservers, value \"��[\\0]\\0\"; accepted: UTF-8 text of at most 1 MiB)\n",
        ),
        (
            "data: {bogusPriv: 'true'}\nbinaryData:\n  upstreamNameservers: |\n    W1\n    0=\n",
            "m: good (bogusPriv, upstreamNameservers)\n",
        ),
        (
            "binaryData: {stubDomain: e30=, icon: '?'}",
            "m: error: icon in binaryData is not base64\n\
             m: warning: unknown key \"stubDomain\" is ignored: did you mean stubDomains?\n",
        ),
    ] {
        let text = format!("kind: ConfigMap\nmetadata: {{name: m}}\n{data}");
        std::fs::write(&file, text).unwrap();
        let (_, said) = check(&["config", file.to_str().unwrap()]);
        assert_eq!(said, expected, "{data}");
    }
}

#[test]
fn items_of_lists_are_checked() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("list.yaml");
    let list = |kind: &str, item_kind: &str| {
        let item = |name| {
            format!("{{{item_kind}metadata: {{name: {name}}}, data: {{hosts: 192.0.2.1 h.test}}}}")
        };
        format!("{{kind: {kind}, items: [{}, {}]}}", item("a"), item("b"))
    };
    let nested = format!(
        "{{kind: List, items: [{}, {{kind: Service}}]}}",
        list("List", "kind: ConfigMap, ")
    );
    let both_good = (0, 2);
    let unreadable = (2, 1);
    for (text, expected) in [
        (list("List", "kind: ConfigMap, "), both_good),
        (list("ConfigMapList", ""), both_good),
        (nested, both_good),
        (list("List", "kind: Secret, "), unreadable),
        ("{kind: List, items: null}".to_owned(), unreadable),
    ] {
        std::fs::write(&file, &text).unwrap();
        let (status, said) = check(&["config", file.to_str().unwrap()]);
        assert_eq!((status, said.lines().count()), expected, "{text}: {said}");
        assert_eq!(
            said == "a: good (hosts)\nb: good (hosts)\n",
            expected == both_good,
            "{text}: {said}"
        );
    }
}

#[test]
fn each_file_in_directory_is_checked_as_key() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    std::fs::write(directory.path().join("stubDomains"), "{}").unwrap();
    let checked = check(&["config", path]);
    assert_eq!(checked, (0, format!("{path}: good (stubDomains)\n")));
    std::fs::write(directory.path().join("upstreamNameserver"), "[]").unwrap();
    assert_eq!(check(&["config", path]).0, 1);
}

#[test]
fn hosts_in_cluster_domain_are_rejected() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    let both = ["--domain", "cluster.local,k8s.example"];
    for (name, flags, status) in [
        ("a.cluster.local", &[][..], 1),
        ("a.cluster.local", &["--domain=k8s.example."], 0),
        ("a.k8s.example", &[], 0),
        ("a.k8s.example", &both, 1),
        ("a", &["--domain=_"], 2),
    ] {
        std::fs::write(directory.path().join("hosts"), format!("192.0.2.1 {name}")).unwrap();
        let (found, said) = check(&[&["config"], flags, &[path]].concat());
        assert_eq!(found, status, "{name} {flags:?}: {said}");
    }
}

#[test]
fn dnsmasq_arguments_have_a_line_each() {
    let arguments = "--dnsmasq-args=--bogus-priv --max-ttl=60";
    let (status, said) = check(&["config", arguments]);
    assert_eq!(status, 1);
    assert_eq!(said.lines().count(), 2, "{said}");
}

#[test]
fn too_large_input_is_rejected() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("large.yaml");
    // Reading ends one octet after the limit, within a character of two octets.
    std::fs::write(&file, "\u{e4}".repeat(5 << 20)).unwrap();
    let (status, said) = check(&["config", file.to_str().unwrap()]);
    assert_eq!(status, 2, "{said}");
    assert!(said.contains("larger than 8388608 bytes"), "{said}");
}

#[test]
fn corefile_has_flags_of_deployment() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("all.yaml");
    let of_kubedns =
        "kind: Deployment\nspec: {containers: [{name: kubedns, args: [--domain=a.example]}]}\n";
    let map = "kind: ConfigMap\ndata: {stubDomains: '{\"b.example\": [\"192.0.2.1\"]}'}\n";
    let with_dnsmasq =
        |args: &str| of_kubedns.replace("}]", &format!("}}, {{name: dnsmasq, args: [{args}]}}]"));
    for (text, status, parts) in [
        (
            format!("{of_kubedns}---\n{map}"),
            0,
            &["kubernetes a.example ", "forward b.example 192.0.2.1:53"][..],
        ),
        (of_kubedns.to_owned(), 0, &["kubernetes a.example "]),
        (
            of_kubedns.replace("args", "command: [/kube-dns, --ttl=5s], args"),
            0,
            &["kubernetes a.example ", "ttl 5"],
        ),
        (
            of_kubedns.replace("args: [", "command: [/kube-dns, "),
            0,
            &["kubernetes a.example "],
        ),
        (map.to_owned(), 0, &["kubernetes cluster.local "]),
        (
            with_dnsmasq("-v=2, --, -k, '--server=/a.example/127.0.0.1#10053', --no-negcache"),
            0,
            &["kubernetes a.example ", "dnsmasq --no-negcache: CoreDNS"],
        ),
        (
            with_dnsmasq("-configDir=/etc/k, --, --server=/consul/10.0.0.9, --max-ttl=60")
                + "---\n"
                + map,
            1,
            &[
                "forward consul 10.0.0.9:53",
                "forward b.example 192.0.2.1:53",
                "dnsmasq --max-ttl=60: add",
            ],
        ),
        (
            with_dnsmasq("--mx-host=a"),
            1,
            &["dnsmasq --mx-host=a: this command does not know the argument"],
        ),
        (format!("{map}---\n{map}"), 2, &["more than one ConfigMap"]),
        ("kind: Service\n".to_owned(), 2, &["no ConfigMap"]),
        (
            "kind: ConfigMap\ndata: {bogusPriv: true}\n".to_owned(),
            2,
            &["bogusPriv is not text: put the JSON in quotes"],
        ),
    ] {
        std::fs::write(&file, &text).unwrap();
        let (found, said) = check(&["config", "--corefile", file.to_str().unwrap()]);
        assert_eq!(found, status, "{text}: {said}");
        for part in parts {
            assert!(said.contains(part), "{text}: {said}");
        }
    }
}

#[test]
fn kubedns_arguments_need_corefile() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("hosts"), "192.0.2.1 b.example").unwrap();
    let path = directory.path().to_str().unwrap();
    let arguments = "--kubedns-args=--domain=a.example";

    let (status, said) = check(&["config", arguments, path]);
    assert_eq!(status, 2, "{said}");
    assert!(said.contains("--kubedns-args needs --corefile"), "{said}");
    let (status, said) = check(&["config", "--corefile", arguments, path]);
    assert_eq!(status, 0, "{said}");
}

#[test]
fn wrong_command_line_exits_with_2() {
    for words in [
        &[][..],
        &["config"],
        &["clusters"],
        &["config", "a", "b"],
        &["config", "/no/such/file"],
        &["config", "--dnsmasq-args=-k", "/no/such/file"],
        &["config", "--dnsmasq-args=-k", "--corefile"],
        &["config", "--x"],
        &["--x"],
    ] {
        assert_eq!(check(words).0, 2, "{words:?}");
    }
    let (status, help) = check(&["config", "--help"]);
    assert!(
        status == 0 && help.starts_with("Validates a ConfigMap"),
        "{help}"
    );
    let (status, help) = check(&["--help"]);
    assert!(
        status == 0 && help.contains("kube-dns check cluster"),
        "{help}"
    );
}
