//! Lists as text.

use std::fmt::Display;

/// The items separated by commas.
pub(crate) fn join(things: &[impl Display]) -> String {
    let texts: Vec<String> = things.iter().map(ToString::to_string).collect();
    texts.join(", ")
}

/// The items separated by commas, and the number `more` of omitted items.
pub(crate) fn join_some(things: &[impl Display], more: usize) -> String {
    match more {
        0 => join(things),
        more => format!("{} and {more} more", join(things)),
    }
}

/// The first `shown` items, and the number of omitted items.
pub(crate) fn join_first(things: &[impl Display], shown: usize) -> String {
    let (first, more) = things.split_at_checked(shown).unwrap_or((things, &[]));
    join_some(first, more.len())
}
