//! Answers are compared with those of SkyDNS and of CoreDNS' etcd plugin. Some tables of records
//! and answers come from the tests of SkyDNS and CoreDNS. The other tables have records like those
//! that kube2sky and external-dns write. Each test writes its records to a real etcd, reads them
//! back, and answers queries.
//!
//! TTLs, SOA records and the order of records are not compared.

use crate::table::{Served, check_table};

#[tokio::test]
async fn answers_match_table_of_skydns() {
    check_table(include_str!("tables/skydns.txt"), "the table of SkyDNS").await;
}

#[tokio::test]
async fn answers_match_tables_of_coredns() {
    for table in [
        include_str!("tables/coredns-lookup.txt"),
        include_str!("tables/coredns-cname.txt"),
        include_str!("tables/coredns-other.txt"),
    ] {
        check_table(table, "a table of CoreDNS").await;
    }
}

#[tokio::test]
async fn records_of_external_dns_are_served() {
    let table = include_str!("tables/external-dns.txt");
    check_table(table, "what external-dns writes").await;
}

#[tokio::test]
async fn records_of_kube2sky_are_served_as_skydns_did() {
    check_table(include_str!("tables/kube2sky.txt"), "what kube2sky wrote").await;
}

#[tokio::test]
async fn long_texts_are_several_strings() {
    let value = format!(r#"{{"text":"{}"}}"#, "0".repeat(600));
    let messages = [("large600.skydns.test", &*value)];
    let Some(served) = Served::from(&["skydns.test"], &messages, "a long text").await else {
        return;
    };
    let strings = [255, 255, 90].map(|length| format!("\"{}\"", "0".repeat(length)));
    let expected = format!("large600.skydns.test. TXT {}", strings.join(" "));
    assert_eq!(served.ask("large600.skydns.test TXT", &[]), expected);
}
