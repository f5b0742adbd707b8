//! Raises the limit of open files and sockets, like the Go runtime of kube-dns at its start.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// The highest useful limit: the maximum numbers of connections and pending queries together need
/// fewer descriptors.
const USEFUL_LIMIT: u64 = 16_384;
/// The assumed soft limit if the limit cannot be read.
const DEFAULT_LIMIT: u64 = 1024;

/// Raises the soft limit of descriptors up to `USEFUL_LIMIT`, as far as the hard limit allows.
/// Returns the soft limit in force, which determines the maximum numbers of sockets.
pub(crate) fn raise_limit() -> usize {
    let (soft, hard) = match getrlimit(Resource::RLIMIT_NOFILE) {
        Ok(limits) => limits,
        Err(error) => {
            tracing::warn!(%error, assumed = DEFAULT_LIMIT, "cannot read the limit of open files");
            (DEFAULT_LIMIT, DEFAULT_LIMIT)
        }
    };

    let mut limit = soft;
    if let Some(wanted) = higher_limit(soft, hard) {
        match setrlimit(Resource::RLIMIT_NOFILE, wanted, hard) {
            Ok(()) => limit = wanted,
            Err(error) => {
                tracing::warn!(%error, soft, wanted, "cannot raise the limit of open files");
            }
        }
    }
    tracing::debug!(limit, "this limit of open files and sockets is in force");
    usize::try_from(limit).unwrap_or(usize::MAX)
}

/// The soft limit to set; `None` if `soft` is high enough, or equals the hard limit.
fn higher_limit(soft: u64, hard: u64) -> Option<u64> {
    let wanted = hard.min(USEFUL_LIMIT);
    (wanted > soft).then_some(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_is_raised_if_useful_and_allowed() {
        for (soft, hard, expected) in [
            (1024, 1 << 20, Some(USEFUL_LIMIT)),
            (1024, 4096, Some(4096)),
            (1024, 1024, None),
            (USEFUL_LIMIT, 1 << 20, None),
            (1 << 20, 1 << 20, None),
            (1024, u64::MAX, Some(USEFUL_LIMIT)),
        ] {
            assert_eq!(higher_limit(soft, hard), expected, "{soft} of {hard}");
        }
    }
}
