//! Zones of a real etcd. A feed ([`etcd::EtcdFeed`]) lists and watches the keys of a zone. Queries
//! are answered from the SkyDNS messages in etcd.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test whose set-up fails has to end there"
)]

mod feed;
mod relay;
mod seen;
mod skydns;
mod table;

use std::time::Duration;

use etcd::EtcdAccess;

/// Timeout of each wait. The timeout is long, because a machine may be slow.
const TIMEOUT: Duration = Duration::from_mins(1);

fn access(url: &str) -> EtcdAccess {
    EtcdAccess {
        members: vec![url.parse().unwrap()],
        ..EtcdAccess::default()
    }
}
