//! The version the binaries print and export.

/// Name of the project: what a server says it is to whoever asks over DNS.
pub const PROJECT: &str = "kube-dns-rs";

/// Name before the version that `--version` prints, as in kube-dns.
pub(crate) const NAME: &str = "Kube-DNS";

/// The version stamped in at build time through `KUBE_DNS_RS_VERSION`, else the workspace's.
pub const VERSION: &str = match option_env!("KUBE_DNS_RS_VERSION") {
    Some(version) => version,
    None => env!("CARGO_PKG_VERSION"),
};

/// The commit stamped in at build time through `KUBE_DNS_RS_COMMIT`, as the images are built; else `unknown`.
pub const COMMIT: &str = match option_env!("KUBE_DNS_RS_COMMIT") {
    Some(commit) if !commit.is_empty() => commit,
    _ => "unknown",
};

/// The page that says what to do about a fault; the name of its section follows.
pub const RUNBOOKS: &str = concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/docs/troubleshooting.md#");
