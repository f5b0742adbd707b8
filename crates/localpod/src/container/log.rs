//! Copies what a container writes to the console, line by line.

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

use crate::console::Console;

/// Longer lines are shown in pieces, so that a process that never ends a line takes no memory.
const LONGEST_LINE: usize = 8 * 1024;

/// Copies until the stream ends. What is not UTF-8 is shown with replacement characters.
pub(super) async fn copy(stream: impl AsyncRead + Unpin, name: &'static str, console: Console) {
    let mut reader = BufReader::new(stream);
    let mut line = Vec::new();
    while let Ok(chunk) = reader.fill_buf().await {
        if chunk.is_empty() {
            break;
        }
        let room = LONGEST_LINE.saturating_sub(line.len());
        let end = chunk.iter().take(room).position(|byte| *byte == b'\n');
        let taken = end.map_or(chunk.len().min(room), |at| at + 1);
        line.extend(chunk.iter().take(taken));
        reader.consume(taken);
        if end.is_some() || line.len() >= LONGEST_LINE {
            show(&mut line, name, &console);
        }
    }
    show(&mut line, name, &console);
}

fn show(line: &mut Vec<u8>, name: &str, console: &Console) {
    if !line.is_empty() {
        console.line(name, String::from_utf8_lossy(line).trim_end_matches(['\n', '\r']));
        line.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    async fn copied(input: &[u8]) -> Vec<String> {
        let kept = Kept::default();
        copy(input, "x", Console::to(Box::new(kept.clone()), false)).await;
        let bytes = kept.0.lock().unwrap().clone();
        String::from_utf8(bytes)
            .unwrap()
            .lines()
            .map(|line| line["x         | ".len()..].to_owned())
            .collect()
    }

    #[tokio::test]
    async fn lines_are_kept_and_the_last_needs_no_end() {
        assert_eq!(copied(b"one\n\r\ntwo\r\nthree").await, ["one", "", "two", "three"]);
    }

    #[tokio::test]
    async fn an_endless_line_is_cut() {
        let lines = copied(&vec![b'a'; LONGEST_LINE + 10]).await;
        assert_eq!(lines.iter().map(String::len).collect::<Vec<_>>(), [LONGEST_LINE, 10]);
    }

    #[tokio::test]
    async fn bytes_that_are_not_utf8_are_replaced() {
        assert_eq!(copied(b"a\xffb\n").await, ["a\u{fffd}b"]);
    }
}
