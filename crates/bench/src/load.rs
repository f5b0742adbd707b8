//! Load from dnsperf.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::process::Command;
use tokio::time::timeout;

use crate::peers::Peer;

/// Number of sockets of dnsperf. The kernel spreads queries from several sockets over all sockets
/// of the server.
const CLIENTS: &str = "8";
/// Maximum time from the end of [`Load::span`] to the end of dnsperf.
const GRACE: Duration = Duration::from_secs(15);

/// The tolerated number of lost queries, as a fraction of the answered queries. At full speed, some
/// servers lose a few.
const MAX_LOST: f64 = 0.01;

/// Settings of dnsperf.
#[derive(Debug, Clone)]
pub struct Load {
    /// Maximum number of outstanding queries. With too few outstanding queries, the server spends
    /// CPU time on wake-ups. With too many, queries are dropped.
    pub outstanding: u32,
    /// Duration of the load.
    pub span: Duration,
    /// Queries a second; as many as possible if `None`.
    pub rate: Option<u32>,
}

/// The result of a run of dnsperf.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Queries answered.
    pub completed: u32,
    /// Queries not answered.
    pub lost: u32,
    /// Answers by RCODE.
    pub rcodes: BTreeMap<String, u32>,
}

/// Cost of a load for the server.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeasuredLoad {
    /// CPU time of the server per answered query, in microseconds.
    pub microseconds: f64,
    /// Queries not answered.
    pub lost: u32,
}

/// The order in which to measure `count` servers. The order alternates between rounds, so that a
/// gradual change of the machine's speed favours no server.
pub(crate) fn order_of_servers(count: usize, round: u32) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    if round.is_multiple_of(2) {
        order.reverse();
    }
    order
}

impl Load {
    /// Sends the queries of `file` to `server`, and measures the CPU time of the server. Fails if
    /// too many queries are lost, or if an answer does not have the given `rcode`.
    pub async fn measure(
        &self,
        server: &Peer,
        file: &Path,
        rcode: Option<&str>,
    ) -> anyhow::Result<MeasuredLoad> {
        let before = server.cpu()?;
        let outcome = self.run(server.address, file).await?;
        let used = server.cpu()?.saturating_sub(before);

        let Outcome {
            completed,
            lost,
            rcodes,
        } = outcome;
        if let Some(rcode) = rcode
            && rcodes.get(rcode).copied().unwrap_or_default() != completed
        {
            bail!(
                "{} must answer all queries of {} with {rcode}; the answers had {rcodes:?}",
                server.name,
                file.display()
            );
        }
        if completed == 0 || f64::from(lost) > MAX_LOST * f64::from(completed) {
            bail!(
                "{} answered {completed} of {} queries; at most {:.0} % may be lost",
                server.name,
                completed + lost,
                100.0 * MAX_LOST
            );
        }

        Ok(MeasuredLoad {
            microseconds: used.as_secs_f64() * 1e6 / f64::from(completed),
            lost,
        })
    }

    /// Sends the queries of `file` to `server`.
    pub async fn run(&self, server: SocketAddr, file: &Path) -> anyhow::Result<Outcome> {
        let mut command = Command::new("dnsperf");
        command
            .arg("-s")
            .arg(server.ip().to_string())
            .arg("-p")
            .arg(server.port().to_string());
        command
            .arg("-d")
            .arg(file)
            .args(["-c", CLIENTS, "-T", "1", "-t", "2"]);
        command
            .arg("-q")
            .arg(self.outstanding.to_string())
            .arg("-l")
            .arg(self.span.as_secs().to_string());
        if let Some(rate) = self.rate {
            command.arg("-Q").arg(rate.to_string());
        }
        command
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        let limit = self.span + GRACE;
        let output = timeout(limit, command.output())
            .await
            .with_context(|| format!("dnsperf did not end within {limit:?}"))?
            .context("cannot run dnsperf")?;
        if !output.status.success() {
            let reason = String::from_utf8_lossy(&output.stderr);
            bail!("dnsperf failed ({}): {}", output.status, reason.trim());
        }
        let text = String::from_utf8_lossy(&output.stdout);
        read(&text).with_context(|| format!("unexpected output of dnsperf:\n{text}"))
    }
}

/// Parses the statistics at the end of dnsperf's output.
fn read(text: &str) -> Option<Outcome> {
    let value = |name: &str| {
        let line = text
            .lines()
            .find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':'))?;
        Some(line.trim())
    };
    let number = |name: &str| value(name)?.split_whitespace().next()?.parse().ok();
    let mut rcodes = BTreeMap::new();
    // Example: NOERROR 10 (50.00%), NXDOMAIN 10 (50.00%)
    for part in value("Response codes").unwrap_or_default().split(", ") {
        let mut words = part.split_whitespace();
        if let (Some(rcode), Some(count)) = (words.next(), words.next()) {
            rcodes.insert(rcode.to_owned(), count.parse().ok()?);
        }
    }
    Some(Outcome {
        completed: number("Queries completed")?,
        lost: number("Queries lost")?,
        rcodes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_statistics_of_dnsperf_are_parsed() {
        let text = "\
Statistics:

  Queries sent:         20000
  Queries completed:    19998 (99.99%)
  Queries lost:         2 (0.01%)

  Response codes:       NOERROR 19000 (95.01%), NXDOMAIN 998 (4.99%)
  Average packet size:  request 46, response 62
";
        let rcodes = BTreeMap::from([("NOERROR".to_owned(), 19_000), ("NXDOMAIN".to_owned(), 998)]);
        assert_eq!(
            read(text),
            Some(Outcome {
                completed: 19_998,
                lost: 2,
                rcodes
            })
        );
        assert_eq!(read("Error: cannot connect"), None);
    }
}
