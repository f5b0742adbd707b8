//! The kinds of names Kubernetes knows, with its own words for what is wrong with one.

use crate::kinds::NameRule;

const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const LABEL_1123: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const QUALIFIED: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const CONFIG_KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";

/// Checks an object's name.
pub(crate) fn check(rule: NameRule, name: &str) -> Result<(), &'static str> {
    match rule {
        NameRule::Label1035 => label_1035(name),
        NameRule::Label1123 => label_1123(name),
        NameRule::Subdomain => subdomain(name),
    }
}

/// RFC 1035 label: Services.
pub(crate) fn label_1035(name: &str) -> Result<(), &'static str> {
    at_most(name, 63)?;
    let starts = name.starts_with(|c: char| c.is_ascii_lowercase());
    if starts && is_label(name) { Ok(()) } else { Err(LABEL_1035) }
}

/// RFC 1123 label: namespaces, port names, hostnames.
pub(crate) fn label_1123(name: &str) -> Result<(), &'static str> {
    at_most(name, 63)?;
    if is_label(name) { Ok(()) } else { Err(LABEL_1123) }
}

/// RFC 1123 subdomain: most objects.
pub(crate) fn subdomain(name: &str) -> Result<(), &'static str> {
    at_most(name, 253)?;
    if name.split('.').all(is_label) { Ok(()) } else { Err(SUBDOMAIN) }
}

/// Key of a label or annotation.
pub(crate) fn is_qualified_name(name: &str) -> Result<(), &'static str> {
    let (prefix, name) = name.split_once('/').map_or((None, name), |(prefix, name)| (Some(prefix), name));
    if let Some(prefix) = prefix {
        subdomain(prefix)?;
    }
    at_most(name, 63)?;
    if is_plain(name) { Ok(()) } else { Err(QUALIFIED) }
}

/// Value of a label.
pub(crate) fn is_label_value(value: &str) -> Result<(), &'static str> {
    at_most(value, 63)?;
    if value.is_empty() || is_plain(value) { Ok(()) } else { Err(LABEL_VALUE) }
}

/// Key of a ConfigMap.
pub(crate) fn is_config_key(key: &str) -> Result<(), &'static str> {
    at_most(key, 253)?;
    if key == "." || key == ".." {
        return Err("must not be '.' or '..'");
    }
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if !key.is_empty() && key.chars().all(legal) { Ok(()) } else { Err(CONFIG_KEY) }
}

/// IANA service name: a target port.
pub(crate) fn is_service_name(name: &str) -> bool {
    let legal = name.len() <= 15 && label_1123(name).is_ok() && !name.contains("--");
    legal && name.contains(|c: char| c.is_ascii_lowercase())
}

fn at_most(name: &str, octets: usize) -> Result<(), &'static str> {
    match octets {
        _ if name.len() <= octets => Ok(()),
        63 => Err("must be no more than 63 characters"),
        _ => Err("must be no more than 253 characters"),
    }
}

fn is_label(name: &str) -> bool {
    let outer = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    name.starts_with(outer) && name.ends_with(outer) && name.chars().all(|c| outer(c) || c == '-')
}

fn is_plain(name: &str) -> bool {
    let outer = |c: char| c.is_ascii_alphanumeric();
    name.starts_with(outer)
        && name.ends_with(outer)
        && name.chars().all(|c| outer(c) || matches!(c, '-' | '_' | '.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    type Check = fn(&str) -> Result<(), &'static str>;

    #[test]
    fn names() {
        let long = "a".repeat(64);
        let cases: [(Check, &str, bool); 18] = [
            (label_1035, "web-1", true),
            (label_1035, "1web", false),
            (label_1035, "web-", false),
            (label_1035, "Web", false),
            (label_1035, "", false),
            (label_1035, &long, false),
            (label_1123, "1web", true),
            (label_1123, "a.b", false),
            (subdomain, "a.b-c.d", true),
            (subdomain, "a..b", false),
            (subdomain, ".a", false),
            (is_qualified_name, "kubernetes.io/service-name", true),
            (is_qualified_name, "App_1.x", true),
            (is_qualified_name, "/x", false),
            (is_label_value, "", true),
            (is_label_value, "a b", false),
            (is_config_key, "..data", true),
            (is_config_key, "a/b", false),
        ];
        for (check, name, legal) in cases {
            assert_eq!(check(name).is_ok(), legal, "{name:?}");
        }
    }
}
