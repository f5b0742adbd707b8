//! Tables from the tests of CoreDNS' etcd plugin (`lookup_test.go`, `cname_test.go`,
//! `other_test.go`, `group_test.go`).

use crate::table::Served;

const LOOKUP: &[(&str, &str)] = &[
    (
        "a.server1.dev.region1.skydns.test",
        r#"{"host":"dev.server1","port":8080}"#,
    ),
    (
        "a.server1.prod.region1.skydns.test",
        r#"{"host":"10.0.0.1","port":8080}"#,
    ),
    (
        "b.server1.prod.region1.skydns.test",
        r#"{"host":"10.0.0.2","port":8080}"#,
    ),
    (
        "b.server6.prod.region1.skydns.test",
        r#"{"host":"::1","port":8080}"#,
    ),
    (
        "a.txt.server1.prod.region1.skydns.test",
        r#"{"text":"sometext"}"#,
    ),
    (
        "b.txt.server1.prod.region1.skydns.test",
        r#"{"text":"moretext"}"#,
    ),
    (
        "cname.prod.region1.skydns.test",
        r#"{"host":"unresolvable.skydns.test"}"#,
    ),
    (
        "priority.skydns.test",
        r#"{"host":"priority.server1","priority":333,"port":8080}"#,
    ),
    ("a.sub.region1.skydns.test", r#"{"host":"sub.server1"}"#),
    (
        "b.sub.region1.skydns.test",
        r#"{"host":"sub.server2","port":80}"#,
    ),
    (
        "c.sub.region1.skydns.test",
        r#"{"host":"10.0.0.1","port":8080}"#,
    ),
    (
        "a.targetstrip.skydns.test",
        r#"{"host":"10.0.0.1","port":8080,"targetstrip":1}"#,
    ),
    ("b.cname.skydns.test", r#"{"host":"a.cname.skydns.test"}"#),
    ("a.cname.skydns.test", r#"{"host":"b.cname.skydns.test"}"#),
    ("a.ns.dns.skydns.test", r#"{"host":"10.0.0.2"}"#),
    ("b.ns.dns.skydns.test", r#"{"host":"10.0.0.3"}"#),
    (
        "ns1.c.ns.dns.skydns.test",
        r#"{"host":"10.0.0.4","targetstrip":1}"#,
    ),
    (
        "ns2.c.ns.dns.skydns.test",
        r#"{"host":"10.0.0.5","targetstrip":1}"#,
    ),
    ("x.skydns_zonea.test", r#"{"host":"10.0.0.2"}"#),
    ("y.skydns_zonea.test", r#"{"host":"10.0.0.3"}"#),
    ("x.skydns_zoneb.test", r#"{"host":"10.0.0.2"}"#),
    ("y.skydns_zoneb.test", r#"{"host":"10.0.0.3"}"#),
    ("apex.dns.skydns_zoneb.test", r#"{"host":"10.0.0.4"}"#),
    ("x.skydns_zonec.test", r#"{"host":"10.0.0.2"}"#),
    ("y.skydns_zonec.test", r#"{"host":"10.0.0.3"}"#),
    ("a1.apex.dns.skydns_zonec.test", r#"{"host":"10.0.0.4"}"#),
    ("a2.apex.dns.skydns_zonec.test", r#"{"host":"10.0.0.5"}"#),
    ("x.skydns_zoned.test", r#"{"host":"10.0.0.2"}"#),
    ("a1.apex.dns.skydns_zoned.test", r#"{"host":"10.0.0.4"}"#),
    ("a2.apex.dns.skydns_zoned.test", r#"{"host":"10.0.0.5"}"#),
    ("a3.apex.dns.skydns_zoned.test", r#"{"host":"2003::8:1"}"#),
    ("a4.apex.dns.skydns_zoned.test", r#"{"host":"2003::8:2"}"#),
    ("1.0.0.10.in-addr.arpa", r#"{"host":"reverse.example.com"}"#),
];

const LOOKUP_CASES: &[(&str, &str)] = &[
    (
        "a.server1.dev.region1.skydns.test SRV",
        "a.server1.dev.region1.skydns.test. SRV 10 100 8080 dev.server1.",
    ),
    (
        "a.SERVer1.dEv.region1.skydns.tEst SRV",
        "a.SERVer1.dEv.region1.skydns.tEst. SRV 10 100 8080 dev.server1.",
    ),
    ("doesnotexist.skydns.test A", "NXDOMAIN"),
    (
        "a.server1.prod.region1.skydns.test A",
        "a.server1.prod.region1.skydns.test. A 10.0.0.1",
    ),
    (
        "a.server1.prod.region1.skydns.test SRV",
        "a.server1.prod.region1.skydns.test. SRV 10 100 8080 a.server1.prod.region1.skydns.test.
         + a.server1.prod.region1.skydns.test. A 10.0.0.1",
    ),
    (
        "b.server6.prod.region1.skydns.test AAAA",
        "b.server6.prod.region1.skydns.test. AAAA ::1",
    ),
    (
        "server1.prod.region1.skydns.test A",
        "server1.prod.region1.skydns.test. A 10.0.0.1
         server1.prod.region1.skydns.test. A 10.0.0.2",
    ),
    (
        "priority.skydns.test SRV",
        "priority.skydns.test. SRV 333 100 8080 priority.server1.",
    ),
    (
        "sub.region1.skydns.test SRV",
        "sub.region1.skydns.test. SRV 10 33 0 sub.server1.
         sub.region1.skydns.test. SRV 10 33 80 sub.server2.
         sub.region1.skydns.test. SRV 10 33 8080 c.sub.region1.skydns.test.
         + c.sub.region1.skydns.test. A 10.0.0.1",
    ),
    (
        "targetstrip.skydns.test SRV",
        "targetstrip.skydns.test. SRV 10 100 8080 targetstrip.skydns.test.
         + targetstrip.skydns.test. A 10.0.0.1",
    ),
    ("cname.prod.region1.skydns.test A", "NODATA"),
    (
        "txt.server1.prod.region1.skydns.test TXT",
        "txt.server1.prod.region1.skydns.test. TXT \"moretext\"
         txt.server1.prod.region1.skydns.test. TXT \"sometext\"",
    ),
    (
        "*.region1.skydns.test SRV",
        "*.region1.skydns.test. SRV 10 12 0 sub.server1.
         *.region1.skydns.test. SRV 10 12 0 unresolvable.skydns.test.
         *.region1.skydns.test. SRV 10 12 80 sub.server2.
         *.region1.skydns.test. SRV 10 12 8080 a.server1.prod.region1.skydns.test.
         *.region1.skydns.test. SRV 10 12 8080 b.server1.prod.region1.skydns.test.
         *.region1.skydns.test. SRV 10 12 8080 b.server6.prod.region1.skydns.test.
         *.region1.skydns.test. SRV 10 12 8080 c.sub.region1.skydns.test.
         *.region1.skydns.test. SRV 10 12 8080 dev.server1.
         + a.server1.prod.region1.skydns.test. A 10.0.0.1
         + b.server1.prod.region1.skydns.test. A 10.0.0.2
         + b.server6.prod.region1.skydns.test. AAAA ::1
         + c.sub.region1.skydns.test. A 10.0.0.1",
    ),
    (
        "prod.*.skydns.test SRV",
        "prod.*.skydns.test. SRV 10 25 0 unresolvable.skydns.test.
         prod.*.skydns.test. SRV 10 25 8080 a.server1.prod.region1.skydns.test.
         prod.*.skydns.test. SRV 10 25 8080 b.server1.prod.region1.skydns.test.
         prod.*.skydns.test. SRV 10 25 8080 b.server6.prod.region1.skydns.test.
         + a.server1.prod.region1.skydns.test. A 10.0.0.1
         + b.server1.prod.region1.skydns.test. A 10.0.0.2
         + b.server6.prod.region1.skydns.test. AAAA ::1",
    ),
    (
        "prod.any.skydns.test SRV",
        "prod.any.skydns.test. SRV 10 25 0 unresolvable.skydns.test.
         prod.any.skydns.test. SRV 10 25 8080 a.server1.prod.region1.skydns.test.
         prod.any.skydns.test. SRV 10 25 8080 b.server1.prod.region1.skydns.test.
         prod.any.skydns.test. SRV 10 25 8080 b.server6.prod.region1.skydns.test.
         + a.server1.prod.region1.skydns.test. A 10.0.0.1
         + b.server1.prod.region1.skydns.test. A 10.0.0.2
         + b.server6.prod.region1.skydns.test. AAAA ::1",
    ),
    ("a.cname.skydns.test A", "NODATA"),
    ("a.server1.dev.region1.skydns.test TXT", "NODATA"),
    ("a.server1.dev.region1.skydns.test HINFO", "NODATA"),
    (
        "a.server1.nonexistent.region1.skydns.test HINFO",
        "NXDOMAIN",
    ),
    (
        "skydns.test NS",
        "skydns.test. NS a.ns.dns.skydns.test.
         skydns.test. NS b.ns.dns.skydns.test.
         skydns.test. NS c.ns.dns.skydns.test.
         + a.ns.dns.skydns.test. A 10.0.0.2
         + b.ns.dns.skydns.test. A 10.0.0.3
         + c.ns.dns.skydns.test. A 10.0.0.4
         + c.ns.dns.skydns.test. A 10.0.0.5",
    ),
    ("a.skydns.test NS", "NXDOMAIN"),
    (
        "ns.dns.skydns.test A",
        "ns.dns.skydns.test. A 10.0.0.2
         ns.dns.skydns.test. A 10.0.0.3
         ns.dns.skydns.test. A 10.0.0.4
         ns.dns.skydns.test. A 10.0.0.5",
    ),
    (
        "skydns_zonea.test A",
        "skydns_zonea.test. A 10.0.0.2
         skydns_zonea.test. A 10.0.0.3",
    ),
    ("skydns_zoneb.test A", "skydns_zoneb.test. A 10.0.0.4"),
    (
        "skydns_zonec.test A",
        "skydns_zonec.test. A 10.0.0.4
         skydns_zonec.test. A 10.0.0.5",
    ),
    (
        "skydns_zoned.test A",
        "skydns_zoned.test. A 10.0.0.4
         skydns_zoned.test. A 10.0.0.5",
    ),
    (
        "skydns_zoned.test AAAA",
        "skydns_zoned.test. AAAA 2003::8:1
         skydns_zoned.test. AAAA 2003::8:2",
    ),
    (
        "1.0.0.10.in-addr.arpa PTR",
        "1.0.0.10.in-addr.arpa. PTR reverse.example.com.",
    ),
];

const CNAME: &[(&str, &str)] = &[
    (
        "a.server1.dev.region1.skydns.test",
        r#"{"host":"cname1.region2.skydns.test"}"#,
    ),
    (
        "cname1.region2.skydns.test",
        r#"{"host":"cname2.region2.skydns.test"}"#,
    ),
    (
        "cname2.region2.skydns.test",
        r#"{"host":"cname3.region2.skydns.test"}"#,
    ),
    (
        "cname3.region2.skydns.test",
        r#"{"host":"cname4.region2.skydns.test"}"#,
    ),
    (
        "cname4.region2.skydns.test",
        r#"{"host":"cname5.region2.skydns.test"}"#,
    ),
    (
        "cname5.region2.skydns.test",
        r#"{"host":"cname6.region2.skydns.test"}"#,
    ),
    (
        "cname6.region2.skydns.test",
        r#"{"host":"endpoint.region2.skydns.test"}"#,
    ),
    ("endpoint.region2.skydns.test", r#"{"host":"10.240.0.1"}"#),
    (
        "region2.skydns.test",
        r#"{"host":"mainendpoint.region2.skydns.test"}"#,
    ),
    (
        "cname3.region3.skydns.test",
        r#"{"host":"cname2.region3.skydns.test"}"#,
    ),
    (
        "cname2.region3.skydns.test",
        r#"{"host":"cname1.region3.skydns.test"}"#,
    ),
    (
        "cname1.region3.skydns.test",
        r#"{"host":"endpoint.region3.skydns.test"}"#,
    ),
    (
        "endpoint.region3.skydns.test",
        r#"{"text":"SOME-RECORD-TEXT"}"#,
    ),
];

const CNAME_CASES: &[(&str, &str)] = &[
    (
        "a.server1.dev.region1.skydns.test SRV",
        "a.server1.dev.region1.skydns.test. SRV 10 100 0 cname1.region2.skydns.test.
         + cname1.region2.skydns.test. CNAME cname2.region2.skydns.test.
         + cname2.region2.skydns.test. CNAME cname3.region2.skydns.test.
         + cname3.region2.skydns.test. CNAME cname4.region2.skydns.test.
         + cname4.region2.skydns.test. CNAME cname5.region2.skydns.test.
         + cname5.region2.skydns.test. CNAME cname6.region2.skydns.test.
         + cname6.region2.skydns.test. CNAME endpoint.region2.skydns.test.
         + endpoint.region2.skydns.test. A 10.240.0.1",
    ),
    (
        "region2.skydns.test CNAME",
        "region2.skydns.test. CNAME mainendpoint.region2.skydns.test.",
    ),
    ("endpoint.region3.skydns.test CNAME", "NODATA"),
    (
        "cname3.region3.skydns.test TXT",
        "cname1.region3.skydns.test. CNAME endpoint.region3.skydns.test.
         cname2.region3.skydns.test. CNAME cname1.region3.skydns.test.
         cname3.region3.skydns.test. CNAME cname2.region3.skydns.test.
         endpoint.region3.skydns.test. TXT \"SOME-RECORD-TEXT\"",
    ),
];

const OTHER: &[(&str, &str)] = &[
    (
        "a.server1.dev.region1.skydns.test",
        r#"{"host":"dev.server1","port":8080}"#,
    ),
    (
        "a.mail.skydns.test",
        r#"{"host":"mx.skydns.test","priority":50,"mail":true}"#,
    ),
    (
        "b.mail.skydns.test",
        r#"{"host":"mx.miek.nl","priority":50,"mail":true}"#,
    ),
    (
        "a.mx.skydns.test",
        r#"{"host":"a.ipaddr.skydns.test","priority":30,"mail":true}"#,
    ),
    (
        "a.mx2.skydns.test",
        r#"{"host":"a.ipaddr.skydns.test","mail":true}"#,
    ),
    (
        "b.mx2.skydns.test",
        r#"{"host":"b.ipaddr.skydns.test","mail":true}"#,
    ),
    (
        "a.mx3.skydns.test",
        r#"{"host":"a.ipaddr.skydns.test","priority":20,"mail":true}"#,
    ),
    (
        "b.mx3.skydns.test",
        r#"{"host":"a.ipaddr.skydns.test","priority":30,"mail":true}"#,
    ),
    ("a.ipaddr.skydns.test", r#"{"host":"172.16.1.1"}"#),
    ("b.ipaddr.skydns.test", r#"{"host":"172.16.1.2"}"#),
    ("a1.txt.skydns.test", r#"{"text":"abc"}"#),
    ("a2.txt.skydns.test", r#"{"text":"abc abc"}"#),
    (
        "http.multiport.http.skydns.test",
        r#"{"host":"10.11.11.10","port":80}"#,
    ),
    (
        "https.multiport.http.skydns.test",
        r#"{"host":"10.11.11.10","port":443}"#,
    ),
    ("a.dom3.skydns.test", r#"{"text":"foo","group":"g1"}"#),
    ("b.sub.dom3.skydns.test", r#"{"text":"bar","group":"g1"}"#),
];

const OTHER_CASES: &[(&str, &str)] = &[
    ("a.server1.dev.region1.skydns.test MX", "NODATA"),
    (
        "a.mail.skydns.test MX",
        "a.mail.skydns.test. MX 50 mx.skydns.test.
         + a.ipaddr.skydns.test. A 172.16.1.1
         + mx.skydns.test. CNAME a.ipaddr.skydns.test.",
    ),
    (
        "mx2.skydns.test MX",
        "mx2.skydns.test. MX 10 a.ipaddr.skydns.test.
         mx2.skydns.test. MX 10 b.ipaddr.skydns.test.
         + a.ipaddr.skydns.test. A 172.16.1.1
         + b.ipaddr.skydns.test. A 172.16.1.2",
    ),
    (
        "mx3.skydns.test MX",
        "mx3.skydns.test. MX 20 a.ipaddr.skydns.test.
         mx3.skydns.test. MX 30 a.ipaddr.skydns.test.
         + a.ipaddr.skydns.test. A 172.16.1.1",
    ),
    ("a1.txt.skydns.test TXT", "a1.txt.skydns.test. TXT \"abc\""),
    (
        "a2.txt.skydns.test TXT",
        "a2.txt.skydns.test. TXT \"abc abc\"",
    ),
    (
        "multiport.http.skydns.test A",
        "multiport.http.skydns.test. A 10.11.11.10",
    ),
    (
        "dom3.skydns.test TXT",
        "dom3.skydns.test. TXT \"bar\"
         dom3.skydns.test. TXT \"foo\"",
    ),
];

const ZONES: [&str; 5] = [
    "skydns.test",
    "skydns_zonea.test",
    "skydns_zoneb.test",
    "skydns_zonec.test",
    "skydns_zoned.test",
];

#[tokio::test]
async fn the_tables_of_coredns_hold() {
    for (messages, cases) in [
        (LOOKUP, LOOKUP_CASES),
        (CNAME, CNAME_CASES),
        (OTHER, OTHER_CASES),
    ] {
        let Some(served) = Served::from(&ZONES, messages, "the tables of CoreDNS are").await else {
            return;
        };
        served.check(cases, &[]);
    }
}

#[tokio::test]
async fn long_texts_are_several_strings() {
    let value = format!(r#"{{"text":"{}"}}"#, "0".repeat(600));
    let messages = [("large600.skydns.test", &*value)];
    let Some(served) = Served::from(&["skydns.test"], &messages, "a long text is").await else {
        return;
    };
    let strings = [255, 255, 90].map(|length| format!("\"{}\"", "0".repeat(length)));
    let expected = format!("large600.skydns.test. TXT {}", strings.join(" "));
    assert_eq!(served.ask("large600.skydns.test TXT", &[]), expected);
}
