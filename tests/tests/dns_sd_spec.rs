//! Checks the real binary against sections 2.2 to 2.5 of Kubernetes DNS-Based Service Discovery
//! 1.1.0, by default and with `--strict-dns`. Two further tests are about records that the
//! specification does not require.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test helper may panic if the set-up fails, and may print a report"
)]

use serde_json::{Value, json};
use testkit::message::Message;
use testkit::objects::{
    mk_cluster_ip, mk_endpoints, mk_endpoints_of, mk_external_name, mk_headless,
};
use testkit::reply::Reply;
use testkit::table;
use testkit::upstream::{Asked, Reaction};
use tests::lab::Lab;

/// The name and the flags of each mode of the server.
const WAYS: [(&str, &[&str]); 2] = [("default", &[]), ("strict", &["--strict-dns"])];

/// Checks the answers of a table. Its columns are the name, the type, and the answer as
/// `Lab::answer` returns it. Only reverse names are complete: other names lack the cluster domain.
/// Each name is queried in upper case, too.
async fn hold(lab: &Lab, way: &str, answers: &str) {
    for [name, rtype, expected] in table::rows(answers) {
        let whole = if name.ends_with(".arpa.") {
            name.to_owned()
        } else {
            format!("{name}.cluster.local.")
        };
        for asked in [whole.to_uppercase(), whole] {
            let answer = lab.answer(&asked, rtype).await;
            assert_eq!(answer, expected, "{way}: {asked} {rtype}");
        }
    }
}

/// Checks that both modes give these answers for these objects.
async fn both(objects: &[Value], answers: &str) {
    for (way, flags) in WAYS {
        let mut lab = Lab::with_upstream(flags, upstream).await;
        lab.set_all(objects.iter().cloned()).await;
        hold(&lab, way, answers).await;
    }
}

fn upstream(asked: &Asked) -> Reaction {
    let reply = Reply::to(&asked.packet);
    match (asked.name().as_str(), asked.rtype().as_str()) {
        ("www.example.com.", "A") => reply
            .answer("www.example.com. 300 IN A 198.51.100.1")
            .into(),
        ("www.example.com.", "AAAA") => reply
            .answer("www.example.com. 300 IN AAAA 2001:db8::1")
            .into(),
        _ => reply.rcode("NXDOMAIN").into(),
    }
}

#[tokio::test]
async fn section_2_2_schema_version() {
    both(
        &[],
        r#"
            dns-version | TXT | NOERROR "1.1.0"
            dns-version | A   | NOERROR
        "#,
    )
    .await;
}

#[tokio::test]
async fn section_2_3_cluster_ip_services() {
    let ports = ["https:443", "dns:53/UDP", ":8080"];
    let objects = [
        mk_cluster_ip("my-ns", "four", &["10.3.0.100"], &ports),
        mk_cluster_ip("my-ns", "six", &["2001:db8::1"], &ports),
        mk_cluster_ip("my-ns", "both", &["10.3.0.101", "2001:db8::2"], &ports),
    ];
    both(
        &objects,
        "
            # 2.3.1: A and AAAA records
            four.my-ns.svc             | A    | NOERROR 10.3.0.100
            four.my-ns.svc             | AAAA | NOERROR
            six.my-ns.svc              | A    | NOERROR
            six.my-ns.svc              | AAAA | NOERROR 2001:db8::1
            both.my-ns.svc             | A    | NOERROR 10.3.0.101
            both.my-ns.svc             | AAAA | NOERROR 2001:db8::2
            none.my-ns.svc             | A    | NXDOMAIN
            # 2.3.2: SRV records of ports with a name; ports without a name have none
            _https._tcp.four.my-ns.svc | SRV  | NOERROR 10 100 443 four.my-ns.svc.cluster.local.
            _dns._udp.four.my-ns.svc   | SRV  | NOERROR 10 100 53 four.my-ns.svc.cluster.local.
            _https._tcp.six.my-ns.svc  | SRV  | NOERROR 10 100 443 six.my-ns.svc.cluster.local.
            _https._tcp.both.my-ns.svc | SRV  | NOERROR 10 50 443 both.my-ns.svc.cluster.local.
            _dns._tcp.four.my-ns.svc   | SRV  | NXDOMAIN
            # 2.3.3: PTR records
            100.0.3.10.in-addr.arpa.   | PTR  | NOERROR four.my-ns.svc.cluster.local.
            1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa. | PTR  | NOERROR six.my-ns.svc.cluster.local.
            101.0.3.10.in-addr.arpa.   | PTR  | NOERROR both.my-ns.svc.cluster.local.
            2.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa. | PTR  | NOERROR both.my-ns.svc.cluster.local.
        ",
    )
    .await;
}

