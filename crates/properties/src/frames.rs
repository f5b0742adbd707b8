//! Streams of DNS messages over TCP and TLS, from upstreams and clients.

use wire::{FrameBuffer, frame_message};

/// Size of the length field before each message, in octets (RFC 1035, section 4.2.2).
const LENGTH: usize = 2;
const LONGEST: usize = 65_535;

/// A stream of messages yields the same messages however it is split into pieces, and no octet is
/// lost or added. After the last complete message, only an incomplete message stays in the buffer.
///
/// The first octet of `octets` selects the sizes of the pieces. The other octets are the stream.
pub fn frames(octets: &[u8]) {
    let Some((seed, stream)) = octets.split_first() else {
        return;
    };
    let (expected, rest) = at_once(stream);
    let (mut frames, mut messages) = (FrameBuffer::default(), Vec::new());
    let (mut left, mut state) = (stream, u32::from(*seed));
    while !left.is_empty() {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let size = (state >> 24) as usize % (usize::from(*seed) + 1) + 1;
        let (piece, behind) = left.split_at(size.min(left.len()));
        frames.push(piece);
        while let Some(message) = frames.next_message() {
            assert!(
                message.len() <= LONGEST,
                "a message has {} octets",
                message.len()
            );
            messages.push(message);
        }
        assert!(frames.next_message().is_none());
        left = behind;
    }
    assert!(
        messages == expected,
        "the pieces yield other messages than the whole stream: {} and {} messages",
        messages.len(),
        expected.len()
    );
    assert_eq!(frames.is_empty(), rest.is_empty());
    assert_eq!(frames.announced_length().is_some(), rest.len() >= LENGTH);
    let again: Vec<u8> = messages
        .iter()
        .flat_map(|message| frame_message(message))
        .chain(rest.iter().copied())
        .collect();
    assert!(again == stream, "octets were lost or added");
}

/// The complete messages of a stream, and the octets of an incomplete message at its end.
fn at_once(mut stream: &[u8]) -> (Vec<Vec<u8>>, &[u8]) {
    let mut messages = Vec::new();
    while let Some((length, behind)) = stream.split_first_chunk() {
        let Some((message, rest)) = behind.split_at_checked(u16::from_be_bytes(*length).into())
        else {
            break;
        };
        messages.push(message.to_vec());
        stream = rest;
    }
    (messages, stream)
}
