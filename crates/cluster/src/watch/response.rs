//! Readers of the API server's responses. The events of a watch, and the objects of a protobuf
//! list, are read while the response arrives. Each page of a JSON list is read as a whole. Every
//! wait and every size has a bound.

use std::io::Write as _;
use std::time::Duration;
use std::vec;

use bytes::buf::Writer;
use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use daemon::error_chain::brief;
use daemon::one_thread::pause_when_idle;
use flate2::write::GzDecoder;
use http::Response;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderValue};
use http_body_util::BodyExt as _;
use kube::client::Body;
use tokio::time;

use super::encoding::{ListMessage, ListMeta, ListPart, MAX_OBJECT, WatchEvent, read_json_list};
use super::failure::RequestFailure;
use crate::objects::Encoded;

/// Number of compressed octets that are decompressed at a time. The number is small, because the
/// result may be a thousand times as large.
const PORTION: usize = 4 << 10;
/// Pause of the thread after it has received events. All events that arrive during the pause cost a
/// single wake-up. An event that arrives after the pause is read immediately.
const EVENT_PAUSE: Duration = Duration::from_millis(20);
/// Maximum size of a page of a list in JSON, in octets. The size is bounded because such a page is
/// read as a whole. A larger page is requested again with fewer objects.
const MAX_JSON: usize = 32 << 20;
/// Maximum number of pieces of a response that are received after the end of the list.
const MAX_REST: usize = 64;

/// The incoming body of a response, decompressed.
pub(super) struct BodyPieces {
    body: Body,
    /// Whether the body is protobuf rather than JSON.
    is_protobuf: bool,
    /// The decoder of a compressed body. It is boxed because it is large and only lists are
    /// compressed.
    gzip: Option<Box<GzipBody>>,
}

/// The decoder of a compressed body.
struct GzipBody {
    decoder: GzDecoder<Writer<BytesMut>>,
    /// Received octets that are not decompressed yet.
    received: Bytes,
}

impl BodyPieces {
    pub(super) fn new(response: Response<Body>) -> Self {
        let header = |name| {
            let value = response.headers().get(name);
            value.map(HeaderValue::as_bytes).unwrap_or_default()
        };
        let is_gzip = header(CONTENT_ENCODING) == b"gzip";
        let is_protobuf = header(CONTENT_TYPE).starts_with(b"application/vnd.kubernetes.protobuf");

        Self {
            is_protobuf,
            gzip: is_gzip.then(|| Box::new(GzipBody::new())),
            body: response.into_body(),
        }
    }

    /// The next piece; `None` at the end. `timeout` applies to each wait for the network.
    pub(super) async fn next_piece(
        &mut self,
        timeout: Duration,
    ) -> Result<Option<Bytes>, RequestFailure> {
        while let Some(gzip) = &mut self.gzip {
            let unpacked = if !gzip.received.is_empty() {
                gzip.unpack_portion()?
            } else if let Some(piece) = receive_piece(&mut self.body, timeout).await? {
                gzip.received = piece;
                continue;
            } else {
                // A truncated body fails here, because the end of its compressed data is missing.
                let rest = gzip.finish()?;
                self.gzip = None;
                rest
            };

            if !unpacked.is_empty() {
                return Ok(Some(unpacked));
            }
        }

        receive_piece(&mut self.body, timeout).await
    }
}

impl GzipBody {
    fn new() -> Self {
        Self {
            decoder: GzDecoder::new(BytesMut::new().writer()),
            received: Bytes::new(),
        }
    }

    fn unpack_portion(&mut self) -> Result<Bytes, RequestFailure> {
        let portion = self.received.split_to(self.received.len().min(PORTION));
        self.decoder
            .write_all(&portion)
            .map_err(|error| RequestFailure::Broken(brief(&error)))?;

        Ok(self.take_unpacked())
    }

    /// Ends the decompression after the last octet of the body. Returns the remaining decompressed
    /// octets.
    fn finish(&mut self) -> Result<Bytes, RequestFailure> {
        self.decoder
            .try_finish()
            .map_err(|error| RequestFailure::Broken(brief(&error)))?;

        Ok(self.take_unpacked())
    }

