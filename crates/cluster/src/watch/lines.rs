//! A stream of pieces cut into lines, as watch events come.

use std::time::Duration;

use super::exchange::Pieces;
use super::failure::Failure;

/// The longest line. API servers store no object of more than a few megabytes.
const MAX_LINE: usize = 8 << 20;

/// The lines of a response.
#[derive(Debug)]
pub(super) struct Lines {
    pieces: Pieces,
    buffer: Buffer,
}

impl Lines {
    pub(super) fn new(pieces: Pieces) -> Self {
        Self { pieces, buffer: Buffer::default() }
    }

    /// The next line that is not empty, `None` at the end. Silence is measured between pieces. An incomplete last
    /// line is dropped: the event comes again after resuming.
    pub(super) async fn next(&mut self, patience: Duration) -> Result<Option<String>, Failure> {
        loop {
            while let Some(line) = self.buffer.take_line() {
                if !line.is_empty() {
                    let line = String::from_utf8(line);
                    return line.map(Some).map_err(|_| Failure::Garbage("not UTF-8".to_owned()));
                }
            }
            match self.pieces.next(patience).await? {
                Some(piece) => self.buffer.push(&piece)?,
                None => return Ok(None),
            }
        }
    }
}

/// Bytes that were received and not yet taken as lines.
#[derive(Debug, Default)]
struct Buffer {
    bytes: Vec<u8>,
    /// Up to here there is no line feed.
    searched: usize,
}

impl Buffer {
    fn push(&mut self, piece: &[u8]) -> Result<(), Failure> {
        self.bytes.extend_from_slice(piece);
        if self.bytes.len() > MAX_LINE && !self.has_line() {
            return Err(Failure::TooLarge(MAX_LINE));
        }
        Ok(())
    }

    fn has_line(&mut self) -> bool {
        let unsearched = self.bytes.get(self.searched..).unwrap_or_default();
        let found = unsearched.iter().position(|byte| *byte == b'\n');
        self.searched = found.map_or(self.bytes.len(), |at| self.searched + at);
        found.is_some()
    }

    /// The first complete line without its end.
    fn take_line(&mut self) -> Option<Vec<u8>> {
        if !self.has_line() {
            return None;
        }
        let rest = self.bytes.split_off(self.searched + 1);
        let mut line = std::mem::replace(&mut self.bytes, rest);
        self.searched = 0;
        line.pop();
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(pieces: &[&str]) -> Vec<String> {
        let mut buffer = Buffer::default();
        let mut lines = Vec::new();
        for piece in pieces {
            buffer.push(piece.as_bytes()).unwrap();
            while let Some(line) = buffer.take_line() {
                lines.push(String::from_utf8(line).unwrap());
            }
        }
        lines
    }

    #[test]
    fn lines_come_whole_however_they_were_cut() {
        assert_eq!(lines(&["a\nbc\n"]), ["a", "bc"]);
        assert_eq!(lines(&["a", "b", "\nc", "\n", "d"]), ["ab", "c"]);
        assert_eq!(lines(&["a\r\n\n\r\nb\n"]), ["a", "", "", "b"]);
        assert_eq!(lines(&[""]), [""; 0]);
    }

    #[test]
    fn a_line_without_end_is_too_large_at_last() {
        let mut buffer = Buffer::default();
        let piece = vec![b'x'; 1 << 20];
        let pushed = (0..10).map(|_| buffer.push(&piece)).find(Result::is_err);
        assert_eq!(pushed, Some(Err(Failure::TooLarge(MAX_LINE))));
        assert!(buffer.bytes.len() <= MAX_LINE + piece.len());
    }
}
