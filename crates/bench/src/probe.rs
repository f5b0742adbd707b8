//! Checks single answers, and measures the latency of queries at a steady rate.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use testkit::client;
use testkit::query::Query;
use tokio::net::UdpSocket;
use tokio::time::{MissedTickBehavior, interval};

use crate::distribution::Distribution;

/// The time to wait for the last answers.
const PATIENCE: Duration = Duration::from_secs(2);
/// The pause between two queries.
const PAUSE: Duration = Duration::from_millis(1);

/// Returns whether `server` answers `name` with exactly these addresses.
pub async fn leads_to(
    server: SocketAddr,
    name: &str,
    addresses: &[Ipv4Addr],
    patience: Duration,
) -> bool {
    let Ok(answer) = client::try_ask(server, &Query::new(name, "A"), patience).await else {
        return false;
    };
    let mut found = answer.answer_data("A");
    let mut expected: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    found.sort_unstable();
    expected.sort_unstable();
    found == expected
}

/// Results of queries at a steady rate.
#[derive(Debug)]
pub struct Pulse {
    /// Latency of the answers.
    pub answered: Option<Distribution>,
    /// Queries without an answer.
    pub lost: usize,
}

/// Queries the addresses of `names` in turn for `span`, with at most a thousand queries a second.
pub async fn pulse(server: SocketAddr, names: &[String], span: Duration) -> anyhow::Result<Pulse> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))
        .await
        .context("cannot bind a UDP socket")?;
    let connected = socket.connect(server).await;
    connected.with_context(|| format!("cannot connect a UDP socket to {server}"))?;
    let mut names = names.iter().cycle();
    let mut asked = HashMap::new();
    let mut took = Vec::new();
    let mut tick = interval(PAUSE);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (begun, mut buffer) = (Instant::now(), [0; 4096]);
    while begun.elapsed() < span || (!asked.is_empty() && begun.elapsed() < span + PATIENCE) {
        tokio::select! {
            biased;
            received = socket.recv(&mut buffer) => {
                let id = received.ok().and_then(|_| buffer.first_chunk()).map(|id| u16::from_be_bytes(*id));
                if let Some(at) = id.and_then(|id| asked.remove(&id)) {
                    took.push(Instant::elapsed(&at));
                }
            }
            _ = tick.tick() => {
                if begun.elapsed() < span && let Some(name) = names.next() {
                    let query = Query::new(name, "A").wire();
                    let id = query.first_chunk().map(|id| u16::from_be_bytes(*id));
                    let at = Instant::now();
                    if socket.send(&query).await.is_ok() {
                        asked.extend(id.map(|id| (id, at)));
                    }
                }
            }
        }
    }
    Ok(Pulse {
        answered: Distribution::of(took),
        lost: asked.len(),
    })
}
