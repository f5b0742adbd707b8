//! Answers of SkyDNS and CoreDNS' etcd plugin: the tables of their own tests about records, and the keys that kube2sky
//! and external-dns write. Each table is put into a real etcd, followed by a feed and asked through the engine.
//!
//! TTLs, SOA records and the order of records are not compared.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test whose set-up fails has to end there")]

mod coredns;
mod external_dns;
mod kube2sky;
mod skydns;
mod table;
