//! One probe of an upstream. The probe sends queries one after the other. It ends when a query gets
//! a usable answer or no response, or when all queries have been sent.

use std::net::SocketAddr;
use std::time::Duration;

use dnsclient::query_server;
use hickory_proto::op::Query;
use wire::{ServerAddr, Transport};

use super::trouble::{TroubleCause, UpstreamTrouble, latency_if_usable};

/// A probe to be sent.
#[derive(Clone, Debug)]
pub(super) struct UpstreamProbe {
    pub(super) questions: Vec<Query>,
    /// The position of the query to begin with.
    pub(super) first: usize,
    /// The timeout of each query.
    pub(super) timeout: Duration,
}

/// A [usable](dnsclient::DnsAnswer::is_usable) answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct UsableAnswer {
    pub(super) latency: Duration,
    /// The position of the query that was answered.
    pub(super) question: usize,
}

pub(super) type ProbeOutcome = Result<UsableAnswer, UpstreamTrouble>;

impl UpstreamProbe {
    /// Sends the queries in turn, until one has a usable answer or the server does not respond. If
    /// none has a usable answer, the result is the failure of the first query.
    pub(super) async fn run(self, address: SocketAddr) -> ProbeOutcome {
        let server = ServerAddr::from(address);
        let mut first_trouble = None;

        for turn in 0..self.questions.len() {
            let position = (self.first + turn) % self.questions.len();
            let Some(question) = self.questions.get(position) else {
                continue;
            };
            let asked = query_server(&server, Transport::Udp, question, self.timeout).await;
            let trouble = match latency_if_usable(asked) {
                Ok(latency) => {
                    return Ok(UsableAnswer {
                        latency,
                        question: position,
                    });
                }
                Err(trouble) => trouble,
            };

            // After a query without a response, the probe sends no further query.
            let is_silent = !trouble.cause.is_refusal();
            let trouble = first_trouble.get_or_insert(trouble);
            if is_silent {
                return Err(trouble.clone());
            }
        }

        Err(first_trouble.unwrap_or(UpstreamTrouble {
            cause: TroubleCause::Unreachable,
            text: "the probe has no query".to_owned(),
        }))
    }
}
