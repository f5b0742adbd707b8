//! Sends the questions of a step to the server.

use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use testkit::client::{self, AskError};
use testkit::upstream::Exchange;
use tokio::task::JoinSet;
use wire::Transport;

use super::place::Place;
use super::server::{Server, Target};
use crate::conformance::answer::Observed;
use crate::conformance::vector::{Case, Step};

/// Maximum number of questions sent concurrently.
const AT_A_TIME: usize = 16;

/// Timeout of an answer: two seconds for the server, and one more for a busy machine.
const PATIENCE: Duration = Duration::from_secs(3);

/// Timeout of an answer if no response is expected.
const PATIENCE_WITH_SILENCE: Duration = Duration::from_millis(500);

static NEXT_ID: AtomicU16 = AtomicU16::new(1);

/// Sends all questions of a step and returns the answers in the same order.
///
/// Questions that kube-dns forwarded to its resolver in the recording are sent one at a time,
/// because `place.replay` can replay the exchanges of only one question at a time. Questions that
/// made kube-dns exit in the recording are also sent one at a time. The others are sent
/// concurrently.
pub(super) async fn ask_all(
    step: &Step,
    place: &Place,
    target: &Target,
    server: &mut Server,
) -> anyhow::Result<Vec<Observed>> {
    let mut answers: Vec<Option<Observed>> = vec![None; step.queries.len()];
    let alone = |case: &Case| !case.upstream.is_empty() || case.crash;
    place.replay.load([]);
    let mut together = JoinSet::new();
    for (at, case) in step
        .queries
        .iter()
        .enumerate()
        .filter(|(_, case)| !alone(case))
    {
        if together.len() == AT_A_TIME {
            collect(&mut together, &mut answers).await?;
        }
        let question = Packet::of(case, target)?;
        let dns = server.dns;
        together.spawn(async move { (at, question.ask(dns).await) });
    }
    while !together.is_empty() {
        collect(&mut together, &mut answers).await?;
    }
    for (case, answer) in step
        .queries
        .iter()
        .zip(&mut answers)
        .filter(|(case, _)| alone(case))
    {
        let exchanges = case
            .upstream
            .iter()
            .map(crate::conformance::vector::Exchange::to_replay);
        place
            .replay
            .load(exchanges.collect::<anyhow::Result<Vec<Exchange>>>()?);
        *answer = Some(Packet::of(case, target)?.ask(server.dns).await?);
        if case.crash && server.revive(target) {
            anyhow::ensure!(
                !target.is_ours(),
                "the server ended after {}",
                case.query.in_words()
            );
            server.ready().await?;
        }
    }
    Ok(answers.into_iter().flatten().collect())
}

type Asked = (usize, anyhow::Result<Observed>);

async fn collect(
    together: &mut JoinSet<Asked>,
    answers: &mut [Option<Observed>],
) -> anyhow::Result<()> {
    if let Some(ended) = together.join_next().await {
        let (at, answer) = ended?;
        answers[at] = Some(answer?);
    }
    Ok(())
}

/// The packet of a question.
struct Packet {
    octets: Vec<u8>,
    id: u16,
    transport: Transport,
    patience: Duration,
}

impl Packet {
    fn of(case: &Case, target: &Target) -> anyhow::Result<Self> {
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let octets = case.query.packet(id)?;
        // Our server never answers a response, or a packet shorter than a DNS header. A short
        // timeout is enough for these packets.
        let hopeless = target.is_ours() && (octets.len() < 12 || octets[2] & 0x80 != 0);
        let patience = if hopeless {
            PATIENCE_WITH_SILENCE
        } else {
            PATIENCE
        };
        Ok(Self {
            octets,
            id,
            transport: case.query.transport,
            patience,
        })
    }

    async fn ask(self, dns: std::net::SocketAddr) -> anyhow::Result<Observed> {
        let answer = match self.transport {
            Transport::Udp => client::udp(dns, &self.octets, self.patience).await,
            Transport::Tcp => client::tcp(dns, &self.octets, self.patience).await,
        };
        match answer {
            Ok(packet) => {
                let same_id = packet.iter().take(2).eq(&self.id.to_be_bytes());
                Ok(if same_id {
                    Observed::Packet(packet)
                } else {
                    Observed::Nothing("the packet has another ID".to_owned())
                })
            }
            Err(AskError::Timeout(_)) => Ok(Observed::Nothing("timeout".to_owned())),
            Err(AskError::Closed) => Ok(Observed::Nothing("connection closed".to_owned())),
            Err(AskError::Io(error)) => Ok(Observed::Nothing(format!(
                "cannot reach the server ({})",
                error.kind()
            ))),
        }
    }
}