    fn take_unpacked(&mut self) -> Bytes {
        self.decoder.get_mut().get_mut().split().freeze()
    }
}

async fn receive_piece(
    body: &mut Body,
    timeout: Duration,
) -> Result<Option<Bytes>, RequestFailure> {
    let received = async {
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| interrupted_body(&error))?;
            // Other frames are trailers, which are ignored.
            if let Ok(data) = frame.into_data() {
                return Ok(Some(data));
            }
        }
        Ok(None)
    };

    time::timeout(timeout, received)
        .await
        .unwrap_or(Err(RequestFailure::Silent(timeout)))
}

/// The failure of an interrupted body. kube puts `ServiceError: ` before the connection's error;
/// this prefix is removed.
fn interrupted_body(error: &kube::Error) -> RequestFailure {
    let text = brief(error);
    let cause = text.strip_prefix("ServiceError: ").unwrap_or(&text);

    RequestFailure::Broken(cause.to_owned())
}

/// The response to a list request.
pub(super) struct ListReader {
    pieces: BodyPieces,
    timeout: Duration,
    received: BytesMut,
    body: ListBody,
}

enum ListBody {
    Protobuf(ListMessage),
    Json,
    ParsedJson(vec::IntoIter<Encoded>, ListMeta),
}

impl ListReader {
    pub(super) fn new(pieces: BodyPieces, timeout: Duration) -> Self {
        let body = if pieces.is_protobuf {
            ListBody::Protobuf(ListMessage::default())
        } else {
            ListBody::Json
        };

        Self {
            pieces,
            timeout,
            received: BytesMut::new(),
            body,
        }
    }

    /// The next object, or the end of the list.
    pub(super) async fn next_part(&mut self) -> Result<ListPart, RequestFailure> {
        loop {
            match &mut self.body {
                ListBody::Protobuf(list) => match list.take_part(&mut self.received)? {
                    Some(ListPart::End(meta)) => {
                        self.drain_response().await?;
                        return Ok(ListPart::End(meta));
                    }
                    Some(part) => return Ok(part),
                    // A list without its end must fail. Otherwise the objects that it lacks would
                    // be taken for deleted.
                    None if !self.receive(MAX_OBJECT).await? => {
                        let place = "in the middle of a list";
                        return Err(RequestFailure::Broken(place.to_owned()));
                    }
                    None => {}
                },

                ListBody::Json => {
                    while self.receive(MAX_JSON).await? {}
                    let list = read_json_list(&self.received.split().freeze())?;
                    self.body = ListBody::ParsedJson(list.objects.into_iter(), list.meta);
                }

                ListBody::ParsedJson(objects, meta) => {
                    return Ok(objects
                        .next()
                        .map_or_else(|| ListPart::End(meta.clone()), ListPart::Object));
                }
            }
        }
    }

    /// Receives the few octets of the response that follow the list. Without this step, the
    /// connection could not be reused, and a truncated compressed body would not be detected.
    async fn drain_response(&mut self) -> Result<(), RequestFailure> {
        for _ in 0..MAX_REST {
            if self.pieces.next_piece(self.timeout).await?.is_none() {
                return Ok(());
            }
        }

        let problem = "the response does not end after its list";
        Err(RequestFailure::Garbage(problem.to_owned()))
    }

    /// Receives a piece. Returns false at the end of the response. Fails if a piece arrives while
    /// more than `most` octets are not parsed yet.
    async fn receive(&mut self, most: usize) -> Result<bool, RequestFailure> {
        let Some(piece) = self.pieces.next_piece(self.timeout).await? else {
            return Ok(false);
        };
        if self.received.len() > most {
            return Err(RequestFailure::TooLarge(most));
        }

        self.received.extend_from_slice(&piece);
        Ok(true)
    }
}

/// The response to a watch request.
pub(super) struct EventReader {
    pieces: BodyPieces,
    buffer: EventBuffer,
}

impl EventReader {
    pub(super) fn new(pieces: BodyPieces) -> Self {
        Self {
            pieces,
            buffer: EventBuffer::default(),
        }
    }