#[tokio::test]
async fn section_2_3_srv_additional_addresses() {
    for (way, flags) in WAYS {
        let mut lab = Lab::start(flags).await;
        lab.set(mk_cluster_ip(
            "my-ns",
            "both",
            &["10.3.0.101", "2001:db8::2"],
            &["https:443"],
        ))
        .await;
        let answer = lab
            .ask("_https._tcp.both.my-ns.svc.cluster.local.", "SRV")
            .await;
        let mut additional: Vec<String> =
            answer.additional.iter().map(ToString::to_string).collect();
        additional.sort();
        let expected = [
            "both.my-ns.svc.cluster.local. 30 IN A 10.3.0.101",
            "both.my-ns.svc.cluster.local. 30 IN AAAA 2001:db8::2",
        ];
        assert_eq!(additional, expected, "{way}");
    }
}

/// The address without a hostname gets the label `3766346139356635`. The label must not change,
/// because the original kube-dns has the same label in its SRV answers.
const HEADLESS: &str = "
    # 2.4.1: A and AAAA records of the Service and of each endpoint
    set.my-ns.svc                  | A    | NOERROR 10.233.0.1 10.3.0.100 10.3.0.101
    set.my-ns.svc                  | AAAA | NOERROR 2001:db8::1
    my-pet.set.my-ns.svc           | A    | NOERROR 10.3.0.100
    my-pet.set.my-ns.svc           | AAAA | NOERROR 2001:db8::1
    my-pet-2.set.my-ns.svc         | A    | NOERROR 10.3.0.101
    my-pet-2.set.my-ns.svc         | AAAA | NOERROR
    3766346139356635.set.my-ns.svc | A    | NOERROR 10.233.0.1
    my-pet-3.set.my-ns.svc         | A    | NXDOMAIN
    # 2.4.2: SRV records, one for each endpoint and named port
    _https._tcp.set.my-ns.svc | SRV | NOERROR 10 33 443 3766346139356635.set.my-ns.svc.cluster.local. \
        10 33 443 my-pet-2.set.my-ns.svc.cluster.local. 10 33 443 my-pet.set.my-ns.svc.cluster.local.
    # 2.4.3: PTR records of endpoints with a hostname
    100.0.3.10.in-addr.arpa. | PTR | NOERROR my-pet.set.my-ns.svc.cluster.local.
    101.0.3.10.in-addr.arpa. | PTR | NOERROR my-pet-2.set.my-ns.svc.cluster.local.
    1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa. | PTR | NOERROR my-pet.set.my-ns.svc.cluster.local.
";

#[tokio::test]
async fn section_2_4_headless_services() {
    for (way, flags) in WAYS {
        let mut lab = Lab::start(flags).await;
        lab.set(mk_headless("my-ns", "set", &["https:443"])).await;
        // Without ready endpoints: NXDOMAIN (2.4.1).
        hold(&lab, way, "set.my-ns.svc | A | NXDOMAIN").await;
        let addresses = [
            "10.3.0.100 my-pet",
            "10.3.0.101 my-pet-2",
            "2001:db8::1 my-pet",
            "10.233.0.1",
        ];
        lab.set(mk_endpoints("my-ns", "set", &addresses, &["https:443"]))
            .await;
        hold(&lab, way, HEADLESS).await;
        let unnamed = match way {
            "strict" => "NOERROR 3766346139356635.set.my-ns.svc.cluster.local.",
            _ => "NXDOMAIN",
        };
        let row = format!("1.0.233.10.in-addr.arpa. | PTR | {unnamed}");
        hold(&lab, way, &row).await;
    }
}

#[tokio::test]
async fn section_2_4_unready_endpoints() {
    for (way, flags) in WAYS {
        let mut lab = Lab::start(flags).await;
        let subsets = json!([{
            "addresses": [{"ip": "10.3.0.100", "hostname": "up"}],
            "notReadyAddresses": [{"ip": "10.3.0.101", "hostname": "coming"}],
            "ports": [{"name": "https", "port": 443, "protocol": "TCP"}],
        }]);
        let mut service = mk_headless("my-ns", "set", &["https:443"]);
        lab.set(service.clone()).await;
        lab.set(mk_endpoints_of("my-ns", "set", subsets)).await;
        let ready_only = "
            set.my-ns.svc        | A | NOERROR 10.3.0.100
            coming.set.my-ns.svc | A | NXDOMAIN
        ";
        hold(&lab, way, ready_only).await;
        service["spec"]["publishNotReadyAddresses"] = json!(true);
        lab.set(service).await;
        let all = "
            set.my-ns.svc        | A | NOERROR 10.3.0.100 10.3.0.101
            coming.set.my-ns.svc | A | NOERROR 10.3.0.101
        ";
        hold(&lab, way, all).await;
    }
}

