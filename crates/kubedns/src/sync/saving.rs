//! When the snapshot file is written: some time after a change, never twice at once, and at the end.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use crate::metrics::Metrics;
use cluster::index::Index;
use cluster::objects::EndpointsSource;
use cluster::persist;

/// The time changes are gathered before they are written.
const PAUSE: Duration = Duration::from_secs(10);
/// Time after which a write is reported to hang. It cannot be taken back, and nothing else is written until it ends.
const PATIENCE: Duration = Duration::from_secs(30);
/// Timeout of the last write, and of encoding before it.
const LAST: Duration = Duration::from_secs(3);

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

/// A write that was begun.
#[derive(Debug)]
struct Writing {
    task: JoinHandle<std::io::Result<()>>,
    begun: Instant,
    /// It was said to hang.
    hangs: bool,
}

impl Saving {
    /// Writes into `directory`, for the cluster domain `domain`.
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

    /// There is something new to write.
    pub(super) fn changed(&mut self) {
        self.changed.get_or_insert_with(Instant::now);
    }

    /// Writes if it is time to, or at any rate if this is the last chance; then the end is waited for.
    pub(super) async fn look_after(&mut self, index: &Index, source: EndpointsSource, last: bool) {
        if self.writing.as_ref().is_some_and(|writing| last || writing.task.is_finished()) {
            self.finish().await;
        }
        self.notice_hanging();
        let due = self.changed.is_some_and(|since| last || since.elapsed() >= PAUSE);
        if self.writing.is_none() && due {
            self.begin(index, source);
        }
        if last {
            self.finish().await;
        }
    }

    /// Begins a write. It keeps the index task equally briefly, however many objects there are.
    pub(super) fn begin(&mut self, index: &Index, source: EndpointsSource) {
        self.changed = None;
        // Encoding takes a while, too: the objects are a copy of this moment, which costs one reference count.
        let kept = index.kept();
        let (directory, domain) = (Arc::clone(&self.directory), self.domain.clone());
        let task = tokio::task::spawn_blocking(move || {
            let content = persist::encode(&kept, source, &domain).ok_or(std::io::ErrorKind::InvalidData)?;
            drop(kept);
            persist::store(&directory, &content)
        });
        self.writing = Some(Writing { task, begun: Instant::now(), hangs: false });
    }

    /// A volume that hangs is a failure before it comes back, if ever it does.
    fn notice_hanging(&mut self) {
        let Some(writing) = &mut self.writing else { return };
        if writing.begun.elapsed() > PATIENCE && !std::mem::replace(&mut writing.hangs, true) {
            self.note(Err(std::io::ErrorKind::TimedOut.into()));
        }
    }

    async fn finish(&mut self) {
        let Some(writing) = self.writing.take() else { return };
        self.note(match timeout(LAST, writing.task).await {
            Ok(Ok(written)) => written,
            Ok(Err(error)) => Err(std::io::Error::other(error)),
            Err(_) => Err(std::io::ErrorKind::TimedOut.into()),
        });
    }

    /// Counts and logs what became of a write.
    fn note(&mut self, written: std::io::Result<()>) {
        let outcome = if written.is_ok() { "written" } else { "failed" };
        self.metrics.snapshots_written.with_label_values(&[outcome]).inc();
        match written {
            Ok(()) => self.failing = false,
            Err(error) => {
                // Tried again with the next pause; one line is enough.
                self.changed();
                if !std::mem::replace(&mut self.failing, true) {
                    tracing::warn!(directory = %self.directory.display(), %error, "cannot write the snapshot file");
                }
            }
        }
    }
}
