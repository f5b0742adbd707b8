//! The table of SkyDNS 2.5.3a (`server/server_test.go`), without the cases for DNSSEC, class CHAOS
//! and the flag `-local`.

use crate::table::Served;

const MESSAGES: &[(&str, &str)] = &[
    (
        "100.server1.development.region1.skydns.test",
        r#"{"host":"server1","port":8080}"#,
    ),
    (
        "101.server2.production.region1.skydns.test",
        r#"{"host":"server2","port":80}"#,
    ),
    (
        "102.server4.development.region6.skydns.test",
        r#"{"host":"server4","port":80,"priority":333}"#,
    ),
    (
        "103.server4.development.region2.skydns.test",
        r#"{"host":"server3"}"#,
    ),
    ("a.ipaddr.skydns.test", r#"{"host":"172.16.1.1"}"#),
    ("b.ipaddr.skydns.test", r#"{"host":"172.16.1.2"}"#),
    (
        "1.backend.in.skydns.test",
        r#"{"host":"ipaddr.skydns.test"}"#,
    ),
    (
        "104.server1.development.region1.skydns.test",
        r#"{"host":"10.0.0.1"}"#,
    ),
    (
        "105.server3.production.region2.skydns.test",
        r#"{"host":"2001::8:8:8:8"}"#,
    ),
    (
        "1.cname.skydns.test",
        r#"{"host":"104.server1.development.region1.skydns.test"}"#,
    ),
    (
        "2.cname.skydns.test",
        r#"{"host":"100.server1.development.region1.skydns.test"}"#,
    ),
    ("external1.cname.skydns.test", r#"{"host":"www.miek.nl"}"#),
    ("ext1.cname2.skydns.test", r#"{"host":"www.miek.nl"}"#),
    ("ext2.cname2.skydns.test", r#"{"host":"www.miek.nl"}"#),
    (
        "external2.cname.skydns.test",
        r#"{"host":"wwwwwww.miek.nl"}"#,
    ),
    ("3.cname.skydns.test", r#"{"host":"4.cname.skydns.test"}"#),
    ("4.cname.skydns.test", r#"{"host":"3.cname.skydns.test"}"#),
    ("ttl.skydns.test", r#"{"host":"10.0.0.2","ttl":360}"#),
    ("1.0.0.10.in-addr.arpa", r#"{"host":"reverse.example.com"}"#),
    (
        "100.server1.region5.skydns.test",
        r#"{"host":"server1","weight":130}"#,
    ),
    (
        "101.server2.region5.skydns.test",
        r#"{"host":"server2","weight":80}"#,
    ),
    (
        "103.server3.region5.skydns.test",
        r#"{"host":"server3","weight":150}"#,
    ),
    (
        "104.server4.region5.skydns.test",
        r#"{"host":"server4","priority":30}"#,
    ),
    ("a.ipaddr2.skydns.test", r#"{"host":"172.16.1.1"}"#),
    ("b.ipaddr2.skydns.test", r#"{"host":"2001::8:8:8:8"}"#),
    (
        "both.v4v6.test.skydns.test",
        r#"{"host":"ipaddr2.skydns.test"}"#,
    ),
    (
        "x.bar.skydns.test",
        r#"{"host":"192.168.0.1","port":80,"targetstrip":1}"#,
    ),
    (
        "y.bar.skydns.test",
        r#"{"host":"bar.skydns.local","port":443}"#,
    ),
    ("a.ns.dns.skydns.test", r#"{"host":"10.0.0.2"}"#),
    ("b.ns.dns.skydns.test", r#"{"host":"10.0.0.3"}"#),
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
    ("upper.skydns.test", r#"{"host":"127.0.0.1","port":443}"#),
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
        "a.mail2.skydns.test",
        r#"{"host":"mx2.skydns.test","priority":50,"mail":true}"#,
    ),
    (
        "a.mx2.skydns.test",
        r#"{"host":"a.ipaddr.skydns.test","mail":true}"#,
    ),
    (
        "b.mx2.skydns.test",
        r#"{"host":"b.ipaddr.skydns.test","mail":true}"#,
    ),
    ("a.dom.skydns.test", r#"{"host":"127.0.0.1","group":"g1"}"#),
    (
        "b.sub.dom.skydns.test",
        r#"{"host":"127.0.0.2","group":"g1"}"#,
    ),
    ("a.dom2.skydns.test", r#"{"host":"127.0.0.1","group":"g1"}"#),
    ("b.sub.dom2.skydns.test", r#"{"host":"127.0.0.2"}"#),
    ("a.dom1.skydns.test", r#"{"host":"127.0.0.1","group":"g1"}"#),
    (
        "b.sub.dom1.skydns.test",
        r#"{"host":"127.0.0.2","group":"g2"}"#,
    ),
    (
        "bliep.blaat.skydns.test",
        r#"{"host":"199.43.132.53","targetstrip":1,"text":"Text"}"#,
    ),
];

const OUTSIDE: &[&str] = &[
    "www.miek.nl CNAME a.miek.nl",
    "a.miek.nl A 176.58.119.54",
    "a.miek.nl AAAA 2a01:7e00::f03c:91ff:fe79:234c",
];

const CASES: &[(&str, &str)] = &[
    (
        "100.server1.development.region1.skydns.test SRV",
        "100.server1.development.region1.skydns.test. SRV 10 100 8080 server1.",
    ),
    (
        "skydns.test NS",
        "skydns.test. NS a.ns.dns.skydns.test.
         skydns.test. NS b.ns.dns.skydns.test.
         + a.ns.dns.skydns.test. A 10.0.0.2
         + b.ns.dns.skydns.test. A 10.0.0.3",
    ),
    ("ns.dns.skydns.test A", "ns.dns.skydns.test. A 10.0.0.2\nns.dns.skydns.test. A 10.0.0.3"),
    ("104.server1.development.region1.skydns.test A", "104.server1.development.region1.skydns.test. A 10.0.0.1"),
    ("ipaddr.skydns.test A", "ipaddr.skydns.test. A 172.16.1.1\nipaddr.skydns.test. A 172.16.1.2"),
    (
        "104.server1.development.region1.skydns.test SRV",
        "104.server1.development.region1.skydns.test. SRV 10 100 0 104.server1.development.region1.skydns.test.
         + 104.server1.development.region1.skydns.test. A 10.0.0.1",
    ),
    (
        "105.server3.production.region2.skydns.test AAAA",
        "105.server3.production.region2.skydns.test. AAAA 2001::8:8:8:8",
    ),
    (
        "*.cname2.skydns.test SRV",
        "*.cname2.skydns.test. SRV 10 100 0 www.miek.nl.
         + a.miek.nl. A 176.58.119.54
         + a.miek.nl. AAAA 2a01:7e00::f03c:91ff:fe79:234c
         + www.miek.nl. CNAME a.miek.nl.",
    ),
    ("ttl.skydns.test A", "ttl.skydns.test. A 10.0.0.2"),
    (
        "1.cname.skydns.test A",
        "1.cname.skydns.test. CNAME 104.server1.development.region1.skydns.test.
         104.server1.development.region1.skydns.test. A 10.0.0.1",
    ),
    ("1.cname.skydns.test CNAME", "1.cname.skydns.test. CNAME 104.server1.development.region1.skydns.test."),
    ("2.cname.skydns.test A", "NODATA"),
    ("3.cname.skydns.test A", "NODATA"),
    (
        "external1.cname.skydns.test A",
        "a.miek.nl. A 176.58.119.54
         external1.cname.skydns.test. CNAME www.miek.nl.
         www.miek.nl. CNAME a.miek.nl.",
    ),
    ("external2.cname.skydns.test A", "NODATA"),
    ("region6.skydns.test SRV", "region6.skydns.test. SRV 333 100 80 server4."),
    (
        "region1.skydns.test SRV",
        "region1.skydns.test. SRV 10 33 0 104.server1.development.region1.skydns.test.
         region1.skydns.test. SRV 10 33 80 server2.
         region1.skydns.test. SRV 10 33 8080 server1.
         + 104.server1.development.region1.skydns.test. A 10.0.0.1",
    ),
    (
        "region5.skydns.test SRV",
        "region5.skydns.test. SRV 10 22 0 server2.
         region5.skydns.test. SRV 10 36 0 server1.
         region5.skydns.test. SRV 10 41 0 server3.
         region5.skydns.test. SRV 30 100 0 server4.",
    ),
    (
        "*.region1.skydns.test SRV",
        "*.region1.skydns.test. SRV 10 33 0 104.server1.development.region1.skydns.test.
         *.region1.skydns.test. SRV 10 33 80 server2.
         *.region1.skydns.test. SRV 10 33 8080 server1.
         + 104.server1.development.region1.skydns.test. A 10.0.0.1",
    ),
    (
        "production.*.skydns.test SRV",
        "production.*.skydns.test. SRV 10 50 0 105.server3.production.region2.skydns.test.
         production.*.skydns.test. SRV 10 50 80 server2.
         + 105.server3.production.region2.skydns.test. AAAA 2001::8:8:8:8",
    ),
    (
        "production.any.skydns.test SRV",
        "production.any.skydns.test. SRV 10 50 0 105.server3.production.region2.skydns.test.
         production.any.skydns.test. SRV 10 50 80 server2.
         + 105.server3.production.region2.skydns.test. AAAA 2001::8:8:8:8",
    ),
    ("doesnotexist.skydns.test A", "NXDOMAIN"),
    ("104.server1.development.region1.skydns.test TXT", "NODATA"),
    ("100.server1.development.region1.skydns.test A", "NODATA"),
    (
        "1.backend.in.skydns.test A",
        "1.backend.in.skydns.test. CNAME ipaddr.skydns.test.
         ipaddr.skydns.test. A 172.16.1.1
         ipaddr.skydns.test. A 172.16.1.2",
    ),
    (
        "backend.in.skydns.test A",
        "backend.in.skydns.test. CNAME ipaddr.skydns.test.
         ipaddr.skydns.test. A 172.16.1.1
         ipaddr.skydns.test. A 172.16.1.2",
    ),
    ("a1.txt.skydns.test TXT", "a1.txt.skydns.test. TXT \"abc\""),
    ("a2.txt.skydns.test TXT", "a2.txt.skydns.test. TXT \"abc abc\""),
    ("txt.skydns.test TXT", "txt.skydns.test. TXT \"abc abc\"\ntxt.skydns.test. TXT \"abc\""),
    ("1.0.0.10.in-addr.arpa PTR", "1.0.0.10.in-addr.arpa. PTR reverse.example.com."),
    ("skydns.test HINFO", "NODATA"),
    ("bar.skydns.test A", "bar.skydns.test. A 192.168.0.1"),
    (
        "bar.skydns.test SRV",
        "bar.skydns.test. SRV 10 50 443 bar.skydns.local.
         bar.skydns.test. SRV 10 50 80 bar.skydns.test.
         + bar.skydns.test. A 192.168.0.1",
    ),
    ("multiport.http.skydns.test A", "multiport.http.skydns.test. A 10.11.11.10"),
    ("uppeR.skydns.test A", "uppeR.skydns.test. A 127.0.0.1"),
    ("upper.skydns.test A", "upper.skydns.test. A 127.0.0.1"),
    (
        "1.cname.skydns.test SRV",
        "1.cname.skydns.test. SRV 10 100 0 104.server1.development.region1.skydns.test.
         + 104.server1.development.region1.skydns.test. A 10.0.0.1",
    ),
    (
        "both.v4v6.test.skydns.test SRV",
        "both.v4v6.test.skydns.test. SRV 10 100 0 ipaddr2.skydns.test.
         + ipaddr2.skydns.test. A 172.16.1.1
         + ipaddr2.skydns.test. AAAA 2001::8:8:8:8",
    ),
    ("100.server1.development.region1.skydns.test MX", "NODATA"),
    ("b.mail.skydns.test MX", "b.mail.skydns.test. MX 50 mx.miek.nl."),
    (
        "a.mail.skydns.test MX",
        "a.mail.skydns.test. MX 50 mx.skydns.test.
         + a.ipaddr.skydns.test. A 172.16.1.1
         + mx.skydns.test. CNAME a.ipaddr.skydns.test.",
    ),
    (
        "mx.skydns.test MX",
        "mx.skydns.test. MX 30 a.ipaddr.skydns.test.
         + a.ipaddr.skydns.test. A 172.16.1.1",
    ),
    ("dom.skydns.test A", "dom.skydns.test. A 127.0.0.1\ndom.skydns.test. A 127.0.0.2"),
    ("dom2.skydns.test A", "dom2.skydns.test. A 127.0.0.1\ndom2.skydns.test. A 127.0.0.2"),
    ("dom1.skydns.test A", "dom1.skydns.test. A 127.0.0.1"),
    (
        "bliep.blaat.skydns.test SRV",
        "bliep.blaat.skydns.test. SRV 10 100 0 blaat.skydns.test.
         + blaat.skydns.test. A 199.43.132.53",
    ),
];

#[tokio::test]
async fn the_table_of_skydns_holds() {
    let untested = "the table of SkyDNS is";
    let Some(served) = Served::from(&["skydns.test"], MESSAGES, untested).await else {
        return;
    };
    served.check(CASES, OUTSIDE);
    // The answer contains one of two aliases.
    let either = ["a.ipaddr", "b.ipaddr"].map(|alias| {
        format!(
            "a.mail2.skydns.test. MX 50 mx2.skydns.test.\n+ a.ipaddr.skydns.test. A 172.16.1.1\n\
             + b.ipaddr.skydns.test. A 172.16.1.2\n+ mx2.skydns.test. CNAME {alias}.skydns.test."
        )
    });
    let answered = served.ask("a.mail2.skydns.test MX", OUTSIDE);
    assert!(either.contains(&answered), "{answered}");
    // Names outside the zones in etcd are forwarded.
    assert_eq!(
        served.ask("2.0.0.10.in-addr.arpa PTR", &[]),
        "Pending(Forward(Recursive))"
    );
    assert_eq!(
        served.ask("10.in-addr.arpa NS", &[]),
        "Pending(Forward(Recursive))"
    );
}
