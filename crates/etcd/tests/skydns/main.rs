//! The same answers as of SkyDNS and CoreDNS' etcd plugin: tables of records and answers from their own tests, and the
//! keys that kube2sky and external-dns write. The keys of each table are written to a real etcd and watched by a feed;
//! the engine answers the queries.
//!
//! TTLs, SOA records and the order of records are not compared.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test whose set-up fails has to end there")]

mod coredns;
mod external_dns;
mod kube2sky;
mod skydns;
mod table;
