//! The arguments of dnsmasq in explanations.

use crate::facts::dnsmasq_arguments::DnsmasqArguments;

use super::cluster::Cluster;

const RESOLV_CONF: &str = "dnsmasq asks the servers of the node's resolv.conf";

/// The line `path` in the explanation of a name, if dnsmasq has these options.
fn path(options: &[&str], name: &str) -> String {
    let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
    let mut cluster = Cluster::with_everything();
    cluster.arguments = Some(DnsmasqArguments::parse(&options));
    let text = cluster.text(name);
    let line = text.lines().find_map(|line| line.strip_prefix("path"));
    line.unwrap_or_default().trim().to_owned()
}

#[test]
fn arguments_decide_which_servers_dnsmasq_asks() {
    let stock = [
        "--cache-size=1000",
        "--server=/cluster.local/127.0.0.1#10053",
        "--server=/in-addr.arpa/127.0.0.1#10053",
    ];
    let with = |more: &[&str]| -> String {
        let options: Vec<&str> = stock.iter().chain(more).copied().collect();
        path(&options, "www.ads.test.")
    };
    let not_asked = "kubedns is not asked";
    assert_eq!(with(&[]), format!("{RESOLV_CONF}; {not_asked}"));
    assert_eq!(
        with(&["--server=10.0.0.2", "--filter-AAAA"]),
        format!(
            "{RESOLV_CONF}; {not_asked}; these arguments of dnsmasq matter: --server=10.0.0.2 --filter-AAAA"
        )
    );
    assert_eq!(
        with(&["--no-resolv", "--server=10.0.0.2"]),
        format!(
            "dnsmasq asks 10.0.0.2; {not_asked}; these arguments of dnsmasq matter: --no-resolv --server=10.0.0.2"
        )
    );
    assert_eq!(
        with(&["--address=/ads.test/"]),
        "dnsmasq asks no server; these arguments of dnsmasq matter: --address=/ads.test/"
    );
    assert_eq!(
        with(&[
            "--server=/test/10.0.0.9",
            "--server=/test/10.0.0.8#5353",
            "--filter-AAAA"
        ]),
        format!(
            "dnsmasq asks 10.0.0.9, 10.0.0.8:5353; {not_asked}; these arguments of dnsmasq matter: \
             --server=/test/10.0.0.9 --server=/test/10.0.0.8#5353 --filter-AAAA"
        )
    );
    assert_eq!(
        with(&["--server=/test/10.0.0.9", "--server=/ads.test/#"]),
        format!(
            "{RESOLV_CONF}; {not_asked}; these arguments of dnsmasq matter: --server=/ads.test/#"
        )
    );
}

/// The cluster has the stub domain acme.test.
#[test]
fn arguments_for_stub_domain_apply() {
    let with = |option| path(&[option], "www.acme.test.");
    let of_stub = with("--cache-size=1000");
    let servers = of_stub.strip_suffix(" of the stub domain acme.test; kubedns is not asked");
    let servers = servers.unwrap_or_else(|| panic!("{of_stub}"));
    let note = |option| format!("these arguments of dnsmasq matter: {option}");

    let added = "--server=/acme.test/10.0.0.9";
    let expected = format!(
        "{servers}, 10.0.0.9 of the stub domain acme.test; kubedns is not asked; {}",
        note(added)
    );
    assert_eq!(with(added), expected);
    let answered = "--address=/acme.test/";
    let expected = format!("dnsmasq asks no server; {}", note(answered));
    assert_eq!(with(answered), expected);
    assert_eq!(with("--server=/test/10.0.0.9"), of_stub);
}

#[test]
fn names_answered_by_dnsmasq_are_not_forwarded() {
    let cases = [
        (
            "--address=/ads.test/",
            [
                "www.ads.test. gets NXDOMAIN from dnsmasq, whose arguments deny the domain",
                "A, AAAA, SRV  NXDOMAIN, answered by dnsmasq\n",
            ],
            "NXDOMAIN  dnsmasq itself answers\n",
        ),
        (
            "--no-resolv",
            [
                "www.ads.test. is refused by dnsmasq, which has no upstream",
                "A, AAAA, SRV  REFUSED, answered by dnsmasq, which has no upstream\n",
            ],
            "REFUSED   dnsmasq itself answers\n",
        ),
    ];
    for (option, expected, row) in cases {
        let mut cluster = Cluster::with_everything();
        cluster.arguments = Some(DnsmasqArguments::parse(&[option.to_owned()]));
        let text = cluster.text("www.ads.test.");
        for expected in expected {
            assert!(text.contains(expected), "{option}: {text}");
        }

        let text = cluster.text("www.ads.test");
        assert!(text.contains(row), "{option}: {text}");
    }
}

