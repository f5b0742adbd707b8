//! Validation of names, with the messages of Kubernetes.

use crate::kinds::Resource;

const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const LABEL_1123: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

/// Validates the name of an object.
pub(crate) fn check(resource: Resource, name: &str) -> Result<(), &'static str> {
    match resource {
        Resource::Services => label_1035(name),
        Resource::Namespaces => label_1123(name),
        Resource::ConfigMaps
        | Resource::Endpoints
        | Resource::Nodes
        | Resource::Pods
        | Resource::ServiceAccounts
        | Resource::EndpointSlices
        | Resource::ServiceImports => subdomain(name),
    }
}

/// Validates an RFC 1123 label, the form of Namespace names.
pub(crate) fn label_1123(name: &str) -> Result<(), &'static str> {
    at_most_63(name)?;
    if is_label(name) {
        Ok(())
    } else {
        Err(LABEL_1123)
    }
}

/// Validates an RFC 1123 subdomain, the form of most object names.
pub(crate) fn subdomain(name: &str) -> Result<(), &'static str> {
    if name.len() > 253 {
        return Err("must be no more than 253 characters");
    }
    if name.split('.').all(is_label) {
        Ok(())
    } else {
        Err(SUBDOMAIN)
    }
}

/// Validates an RFC 1035 label, the form of Service names.
fn label_1035(name: &str) -> Result<(), &'static str> {
    at_most_63(name)?;
    let starts = name.starts_with(|c: char| c.is_ascii_lowercase());
    if starts && is_label(name) {
        Ok(())
    } else {
        Err(LABEL_1035)
    }
}

fn at_most_63(name: &str) -> Result<(), &'static str> {
    if name.len() > 63 {
        Err("must be no more than 63 characters")
    } else {
        Ok(())
    }
}

fn is_label(name: &str) -> bool {
    let outer = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    name.starts_with(outer) && name.ends_with(outer) && name.chars().all(|c| outer(c) || c == '-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allowed_names_depend_on_resource() {
        let long = "a".repeat(64);
        let cases = [
            (Resource::Services, "web-1", true),
            (Resource::Services, "1web", false),
            (Resource::Services, "web-", false),
            (Resource::Services, "Web", false),
            (Resource::Services, "", false),
            (Resource::Services, &long, false),
            (Resource::Namespaces, "1web", true),
            (Resource::Namespaces, "a.b", false),
            (Resource::ConfigMaps, "a.b-c.d", true),
            (Resource::ConfigMaps, "a..b", false),
            (Resource::ConfigMaps, ".a", false),
        ];
        for (resource, name, legal) in cases {
            assert_eq!(check(resource, name).is_ok(), legal, "{resource} {name:?}");
        }
    }
}
