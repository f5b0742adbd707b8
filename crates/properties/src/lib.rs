//! Properties that must hold for any octets from outside, one function for each untrusted input.
//!
//! The fuzzers under `fuzz/` search for inputs that break these properties, and the tests replay the inputs collected in
//! `fuzz/corpus/`. A broken property panics. Results are reproducible: random choices in the code under test are seeded.
//!
//! | property | input |
//! | --- | --- |
//! | [`query`] | a message to the DNS server, behind an octet that selects records and transport |
//! | [`search`] | a name and the records of each name of its search list, behind an octet that selects list and query |
//! | [`reply`] | a message from an upstream server, behind three octets that select the query |
//! | [`frames`] | a stream of messages over TCP or TLS, behind an octet that splits it into pieces |
//! | [`config_map`] | the values of the `ConfigMap` and a resolv.conf, separated by zero octets |
//! | [`probe`] | the value of `--probe` |
//! | [`flags`] | a command line, one word per line; the first octet selects the program |
//! | [`snapshot_file`] | a snapshot file, or lines to be made into a well-formed one |
//! | [`watch`] | events of the API server, one per line |
//! | [`feed`] | responses of the API server to lists and watches |
//! | [`transfer`] | a request for a transfer over TCP, behind an octet that selects key and version |
//! | [`etcd_zone`] | events of etcd for a zone, one frame of a watch or one change per line |

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

/// Every property with its name, which is also the name of its fuzzer and of the directory of its inputs.
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
