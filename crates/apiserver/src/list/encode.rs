//! The JSON text of a list, put together from the texts of its objects.

use bytes::{BufMut as _, Bytes, BytesMut};
use serde_json::json;

use super::Page;

/// Octets in a chunk, about.
const CHUNK: usize = 128 * 1024;

/// The text of a list in chunks.
#[derive(Debug)]
pub(crate) struct Chunks {
    page: Page,
    next: usize,
    state: State,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    Head,
    Items,
    Done,
}

impl Chunks {
    pub(super) fn new(page: Page) -> Self {
        let next = page.range.start;
        Self { page, next, state: State::Head }
    }

    /// The whole text if it fits into one chunk.
    pub(crate) fn into_short(mut self) -> Result<Bytes, Self> {
        let size: usize = self.page.objects().iter().map(|object| object.item().len() + 1).sum();
        if size > CHUNK {
            return Err(self);
        }
        Ok(self.next().unwrap_or_default())
    }

    fn head(&self) -> Vec<u8> {
        let kind = self.page.resource.kind();
        let mut meta = json!({ "resourceVersion": self.page.version.to_string() });
        if let Some(token) = &self.page.continue_token {
            meta["continue"] = json!(token);
        }
        if let Some(remaining) = self.page.remaining {
            meta["remainingItemCount"] = json!(remaining);
        }
        let (name, api_version) = (kind.name, kind.api_version());
        format!("{{\"kind\":\"{name}List\",\"apiVersion\":\"{api_version}\",\"metadata\":{meta},\"items\":[")
            .into_bytes()
    }
}

impl Iterator for Chunks {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if self.state == State::Done {
            return None;
        }
        let mut chunk = BytesMut::new();
        if self.state == State::Head {
            chunk.put_slice(&self.head());
            self.state = State::Items;
        }
        let items = self.page.objects.get(self.next..self.page.range.end).unwrap_or_default();
        for object in items {
            if chunk.len() > CHUNK {
                return Some(chunk.freeze());
            }
            if self.next > self.page.range.start {
                chunk.put_u8(b',');
            }
            chunk.put_slice(object.item());
            self.next += 1;
        }
        chunk.put_slice(b"]}\n");
        self.state = State::Done;
        Some(chunk.freeze())
    }
}
