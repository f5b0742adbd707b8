//! Lines on their way to standard error, written by a thread of its own: whoever logs never waits for whoever reads.
//!
//! Where nobody reads (a pipe that is full, a container runtime that hangs), what does not fit into the queue is lost,
//! and how much of it is told as soon as lines are read again.

use std::io::{self, Write};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Octets that wait at most; as many may be on their way.
const CAPACITY: usize = 1 << 20;

/// The lines.
#[derive(Debug, Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Somebody takes the lines.
    runs: bool,
    waiting: Vec<u8>,
    /// Lines are being written.
    writes: bool,
    lost: u64,
}

impl Queue {
    /// An empty queue, from which nobody takes lines yet.
    pub(super) const fn new() -> Self {
        let state = State { runs: false, waiting: Vec::new(), writes: false, lost: 0 };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Adds a whole line, or counts it as lost. Until somebody takes lines, it is written at once.
    pub(super) fn push(&self, line: &[u8]) {
        let mut state = self.lock();
        if !state.runs {
            drop(state);
            // A closed standard error must not end the service.
            let _ = io::stderr().lock().write_all(line);
        } else if state.waiting.len() + line.len() > CAPACITY {
            state.lost += 1;
        } else {
            state.waiting.extend_from_slice(line);
            self.changed.notify_all();
        }
    }

    /// From now on lines wait for [`run`](Self::run).
    pub(super) fn open(&self) {
        self.lock().runs = true;
    }

    /// From now on they do not.
    pub(super) fn close(&self) {
        self.lock().runs = false;
    }

    /// Writes lines for ever. `lost` makes the line that tells how many were lost.
    pub(super) fn run(&self, mut out: impl Write, lost: impl Fn(u64) -> String) {
        loop {
            let mut lines = self.take();
            let count = std::mem::take(&mut self.lock().lost);
            if count > 0 {
                lines.extend_from_slice(lost(count).as_bytes());
            }
            let _ = out.write_all(&lines);
            self.lock().writes = false;
            self.changed.notify_all();
        }
    }

    /// Waits for lines.
    fn take(&self) -> Vec<u8> {
        let idle = |state: &mut State| state.waiting.is_empty();
        let mut state = self.changed.wait_while(self.lock(), idle).unwrap_or_else(PoisonError::into_inner);
        state.writes = true;
        std::mem::take(&mut state.waiting)
    }

    /// Waits until all lines are written, or for `patience`.
    pub(super) fn flush(&self, patience: Duration) {
        let busy = |state: &mut State| state.runs && (state.writes || !state.waiting.is_empty());
        drop(self.changed.wait_timeout_while(self.lock(), patience, busy));
    }

    /// No code that holds the lock can panic half way through a change.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Write for &Queue {
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

    /// A pipe with a queue in front of it.
    fn queue() -> (Arc<Queue>, io::PipeReader) {
        let (reader, writer) = io::pipe().unwrap();
        let queue = Arc::new(Queue::new());
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
    fn lines_come_out_in_order_and_a_flush_waits_for_them() {
        let (queue, mut reader) = queue();
        let lines: Vec<String> = (0..100).map(|number| format!("{number:02}\n")).collect();
        for line in &lines {
            queue.push(line.as_bytes());
        }
        queue.flush(Duration::from_mins(1));
        assert_eq!(read(&mut reader, 300), lines.concat());
    }

    #[test]
    fn a_pipe_that_nobody_reads_costs_lines_and_no_time() {
        let (queue, reader) = queue();
        let line = [b"x".repeat(1023), b"\n".to_vec()].concat();
        // Neither what waits, nor what is on its way, nor the pipe itself holds as much.
        let pushed = 4 * CAPACITY / line.len();
        for _ in 0..pushed {
            queue.push(&line);
        }
        assert!(queue.lock().waiting.len() <= CAPACITY);
        queue.flush(Duration::from_millis(1));
        // They may be told in parts: the first when the thread comes to it late.
        let (mut written, mut lost) = (0, 0);
        let mut lines = io::BufRead::lines(io::BufReader::new(reader));
        while written + lost < pushed {
            let line = lines.next().unwrap().unwrap();
            match line.strip_suffix(" lost") {
                Some(count) => lost += count.parse::<usize>().unwrap(),
                None => written += 1,
            }
        }
        assert!(lost > 0 && written + lost == pushed, "{written} written, {lost} lost");
    }
}
