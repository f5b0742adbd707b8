//! Writes the snapshot file ten seconds after a change, or at shutdown if that comes earlier. Only
//! one write runs at a time.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use crate::metrics::Metrics;
use cluster::index::Index;
use cluster::objects::EndpointsSource;
use cluster::persist;

/// Time between a change and the write of the file. The write includes all changes in this time.
const PAUSE: Duration = Duration::from_secs(10);
/// Time after which a write is reported as hanging. A write cannot be cancelled, and the next write
/// waits for its end.
const HANGING_AFTER: Duration = Duration::from_secs(30);
/// Timeout of all writes at shutdown, including the encoding of the objects. It is shorter than the
/// time that the process waits for its tasks. So if a volume hangs, the last changes are not
/// written, but the exit status is not affected.
const LAST_WRITE_TIMEOUT: Duration = Duration::from_secs(3);

/// Writes the snapshot file.
#[derive(Debug)]
pub struct SnapshotWriter {
    directory: Arc<PathBuf>,
    domain: String,
    metrics: Arc<Metrics>,
    changed: Option<Instant>,
    writing: Option<SnapshotWrite>,
    failing: bool,
}

/// A write in progress.
#[derive(Debug)]
struct SnapshotWrite {
    task: JoinHandle<std::io::Result<()>>,
    begun: Instant,
    /// Whether the slow write has been reported.
    hangs: bool,
}

impl SnapshotWriter {
    /// Creates a writer of the file in `directory`. `domain` is a text that identifies the content
    /// of the file: the cluster domain, followed by the flags that change the content.
    pub fn new(directory: PathBuf, domain: &str, metrics: Arc<Metrics>) -> Self {
        Self {
            directory: Arc::new(directory),
            domain: domain.to_owned(),
            metrics,
            changed: None,
            writing: None,
            failing: false,
        }
    }

    /// Records that there is a change to write.
    pub(super) fn note_change(&mut self) {
        self.changed.get_or_insert_with(Instant::now);
    }

    /// Starts a write if one is due and the previous write has ended.
    pub(super) async fn write_if_due(&mut self, index: &Index, source: EndpointsSource) {
        let current = self.writing.as_ref();
        if current.is_some_and(|write| write.task.is_finished()) {
            self.finish_write(Instant::now()).await;
        }
        self.report_hanging();

        let is_due = self.changed.is_some_and(|since| since.elapsed() >= PAUSE);
        if self.writing.is_none() && is_due {
            self.begin_write(index, source);
        }
    }

    /// Writes any change at shutdown. If a write hangs, no other write follows, because it would
    /// hang too.
    pub(super) async fn write_last(&mut self, index: &Index, source: EndpointsSource) {
        let deadline = Instant::now() + LAST_WRITE_TIMEOUT;
        self.finish_write(deadline).await;

        if self.changed.is_some() && Instant::now() < deadline {
            self.begin_write(index, source);
            self.finish_write(deadline).await;
        }
    }

    /// Starts a write. The index task is blocked only briefly, regardless of the number of objects.
    pub(super) fn begin_write(&mut self, index: &Index, source: EndpointsSource) {
        self.changed = None;
        // A blocking thread encodes the objects. `content` does not copy them, but increments a
        // reference count.
        let objects = index.content();
        let directory = Arc::clone(&self.directory);
        let domain = self.domain.clone();
        let task = tokio::task::spawn_blocking(move || {
            let content = persist::encode(&objects, source, &domain)
                .ok_or(std::io::ErrorKind::InvalidData)?;
            drop(objects);
            persist::store_snapshot(&directory, &content)
        });

        self.writing = Some(SnapshotWrite {
            task,
            begun: Instant::now(),
            hangs: false,
        });
    }

    /// Reports a slow write as a failure, before the write ends.
    fn report_hanging(&mut self) {
        let Some(writing) = &mut self.writing else {
            return;
        };
        // A write to a dead volume may never end, so its end cannot be awaited.
        if writing.begun.elapsed() > HANGING_AFTER && !writing.hangs {
            writing.hangs = true;
            self.record_outcome(Err(std::io::ErrorKind::TimedOut.into()));
        }
    }

    /// Waits for the end of the write in progress, at most until `deadline`.
    async fn finish_write(&mut self, deadline: Instant) {
        let Some(writing) = self.writing.take() else {
            return;
        };
        let outcome = match timeout_at(deadline, writing.task).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(panicked)) => Err(std::io::Error::other(panicked)),
            Err(_elapsed) => Err(std::io::ErrorKind::TimedOut.into()),
        };
        self.record_outcome(outcome);
    }

    /// Counts and logs the outcome of a write.
    fn record_outcome(&mut self, outcome: std::io::Result<()>) {
        let label = if outcome.is_ok() { "written" } else { "failed" };
        self.metrics
            .snapshots_written
            .with_label_values(&[label])
            .inc();

        match outcome {
            Ok(()) => self.failing = false,
            Err(error) => {
                // The write is retried after the next pause. Of several failures in a row, only the
                // first is logged.
                self.note_change();
                let was_failing = std::mem::replace(&mut self.failing, true);
                if !was_failing {
                    tracing::warn!(directory = %self.directory.display(), %error, "cannot write the snapshot file");
                }
            }
        }
    }
}
