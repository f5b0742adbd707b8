//! Validation of DNS names by the rules of Kubernetes for labels and subdomains (RFC 1123, lower
//! case only).

/// Maximum length of a name, in characters without a trailing dot (RFC 1035, section 3.1).
pub const MAX_NAME: usize = 253;
/// Maximum length of a label, in octets.
pub const MAX_LABEL: usize = 63;

/// The message of the API server and kube-dns for an invalid label.
pub const LABEL_RULE: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', \
     and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation \
     is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";

/// The message of the API server and kube-dns for an invalid name.
pub const SUBDOMAIN_RULE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, \
     '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation \
     is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

/// Whether `label` is a lower-case RFC 1123 label.
pub fn is_label(label: &str) -> bool {
    let bytes = label.as_bytes();
    bytes.len() <= MAX_LABEL
        && bytes.first().is_some_and(|b| is_lower_alphanumeric(*b))
        && bytes.last().is_some_and(|b| is_lower_alphanumeric(*b))
        && bytes
            .iter()
            .all(|b| is_lower_alphanumeric(*b) || *b == b'-')
}

fn is_lower_alphanumeric(octet: u8) -> bool {
    octet.is_ascii_lowercase() || octet.is_ascii_digit()
}

/// Whether `name` consists of labels joined by dots. It must not have a trailing dot, or more than
/// [`MAX_NAME`] characters.
///
/// Unlike Kubernetes, this function rejects labels of more than 63 octets, which no DNS message can
/// contain.
pub fn is_subdomain(name: &str) -> bool {
    name.len() <= MAX_NAME && name.split('.').all(is_label)
}

/// Whether `name` is a host name: a subdomain whose last label is not a number. A mistyped address
/// (`192.0.2.300`) is not a host name.
pub fn is_host(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or_default();
    is_subdomain(name) && !last.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lowercase_rfc_1123_names_are_valid() {
        let long_label = "a".repeat(63);
        let long_name = [
            long_label.as_str(),
            &long_label,
            &long_label,
            &"a".repeat(61),
        ]
        .join(".");
        for good in [
            "a",
            "0",
            "a-b",
            "acme.example",
            "2.0.192.in-addr.arpa",
            &long_label,
            &long_name,
        ] {
            assert!(is_subdomain(good), "{good}");
        }

        let too_long_label = "a".repeat(64);
        let too_long_name = format!("a.{long_name}");
        for bad in [
            "",
            ".",
            "a.",
            ".a",
            "a..b",
            "-a",
            "a-",
            "A",
            "a_b",
            "a b",
            "a/b",
            "a\nb",
            "ä",
            "a#5",
            &too_long_label,
            &too_long_name,
        ] {
            assert!(!is_subdomain(bad), "{bad:?}");
        }

        assert!(is_host("ns1.acme.example") && is_host("1and1.example"));
        assert!(!is_host("192.0.2.300") && !is_host("10"));
    }
}
