//! `--ttl` and `--negative-ttl`: TTLs of the cluster zone.

use std::str::FromStr;

use daemon::flags::GoDuration;
use thiserror::Error;

/// A TTL in whole seconds, from 0 to an hour; `None` for the default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ZoneTtl(pub Option<u32>);

/// Not a valid TTL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("must be whole seconds from 0s to 1h0m0s")]
pub struct ZoneTtlError;

/// The longest TTL in seconds, as in CoreDNS.
const MAX: u64 = 3600;

impl FromStr for ZoneTtl {
    type Err = ZoneTtlError;

    fn from_str(text: &str) -> Result<Self, ZoneTtlError> {
        if text.is_empty() {
            return Ok(Self(None));
        }
        let GoDuration(ttl) = text.parse().map_err(|_| ZoneTtlError)?;
        let whole = ttl.subsec_nanos() == 0 && ttl.as_secs() <= MAX;
        let seconds = u32::try_from(ttl.as_secs()).ok().filter(|_| whole);
        seconds
            .map(|seconds| Self(Some(seconds)))
            .ok_or(ZoneTtlError)
    }
}
