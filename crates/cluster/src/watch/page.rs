//! The shape of lists and watch events, with the objects left as text for the kind to read.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::failure::{Failure, excerpt};

/// A page of a list.
#[derive(Debug)]
pub(super) struct Page<'a> {
    pub(super) version: String,
    /// Where the next page begins, if this is not the last.
    pub(super) continued: Option<String>,
    pub(super) items: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct List<'a> {
    kind: String,
    metadata: ListMetadata,
    #[serde(borrow)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMetadata {
    resource_version: String,
    r#continue: Option<String>,
}

impl<'a> Page<'a> {
    /// Reads a page. What is not a list must not be taken for an empty one.
    pub(super) fn read(body: &'a [u8]) -> Result<Self, Failure> {
        let garbage = |why: String| Failure::Garbage(format!("{why}: {}", excerpt(body)));
        let text = std::str::from_utf8(body).map_err(|_| garbage("not UTF-8".to_owned()))?;
        let list: List<'a> = serde_json::from_str(text).map_err(|error| garbage(error.to_string()))?;
        if !list.kind.ends_with("List") {
            return Err(garbage(format!("a {} and not a list", excerpt(list.kind.as_bytes()))));
        }
        Ok(Self {
            version: list.metadata.resource_version,
            continued: list.metadata.r#continue.filter(|token| !token.is_empty()),
            items: list.items.unwrap_or_default(),
        })
    }
}

/// A watch event.
#[derive(Debug, Deserialize)]
pub(super) struct WatchEvent<'a> {
    pub(super) r#type: String,
    #[serde(borrow)]
    pub(super) object: &'a RawValue,
}

impl<'a> WatchEvent<'a> {
    pub(super) fn read(line: &'a str) -> Result<Self, Failure> {
        serde_json::from_str(line)
            .map_err(|error| Failure::Garbage(format!("{error}: {}", excerpt(line.as_bytes()))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_items_a_version_and_perhaps_a_successor() {
        let body = br#"{"kind":"ServiceList","apiVersion":"v1","metadata":{"resourceVersion":"215",
            "continue":"abc","remainingItemCount":3},"items":[{"a":1},2]}"#;
        let page = Page::read(body).unwrap();
        assert_eq!((page.version.as_str(), page.continued.as_deref()), ("215", Some("abc")));
        let items: Vec<&str> = page.items.iter().map(|item| item.get()).collect();
        assert_eq!(items, [r#"{"a":1}"#, "2"]);
        let last = br#"{"kind":"ServiceList","metadata":{"resourceVersion":"1","continue":""},"items":null}"#;
        let page = Page::read(last).unwrap();
        assert_eq!((page.continued, page.items.len()), (None, 0));
    }

    #[test]
    fn what_is_no_list_is_not_an_empty_list() {
        let bodies: [&[u8]; 6] = [
            b"",
            b"<html>",
            b"{}",
            br#"{"kind":"Status","metadata":{"resourceVersion":"1"},"items":[]}"#,
            br#"{"kind":"ServiceList","metadata":{},"items":[]}"#,
            b"\xff",
        ];
        for body in bodies {
            let failure = Page::read(body).unwrap_err();
            assert_eq!(failure.reason(), "garbage", "{failure}");
        }
    }

    #[test]
    fn events_that_are_none_are_garbage() {
        let event = WatchEvent::read(r#"{"type":"ADDED","object":{"a":[]}}"#).unwrap();
        assert_eq!((event.r#type.as_str(), event.object.get()), ("ADDED", r#"{"a":[]}"#));
        for line in ["{", "[]", r#"{"type":"ADDED"}"#, r#"{"object":{}}"#] {
            assert_eq!(WatchEvent::read(line).unwrap_err().reason(), "garbage", "{line}");
        }
    }
}
