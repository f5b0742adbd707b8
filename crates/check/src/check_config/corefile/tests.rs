use testkit::table;

use super::*;

/// The exit status and the output of `check config --corefile`. `arguments` is the command line of
/// kubedns, `keys` is the data of the `ConfigMap`, and `domains` is the flag `--domain` of the
/// command.
fn report_for(
    domains: &str,
    arguments: &str,
    keys: &[(&str, &str)],
) -> Result<(u8, String), String> {
    let data: RawData = keys
        .iter()
        .map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec()))
        .collect();
    let words = arguments.split_whitespace().map(str::to_owned).collect();
    let exit = report(words, "", &data, &domains.parse().unwrap())?;
    Ok((exit.status, exit.stdout))
}

/// The exit status and the printed Corefile. The flag `--domain` of the command is `cluster.local`.
fn corefile(arguments: &str, keys: &[(&str, &str)]) -> (u8, String) {
    report_for("cluster.local", arguments, keys).unwrap()
}

#[test]
fn stock_flags_have_counterparts() {
    let arguments = "--domain=cluster.local. --dns-port=10053 --config-dir=/kube-dns-config --v=2";
    assert_eq!(
        corefile(arguments, &[]),
        (0, include_str!("testdata/stock.Corefile").to_owned())
    );
}

#[test]
fn flags_become_lines_of_corefile() {
    let arguments = "--domain=k8s.example --dns-port=5353 --topology alone --cache-size=500 \
        --serve-stale=1h --ttl=5s --namespaces=apps,shop --selector=a=b --pods=disabled \
        --endpoint-names=pod --strict-dns --ignore_empty_services --kubecfg-file=/etc/k \
        --kubecfg-context=c --fallthrough=. --external-zone=x.example --external-headless \
        --clusterset-domain=clusterset.local --dns-bind-address=10.0.0.9 --lameduck=3s \
        --snapshot-dir=/run/s --bogus --transfer-to=10.0.0.7,10.0.0.8:5300,10.1.0.0/16 \
        --transfer-key=/etc/tsig --dnstap=tcp://10.0.0.2:6000 --etcd-ca-file=/etc/ca \
        --etcd-zone=sky.example=https://10.0.0.4:2379 \
        --etcd-zone=sky.example=https://10.0.0.5:2379/ --prefer-zone={auto} --zonal-names \
        --kube-master-url=https://10.0.0.6";
    assert_eq!(
        corefile(arguments, &[]),
        (1, include_str!("testdata/flags.Corefile").to_owned())
    );
}

#[test]
fn keys_become_lines_of_corefile() {
    let keys = [
        (
            "stubDomains",
            r#"{"acme.example": ["10.150.0.1", "tcp://10.150.0.2:54"], "corp.cluster.local": ["10.0.0.3"],
            "150.10.in-addr.arpa": ["10.150.0.1"], "lab.example": ["ns.lab.example:5353"]}"#,
        ),
        (
            "upstreamNameservers",
            r#"["tls://9.9.9.9#dns.quad9.net", "tls://[2620:fe::fe]:8853#dns.quad9.net"]"#,
        ),
        (
            "hosts",
            "10.150.0.20 db.acme.example db\n10.9.9.9 *.apps.example\n10.9.9.8 a.apps.example",
        ),
        (
            "aliases",
            r#"{"registry.acme.example": "registry.infra", "mirror.acme.example": "mirror.example.com",
            "*.w.example": "ingress.infra"}"#,
        ),
        (
            "filterTypes",
            r#"{".": ["AAAA"], "v6.corp.example": [], "old.corp.example": ["A"]}"#,
        ),
        (
            "deniedNames",
            r#"{"ads.example": "NXDOMAIN", "wpad": "NODATA"}"#,
        ),
        ("bogusPriv", "true"),
        ("rebindProtection", "{}"),
        ("queryLog", r#"{"rcode": "SERVFAIL"}"#),
    ];
    assert_eq!(
        corefile("--upstream-ca-file=/etc/ca", &keys),
        (1, include_str!("testdata/keys.Corefile").to_owned())
    );
}

