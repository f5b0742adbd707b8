//! The queue of lines for standard error. A separate thread writes the lines, so that logging does
//! not wait for the reader. If this thread cannot start, the queue is closed: then each logging
//! thread writes its own lines.
//!
//! If standard error is not read (a full pipe, a hanging container runtime), lines that do not fit
//! into the queue are lost. The number of lost lines is logged as soon as lines are read again.

use std::io::{self, Write};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Maximum number of queued octets. A write in progress may hold the same number of octets in
/// addition.
const CAPACITY: usize = 1 << 20;

#[derive(Debug, Default)]
pub(super) struct LineQueue {
    state: Mutex<QueueState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    /// Whether lines are queued for [`LineQueue::run`] rather than written at once.
    is_open: bool,
    waiting: Vec<u8>,
    /// Whether a write is in progress.
    is_writing: bool,
    lost: u64,
}

impl QueueState {
    fn is_busy(&self) -> bool {
        self.is_open && (self.is_writing || !self.waiting.is_empty())
    }
}

impl LineQueue {
    /// An empty, closed queue.
    pub(super) const fn new() -> Self {
        let state = QueueState {
            is_open: false,
            waiting: Vec::new(),
            is_writing: false,
            lost: 0,
        };
        Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    /// Queues a whole line, or counts the line as lost. A closed queue writes the line at once.
    pub(super) fn push(&self, line: &[u8]) {
        let mut state = self.state.lock();
        if !state.is_open {
            drop(state);
            // A closed standard error must not end the service.
            let _ = io::stderr().lock().write_all(line);
        // The reader is too slow, and logging never waits for it.
        } else if state.waiting.len() + line.len() > CAPACITY {
            state.lost += 1;
        } else {
            state.waiting.extend_from_slice(line);
            self.changed.notify_all();
        }
    }

    /// Opens the queue: from now on lines wait for [`run`](Self::run).
    pub(super) fn open(&self) {
        self.state.lock().is_open = true;
    }

    /// Closes the queue: from now on lines are written at once.
    pub(super) fn close(&self) {
        self.state.lock().is_open = false;
    }

    /// Writes queued lines forever. `report_lost` formats the line that reports the number of lost
    /// lines.
    pub(super) fn run(&self, mut out: impl Write, report_lost: impl Fn(u64) -> String) {
        loop {
            let mut lines = self.take_lines();
            let count = std::mem::take(&mut self.state.lock().lost);
            // The report follows the lines that were queued before the queue was full.
            if count > 0 {
                lines.extend_from_slice(report_lost(count).as_bytes());
            }

            let _ = out.write_all(&lines);
            self.state.lock().is_writing = false;
            self.changed.notify_all();
        }
    }

    /// Waits for lines and takes all queued lines.
    fn take_lines(&self) -> Vec<u8> {
        let mut state = self.state.lock();
        self.changed
            .wait_while(&mut state, |state| state.waiting.is_empty());
        state.is_writing = true;
        std::mem::take(&mut state.waiting)
    }

    /// Waits until all lines are written, or until the timeout.
    pub(super) fn flush(&self, timeout: Duration) {
        let mut state = self.state.lock();
        self.changed
            .wait_while_for(&mut state, |state| state.is_busy(), timeout);
    }
}

impl Write for &LineQueue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// A queue that writes into a pipe.
    fn queue() -> (Arc<LineQueue>, io::PipeReader) {
        let (reader, writer) = io::pipe().unwrap();
        let queue = Arc::new(LineQueue::new());
        queue.open();
        let writing = Arc::clone(&queue);
        std::thread::spawn(move || writing.run(writer, |count| format!("{count} lost\n")));
        (queue, reader)
    }

    fn read(reader: &mut io::PipeReader, length: usize) -> String {
        let mut octets = vec![0; length];
        io::Read::read_exact(reader, &mut octets).unwrap();
        String::from_utf8(octets).unwrap()
    }

    #[test]
    fn flush_waits_for_queued_lines() {
        let (queue, mut reader) = queue();
        let lines: Vec<String> = (0..100).map(|number| format!("{number:02}\n")).collect();
        for line in &lines {
            queue.push(line.as_bytes());
        }

        queue.flush(Duration::from_mins(1));
        assert_eq!(read(&mut reader, 300), lines.concat());
    }

    #[test]
    fn unread_pipe_loses_lines_without_delay() {
        let (queue, reader) = queue();
        let line = [b"x".repeat(1023), b"\n".to_vec()].concat();
        // The queue, the current write and the pipe together hold fewer lines than `pushed`.
        let pushed = 4 * CAPACITY / line.len();
        for _ in 0..pushed {
            queue.push(&line);
        }
        assert!(queue.state.lock().waiting.len() <= CAPACITY);
        // The pipe is still full, so the flush ends at its timeout.
        queue.flush(Duration::from_millis(1));

        // Losses may be reported in several lines, if the thread that writes is slow to start.
        let mut written = 0;
        let mut lost = 0;
        let mut lines = io::BufRead::lines(io::BufReader::new(reader));
        while written + lost < pushed {
            let line = lines.next().unwrap().unwrap();
            match line.strip_suffix(" lost") {
                Some(count) => lost += count.parse::<usize>().unwrap(),
                None => written += 1,
            }
        }
        assert!(
            lost > 0 && written + lost == pushed,
            "{written} written, {lost} lost"
        );
    }
}
