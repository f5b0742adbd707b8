//! Properties that must hold for any octets from outside. Each function checks one kind of
//! untrusted input.
//!
//! The fuzzers under `fuzz/` search for inputs that break these properties. The tests replay the
//! inputs in `fuzz/corpus/`. A function panics if its property does not hold. The properties seed
//! the random choices of the code under test, so that results are reproducible.
//!
//! | property | input |
//! | --- | --- |
//! | [`query()`] | one octet for records, transport and upstream answers, then a client's message |
//! | [`search()`] | one octet for the search list and the query, twelve for the records, then a name whose last label is the client's namespace |
//! | [`reply()`] | three octets that select the query, then a message from an upstream server |
//! | [`frames()`] | one octet that selects the sizes of the pieces, then a stream of messages over TCP or TLS |
//! | [`config_map()`] | a resolv.conf and the values of the `ConfigMap`, separated by NUL octets |
//! | [`probe()`] | the value of `--probe` |
//! | [`flags()`] | a command line, one word per line; the first octet selects the program |
//! | [`snapshot_file()`] | a snapshot file; the same input is read again as one octet that selects the source of endpoints, then the lines of a snapshot file without header and checksum |
//! | [`watch()`] | events of the API server, one per line |
//! | [`feed()`] | one octet that selects the kind of objects, then responses of the API server |
//! | [`transfer()`] | one octet for the server and the form of the request, then a transfer request |
//! | [`etcd_zone()`] | events of etcd for a zone; each line is either a message of a watch or a single change |

#![allow(
    clippy::missing_panics_doc,
    reason = "every property panics if it does not hold"
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

/// A property: a function that panics if the property does not hold for the input.
pub type Property = fn(&[u8]);

/// Every property with its name. The fuzzer under `fuzz/fuzz_targets/` and the directory of its
/// inputs under `fuzz/corpus/` have the same name.
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
