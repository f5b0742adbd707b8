//! The version the binaries print and export.

/// What the version belongs to, as `--version` prints it.
pub const NAME: &str = "Kube-DNS";

/// The version stamped in at build time through `KUBE_DNS_RS_VERSION`, else the workspace's.
pub const VERSION: &str = match option_env!("KUBE_DNS_RS_VERSION") {
    Some(version) => version,
    None => env!("CARGO_PKG_VERSION"),
};
