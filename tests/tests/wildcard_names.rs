//! Wildcards in `hosts` and `aliases` of the ConfigMap, from an edit with `kubectl` to an answer of a
//! real dnsmasq.

use testkit::{eventually, table};
use tests::e2e::{PATIENCE, Pod};

/// Queries, and the lines of `dig +short`.
const ANSWERS: &str = r"
    a.apps.test A         | 192.0.2.11
    a.b.apps.test A       | 192.0.2.11
    a.apps.test AAAA      |
    # a listed name, and a longer wildcard
    fixed.apps.test A     | 192.0.2.12
    a.shop.apps.test A    | 10.96.12.80
    a.shop.apps.test AAAA | fd00:10:96::c80
    # the domain itself, and a name beside it, are external
    apps.test A           |
    xapps.test A          |
";

#[tokio::test]
async fn wildcards_answer_through_dnsmasq() {
    let pod = Pod::start().await;
    let (dig, kubectl) = (pod.dig(), pod.kubectl());

    // Spaces separate the words of the command, so the spaces in the value are escaped.
    let hosts = r"192.0.2.11\u0020*.apps.test\n192.0.2.12\u0020fixed.apps.test";
    let aliases = r#"{\"*.shop.apps.test\":\"web.default\"}"#;
    let patch = format!(r#"{{"data":{{"hosts":"{hosts}","aliases":"{aliases}"}}}}"#);
    kubectl
        .run(&format!(
            "patch configmap -n kube-system kube-dns --type merge -p {patch}"
        ))
        .await;
    eventually(PATIENCE, || async {
        dig.short("first.apps.test A").await == ["192.0.2.11"]
    })
    .await;

    // dnsmasq answers the later rounds from its cache.
    for transport in ["+notcp", "+tcp", "+notcp"] {
        for [question, expected] in table::rows(ANSWERS) {
            let lines = dig.short(&format!("{transport} {question}")).await;
            assert_eq!(lines.join(", "), expected, "{transport} {question}");
        }
    }
    let status = dig.status("xapps.test A").await;
    assert_eq!(status.as_deref(), Some("NXDOMAIN"));

    // Without the two keys, the names are external again, even those that dnsmasq has cached.
    let patch = r#"{"data":{"hosts":null,"aliases":null}}"#;
    kubectl
        .run(&format!(
            "patch configmap -n kube-system kube-dns --type merge -p {patch}"
        ))
        .await;
    eventually(PATIENCE, || async {
        dig.status("a.apps.test A").await.as_deref() == Some("NXDOMAIN")
    })
    .await;
}
