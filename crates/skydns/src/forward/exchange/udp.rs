//! Queries over UDP.

mod receiver;
mod socket;
mod sockets;

use tokio::time::{Instant, timeout_at};

use super::UpstreamExchange;
use crate::forward::UpstreamReply;
use crate::forward::failure::UpstreamFailure;

pub(crate) use receiver::ReplyReceiver;
pub(in crate::forward) use sockets::UdpSockets;

/// Sends the query with a new ID from a socket of [`UdpSockets`], and waits for the reply until the
/// deadline. The query is sent once more if
/// [`ForwardLimits::resend_after`](crate::forward::ForwardLimits::resend_after) passes before the
/// deadline, without a reply or a failure.
pub(super) async fn query_upstream(
    exchange: UpstreamExchange<'_>,
    edns: bool,
) -> Result<UpstreamReply, UpstreamFailure> {
    let mut sent =
        exchange
            .sockets
            .send_query(exchange.upstream, exchange.query, edns, exchange.metrics)?;

    // A packet may be lost in either direction. Even in a busy network, one retry is enough.
    let resend_due = Instant::now() + exchange.limits.resend_after;
    if resend_due < exchange.deadline {
        // Most replies come before `resend_due`. The timer for the deadline is set only after that
        // time, so that most queries need only one timer.
        match timeout_at(resend_due, sent.outcome()).await {
            Ok(outcome) => return outcome,
            Err(_) => sent.resend()?,
        }
    }

    timeout_at(exchange.deadline, sent.outcome())
        .await
        .unwrap_or(Err(UpstreamFailure::Timeout))
}
