//! Messages in a byte stream. A length field precedes each message (RFC 1035, section 4.2.2).

/// Size of the length field, in octets.
const LENGTH: usize = 2;

/// Received octets, split into messages. The buffer holds the octets that were pushed but not
/// taken. If all complete messages are taken after each push, the buffer never holds more than one
/// incomplete message and the octets of one push.
#[derive(Debug, Default)]
pub struct FrameBuffer {
    buffer: Vec<u8>,
}

impl FrameBuffer {
    /// Adds received octets.
    pub fn push(&mut self, octets: &[u8]) {
        self.buffer.extend_from_slice(octets);
    }

    /// Whether no octets are left.
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// The length of the first message in octets, from its length field; `None` before the length
    /// field is complete.
    pub fn announced_length(&self) -> Option<usize> {
        self.buffer
            .first_chunk()
            .map(|length| u16::from_be_bytes(*length).into())
    }

    /// Takes the next complete message, without its length.
    pub fn next_message(&mut self) -> Option<Vec<u8>> {
        let end = LENGTH + self.announced_length()?;
        let message = self.buffer.get(LENGTH..end)?.to_vec();

        // The octets after the message stay in the buffer.
        self.buffer.drain(..end);
        Some(message)
    }

    /// The capacity of the buffer, in octets.
    pub fn capacity(&self) -> usize {
        self.buffer.capacity()
    }
}

/// Puts the length before a message. Octets beyond 65,535 are cut, so that the length matches.
pub fn frame_message(message: &[u8]) -> Vec<u8> {
    let mut frame = [&[0; LENGTH], message].concat();
    set_frame_length(&mut frame, 0);
    frame
}

/// Sets the length field at `start` of `buffer` to the length of the octets after the field. The
/// buffer is cut as in [`frame_message`].
pub fn set_frame_length(buffer: &mut Vec<u8>, start: usize) {
    let begin = start + LENGTH;
    let length = u16::try_from(buffer.len().saturating_sub(begin)).unwrap_or(u16::MAX);

    // Octets beyond the length would be read as the length of the next message.
    buffer.truncate(begin + usize::from(length));
    if let Some(field) = buffer.get_mut(start..begin) {
        field.copy_from_slice(&length.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_of_any_length_is_split_from_next() {
        for length in [0, 12, 65_535, 65_536, 100_000] {
            let kept = vec![1; length.min(65_535)];
            let mut frames = FrameBuffer::default();

            frames.push(&frame_message(&vec![1; length]));
            frames.push(&frame_message(&[2, 2]));

            assert_eq!(frames.next_message(), Some(kept), "{length}");
            assert_eq!(frames.next_message(), Some(vec![2, 2]), "{length}");
            assert!(frames.is_empty(), "{length}");
        }
    }
}
