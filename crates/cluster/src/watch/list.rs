//! Incoming objects of a list.

use std::time::Duration;
use std::vec;

use bytes::BytesMut;

use super::encoding::{ListMessage, ListMeta, ListPart, MAX_OBJECT, read_list};
use super::failure::Failure;
use super::pieces::Pieces;
use crate::objects::Encoded;

/// Bound of a page of a list in JSON, in octets, because such a page is read as a whole. A larger
/// page is requested again with fewer objects.
const MAX_JSON: usize = 32 << 20;

/// Bound of the number of pieces of a response after the end of the list.
const MAX_REST: usize = 64;

/// The response to a list request.
pub(super) struct ListReader {
    pieces: Pieces,
    patience: Duration,
    received: BytesMut,
    course: Course,
}

enum Course {
    Protobuf(ListMessage),
    Json,
    /// Parsed JSON.
    Read(vec::IntoIter<Encoded>, ListMeta),
}

impl ListReader {
    pub(super) fn new(pieces: Pieces, patience: Duration) -> Self {
        let course = if pieces.protobuf {
            Course::Protobuf(ListMessage::default())
        } else {
            Course::Json
        };
        Self {
            pieces,
            patience,
            received: BytesMut::new(),
            course,
        }
    }

    /// The next object, or the end of the list.
    pub(super) async fn next(&mut self) -> Result<ListPart, Failure> {
        loop {
            match &mut self.course {
                Course::Protobuf(list) => match list.next(&mut self.received)? {
                    Some(ListPart::End(meta)) => {
                        self.drain().await?;
                        return Ok(ListPart::End(meta));
                    }
                    Some(part) => return Ok(part),
                    None if !self.receive(MAX_OBJECT).await? => {
                        return Err(Failure::Broken("in the middle of a list".to_owned()));
                    }
                    None => {}
                },
                Course::Json => {
                    while self.receive(MAX_JSON).await? {}
                    let (meta, objects) = read_list(&self.received.split().freeze())?;
                    self.course = Course::Read(objects.into_iter(), meta);
                }
                Course::Read(objects, meta) => {
                    return Ok(objects
                        .next()
                        .map_or_else(|| ListPart::End(meta.clone()), ListPart::Object));
                }
            }
        }
    }

    /// Receives the rest of the response after the list, which is a few octets. Without the rest,
    /// the connection cannot be reused, and a truncated compressed body is not detected.
    async fn drain(&mut self) -> Result<(), Failure> {
        for _ in 0..MAX_REST {
            if self.pieces.next(self.patience).await?.is_none() {
                return Ok(());
            }
        }
        Err(Failure::Garbage("a list that does not end".to_owned()))
    }

    /// Receives a piece. Returns false at the end of the response. `most` bounds the octets that
    /// are not parsed yet.
    async fn receive(&mut self, most: usize) -> Result<bool, Failure> {
        let Some(piece) = self.pieces.next(self.patience).await? else {
            return Ok(false);
        };
        if self.received.len() > most {
            return Err(Failure::TooLarge(most));
        }
        self.received.extend_from_slice(&piece);
        Ok(true)
    }
}
