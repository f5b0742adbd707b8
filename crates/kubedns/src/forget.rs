//! Empties the cache of kubedns after each edit of the configuration, if kubedns forwards to
//! dnsmasq, which forwards to the configured servers (`--topology=direct`).
//!
//! In this topology, the server in the key of the cache is always dnsmasq. So the cache would still
//! return responses of the previous servers after an edit.

use std::sync::Arc;
use std::time::Duration;

use skydns::forward::Forwarder;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::config::InForce;

/// The time after an edit in which responses of the previous servers may arrive: dnsmasq has to
/// reload, and a pending query may take two seconds.
const LATE_REPLIES: Duration = Duration::from_secs(3);

/// Empties the cache of `forwarder` after each edit, and again when responses of the previous
/// servers can no longer arrive. Runs until `stop`.
pub(crate) async fn empty_cache_on_edits(
    forwarder: Arc<Forwarder>,
    in_force: watch::Receiver<Arc<InForce>>,
    stop: CancellationToken,
) {
    stop.run_until_cancelled(empty_cache(&forwarder, in_force))
        .await;
}

async fn empty_cache(forwarder: &Forwarder, mut in_force: watch::Receiver<Arc<InForce>>) {
    let mut version = in_force.borrow_and_update().version;
    let mut last_replies = None;
    loop {
        // If `last_replies` is `None`, the branch that waits for `pause` is disabled.
        let pause = sleep_until(last_replies.unwrap_or_else(Instant::now));
        tokio::select! {
            edited = in_force.wait_for(|now| now.version != version) => match edited {
                Ok(now) => {
                    version = now.version;
                    last_replies = Some(Instant::now() + LATE_REPLIES);
                }
                Err(_) => return,
            },
            () = pause, if last_replies.is_some() => last_replies = None,
        }

        forwarder.clear_cache();
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use skydns::forward::{
        CacheLimits, CacheMetrics, ForwardLimits, ForwardMetrics, ReplyCache, TlsTrust,
        UpstreamQuery,
    };
    use testkit::upstream::Upstream;
    use wire::{Name, Transport};

    use super::*;

    fn forwarder() -> Arc<Forwarder> {
        let registry = prometheus::Registry::new();
        let metrics = ForwardMetrics::new(&registry).unwrap();
        let cache = ReplyCache::new(
            CacheLimits::default(),
            CacheMetrics::new(&registry).unwrap(),
        );
        Arc::new(Forwarder::with_trust_and_cache(
            ForwardLimits::default(),
            metrics,
            TlsTrust::default(),
            cache,
        ))
    }

    fn in_force(upstream: &str) -> Arc<InForce> {
        let config = dnsconfig::Config {
            upstream_nameservers: vec![upstream.parse().unwrap()],
            ..dnsconfig::Config::default()
        };
        Arc::new(InForce::of_config(&config))
    }

    /// Sends a query through the forwarder, and returns the number of queries that dnsmasq has
    /// received.
    async fn query_count(forwarder: &Forwarder, dnsmasq: &Upstream) -> usize {
        let query = UpstreamQuery::new(Name::parse("x.test").unwrap().wire(), 1);
        let servers = [dnsmasq.addr().into()].into();
        forwarder
            .exchange(query, servers, Ipv4Addr::LOCALHOST.into(), Transport::Udp)
            .await
            .unwrap();
        dnsmasq.count()
    }

    #[tokio::test]
    async fn edit_empties_cache_at_once_and_later() {
        let dnsmasq = Upstream::answering("192.0.2.1").await;
        let forwarder = forwarder();
        let (publish, settings) = watch::channel(in_force("192.0.2.1"));
        let stop = CancellationToken::new();

        let edits = async {
            tokio::task::yield_now().await;
            assert_eq!(query_count(&forwarder, &dnsmasq).await, 1);
            assert_eq!(query_count(&forwarder, &dnsmasq).await, 1);

            publish.send_replace(in_force("192.0.2.1"));
            let count = query_count(&forwarder, &dnsmasq).await;
            assert_eq!(count, 1, "an unchanged configuration must keep the cache");

            publish.send_replace(in_force("192.0.2.2"));
            testkit::eventually(Duration::from_secs(1), || async {
                query_count(&forwarder, &dnsmasq).await == 2
            })
            .await;
            testkit::eventually(LATE_REPLIES * 2, || async {
                query_count(&forwarder, &dnsmasq).await == 3
            })
            .await;
            assert_eq!(query_count(&forwarder, &dnsmasq).await, 3);
            stop.cancel();
        };
        let emptying = empty_cache_on_edits(Arc::clone(&forwarder), settings, stop.clone());
        tokio::join!(emptying, edits);
    }
}