/// The domains of `check config`, the flags of kubedns, the key `hosts`, and the beginning of a
/// line of the Corefile or of the error.
const DOMAINS: &str = r#"
    k8s.example   |                        | 10.1.2.3 old.cluster.local | kubernetes k8s.example in-addr.arpa
    k8s.example   | --domain=cluster.local | 10.1.2.3 old.k8s.example   | kubernetes cluster.local in-addr.arpa
    b.c,d.        |                        | 10.1.2.3 a.example         | kubernetes b.c d in-addr.arpa
    cluster.local | --domain k8s.example   | 10.1.2.3 old.cluster.local | kubernetes k8s.example in-addr.arpa
    cluster.local | --domain=k8s.example   | 10.1.2.3 a.k8s.example     | "a.k8s.example" is in the cluster domain, which is reserved for Services
    cluster.local | --domain=a_b           | 10.1.2.3 a.example         | --domain=a_b: Not a valid DNS label.
"#;

#[test]
fn arguments_override_cluster_domain() {
    for [domains, arguments, hosts, expected] in table::rows(DOMAINS) {
        let report = report_for(domains, arguments, &[("hosts", hosts)]);
        let text = match &report {
            Ok((_, corefile)) => corefile,
            Err(reason) => reason,
        };
        assert!(
            text.lines().any(|line| line.trim().starts_with(expected)),
            "{domains} {arguments} {hosts}: {text}"
        );
        assert_eq!(
            report.is_ok(),
            expected.starts_with("kubernetes "),
            "{text}"
        );
    }
}

#[test]
fn ttl_of_zero_becomes_one_for_hosts() {
    let (status, text) = corefile("--ttl=0s", &[("hosts", "10.1.2.3 a.example")]);
    assert_eq!(status, 0, "{text}");
    let expected = "\
    hosts /dev/null {
        10.1.2.3 a.example
        ttl 1
        fallthrough
    }
    kubernetes cluster.local in-addr.arpa ip6.arpa {
        pods insecure
        ttl 0
";
    assert!(text.contains(expected), "{text}");
    let difference = "#   hosts: answers have the TTL 1 instead of 0, because the plugin hosts accepts no smaller TTL\n";
    assert!(text.contains(difference), "{text}");

    let (_, text) = corefile("--ttl=0s", &[]);
    assert!(!text.contains("hosts"), "{text}");
}

