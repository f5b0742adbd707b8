//! A future that may be missing.

use std::future::pending;

/// Waits for the future; without one, waits for ever.
pub(crate) async fn or_never<F: Future>(future: Option<F>) -> F::Output {
    match future {
        Some(future) => future.await,
        None => pending().await,
    }
}
