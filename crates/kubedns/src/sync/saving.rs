//! Writes the snapshot file: after a pause that follows a change, and at shutdown. One write runs
//! at a time.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use crate::metrics::Metrics;
use cluster::index::Index;
use cluster::objects::EndpointsSource;
use cluster::persist;

/// Time between a change and its write; the write includes later changes.
const PAUSE: Duration = Duration::from_secs(10);
/// Time after which a write is reported as hanging. A write cannot be cancelled, and the next write
/// waits for its end.
const PATIENCE: Duration = Duration::from_secs(30);
/// Timeout of all writes at shutdown, including their encoding. It is shorter than the time that
/// the process waits for its tasks: a volume that hangs costs the last changes of the file, not the
/// exit status.
const LAST_WRITE_TIMEOUT: Duration = Duration::from_secs(3);

/// Writes the snapshot file.
#[derive(Debug)]
pub struct Saving {
    directory: Arc<PathBuf>,
    domain: String,
    metrics: Arc<Metrics>,
    changed: Option<Instant>,
    writing: Option<Writing>,
    failing: bool,
}

/// A write in progress.
#[derive(Debug)]
struct Writing {
    task: JoinHandle<std::io::Result<()>>,
    begun: Instant,
    /// Whether the slow write has been reported.
    hangs: bool,
}

impl Saving {
    /// Creates a writer into `directory`. `domain` is the identity of the file: the cluster domain
    /// and some flags.
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
    pub(super) fn changed(&mut self) {
        self.changed.get_or_insert_with(Instant::now);
    }

    /// Starts a write if one is due.
    pub(super) async fn tick(&mut self, index: &Index, source: EndpointsSource) {
        if self
            .writing
            .as_ref()
            .is_some_and(|writing| writing.task.is_finished())
        {
            self.finish(Instant::now()).await;
        }
        self.notice_hanging();
        let due = self.changed.is_some_and(|since| since.elapsed() >= PAUSE);
        if self.writing.is_none() && due {
            self.begin(index, source);
        }
    }

    /// Writes any change at shutdown. After a write that hangs, there is no other: it would hang,
    /// too.
    pub(super) async fn write_last(&mut self, index: &Index, source: EndpointsSource) {
        let deadline = Instant::now() + LAST_WRITE_TIMEOUT;
        self.finish(deadline).await;
        if self.changed.is_some() && Instant::now() < deadline {
            self.begin(index, source);
            self.finish(deadline).await;
        }
    }

    /// Starts a write. The index task is blocked only briefly, regardless of the number of objects.
    pub(super) fn begin(&mut self, index: &Index, source: EndpointsSource) {
        self.changed = None;
        // A blocking thread encodes the objects. Its copy of them costs one reference count.
        let kept = index.content();
        let (directory, domain) = (Arc::clone(&self.directory), self.domain.clone());
        let task = tokio::task::spawn_blocking(move || {
            let content =
                persist::encode(&kept, source, &domain).ok_or(std::io::ErrorKind::InvalidData)?;
            drop(kept);
            persist::store(&directory, &content)
        });
        self.writing = Some(Writing {
            task,
            begun: Instant::now(),
            hangs: false,
        });
    }

    /// Reports a slow write as a failure, before the write ends.
    fn notice_hanging(&mut self) {
        let Some(writing) = &mut self.writing else {
            return;
        };
        if writing.begun.elapsed() > PATIENCE && !std::mem::replace(&mut writing.hangs, true) {
            self.record_outcome(Err(std::io::ErrorKind::TimedOut.into()));
        }
    }

    /// Waits for the end of the write in progress, at most until `deadline`.
    async fn finish(&mut self, deadline: Instant) {
        let Some(writing) = self.writing.take() else {
            return;
        };
        self.record_outcome(match timeout_at(deadline, writing.task).await {
            Ok(Ok(written)) => written,
            Ok(Err(error)) => Err(std::io::Error::other(error)),
            Err(_) => Err(std::io::ErrorKind::TimedOut.into()),
        });
    }

    /// Counts and logs the outcome of a write.
    fn record_outcome(&mut self, written: std::io::Result<()>) {
        let outcome = if written.is_ok() { "written" } else { "failed" };
        self.metrics
            .snapshots_written
            .with_label_values(&[outcome])
            .inc();
        match written {
            Ok(()) => self.failing = false,
            Err(error) => {
                // The next pause leads to a retry; only the first failure is logged.
                self.changed();
                if !std::mem::replace(&mut self.failing, true) {
                    tracing::warn!(directory = %self.directory.display(), %error, "cannot write the snapshot file");
                }
            }
        }
    }
}
