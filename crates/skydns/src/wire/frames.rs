//! Messages in a byte stream, each prefixed with its length (RFC 1035 section 4.2.2).

/// Octets of the length field before each message.
const LENGTH: usize = 2;

/// Received octets, split into messages. It holds the octets that were pushed and not taken yet: if all messages
/// are taken after each push, at most one message and the rest of one push.
#[derive(Debug, Default)]
pub struct Frames {
    buffer: Vec<u8>,
}

impl Frames {
    /// Adds octets in order of arrival.
    pub fn push(&mut self, octets: &[u8]) {
        self.buffer.extend_from_slice(octets);
    }

    /// Whether the buffer is empty.
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// The announced length of the first message, in octets, once it is known.
    pub fn announced(&self) -> Option<usize> {
        self.buffer.first_chunk().map(|length| u16::from_be_bytes(*length).into())
    }

    /// The next complete message, without its length.
    pub fn next_message(&mut self) -> Option<Vec<u8>> {
        let end = LENGTH + self.announced()?;
        let message = self.buffer.get(LENGTH..end)?.to_vec();
        self.buffer.drain(..end);
        Some(message)
    }

    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.buffer.capacity()
    }
}

/// A message prefixed with its length. Octets beyond 65,535 are cut, so that the stream stays in step.
pub fn framed(message: &[u8]) -> Vec<u8> {
    let mut frame = [&[0; LENGTH], message].concat();
    set_length(&mut frame, 0);
    frame
}

/// Sets the length field at `start` of the message that follows it and ends the buffer, which is cut as in [`framed`].
pub(crate) fn set_length(buffer: &mut Vec<u8>, start: usize) {
    let begin = start + LENGTH;
    let length = u16::try_from(buffer.len().saturating_sub(begin)).unwrap_or(u16::MAX);
    buffer.truncate(begin + usize::from(length));
    if let Some(field) = buffer.get_mut(start..begin) {
        field.copy_from_slice(&length.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_is_too_long_leaves_the_stream_in_step() {
        for length in [0, 12, 65_535, 65_536, 100_000] {
            let mut frames = Frames::default();
            frames.push(&framed(&vec![1; length]));
            frames.push(&framed(&[2, 2]));
            assert_eq!(frames.next_message(), Some(vec![1; length.min(65_535)]), "{length}");
            assert_eq!(frames.next_message(), Some(vec![2, 2]), "{length}");
            assert!(frames.is_empty(), "{length}");
        }
    }
}
