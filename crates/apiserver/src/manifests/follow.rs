//! Following a directory: at once when the system reports a change, and every so often in case it does not.

use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::Manifests;

/// How long to let an editor finish before reading.
const SETTLE: Duration = Duration::from_millis(50);

impl Manifests {
    /// Follows the directory until `stop` is cancelled, reading it again every `period` at least.
    pub async fn run(self, period: Duration, stop: CancellationToken) {
        let (sender, mut changes) = mpsc::channel(1);
        let watcher = watch(&self, sender);
        if watcher.is_none() {
            changes.close();
        }
        let mut manifests = self;
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(period) => {}
                Some(()) = changes.recv() => tokio::time::sleep(SETTLE).await,
            }
            let read = tokio::task::spawn_blocking(move || {
                if let Err(error) = manifests.load() {
                    let cause = std::error::Error::source(&error).map(ToString::to_string);
                    tracing::warn!(%error, cause, "keeping what was read before");
                }
                manifests
            });
            match read.await {
                Ok(again) => manifests = again,
                Err(_) => return,
            }
        }
    }
}

fn watch(manifests: &Manifests, changes: mpsc::Sender<()>) -> Option<RecommendedWatcher> {
    let notify = move |event: notify::Result<notify::Event>| {
        if event.is_ok_and(|event| !event.kind.is_access()) {
            // One pending signal is enough: everything is read again.
            let _pending = changes.try_send(());
        }
    };
    let watcher = notify::recommended_watcher(notify).and_then(|mut watcher| {
        watcher.watch(&manifests.directory, RecursiveMode::NonRecursive)?;
        Ok(watcher)
    });
    watcher
        .inspect_err(|error| {
            tracing::warn!(%error, "changes of manifests are only noticed by reading them again");
        })
        .ok()
}
