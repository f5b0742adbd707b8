//! Follows changes of resolv.conf files.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use futures::future::select_all;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::ResolvConf;
use daemon::blocking_read::{BlockingRead, READ_TIMEOUT};
use daemon::path_watch::PathWatch;

/// Handling of a file whose servers have all been removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EmptiedFile {
    /// The file is treated as unfinished: the previous content stays in use.
    Unfinished,
    /// The file is treated as complete: no servers are used.
    Final,
}

/// Follows resolv.conf files. Of several files, the most recently changed file is used, as in
/// dnsmasq. Without files, there are no servers.
#[derive(Debug)]
pub struct ResolvConfFollower {
    files: Vec<PathBuf>,
    emptied: EmptiedFile,
    /// The longest time between two reads. A file system event causes an earlier read.
    period: Duration,
    /// The content in use.
    state: watch::Sender<ResolvConf>,
}

impl ResolvConfFollower {
    /// Reads the newest file for the first time. If this file cannot be read, there are no servers.
    pub fn open(files: Vec<PathBuf>, emptied: EmptiedFile, period: Duration) -> Self {
        let state = watch::Sender::new(read_newest(&files).unwrap_or_else(|error| {
            debug!(%error, "resolv.conf cannot be read");
            ResolvConf::default()
        }));
        Self {
            files,
            emptied,
            period,
            state,
        }
    }

    /// The content in use, and its changes.
    pub fn subscribe(&self) -> watch::Receiver<ResolvConf> {
        self.state.subscribe()
    }

    /// Follows the files until cancelled.
    pub async fn run(self, stop: CancellationToken) {
        let _ = stop.run_until_cancelled(self.follow_files()).await;
    }

    /// Reads the newest file whenever one of the files may have changed. Never returns.
    async fn follow_files(&self) {
        if self.files.is_empty() {
            return std::future::pending().await;
        }

        // Each file has a watch, because any of them may become the newest.
        let mut watches = Vec::with_capacity(self.files.len());
        for path in &self.files {
            watches.push(PathWatch::new(path, self.period));
        }
        let reading = BlockingRead::default();
        loop {
            select_all(watches.iter_mut().map(|watch| Box::pin(watch.changed()))).await;

            // All files are compared again, because a change of one file can make another file the
            // newest.
            let files = self.files.clone();
            match reading.run(move || read_newest(&files)).await {
                Some(Ok(file)) => self.publish_changed(file),
                Some(Err(error)) => {
                    warn!(%error, "resolv.conf cannot be read, keeping the previous content");
                }
                None => {
                    warn!(files = ?self.files, timeout = ?READ_TIMEOUT, "reading resolv.conf timed out, keeping the previous content");
                }
            }
        }
    }

    /// Publishes the content of a file, unless the content is unchanged or the file is treated as
    /// unfinished.
    fn publish_changed(&self, file: ResolvConf) {
        self.state.send_if_modified(|known| {
            if *known == file {
                return false;
            }

            // A file that is rewritten in place is empty for a moment.
            let lost_all = file.nameservers.is_empty() && !known.nameservers.is_empty();
            if lost_all && self.emptied == EmptiedFile::Unfinished {
                warn!("resolv.conf has no servers any more, keeping the previous ones");
                return false;
            }

            info!(servers = list_servers(&file), "resolv.conf changed");
            *known = file;
            true
        });
    }
}

fn list_servers(file: &ResolvConf) -> String {
    let servers: Vec<String> = file.nameservers.iter().map(ToString::to_string).collect();
    servers.join(" ")
}

/// Reads the file that was changed last. An error names this file.
fn read_newest(files: &[PathBuf]) -> io::Result<ResolvConf> {
    match files.iter().max_by_key(|path| change_time(path)) {
        Some(newest) => ResolvConf::read(newest).map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", newest.display()))
        }),
        None => Ok(ResolvConf::default()),
    }
}

/// The time of a file's last change, or the Unix epoch if the time cannot be read.
fn change_time(path: &Path) -> SystemTime {
    std::fs::metadata(path)
        .and_then(|metadata| metadata.modified())
        .unwrap_or(SystemTime::UNIX_EPOCH)
}
