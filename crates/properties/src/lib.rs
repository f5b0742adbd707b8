//! Properties that must hold for any octets from outside, one function for each untrusted input.
//!
//! The fuzzers under `fuzz/` look for inputs that break these properties, and the tests replay the inputs that they
//! have collected in `fuzz/corpus/`. A property panics when it is broken, whoever calls it. The same input always
//! takes the same way: what is random in the code under test is seeded.
//!
//! | property | what the octets are |
//! | --- | --- |
//! | [`query`] | a message to the DNS server, behind an octet that chooses records and transport |
//! | [`search`] | a name and what each name of its search list has, behind an octet that chooses list and question |
//! | [`reply`] | a message from an upstream server, behind three octets that choose who had asked for what |
//! | [`frames`] | a stream of messages, as upstreams send it over TCP and TLS, behind an octet that cuts it into pieces |
//! | [`config_map`] | the values of the `ConfigMap` and a resolv.conf, each behind the one before and a zero octet |
//! | [`probe`] | the value of `--probe` |
//! | [`flags`] | a command line, a line for each word; the first octet chooses the program |
//! | [`snapshot_file`] | a snapshot file, or lines to be made into a well-formed one |
//! | [`watch`] | what the API server tells, a line for each event |
//! | [`feed`] | what the API server sends in response to lists and watches |
//! | [`transfer`] | a request for a transfer over TCP, behind an octet that chooses key and version |
//! | [`etcd_zone`] | what etcd tells of a zone, a line for each frame of a watch or each change |

#![allow(
    clippy::missing_panics_doc,
    reason = "a property that is broken panics; it has no other way to say so"
)]

mod config_map;
mod etcd_zone;
mod example;
mod feed;
mod flags;
mod frames;
mod memory;
mod message;
mod probe;
mod query;
mod reply;
mod search;
mod snapshot_file;
mod transfer;
mod watch;

pub use config_map::config_map;
pub use etcd_zone::etcd_zone;
pub use feed::feed;
pub use flags::flags;
pub use frames::frames;
pub use probe::probe;
pub use query::query;
pub use reply::reply;
pub use search::search;
pub use snapshot_file::snapshot_file;
pub use transfer::transfer;
pub use watch::watch;

/// A property.
pub type Property = fn(&[u8]);

/// Every property with its name, which is also that of its fuzzer and of the directory of its inputs.
pub const ALL: [(&str, Property); 12] = [
    ("query", query),
    ("search", search),
    ("reply", reply),
    ("frames", frames),
    ("config_map", config_map),
    ("probe", probe),
    ("flags", flags),
    ("snapshot_file", snapshot_file),
    ("watch", watch),
    ("feed", feed),
    ("etcd_zone", etcd_zone),
    ("transfer", transfer),
];
