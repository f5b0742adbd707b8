//! Keys that external-dns writes with `--provider=coredns` and a TXT registry. Each target has a
//! key, with a random label in front of the name, which `targetstrip` removes. The owner is a text
//! at `a-NAME` or `cname-NAME`.

use crate::table::Served;

const MESSAGES: &[(&str, &str)] = &[
    (
        "4a1b2c3d.nginx.example.org",
        r#"{"host":"192.0.2.1","ttl":60,"targetstrip":1}"#,
    ),
    (
        "5e6f7a8b.nginx.example.org",
        r#"{"host":"192.0.2.2","ttl":60,"targetstrip":1}"#,
    ),
    (
        "0c1d2e3f.nginx.example.org",
        r#"{"host":"2001:db8::1","ttl":60,"targetstrip":1}"#,
    ),
    (
        "11223344.a-nginx.example.org",
        r#"{"text":"\"heritage=external-dns,external-dns/owner=default\"","targetstrip":1}"#,
    ),
    (
        "99aabbcc.www.example.org",
        r#"{"host":"lb.example.net","targetstrip":1}"#,
    ),
    (
        "55667788.cname-www.example.org",
        r#"{"text":"\"heritage=external-dns,external-dns/owner=default\"","targetstrip":1,"setIdentifier":"one"}"#,
    ),
    // Releases before 0.12 wrote the owner into the message of the target.
    (
        "0a0b0c0d.old.example.org",
        r#"{"host":"192.0.2.9","text":"\"heritage=external-dns\"","targetstrip":1}"#,
    ),
    // Groups, from the annotation `coredns-group`.
    (
        "deadbeef.grouped.example.org",
        r#"{"host":"192.0.2.5","targetstrip":1,"group":"g1"}"#,
    ),
    (
        "cafecafe.below.grouped.example.org",
        r#"{"host":"192.0.2.6","targetstrip":1,"group":"g2"}"#,
    ),
];

const OUTSIDE: &[&str] = &["lb.example.net A 198.51.100.1"];

const CASES: &[(&str, &str)] = &[
    (
        "nginx.example.org A",
        "nginx.example.org. A 192.0.2.1\nnginx.example.org. A 192.0.2.2",
    ),
    (
        "nginx.example.org AAAA",
        "nginx.example.org. AAAA 2001:db8::1",
    ),
    (
        "nginx.example.org SRV",
        "nginx.example.org. SRV 10 33 0 nginx.example.org.
         + nginx.example.org. A 192.0.2.1
         + nginx.example.org. A 192.0.2.2
         + nginx.example.org. AAAA 2001:db8::1",
    ),
    ("nginx.example.org TXT", "NODATA"),
    (
        "a-nginx.example.org TXT",
        r#"a-nginx.example.org. TXT "\"heritage=external-dns,external-dns/owner=default\"""#,
    ),
    ("a-nginx.example.org A", "NODATA"),
    (
        "www.example.org A",
        "lb.example.net. A 198.51.100.1
         www.example.org. CNAME lb.example.net.",
    ),
    (
        "cname-www.example.org TXT",
        r#"cname-www.example.org. TXT "\"heritage=external-dns,external-dns/owner=default\"""#,
    ),
    ("old.example.org A", "old.example.org. A 192.0.2.9"),
    (
        "old.example.org TXT",
        r#"old.example.org. TXT "\"heritage=external-dns\"""#,
    ),
    ("grouped.example.org A", "grouped.example.org. A 192.0.2.5"),
    (
        "below.grouped.example.org A",
        "below.grouped.example.org. A 192.0.2.6",
    ),
    ("nginx.example.org NS", "NODATA"),
    ("missing.example.org TXT", "NXDOMAIN"),
];

#[tokio::test]
async fn records_of_external_dns_are_served() {
    let untested = "what external-dns writes is";
    let Some(served) = Served::from(&["example.org"], MESSAGES, untested).await else {
        return;
    };
    served.check(CASES, OUTSIDE);
}
