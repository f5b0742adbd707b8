//! Messages in a stream of octets, each behind its length (RFC 1035 section 4.2.2).

/// Octets of the length before each message.
const LENGTH: usize = 2;

/// Received octets, cut into messages. It keeps what was pushed and not yet taken: no more than one message and what
/// followed it in one push, where all messages are taken after each.
#[derive(Debug, Default)]
pub struct Frames {
    buffer: Vec<u8>,
}

impl Frames {
    /// Adds octets in the order in which they came.
    pub fn push(&mut self, octets: &[u8]) {
        self.buffer.extend_from_slice(octets);
    }

    /// Whether no message has begun.
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// The length of the message that has begun, in octets, once it is known.
    pub fn announced(&self) -> Option<usize> {
        self.buffer.first_chunk().map(|length| u16::from_be_bytes(*length).into())
    }

    /// The next whole message, without its length.
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

/// A message behind its length. One of more than 65,535 octets is none.
pub fn framed(message: &[u8]) -> Vec<u8> {
    let length = u16::try_from(message.len()).unwrap_or(u16::MAX);
    [&length.to_be_bytes(), message].concat()
}
