//! Validation of the names of Services.

use wire::rfc1123::is_label;

/// Whether `label` is a valid name of a Service (RFC 1035): a lower-case DNS label that begins with
/// a letter.
pub(super) fn is_service_name(label: &str) -> bool {
    is_label(label) && label.starts_with(|first: char| first.is_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_name_is_a_lower_case_label_that_begins_with_a_letter() {
        for (label, service, namespace) in [
            ("web", true, true),
            ("w", true, true),
            ("web-2", true, true),
            ("1web", false, true),
            ("2", false, true),
            ("_x", false, false),
            ("web-", false, false),
            ("-web", false, false),
            ("we_b", false, false),
            ("a.b", false, false),
            ("*", false, false),
            ("Web", false, false),
            ("w\u{e4}b", false, false),
            ("", false, false),
            (&"a".repeat(63), true, true),
            (&"a".repeat(64), false, false),
        ] {
            assert_eq!(
                (is_service_name(label), is_label(label)),
                (service, namespace),
                "{label:?}"
            );
        }
    }
}