/// `--nameservers` accepts more servers than the `CoreDNS` plugin `forward` does.
#[test]
fn omitted_servers_and_tcp_prefix_are_reported() {
    let servers = (1..=20).map(|last| format!("tcp://192.0.2.{last}"));
    let servers = servers.collect::<Vec<_>>().join(",");
    let (status, text) = corefile(&format!("--nameservers={servers}"), &[]);

    assert_eq!(status, 1, "{text}");
    for expected in [
        "--nameservers: only the first 15 servers are written",
        "tcp://: if one server of a list has this prefix",
        "192.0.2.15:53 {",
    ] {
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn flags_are_read_and_unsafe_values_are_left_out() {
    let flags = KubednsFlags::read(
        [
            "-ttl",
            "5s",
            "--autopath=false",
            "x",
            "--cache_size=1",
            "--domain",
            "b.",
            "--pods=\"}",
            "--transfer-to=192.0.2.1",
            "--transfer-to=",
            "--kube-master-url=http://$KUBERNETES_SERVICE_HOST:8080",
            "--etcd-zone=sky.example=http://$(ETCD):2379",
            "--http-bind-address=$(POD_IP)",
        ]
        .map(str::to_owned),
    );
    assert_eq!(flags.value("ttl"), Some("5s"));
    assert_eq!(flags.value("cache-size"), Some("1"));
    assert_eq!(flags.list("domain"), ["b"]);
    assert!(!flags.is_set("autopath"));
    // The last value of a flag wins, even if it is empty.
    assert_eq!(flags.value("transfer-to"), None);
    // A value with a brace or a quote could change the meaning of the Corefile, so the value is
    // left out.
    assert_eq!(flags.value("pods"), None);
    assert_eq!(flags.value("kube-master-url"), None);
    assert_eq!(flags.values("etcd-zone").count(), 0);
    let missing = flags.missing();
    assert_eq!(
        missing,
        [
            "--etcd-zone: the value is left out, because this command does not know the values of \
             variables: give it the value of the variable in place of $NAME or $(NAME)",
            "--kube-master-url: the value is left out, because this command does not know the \
             values of variables: give it the value of the variable in place of $NAME or $(NAME)",
            "--pods: the value is left out, because this command writes only printable ASCII \
             without braces, quotes, backslashes or comments"
        ]
    );
}

/// Arguments of dnsmasq, a key of the `ConfigMap` with its value, and a line of the output.
const DNSMASQ_ARGUMENTS: &str = r#"
    --server=/consul/10.0.0.9#8600         | stubDomains         | {"a.b": ["10.0.0.1"]} | forward consul 10.0.0.9:8600 {
    --server=/a.b/10.0.0.9                 | stubDomains         | {"a.b": ["10.0.0.1"]} | forward a.b 10.0.0.1:53 10.0.0.9:53 {
    -S 10.0.0.9                            | upstreamNameservers | ["10.0.0.1"]          | forward . 10.0.0.1:53 10.0.0.9:53 {
    --server=10.0.0.9                      | hosts               |                       | forward . 10.0.0.9:53 {
    --address=/ads.example/                | deniedNames         | {"a.b": "NODATA"}     | template ANY ANY ads.example {
    --address=/ads.example/                | deniedNames         | {"a.b": "NODATA"}     | template ANY ANY a.b {
    --address=/a.b/                        | deniedNames         | {"a.b": "NODATA"}     | rcode NXDOMAIN
    --address=/apps.example/10.0.0.3       | hosts               | 10.0.0.4 a.b          | 10.0.0.3 apps.example
    --address=/apps.example/10.0.0.3       | hosts               | 10.0.0.4 a.b          | 10.0.0.4 a.b
    --bogus-priv                           | bogusPriv           | false                 | forward . 127.0.0.1:1053
    --no-negcache                          | hosts               |                       | #   dnsmasq --no-negcache: CoreDNS caches negative answers for external names, at most half an hour
    --max-ttl=60                           | hosts               |                       | #   dnsmasq --max-ttl=60: add the TTL to the options success and denial of the plugin cache
    --mx-host=a                            | hosts               |                       | #   dnsmasq --mx-host=a: this command does not know the argument
    --stop-dns-rebind                      | hosts               |                       | #   dnsmasq --stop-dns-rebind: no plugin of CoreDNS checks the addresses in replies
    --conf-file=/etc/d.conf                | hosts               |                       | #   dnsmasq --conf-file=/etc/d.conf: this command does not read the file, so add the counterparts of its options
    --server=/www.a.b/#                    | stubDomains         | {"a.b": ["10.0.0.1"]} | #   dnsmasq --server=/www.a.b/#: the Corefile has no exception for names within a stub domain: the servers of the stub domain get these queries, too
    --address=/#/10.0.0.3                  | hosts               |                       | #   dnsmasq --address=/#/10.0.0.3: this command writes no rule for all names, or for all names of one label
    --address=/a.b/10.0.0.3                | aliases             | {"a.b": "c.d."}       | #   dnsmasq --address=/a.b/10.0.0.3: this command converts it to the key hosts, and the key is then not valid: "a.b" is in both keys, hosts and aliases
    --server=/a.b/$(SERVER)                | hosts               |                       | #   dnsmasq --server=/a.b/$(SERVER): this command converts it to the key stubDomains, and the key is then not valid: invalid nameserver: "$(SERVER)"
    --address=/$(DOMAIN)/                  | hosts               |                       | #   dnsmasq --address=/$(DOMAIN)/: this command converts it to the key deniedNames, and the key is then not valid: invalid domain name: "$(DOMAIN)"
"#;

#[test]
fn dnsmasq_arguments_become_lines_of_corefile() {
    for [arguments, key, value, expected] in table::rows(DNSMASQ_ARGUMENTS) {
        let data = RawData::from([(key.to_owned(), value.as_bytes().to_vec())]);
        let domains = "cluster.local".parse().unwrap();
        let exit = report(Vec::new(), arguments, &data, &domains).unwrap();
        assert!(
            exit.stdout
                .lines()
                .any(|line| line.trim() == expected.trim()),
            "{arguments}: {}",
            exit.stdout
        );
        let is_missing = expected.starts_with('#') && arguments != "--no-negcache";
        assert_eq!(exit.status, u8::from(is_missing), "{arguments}");
    }
}

/// `check config --corefile` must know each option that `check config --dnsmasq-args` knows.
#[test]
fn each_option_of_check_dnsmasq_args_is_known() {
    let names = dnsmasq_args::OPTIONS.iter().flat_map(|(names, _)| *names);
    for name in names {
        assert!(dnsmasq::counterpart_of(name).is_some(), "{name}");
    }
}
