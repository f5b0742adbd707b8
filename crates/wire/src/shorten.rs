//! Truncates a value for an error text.

/// The first `most` characters of the value. If the value is longer, `...` follows.
pub fn shorten(value: &str, most: usize) -> String {
    match value.char_indices().nth(most) {
        Some((end, _)) => format!("{}...", value.get(..end).unwrap_or_default()),
        None => value.to_owned(),
    }
}