    /// The next event; `None` at the end. `timeout` applies to each piece. An incomplete last event
    /// is dropped: the API server sends the event again when the watch is resumed.
    pub(super) async fn next_event(
        &mut self,
        timeout: Duration,
    ) -> Result<Option<WatchEvent>, RequestFailure> {
        loop {
            if let Some(event) = self.buffer.take_event(self.pieces.is_protobuf)? {
                return Ok(Some(event));
            }

            let Some(piece) = self.pieces.next_piece(timeout).await? else {
                return Ok(None);
            };
            self.buffer.push_piece(&piece);
            // All events that arrive during the pause cost a single wake-up.
            pause_when_idle(EVENT_PAUSE);
        }
    }
}

/// Received octets of a watch that are not parsed yet.
#[derive(Debug, Default)]
pub(super) struct EventBuffer {
    bytes: BytesMut,
    /// Number of octets at the front of `bytes` that contain no line feed.
    searched: usize,
}

impl EventBuffer {
    pub(super) fn push_piece(&mut self, piece: &[u8]) {
        self.bytes.extend_from_slice(piece);
    }

    /// The first event, if it is complete.
    pub(super) fn take_event(
        &mut self,
        is_protobuf: bool,
    ) -> Result<Option<WatchEvent>, RequestFailure> {
        if is_protobuf {
            self.take_frame_event()
        } else {
            self.take_line_event()
        }
    }

    /// The first event, if it is complete. An event consists of a length in four octets, and a
    /// protobuf message of this length.
    fn take_frame_event(&mut self) -> Result<Option<WatchEvent>, RequestFailure> {
        let Some(length) = self.bytes.first_chunk() else {
            return Ok(None);
        };
        let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
        if length > MAX_OBJECT {
            return Err(RequestFailure::TooLarge(MAX_OBJECT));
        }
        if self.bytes.len() < 4 + length {
            return Ok(None);
        }

        self.bytes.advance(4);
        let frame = self.bytes.split_to(length).freeze();
        WatchEvent::of_frame(&frame).map(Some)
    }

    /// The first event, if it is complete. An event is a non-empty line of JSON.
    fn take_line_event(&mut self) -> Result<Option<WatchEvent>, RequestFailure> {
        while let Some(line) = self.take_line()? {
            if !line.is_empty() {
                return WatchEvent::of_line(&line).map(Some);
            }
        }
        Ok(None)
    }

    /// The first complete line, without its line end.
    fn take_line(&mut self) -> Result<Option<Bytes>, RequestFailure> {
        let unsearched = self.bytes.get(self.searched..).unwrap_or_default();
        let Some(at) = unsearched.iter().position(|byte| *byte == b'\n') else {
            // A large event arrives in many pieces, each of which is searched once.
            self.searched = self.bytes.len();
            if self.searched > MAX_OBJECT {
                return Err(RequestFailure::TooLarge(MAX_OBJECT));
            }
            return Ok(None);
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
        let mut buffer = EventBuffer::default();
        let mut lines = Vec::new();
        for piece in pieces {
            buffer.push_piece(piece.as_bytes());
            while let Some(line) = buffer.take_line().unwrap() {
                lines.push(line);
            }
        }
        lines
    }

    #[test]
    fn complete_lines_are_taken() {
        assert_eq!(lines(&["a\nbc\n"]), ["a", "bc"]);
        assert_eq!(lines(&["a", "b", "\nc", "\n", "d"]), ["ab", "c"]);
        assert_eq!(lines(&["a\r\n\n\r\nb\n"]), ["a", "", "", "b"]);
        assert_eq!(lines(&[""]), [""; 0]);
    }

    #[test]
    fn too_large_event_is_rejected() {
        let mut buffer = EventBuffer::default();
        let piece = vec![b'x'; 1 << 20];
        let pushed = (0..10).find_map(|_| {
            buffer.push_piece(&piece);
            buffer.take_event(false).err()
        });
        assert_eq!(pushed, Some(RequestFailure::TooLarge(MAX_OBJECT)));
        assert!(buffer.bytes.len() <= MAX_OBJECT + piece.len());
        buffer.bytes = BytesMut::from(&[0, 0x80, 0, 1][..]);
        assert_eq!(
            buffer.take_event(true).err(),
            Some(RequestFailure::TooLarge(MAX_OBJECT))
        );
    }
}
