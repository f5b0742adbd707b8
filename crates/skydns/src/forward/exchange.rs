//! One query to one upstream.

mod reply_check;
mod stream;
mod tcp;
mod udp;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use wire::{Transport, rcode};
use wire::{Upstream, UpstreamProtocol};

use super::failure::UpstreamFailure;
use super::health::UpstreamHealth;
use super::metrics::UpstreamMetrics;
use super::pool::ConnectionPool;
use super::{ForwardLimits, UpstreamQuery, UpstreamReply};

pub use reply_check::{ReplyCheck, check_reply};
pub(crate) use udp::ReplyReceiver;
pub(super) use udp::UdpSockets;

/// If a reply has already come, the wait for a better reply ends this long before the deadline.
const MARGIN: Duration = Duration::from_millis(10);

/// A query to one upstream.
#[derive(Clone, Copy)]
pub(super) struct UpstreamExchange<'a> {
    pub(super) query: &'a UpstreamQuery,
    pub(super) upstream: &'a Upstream,
    /// Whether to query only over TCP, because the client needs a whole reply.
    pub(super) over_tcp: bool,
    /// Whether the first query has an OPT record.
    pub(super) edns: bool,
    pub(super) deadline: Instant,
    pub(super) limits: &'a ForwardLimits,
    pub(super) health: &'a UpstreamHealth,
    pub(super) pool: &'a ConnectionPool,
    pub(super) sockets: &'a UdpSockets,
    pub(super) metrics: &'a Arc<UpstreamMetrics>,
}

impl UpstreamExchange<'_> {
    /// Queries the upstream until there is a reply or a failure, or until the deadline. After
    /// SERVFAIL, queries once more. This retry, and the retry over TCP after a truncated reply, end
    /// before the deadline, so that the first reply can still be returned. `client` is the
    /// transport of the client, for the metrics.
    pub(super) async fn run(self, client: Transport) -> Result<UpstreamReply, UpstreamFailure> {
        let asked = Instant::now();
        self.metrics.count_request(client);

        let mut reply = self.query_with_edns_fallback().await?;
        if reply.rcode == rcode::SERVFAIL {
            self.metrics.count_servfail();
            reply = self.retry_after_servfail(reply).await?;
        } else if reply.rcode == rcode::REFUSED {
            self.metrics.count_refused();
        }

        self.metrics.observe_duration(asked.elapsed());
        Ok(reply)
    }

    /// Queries once more, as kube-dns does. If the retry has no outcome in time, the SERVFAIL is
    /// returned. A failure of the retry is returned as the failure of the query.
    async fn retry_after_servfail(
        self,
        servfail: UpstreamReply,
    ) -> Result<UpstreamReply, UpstreamFailure> {
        // A server that does not know EDNS may reply SERVFAIL to a query with an OPT record. So the
        // retry has an OPT record only if the SERVFAIL has one.
        let retry = self.query_once(servfail.opt.is_some());

        timeout_at(self.return_by(), retry)
            .await
            .unwrap_or_else(|_| {
                self.metrics.count_failure(UpstreamFailure::Timeout);
                Ok(servfail)
            })
    }

    /// The end of the wait for a better reply, if a reply has already come.
    fn return_by(self) -> Instant {
        self.deadline.checked_sub(MARGIN).unwrap_or(self.deadline)
    }

    /// Sends the query of a loop probe. A SERVFAIL reply is returned without a retry. The metrics
    /// do not count the query.
    pub(super) async fn run_once(self) -> Result<UpstreamReply, UpstreamFailure> {
        match self.upstream.protocol {
            UpstreamProtocol::Udp => udp::query_upstream(self, false).await,
            UpstreamProtocol::Tcp | UpstreamProtocol::Tls => self.query_with_edns_fallback().await,
        }
    }

    /// If `edns` is set, queries with an OPT record. An upstream that does not know EDNS then
    /// replies FORMERR or NOTIMP without an OPT record (RFC 6891, section 7). After such a reply,
    /// or BADVERS, the upstream is queried again without an OPT record.
    // Differs from kube-dns, which sends an OPT record if the client does.
    async fn query_with_edns_fallback(self) -> Result<UpstreamReply, UpstreamFailure> {
        let reply = self.query_once(self.edns).await?;
        if !self.edns || !rejects_edns(&reply) {
            return Ok(reply);
        }

        let without = timeout_at(self.return_by(), self.query_once(false)).await;
        let Ok(Ok(without)) = without else {
            return Ok(reply);
        };

        // If the error is the same again, the OPT record was not its cause.
        if without.rcode != reply.rcode {
            self.health
                .record_lack_of_edns(self.upstream, Instant::now());
        }
        Ok(without)
    }

    async fn query_once(self, edns: bool) -> Result<UpstreamReply, UpstreamFailure> {
        match self.upstream.protocol {
            UpstreamProtocol::Udp if self.over_tcp => self.retry_over_tcp(edns).await,
            UpstreamProtocol::Udp => self.query_udp_then_tcp(edns).await,
            UpstreamProtocol::Tcp | UpstreamProtocol::Tls => {
                timeout_at(self.deadline, stream::query_upstream(self, edns))
                    .await
                    .unwrap_or(Err(UpstreamFailure::Timeout))
            }
        }
    }

    /// Sends the query over UDP. After a truncated reply, or after [`UpstreamFailure::Flooded`],
    /// sends the query over TCP, where an attacker gains nothing by guessing IDs. If TCP fails, the
    /// result is that of UDP. If the upstream was recently silent over TCP, a truncated reply is
    /// returned without a query over TCP.
    // Differs from kube-dns, which queries over the client's transport.
    async fn query_udp_then_tcp(self, edns: bool) -> Result<UpstreamReply, UpstreamFailure> {
        let over_udp = udp::query_upstream(self, edns).await;
        let needs_tcp = match &over_udp {
            Ok(reply) => reply.truncated && !self.was_silent_over_tcp(),
            Err(failure) => *failure == UpstreamFailure::Flooded,
        };

        if needs_tcp {
            self.retry_over_tcp(edns).await.or(over_udp)
        } else {
            over_udp
        }
    }

    fn was_silent_over_tcp(self) -> bool {
        self.health
            .was_silent_over_tcp(self.upstream, Instant::now())
    }

    /// Sends the query over TCP, and waits for at most [`ForwardLimits::tcp_retry`], and not longer
    /// than [`Self::return_by`].
    async fn retry_over_tcp(self, edns: bool) -> Result<UpstreamReply, UpstreamFailure> {
        let asked = Instant::now();
        self.metrics.count_tcp_retry();

        let until = (asked + self.limits.tcp_retry).min(self.return_by());
        let result = timeout_at(until, tcp::query_upstream(self, edns))
            .await
            .unwrap_or(Err(UpstreamFailure::Timeout));
        if let Err(failure) = &result {
            self.metrics.count_failure(*failure);
        }

        // A late UDP reply leaves little time for TCP, so a timeout then does not prove that TCP
        // fails.
        let now = Instant::now();
        let silent = matches!(result, Err(UpstreamFailure::Timeout));
        if !silent || (now - asked) * 2 >= self.limits.tcp_retry {
            self.health.record_tcp(self.upstream, now, silent);
        }
        result
    }
}

/// Whether the upstream may have rejected the query because of its OPT record.
fn rejects_edns(reply: &UpstreamReply) -> bool {
    reply.opt.is_none() && matches!(reply.rcode, rcode::FORMERR | rcode::NOTIMP)
        || reply.rcode == rcode::BADVERS
}
