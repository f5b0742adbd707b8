//! Limits work that may wait, such as building status pages, to half of a CPU core.
//!
//! People and scripts may request any number of pages. Building them must not delay DNS queries and
//! watch events, even on a machine with few cores. So only one piece of this work runs at a time,
//! and each piece is followed by a pause of the same length.

use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};

/// Half of a CPU core. All work that shares it takes turns.
#[derive(Debug, Default)]
pub struct HalfCore(Mutex<()>);

/// The turn of one piece of work. Dropping the turn blocks the thread for a pause. The next turn
/// can begin after the pause.
#[derive(Debug)]
pub struct HalfCoreTurn<'a> {
    _only: MutexGuard<'a, ()>,
    began: Instant,
}

impl HalfCore {
    /// Waits for a turn. The call blocks, so it must be on a thread that may block.
    pub fn turn(&self) -> HalfCoreTurn<'_> {
        let only = self.0.lock();
        HalfCoreTurn {
            _only: only,
            began: Instant::now(),
        }
    }
}

impl Drop for HalfCoreTurn<'_> {
    fn drop(&mut self) {
        std::thread::sleep(self.began.elapsed());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use super::*;

    #[test]
    fn turns_run_one_at_a_time() {
        let share = Arc::new(HalfCore::default());
        let running = Arc::new(AtomicU32::new(0));

        let mut workers = Vec::new();
        for _ in 0..4 {
            let share = Arc::clone(&share);
            let running = Arc::clone(&running);
            workers.push(std::thread::spawn(move || {
                let _turn = share.turn();
                assert_eq!(running.fetch_add(1, Ordering::SeqCst), 0);
                std::thread::yield_now();
                running.fetch_sub(1, Ordering::SeqCst);
            }));
        }

        for worker in workers {
            worker.join().unwrap();
        }
    }

    #[test]
    fn pause_lasts_as_long_as_turn() {
        const WORK: Duration = Duration::from_millis(5);
        let share = HalfCore::default();
        let turn = share.turn();
        let began = turn.began;

        std::thread::sleep(WORK);
        drop(turn);

        assert!(began.elapsed() >= WORK * 2, "{:?}", began.elapsed());
    }
}
