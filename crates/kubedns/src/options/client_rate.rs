//! Flags that limit the rate of each client's queries.

use std::num::NonZeroU32;
use std::str::FromStr;

use daemon::flags::int;
use skydns::ClientRate;
use thiserror::Error;

/// The highest value of a limit. A process cannot answer that many queries in a second.
const MAX_QUERIES: u32 = 1_000_000;

/// A number of queries. The meaning of 0 depends on the flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueryLimit(pub u32);

/// A value that is too large, or that is not a number of queries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("must be a number of queries from 0 to {MAX_QUERIES}")]
pub struct QueryLimitError;

impl FromStr for QueryLimit {
    type Err = QueryLimitError;

    fn from_str(text: &str) -> Result<Self, QueryLimitError> {
        let queries: usize = int(text).map_err(|_| QueryLimitError)?;
        match u32::try_from(queries) {
            Ok(queries @ ..=MAX_QUERIES) => Ok(Self(queries)),
            _ => Err(QueryLimitError),
        }
    }
}

/// Limits on the queries of each client: how many per second, and how many at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::Args)]
pub struct ClientRateFlags {
    /// maximum number of queries a second from one client (IPv4 address or IPv6 /64); further
    /// queries are answered with REFUSED; the containers of kubedns' own pod have no limit; 0 for no
    /// limit
    #[arg(long, value_name = "int", default_value = "0")]
    pub client_qps: QueryLimit,
    /// number of queries that one client may send at once after a pause, if --client-qps is set; 0
    /// for twice --client-qps
    #[arg(long, value_name = "int", default_value = "0")]
    pub client_burst: QueryLimit,
}

impl ClientRateFlags {
    /// The limit of each client; `None` if there is no limit.
    pub fn rate(self) -> Option<ClientRate> {
        let qps = NonZeroU32::new(self.client_qps.0)?;
        let burst = NonZeroU32::new(self.client_burst.0);
        Some(ClientRate {
            qps,
            burst: burst.unwrap_or(qps.saturating_mul(NonZeroU32::MIN.saturating_add(1))),
        })
    }
}
