//! Truncates a value for an error text.

/// The value, truncated at `most` characters, for an error.
pub fn shorten(value: &str, most: usize) -> String {
    match value.char_indices().nth(most) {
        Some((end, _)) => format!("{}...", value.get(..end).unwrap_or_default()),
        None => value.to_owned(),
    }
}