#[test]
fn filters_apply_to_every_server() {
    let options = ["--no-resolv", "--filter-AAAA", "--server=10.0.0.2"];
    for name in ["web.apps.svc.cluster.local.", "www.acme.test."] {
        let path = path(&options, name);
        let note = "; these arguments of dnsmasq matter: --filter-AAAA";
        assert!(path.ends_with(note), "{name}: {path}");
    }
}

#[test]
fn server_of_cluster_domain_is_assumed_to_be_kubedns() {
    let options = ["--server=/cluster.local/127.0.0.1#10053"];
    let path = path(&options, "web.apps.svc.cluster.local.");
    assert!(
        path.starts_with("dnsmasq asks kubedns for cluster.local"),
        "{path}"
    );
}

#[test]
fn arguments_decide_what_is_cached() {
    for (options, name, expected) in [
        (
            &["--no-negcache"][..],
            "web.apps.svc.cluster.local.",
            "dnsmasq asks kubedns for cluster.local; dnsmasq caches the answer for up to 30 s",
        ),
        (
            &["--no-negcache", "--cache-size=0"],
            "web.apps.svc.cluster.local.",
            "dnsmasq asks kubedns for cluster.local; dnsmasq does not cache answers; \
             these arguments of dnsmasq matter: --cache-size=0",
        ),
        (
            &["--cache-size=0", "--cache-size=150"],
            "web.apps.svc.cluster.local.",
            "dnsmasq asks kubedns for cluster.local; dnsmasq caches the answer for up to 30 s",
        ),
        (
            &["--no-negcache"],
            "missing.apps.svc.cluster.local.",
            "dnsmasq asks kubedns for cluster.local; dnsmasq does not cache the answer (--no-negcache)",
        ),
        (
            &[],
            "missing.apps.svc.cluster.local.",
            "dnsmasq asks kubedns for cluster.local",
        ),
    ] {
        assert_eq!(path(options, name), expected, "{options:?} {name}");
    }
}

#[test]
fn arguments_override_kubedns_for_cluster_names() {
    for (option, expected) in [
        (
            "--server=/corp.cluster.local/10.0.0.9",
            "host.corp.cluster.local. is forwarded to 10.0.0.9 (from dnsmasq's arguments)",
        ),
        (
            "--address=/corp.cluster.local/",
            "host.corp.cluster.local. gets NXDOMAIN from dnsmasq, whose arguments deny the domain",
        ),
    ] {
        let mut cluster = Cluster::with_everything();
        cluster.arguments = Some(DnsmasqArguments::parse(&[option.to_owned()]));
        let text =
            format!("belongs to a domain in the arguments of dnsmasq, not to kubedns: {expected}");
        let rows = [("host.corp.cluster.local. A", [text.as_str()])];
        cluster.expect(["/verdict/text"], &rows);
    }
}

/// An address of one family answers only queries of the matching type.
#[test]
fn addresses_in_arguments_are_answers() {
    let mut cluster = Cluster::with_everything();
    let options = [
        "--address=/ads.test/192.0.2.1",
        "--host-record=web.ads.test,192.0.2.2",
        "--server=/up.ads.test/10.0.0.9",
    ];
    let options = options.map(str::to_owned);
    cluster.arguments = Some(DnsmasqArguments::parse(&options));

    let text = cluster.text("www.ads.test.");
    for expected in [
        "www.ads.test. resolves to 192.0.2.1",
        "the arguments of dnsmasq set an address for this name: dnsmasq answers with the address",
        "A     192.0.2.1          ttl 0",
        "AAAA  answered upstream",
        "kubedns is not asked; these arguments of dnsmasq matter: --address=/ads.test/192.0.2.1",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    for (question, expected) in [
        ("www.ads.test. AAAA", "www.ads.test. is forwarded to"),
        ("web.ads.test. A", "web.ads.test. resolves to 192.0.2.2"),
        (
            "x.up.ads.test. A",
            "x.up.ads.test. is forwarded to 10.0.0.9",
        ),
    ] {
        let text = cluster.text(question);
        assert!(text.contains(expected), "{question}: {text}");
    }
}
