//! What each client may take of what all clients share, so that one that floods us leaves some to the others.

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
    /// `total` places, of which each client may take up to `each`.
    pub(crate) fn new(total: usize, each: usize) -> Arc<Self> {
        Arc::new(Self { table: Mutex::default(), total, each: each.clamp(1, total) })
    }

    /// A place for `client`, unless it has its share already or none is left.
    pub(crate) fn take(self: &Arc<Self>, client: IpAddr) -> Option<Share> {
        let client = client.to_canonical();
        let mut table = self.lock();
        let own = table.clients.get(&client).copied().unwrap_or(0);
        if table.taken >= self.total || own >= self.each {
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
    use super::*;

    #[test]
    fn one_client_cannot_take_what_others_need() {
        let shares = Shares::new(5, 3);
        let [one, two] = [1, 2].map(|last| IpAddr::from([10, 0, 0, last]));
        let mut held: Vec<Share> = (0..10).filter_map(|_| shares.take(one)).collect();
        assert_eq!(held.len(), 3);
        held.extend((0..10).filter_map(|_| shares.take(two)));
        assert_eq!((held.len(), shares.taken()), (5, 5));
        held.pop();
        assert!(shares.take(one).is_none(), "it has its share");
        assert!(shares.take("::ffff:10.0.0.1".parse().unwrap()).is_none(), "it is the same client");
        assert!(shares.take(two).is_some());
    }

    #[test]
    fn nothing_is_kept_of_clients_without_a_place() {
        let shares = Shares::new(4, 2);
        drop((shares.take([10, 0, 0, 1].into()), shares.take([10, 0, 0, 1].into())));
        let table = shares.lock();
        assert_eq!((table.taken, table.clients.len()), (0, 0));
    }
}
