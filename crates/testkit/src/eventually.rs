//! Waiting for a condition: [`eventually`] calls a probe until the condition holds or the timeout
//! passes.

use std::fmt::Debug;
use std::future::Future;
use std::panic::Location;
use std::time::Duration;

use tokio::time::Instant;

const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// Result of a probe given to [`eventually`]: `bool`, `Option` or `Result`.
pub trait Settled {
    /// The value that [`eventually`] returns once the condition holds.
    type Value;

    /// Returns the value, or the reason why the condition does not hold yet.
    fn settled(self) -> Result<Self::Value, String>;
}

impl Settled for bool {
    type Value = ();

    fn settled(self) -> Result<(), String> {
        if self {
            Ok(())
        } else {
            Err("false".to_owned())
        }
    }
}

impl<T> Settled for Option<T> {
    type Value = T;

    fn settled(self) -> Result<T, String> {
        self.ok_or_else(|| "None".to_owned())
    }
}

impl<T, E: Debug> Settled for Result<T, E> {
    type Value = T;

    fn settled(self) -> Result<T, String> {
        self.map_err(|error| format!("{error:?}"))
    }
}

/// Calls `probe` until the result is `true`, `Some` or `Ok`, and returns the value. The pauses
/// between calls grow from 2 ms to 100 ms.
///
/// Panics when `timeout` passes first. The message has the call site and the last outcome.
#[track_caller]
pub fn eventually<P, F>(
    timeout: Duration,
    mut probe: P,
) -> impl Future<Output = <F::Output as Settled>::Value>
where
    P: FnMut() -> F,
    F: Future,
    F::Output: Settled,
{
    let caller = Location::caller();
    async move {
        let deadline = Instant::now() + timeout;
        let mut pause = FIRST_PAUSE;
        loop {
            let outcome = probe().await.settled();
            match outcome {
                Ok(value) => return value,
                Err(last) if Instant::now() >= deadline => {
                    panic!(
                        "{caller}: the condition did not hold within {timeout:?}; the last outcome was {last}"
                    )
                }
                Err(_) => tokio::time::sleep(pause).await,
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "the last outcome was \"still red\"")]
    async fn panics_with_the_last_outcome() {
        eventually(Duration::from_secs(1), || async {
            Err::<(), _>("still red")
        })
        .await;
    }
}
