//! Answers are compared with those of SkyDNS and of CoreDNS' etcd plugin. The tables of records and
//! answers come from the tests of SkyDNS and CoreDNS; further records are those that kube2sky and
//! external-dns write. Each test writes its keys to a real etcd, reads them with a feed, and
//! answers queries with the engine.
//!
//! TTLs, SOA records and the order of records are not compared.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test whose set-up fails has to end there"
)]

mod coredns;
mod external_dns;
mod kube2sky;
mod skydns;
mod table;
