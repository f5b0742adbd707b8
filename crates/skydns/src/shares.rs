//! What each client may take of what all clients share, so that those that flood us leave some to the others.
//!
//! A client may take another place while it has fewer than are left. Alone it gets half of them; each of n clients that want
//! all gets one in n + 1, and as many stay free for those that want few.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A number of places, of which each client may take some.
#[derive(Debug)]
pub(crate) struct Shares {
    table: Mutex<Table>,
    total: usize,
    each: usize,
}

#[derive(Debug, Default)]
struct Table {
    taken: usize,
    /// The places of each client that has any.
    clients: HashMap<IpAddr, usize>,
}

/// One place. Dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Share {
    shares: Arc<Shares>,
    client: IpAddr,
}

impl Shares {
    /// `total` places, of which each client may take up to `each`, and never more than it leaves to the others.
    pub(crate) fn new(total: usize, each: usize) -> Arc<Self> {
        Arc::new(Self { table: Mutex::default(), total, each: each.clamp(1, total) })
    }

    /// A place for `client`, unless it has its share already or none is left.
    pub(crate) fn take(self: &Arc<Self>, client: IpAddr) -> Option<Share> {
        let client = client.to_canonical();
        let mut table = self.lock();
        let own = table.clients.get(&client).copied().unwrap_or(0);
        if own >= self.each.min(self.total.saturating_sub(table.taken)) {
            return None;
        }
        table.taken += 1;
        table.clients.insert(client, own + 1);
        Some(Share { shares: Arc::clone(self), client })
    }

    /// Places that are taken.
    pub(crate) fn taken(&self) -> usize {
        self.lock().taken
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // Counts stay right whatever a thread that held the lock died of.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Share {
    /// Whose place it is.
    pub(crate) fn client(&self) -> IpAddr {
        self.client
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut table = self.shares.lock();
        table.taken -= 1;
        match table.clients.get_mut(&self.client) {
            Some(own) if *own > 1 => *own -= 1,
            _ => drop(table.clients.remove(&self.client)),
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
    fn one_client_cannot_take_what_others_need() {
        let shares = Shares::new(8, 3);
        let mut held: Vec<Share> = (0..10).filter_map(|_| shares.take(client(1))).collect();
        assert_eq!(held.len(), 3);
        held.extend((0..10).filter_map(|_| shares.take(client(2))));
        assert_eq!((held.len(), shares.taken()), (6, 6));
        assert!(shares.take(client(1)).is_none(), "it has its share");
        let mapped = Ipv4Addr::from_bits(1).to_ipv6_mapped();
        assert!(shares.take(mapped.into()).is_none(), "it is the same client");
        held.drain(..2);
        assert!(shares.take(client(1)).is_some());
    }

    /// However many clients want everything, those that want little get it.
    #[test]
    fn heavy_clients_leave_as_much_as_they_take() {
        for (heavy, each, left) in [(1, 500, 500), (3, 250, 250), (10, 91, 90), (99, 10, 10), (400, 3, 1)] {
            let shares = Shares::new(1000, 1000);
            let mut held = Vec::new();
            for _ in 0..1000 {
                held.extend((0..heavy).filter_map(|n| shares.take(client(n))));
            }
            let most = shares.lock().clients.values().copied().max();
            assert_eq!(most, Some(each), "{heavy} heavy clients");
            let free = 1000 - shares.taken();
            assert!(free.abs_diff(left) <= 1, "{heavy} heavy clients leave {free}");
            assert!(shares.take(client(1000)).is_some(), "beside {heavy} heavy clients");
        }
    }

    #[test]
    fn nothing_is_kept_of_clients_without_a_place() {
        let shares = Shares::new(4, 2);
        drop((shares.take([10, 0, 0, 1].into()), shares.take([10, 0, 0, 1].into())));
        let table = shares.lock();
        assert_eq!((table.taken, table.clients.len()), (0, 0));
    }
}
