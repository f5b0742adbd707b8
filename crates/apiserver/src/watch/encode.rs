//! The lines of a watch response.

use bytes::Bytes;
use serde_json::json;

use super::Watch;
use crate::kinds::Resource;
use crate::object::{Object, head};
use crate::status::Status;
use crate::store::{Change, Event, line};
use crate::table::Columns;

/// The line of an event as this watch is to see it, if at all: an object that comes into the selection is new to the
/// watcher, one that leaves it is gone.
pub(super) fn event(watch: &Watch, event: &Event) -> Option<Bytes> {
    if watch.selection.is_everything() && watch.columns.is_none() {
        return Some(event.line());
    }
    let selection = &watch.selection;
    let before = event.previous.as_deref().is_some_and(|previous| selection.matches(previous));
    let after = event.change != Change::Deleted && selection.matches(&event.object);
    let change = match (before, after) {
        (false, false) => return None,
        (false, true) => Change::Added,
        (true, true) => Change::Modified,
        (true, false) => Change::Deleted,
    };
    if let Some(columns) = watch.columns {
        return Some(table(columns, change, &event.object));
    }
    Some(if change == event.change { event.line() } else { line(change, &event.object) })
}

/// The line of an object that was there when the watch began.
pub(super) fn initial(watch: &Watch, object: &Object) -> Bytes {
    match watch.columns {
        Some(columns) => table(columns, Change::Added, object),
        None => line(Change::Added, object),
    }
}

/// The line of a bookmark.
pub(super) fn bookmark(resource: Resource, version: u64) -> Bytes {
    let (head, tail) = (head(resource), resource.kind().empty_tail);
    format!(
        "{{\"type\":\"BOOKMARK\",\"object\":{head}\"metadata\":{{\"resourceVersion\":\"{version}\"}}{tail}}}}}\n"
    )
    .into()
}

/// The line of an error, the last of a watch.
pub(crate) fn error(status: &Status) -> Bytes {
    let mut text = b"{\"type\":\"ERROR\",\"object\":".to_vec();
    text.extend_from_slice(&status.to_json());
    text.extend_from_slice(b"}\n");
    text.into()
}

fn table(columns: Columns, change: Change, object: &Object) -> Bytes {
    let line = json!({ "type": change.as_str(), "object": crate::table::single(columns, object) });
    format!("{line}\n").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bookmarks_look_like_those_of_a_real_server() {
        assert_eq!(
            bookmark(Resource::Services, 219),
            "{\"type\":\"BOOKMARK\",\"object\":{\"kind\":\"Service\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"219\"},\"spec\":{},\"status\":{\"loadBalancer\":{}}}}\n"
        );
    }

    #[test]
    fn an_error_looks_like_that_of_a_real_server() {
        assert_eq!(
            error(&Status::expired("too old resource version: 1 (220)")),
            "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\"status\":\"Failure\",\"message\":\"too old resource version: 1 (220)\",\"reason\":\"Expired\",\"code\":410}}\n"
        );
    }
}