/// Owner and data of the additional records of `rtype`, sorted.
fn additional(answer: &Message, rtype: u16) -> Vec<String> {
    let records = answer
        .additional
        .iter()
        .filter(|record| record.rtype == rtype);
    let mut lines: Vec<String> = records
        .map(|record| format!("{} {}", record.name, record.data))
        .collect();
    lines.sort();
    lines
}

/// ExternalName Services and their targets.
const ALIASES: &str = "
    in      | four.my-ns.svc.cluster.local
    far     | in.my-ns.svc.cluster.local
    lost    | none.my-ns.svc.cluster.local
    astray  | lost.my-ns.svc.cluster.local
    nowhere | nowhere.example.com
    abroad  | nowhere.my-ns.svc.cluster.local
";

#[tokio::test]
async fn srv_additional_section_has_cnames_only_if_they_lead_to_address() {
    for (way, flags) in WAYS {
        let mut lab = Lab::with_upstream(flags, upstream).await;
        let aliases = table::rows(ALIASES);
        let aliases = aliases
            .into_iter()
            .map(|[name, target]| mk_external_name("my-ns", name, target));
        let four = mk_cluster_ip("my-ns", "four", &["10.3.0.100"], &["https:443"]);
        lab.set_all(aliases.chain([four])).await;
        let aliases: &[&str] = &["in.my-ns.svc.cluster.local. four.my-ns.svc.cluster.local."];
        let addresses: &[&str] = &["four.my-ns.svc.cluster.local. 10.3.0.100"];
        for (name, cnames, a) in [
            ("far", aliases, addresses),
            ("lost", &[], &[]),
            ("astray", &[], &[]),
            ("nowhere", &[], &[]),
            ("abroad", &[], &[]),
        ] {
            let answer = lab
                .ask(&format!("{name}.my-ns.svc.cluster.local."), "SRV")
                .await;
            if way == "strict" {
                // A name with a CNAME has no other records.
                let counts = (answer.answer_data("CNAME").len(), answer.answer.len());
                assert_eq!(counts, (1, 1), "{name}");
                continue;
            }
            assert_eq!(answer.answer_data("SRV").len(), 1, "{way}: {name}");
            let found = (additional(&answer, 5), additional(&answer, 1));
            assert_eq!(found, (owned(cnames), owned(a)), "{way}: {name}");
        }
    }
}

fn owned(lines: &[&str]) -> Vec<String> {
    lines.iter().map(|line| (*line).to_owned()).collect()
}

#[tokio::test]
async fn section_2_5_external_names() {
    let objects = [
        mk_cluster_ip("my-ns", "four", &["10.3.0.100"], &["https:443"]),
        mk_external_name("my-ns", "out", "www.example.com"),
        mk_external_name("my-ns", "in", "four.my-ns.svc.cluster.local"),
        mk_external_name("my-ns", "nowhere", "nowhere.example.com"),
    ];
    both(
        &objects,
        "
            out.my-ns.svc     | CNAME | NOERROR -> www.example.com.
            out.my-ns.svc     | A     | NOERROR -> www.example.com. 198.51.100.1
            out.my-ns.svc     | AAAA  | NOERROR -> www.example.com. 2001:db8::1
            in.my-ns.svc      | CNAME | NOERROR -> four.my-ns.svc.cluster.local.
            in.my-ns.svc      | A     | NOERROR -> four.my-ns.svc.cluster.local. 10.3.0.100
            in.my-ns.svc      | AAAA  | NOERROR -> four.my-ns.svc.cluster.local.
            nowhere.my-ns.svc | CNAME | NOERROR -> nowhere.example.com.
            nowhere.my-ns.svc | A     | NOERROR -> nowhere.example.com.
        ",
    )
    .await;
}

#[tokio::test]
async fn name_server_exists_only_in_strict_mode() {
    for (way, flags) in WAYS {
        let mut lab = Lab::start(flags).await;
        let dns = ["10.3.0.10", "2001:db8::53"];
        lab.set(mk_cluster_ip(
            "kube-system",
            "kube-dns",
            &dns,
            &["dns:53/UDP"],
        ))
        .await;
        let (addresses, servers, additional) = match way {
            "strict" => (
                "
                    ns.dns | A    | NOERROR 10.3.0.10
                    ns.dns | AAAA | NOERROR 2001:db8::53
                ",
                vec!["ns.dns.cluster.local.".to_owned()],
                2,
            ),
            _ => ("ns.dns | A | NXDOMAIN", vec![], 0),
        };
        hold(&lab, way, addresses).await;
        let apex = lab.ask("cluster.local.", "NS").await;
        let shown = (apex.answer_data("NS"), apex.additional.len());
        assert_eq!(shown, (servers, additional), "{way}");
    }
}
