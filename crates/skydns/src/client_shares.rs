//! Fair shares of a limited number of places, such as those for TCP connections. A client that
//! floods the server cannot take the places of all others.
//!
//! A client may take another place while it holds fewer places than are free, and fewer than a
//! fixed maximum. With a large maximum, a single greedy client gets half of the places. If there
//! are n greedy clients, and n is much smaller than the number of places, each of them gets about
//! 1/(n + 1) of the places. About 1/(n + 1) of the places stays free for other clients.
//!
//! Places are counted for each host. A host is one IPv4 address or one IPv6 /64 network, because an
//! IPv6 host can use any address of its network.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use foldhash::fast::RandomState;
use parking_lot::Mutex;

/// A number of places with a share for each client.
#[derive(Debug)]
pub(crate) struct ClientShares {
    table: Mutex<ShareTable>,
    total: usize,
    each: usize,
}

#[derive(Debug, Default)]
struct ShareTable {
    taken: usize,
    /// Number of places taken by each host.
    hosts: HashMap<ClientHost, usize, RandomState>,
}

/// The host of a client: one IPv4 address or one IPv6 /64 network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ClientHost(IpAddr);

impl From<IpAddr> for ClientHost {
    fn from(client: IpAddr) -> Self {
        Self(match client.to_canonical() {
            IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() & !u128::from(u64::MAX)).into(),
            v4 @ IpAddr::V4(_) => v4,
        })
    }
}

/// One place. Dropping the share frees the place.
#[derive(Debug)]
pub(crate) struct ClientShare {
    shares: Arc<ClientShares>,
    host: ClientHost,
}

impl ClientShares {
    /// Creates `total` places. A client may take another place only while it holds fewer than
    /// `each` places, and fewer places than are free.
    pub(crate) fn new(total: usize, each: usize) -> Arc<Self> {
        Arc::new(Self {
            table: Mutex::default(),
            total,
            each: each.clamp(1, total),
        })
    }

    /// Takes a place for `client`; `None` if the client has used its share or no place is free.
    pub(crate) fn take_share(self: &Arc<Self>, client: IpAddr) -> Option<ClientShare> {
        let host = ClientHost::from(client);
        let mut table = self.table.lock();
        let own = table.hosts.get(&host).copied().unwrap_or(0);
        // The share of each client shrinks as the places fill up.
        let free = self.total.saturating_sub(table.taken);
        if own >= self.each.min(free) {
            return None;
        }

        table.taken += 1;
        table.hosts.insert(host, own + 1);
        Some(ClientShare {
            shares: Arc::clone(self),
            host,
        })
    }

    /// Number of places that are taken.
    pub(crate) fn taken(&self) -> usize {
        self.table.lock().taken
    }
}

impl Drop for ClientShare {
    fn drop(&mut self) {
        let mut table = self.shares.table.lock();
        table.taken -= 1;
        match table.hosts.get_mut(&self.host) {
            Some(own) if *own > 1 => *own -= 1,
            // The table contains only hosts that hold a place.
            _ => drop(table.hosts.remove(&self.host)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn client(n: usize) -> IpAddr {
        Ipv4Addr::from_bits(u32::try_from(n).unwrap()).into()
    }

    #[test]
    fn greedy_client_leaves_places_to_others() {
        let shares = ClientShares::new(8, 3);
        let mut held: Vec<ClientShare> = (0..10)
            .filter_map(|_| shares.take_share(client(1)))
            .collect();
        assert_eq!(held.len(), 3);
        held.extend((0..10).filter_map(|_| shares.take_share(client(2))));
        assert_eq!((held.len(), shares.taken()), (6, 6));
        assert!(
            shares.take_share(client(1)).is_none(),
            "client 1 must not get more than its share"
        );

        let mapped = Ipv4Addr::from_bits(1).to_ipv6_mapped();
        assert!(
            shares.take_share(mapped.into()).is_none(),
            "the mapped address must belong to the same client"
        );

        held.drain(..2);
        assert!(shares.take_share(client(1)).is_some());
    }

    #[test]
    fn host_is_ipv4_address_or_ipv6_network() {
        for (what, first, second, same) in [
            ("IPv4 addresses", "10.0.0.1", "10.0.0.2", false),
            (
                "IPv4, plain and mapped",
                "10.0.0.1",
                "::ffff:10.0.0.1",
                true,
            ),
            (
                "IPv4, both mapped",
                "::ffff:10.0.0.1",
                "::ffff:10.0.0.2",
                false,
            ),
            ("IPv6, one /64 network", "fd00::1", "fd00::ffff:0:0:2", true),
            ("IPv6, two networks", "fd00::1", "fd00:0:0:1::1", false),
        ] {
            let [first, second] =
                [first, second].map(|ip| ClientHost::from(ip.parse::<IpAddr>().unwrap()));
            assert_eq!(first == second, same, "{what}");
        }
    }

    /// Each greedy client gets at most its share, and another client still gets a place.
    #[test]
    fn greedy_clients_leave_places_free() {
        for (heavy, each, left) in [
            (1, 500, 500),
            (3, 250, 250),
            (10, 91, 90),
            (99, 10, 10),
            (400, 3, 1),
        ] {
            let shares = ClientShares::new(1000, 1000);
            let mut held = Vec::new();
            for _ in 0..1000 {
                held.extend((0..heavy).filter_map(|n| shares.take_share(client(n))));
            }
            let most = shares.table.lock().hosts.values().copied().max();
            assert_eq!(most, Some(each), "{heavy} greedy clients");
            let free = 1000 - shares.taken();
            assert!(
                free.abs_diff(left) <= 1,
                "{heavy} greedy clients leave {free} places free"
            );
            assert!(
                shares.take_share(client(1000)).is_some(),
                "with {heavy} greedy clients"
            );
        }
    }

    #[test]
    fn client_without_place_is_forgotten() {
        let shares = ClientShares::new(4, 2);
        drop((
            shares.take_share([10, 0, 0, 1].into()),
            shares.take_share([10, 0, 0, 1].into()),
        ));
        let table = shares.table.lock();
        assert_eq!((table.taken, table.hosts.len()), (0, 0));
    }
}
