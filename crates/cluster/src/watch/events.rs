//! Incoming events of a watch.

use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use daemon::one_thread::pause_when_idle;

use super::encoding::{MAX_OBJECT, WatchEvent};
use super::failure::Failure;
use super::pieces::Pieces;

/// Pause of the thread after it has received events. All events that arrive during the pause cost a
/// single wake-up. An event that arrives after the pause is read immediately.
const TOGETHER: Duration = Duration::from_millis(20);

/// The response to a watch request.
pub(super) struct EventReader {
    pieces: Pieces,
    buffer: Buffer,
}

impl EventReader {
    pub(super) fn new(pieces: Pieces) -> Self {
        Self {
            pieces,
            buffer: Buffer::default(),
        }
    }

    /// The next event; `None` at the end. The timeout `patience` applies to each piece. An
    /// incomplete last event is dropped: the API server sends the event again when the watch is
    /// resumed.
    pub(super) async fn next(&mut self, patience: Duration) -> Result<Option<WatchEvent>, Failure> {
        loop {
            if let Some(event) = self.buffer.take(self.pieces.protobuf)? {
                return Ok(Some(event));
            }
            match self.pieces.next(patience).await? {
                Some(piece) => self.buffer.push(&piece),
                None => return Ok(None),
            }
            pause_when_idle(TOGETHER);
        }
    }
}

/// Received octets that are not read yet.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    bytes: BytesMut,
    /// Number of octets known to contain no line feed.
    searched: usize,
}

impl Buffer {
    pub(super) fn push(&mut self, piece: &[u8]) {
        self.bytes.extend_from_slice(piece);
    }

    /// The first event, if it is complete.
    pub(super) fn take(&mut self, protobuf: bool) -> Result<Option<WatchEvent>, Failure> {
        if protobuf {
            self.take_frame()
        } else {
            self.take_line()
        }
    }

    /// The first event, if it is complete: its length in four octets, and a protobuf message.
    fn take_frame(&mut self) -> Result<Option<WatchEvent>, Failure> {
        let Some(length) = self.bytes.first_chunk() else {
            return Ok(None);
        };
        let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
        if length > MAX_OBJECT {
            return Err(Failure::TooLarge(MAX_OBJECT));
        }
        if self.bytes.len() < 4 + length {
            return Ok(None);
        }
        self.bytes.advance(4);
        WatchEvent::of_frame(&self.bytes.split_to(length).freeze()).map(Some)
    }

    /// The first event, if it is complete: a non-empty line of JSON.
    fn take_line(&mut self) -> Result<Option<WatchEvent>, Failure> {
        while let Some(line) = self.line()? {
            if !line.is_empty() {
                return WatchEvent::of_line(&line).map(Some);
            }
        }
        Ok(None)
    }

    /// The first complete line, without its line end.
    fn line(&mut self) -> Result<Option<Bytes>, Failure> {
        let unsearched = self.bytes.get(self.searched..).unwrap_or_default();
        let Some(at) = unsearched.iter().position(|byte| *byte == b'\n') else {
            self.searched = self.bytes.len();
            return if self.searched > MAX_OBJECT {
                Err(Failure::TooLarge(MAX_OBJECT))
            } else {
                Ok(None)
            };
        };
        let mut line = self.bytes.split_to(self.searched + at).freeze();
        self.bytes.advance(1);
        self.searched = 0;
        if line.ends_with(b"\r") {
            line.truncate(line.len() - 1);
        }
        Ok(Some(line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(pieces: &[&str]) -> Vec<Bytes> {
        let mut buffer = Buffer::default();
        let mut lines = Vec::new();
        for piece in pieces {
            buffer.push(piece.as_bytes());
            while let Some(line) = buffer.line().unwrap() {
                lines.push(line);
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
    fn an_event_without_end_is_too_large_at_last() {
        let mut buffer = Buffer::default();
        let piece = vec![b'x'; 1 << 20];
        let pushed = (0..10).find_map(|_| {
            buffer.push(&piece);
            buffer.take(false).err()
        });
        assert_eq!(pushed, Some(Failure::TooLarge(MAX_OBJECT)));
        assert!(buffer.bytes.len() <= MAX_OBJECT + piece.len());
        buffer.bytes = BytesMut::from(&[0, 0x80, 0, 1][..]);
        assert_eq!(buffer.take(true).err(), Some(Failure::TooLarge(MAX_OBJECT)));
    }
}
