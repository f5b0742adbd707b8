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

/// A message of at most 65,535 octets, prefixed with its length.
pub fn framed(message: &[u8]) -> Vec<u8> {
    let length = u16::try_from(message.len()).unwrap_or(u16::MAX);
    [&length.to_be_bytes(), message].concat()
}
