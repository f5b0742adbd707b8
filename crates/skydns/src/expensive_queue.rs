//! Queue of expensive queries. Only one query is answered at a time, and hosts take turns. The
//! answers take at most a quarter of one core.
//!
//! A wildcard over thousands of names, or a long chain of aliases, takes milliseconds. The threads
//! that receive queries stop work on such a query after a limited number of steps, and pass it to
//! this queue. So no client can block these threads.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::Instant;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::client_shares::{ClientHost, ClientShare, ClientShares};

/// Maximum number of queries that wait or are being answered. Each query holds its message and a
/// task: about 2 KiB.
const MAX_WAITING: usize = 2048;
/// Maximum number of queries of one host that wait or are being answered.
const MAX_OF_HOST: usize = 256;
/// Pause after a query, as a multiple of the time for the query. With 3, the queue uses at most a
/// quarter of one core.
const PAUSE: u32 = 3;

/// Queue of expensive queries.
#[derive(Debug)]
pub(crate) struct ExpensiveQueue {
    places: Arc<ClientShares>,
    /// Queries take turns: only the query with the single permit is answered.
    turn: Arc<Semaphore>,
    /// One permit for each waiting host. Only one query of a host at a time competes with the
    /// queries of other hosts.
    hosts: Mutex<HashMap<ClientHost, Weak<Semaphore>>>,
}

impl ExpensiveQueue {
    pub(crate) fn new() -> Self {
        Self {
            places: ClientShares::new(MAX_WAITING, MAX_OF_HOST),
            turn: Arc::new(Semaphore::new(1)),
            hosts: Mutex::default(),
        }
    }

    /// Admits a query to the queue; `None` if the host of `client` has used its share, or the queue
    /// is full.
    pub(crate) fn admit(&self, client: IpAddr) -> Option<ClientShare> {
        self.places.take_share(client)
    }

    /// Number of queries that wait or are being answered.
    pub(crate) fn waiting_count(&self) -> usize {
        self.places.taken()
    }

    /// Waits for a turn, then does `work` on a blocking thread. Returns `None` if `work` panics or
    /// is dropped at shutdown.
    pub(crate) async fn run_in_turn<T: Send + 'static>(
        &self,
        client: IpAddr,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let _turn_of_host = self.host_turn(client.into()).await?;
        let turn = Arc::clone(&self.turn).acquire_owned().await.ok()?;

        let (result, done) = oneshot::channel();
        tokio::task::spawn_blocking(move || {
            let began = Instant::now();
            // The caller may have stopped waiting.
            let _ = result.send(work());
            std::thread::sleep(began.elapsed() * PAUSE);
            drop(turn);
        });
        done.await.ok()
    }

    /// Waits until no other query of the host competes for the turn.
    async fn host_turn(&self, host: ClientHost) -> Option<OwnedSemaphorePermit> {
        self.host_semaphore(host).acquire_owned().await.ok()
    }

    fn host_semaphore(&self, host: ClientHost) -> Arc<Semaphore> {
        let mut hosts = self.hosts.lock();
        if let Some(known) = hosts.get(&host).and_then(Weak::upgrade) {
            return known;
        }

        // Hosts that no longer wait are removed whenever a new host is added.
        hosts.retain(|_, turns| turns.strong_count() > 0);
        let semaphore = Arc::new(Semaphore::new(1));
        hosts.insert(host, Arc::downgrade(&semaphore));
        semaphore
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::future::join_all;

    use super::*;

    fn host(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    /// Work that adds one to `done` and returns the previous number.
    fn add_one(done: &Arc<AtomicUsize>) -> impl FnOnce() -> usize + Send + 'static {
        let done = Arc::clone(done);
        move || done.fetch_add(1, Ordering::SeqCst)
    }

    #[tokio::test]
    async fn waiting_hosts_take_turns() {
        let queue = ExpensiveQueue::new();
        let done = Arc::new(AtomicUsize::new(0));
        let turn = Arc::clone(&queue.turn).acquire_owned().await.unwrap();
        let greedy = join_all((0..50).map(|_| queue.run_in_turn(host(1), add_one(&done))));
        let other = queue.run_in_turn(host(2), add_one(&done));

        // All queries wait before the first query is answered.
        let (_, place, ()) = tokio::join!(greedy, other, async { drop(turn) });
        assert_eq!(place, Some(1), "the other host must be second of 51");
        assert_eq!(done.load(Ordering::SeqCst), 51);
    }

    #[tokio::test]
    async fn idle_hosts_are_forgotten_when_new_host_is_added() {
        let queue = ExpensiveQueue::new();
        for last in 0..100 {
            assert_eq!(
                queue.run_in_turn(host(last), move || last).await,
                Some(last)
            );
        }
        assert_eq!(queue.hosts.lock().len(), 1);
    }

    #[tokio::test]
    async fn abandoned_query_does_not_block_its_host() {
        let queue = ExpensiveQueue::new();
        let turn = Arc::clone(&queue.turn).acquire_owned().await.unwrap();
        tokio::select! {
            biased;
            _ = queue.run_in_turn(host(1), || ()) => unreachable!("another query has the turn"),
            () = std::future::ready(()) => {}
        }

        drop(turn);
        assert_eq!(queue.run_in_turn(host(1), || 1).await, Some(1));
    }
}
