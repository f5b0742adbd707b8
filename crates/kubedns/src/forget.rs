//! Empties the cache after each edit of the configuration, if dnsmasq behind kubedns forwards to
//! the configured servers.
//!
//! kubedns forwards to dnsmasq before and after the edit, so a cached response does not show which
//! server it came from.

use std::sync::Arc;
use std::time::Duration;

use skydns::forward::Forwarder;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::config::Settings;

/// The time after an edit in which responses of the previous servers may arrive: dnsmasq has to
/// reload, and a pending query may take two seconds.
const LATE: Duration = Duration::from_secs(3);

/// Empties the cache of `forwarder` after each edit, and again when no response of the previous
/// servers can arrive.
pub(crate) async fn on_edits(
    forwarder: Arc<Forwarder>,
    mut settings: watch::Receiver<Arc<Settings>>,
    stop: CancellationToken,
) {
    let mut version = settings.borrow_and_update().version;
    let mut late = None;
    let follow = async {
        loop {
            tokio::select! {
                changed = settings.changed() => {
                    let new = settings.borrow_and_update().version;
                    if changed.is_err() {
                        return;
                    } else if std::mem::replace(&mut version, new) == new {
                        continue;
                    }
                    late = Some(Instant::now() + LATE);
                }
                () = sleep_until(late.unwrap_or_else(Instant::now)), if late.is_some() => late = None,
            }
            forwarder.clear_cache();
        }
    };
    stop.run_until_cancelled(follow).await;
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use skydns::forward::{
        CacheLimits, CacheMetrics, ForwardLimits, ForwardMetrics, ReplyCache, TlsTrust,
        UpstreamQuery,
    };
    use testkit::upstream::Upstream;
    use wire::Name;
    use wire::Transport;

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

    fn configured(upstream: &str) -> Arc<Settings> {
        let upstream_nameservers = vec![upstream.parse().unwrap()];
        let config = dnsconfig::Config {
            upstream_nameservers,
            ..dnsconfig::Config::default()
        };
        Arc::new(Settings {
            version: config.version(),
            federations: config.federations,
            upstreams: Vec::new(),
            stub_domains: Vec::new(),
            search: None,
            own: crate::config::OwnConfig::default(),
        })
    }

    #[tokio::test]
    async fn an_edit_empties_the_cache_at_once_and_again_when_no_older_reply_can_come() {
        let dnsmasq = Upstream::answering("192.0.2.1").await;
        let forwarder = forwarder();
        let ask = async || {
            let query = UpstreamQuery::new(Name::parse("x.test").unwrap().wire(), 1);
            let servers = [dnsmasq.addr().into()].into();
            forwarder
                .exchange(query, servers, Ipv4Addr::LOCALHOST.into(), Transport::Udp)
                .await
                .unwrap();
            dnsmasq.count()
        };
        let (publish, settings) = watch::channel(configured("192.0.2.1"));
        let (stop, edit) = (CancellationToken::new(), configured("192.0.2.2"));
        let test = async {
            tokio::task::yield_now().await;
            assert_eq!([ask().await, ask().await], [1, 1]);
            publish.send_replace(configured("192.0.2.1"));
            assert_eq!(ask().await, 1, "the same configuration");
            publish.send_replace(edit);
            testkit::eventually(Duration::from_secs(1), || async { ask().await == 2 }).await;
            testkit::eventually(LATE * 2, || async { ask().await == 3 }).await;
            assert_eq!(ask().await, 3);
            stop.cancel();
        };
        tokio::join!(
            on_edits(Arc::clone(&forwarder), settings, stop.clone()),
            test
        );
    }
}
