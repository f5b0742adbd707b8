//! The version that the binaries print and export.

/// Name of the project, which is part of the responses to version queries.
pub const PROJECT: &str = "kube-dns-rs";

/// Name before the version in the output of `--version`, as in kube-dns.
pub(crate) const NAME: &str = "Kube-DNS";

/// The version, set at build time by `KUBE_DNS_RS_VERSION`; otherwise the version of the workspace.
pub const VERSION: &str = match option_env!("KUBE_DNS_RS_VERSION") {
    Some(version) => version,
    None => env!("CARGO_PKG_VERSION"),
};

/// The commit; the build of the images sets it with `KUBE_DNS_RS_COMMIT`. Without that variable it
/// is `unknown`.
pub const COMMIT: &str = match option_env!("KUBE_DNS_RS_COMMIT") {
    Some(commit) if !commit.is_empty() => commit,
    _ => "unknown",
};

/// URL of the troubleshooting page. Links append the name of a section.
pub const RUNBOOKS: &str = concat!(
    env!("CARGO_PKG_REPOSITORY"),
    "/blob/main/docs/troubleshooting.md#"
);
