//! Signals to the test process itself.

use nix::sys::signal::{Signal as Number, raise};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use super::*;

/// Signals affect the whole process, so only one test may run at a time.
static ALONE: Mutex<()> = Mutex::const_new(());
const LONG: Duration = Duration::from_hours(1);
const PATIENCE: Duration = Duration::from_secs(20);

/// A task that cancels the tokens of `shutdown` when signals arrive.
fn driven(shutdown: &Shutdown, lameduck: Duration) -> JoinSet<()> {
    let signals = Signals::listen().unwrap();
    let seen = shutdown.clone();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { signals.cancel_on_signals(&seen, lameduck).await });
    tasks
}

async fn soon(token: &CancellationToken) {
    tokio::time::timeout(PATIENCE, token.cancelled())
        .await
        .expect("the token must be cancelled");
}

#[tokio::test]
async fn three_signals_drain_stop_and_exit() {
    let _alone = ALONE.lock().await;
    let shutdown = Shutdown::default();
    let mut tasks = driven(&shutdown, LONG);

    raise(Number::SIGTERM).unwrap();
    soon(&shutdown.draining).await;
    assert!(!shutdown.unready.is_cancelled());
    assert!(!shutdown.stop.is_cancelled());

    raise(Number::SIGINT).unwrap();
    soon(&shutdown.stop).await;
    assert!(shutdown.unready.is_cancelled());

    raise(Number::SIGTERM).unwrap();
    tokio::time::timeout(PATIENCE, tasks.join_next())
        .await
        .expect("the third signal must end the wait")
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn stops_after_the_lameduck_time() {
    let _alone = ALONE.lock().await;
    let shutdown = Shutdown::default();
    let _tasks = driven(&shutdown, Duration::from_millis(50));
    raise(Number::SIGTERM).unwrap();
    soon(&shutdown.stop).await;
    assert!(shutdown.draining.is_cancelled());
}

#[tokio::test]
async fn internal_stop_also_drains() {
    let _alone = ALONE.lock().await;
    let shutdown = Shutdown::default();
    let _tasks = driven(&shutdown, LONG);
    shutdown.stop.cancel();
    soon(&shutdown.draining).await;
}

/// After the signal, a process stays ready for half of the lameduck duration, but for at most four
/// seconds.
#[tokio::test]
async fn readiness_ends_by_half_of_lameduck_and_stop_comes_at_its_end() {
    let _alone = ALONE.lock().await;
    for (lameduck, ready) in [(10, 4), (5, 2), (0, 0)] {
        let shutdown = Shutdown::default();
        let _tasks = driven(&shutdown, Duration::from_secs(lameduck));
        raise(Number::SIGTERM).unwrap();
        soon(&shutdown.draining).await;

        // Signals arrive in real time. From here on, the test controls the clock.
        tokio::time::pause();
        let begun = tokio::time::Instant::now();
        shutdown.unready.cancelled().await;
        assert_eq!(begun.elapsed().as_secs(), ready, "{lameduck}");
        shutdown.stop.cancelled().await;
        assert_eq!(begun.elapsed().as_secs(), lameduck);
        tokio::time::resume();
    }
}
