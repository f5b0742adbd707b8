//! `--daemonset`: the `DaemonSet` of this pod.

use std::str::FromStr;

use thiserror::Error;
use wire::rfc1123::{is_label, is_subdomain};

/// `--daemonset`: namespace and name; `None` if not given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DaemonSetName(pub Option<(String, String)>);

/// Invalid name of a `DaemonSet`.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0:?} is not a DaemonSet: expected NAMESPACE/NAME, such as kube-system/kube-dns")]
pub struct DaemonSetNameError(String);

impl FromStr for DaemonSetName {
    type Err = DaemonSetNameError;

    fn from_str(text: &str) -> Result<Self, DaemonSetNameError> {
        if text.is_empty() {
            return Ok(Self::default());
        }

        let parts = text.split_once('/');
        let parts = parts.filter(|(namespace, name)| is_label(namespace) && is_subdomain(name));
        let (namespace, name) = parts.ok_or_else(|| DaemonSetNameError(text.to_owned()))?;
        Ok(Self(Some((namespace.to_owned(), name.to_owned()))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn daemon_set_is_empty_or_namespace_and_name() {
        let given = ("kube-system".to_owned(), "kube-dns".to_owned());
        for (text, expected) in [("", None), ("kube-system/kube-dns", Some(given))] {
            assert_eq!(text.parse(), Ok(DaemonSetName(expected)), "{text}");
        }
        for text in [
            "kube-dns",
            "/kube-dns",
            "a/",
            "a/b/c",
            "a/b?c",
            "a b/c",
            "../a",
        ] {
            let error = text.parse::<DaemonSetName>().unwrap_err().to_string();
            let expected = format!(
                "{text:?} is not a DaemonSet: expected NAMESPACE/NAME, such as kube-system/kube-dns"
            );
            assert_eq!(error, expected);
        }
    }
}
