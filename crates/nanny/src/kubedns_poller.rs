//! Polls kubedns for the version of its configuration, for its topology, and for a hash of its
//! upstreams, hosts and other settings (see [`KubednsRoutes::routes`]). kubedns reports these three
//! values in its answer to the CHAOS TXT query `routes.kubedns.`.
//!
//! dnsmasq caches the answers of kubedns. The cache must be flushed when the hash changes. The
//! nanny does not know the time of the change: kubedns may apply an edit of the configuration
//! earlier or later than the nanny. The upstreams of kubedns may also change if its resolv.conf
//! changes, or if the address of an upstream given by name changes. So the nanny polls kubedns.

use std::time::Duration;

use dnsclient::{DnsAnswer, TIMEOUT, chaos, query_server};
use hickory_proto::op::ResponseCode;
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};
use wire::Transport;
use wire::{Nameserver, ServerAddr};

/// The pause between two queries to kubedns.
const PERIOD: Duration = Duration::from_millis(250);

/// The answer of kubedns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KubednsRoutes {
    /// The version of the configuration that kubedns uses.
    pub(crate) configuration: String,
    /// A hash of kubedns' upstreams, stub domains, search list, hosts, aliases and rules for
    /// external names.
    pub(crate) routes: String,
    /// The value of kubedns' `--topology`, such as `cache`.
    pub(crate) topology: String,
}

impl KubednsRoutes {
    /// Parses the texts `configuration=...`, `routes=...` and `topology=...`; `None` unless the
    /// answer has all three.
    fn from_answer(answer: &DnsAnswer) -> Option<Self> {
        let texts: Vec<String> = chaos::txt_strings(answer).collect();
        Some(Self {
            configuration: value_of(&texts, "configuration")?,
            routes: value_of(&texts, "routes")?,
            topology: value_of(&texts, "topology")?,
        })
    }
}

fn value_of(texts: &[String], name: &str) -> Option<String> {
    texts.iter().find_map(|text| {
        let value = text.strip_prefix(name)?.strip_prefix('=')?;
        Some(value.to_owned())
    })
}

/// Polls kubedns for its [`KubednsRoutes`] while `wanted` is true.
#[derive(Debug)]
pub(crate) struct KubednsPoller {
    kubedns: Nameserver,
    wanted: watch::Receiver<bool>,
    last_answer: watch::Sender<Option<KubednsRoutes>>,
}

impl KubednsPoller {
    /// Creates a poller that has no answer yet.
    pub(crate) fn new(kubedns: Nameserver, wanted: watch::Receiver<bool>) -> Self {
        Self {
            kubedns,
            wanted,
            last_answer: watch::Sender::default(),
        }
    }

    /// The last complete answer of kubedns; `None` before the first complete answer. A poll without
    /// a complete answer changes nothing.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Option<KubednsRoutes>> {
        self.last_answer.subscribe()
    }

    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let _ = stop.run_until_cancelled(self.poll_while_wanted()).await;
    }

    async fn poll_while_wanted(&mut self) {
        let server = ServerAddr::from(self.kubedns);
        let question = chaos::txt_query("routes.kubedns.");
        let mut has_warned = false;

        while self.wanted.wait_for(|wanted| *wanted).await.is_ok() {
            match query_server(&server, Transport::Udp, &question, TIMEOUT).await {
                Ok(answer) => match KubednsRoutes::from_answer(&answer) {
                    Some(routes) => self.publish_answer(routes),
                    // An older kubedns answers every poll without routes, so the warning is logged
                    // only once.
                    None if !std::mem::replace(&mut has_warned, true) => {
                        let rcode = answer.message.metadata.response_code;
                        warn_of_missing_routes(self.kubedns, rcode);
                    }
                    None => {}
                },
                Err(error) => {
                    debug!(kubedns = %self.kubedns, %error, "kubedns does not report which configuration it uses");
                }
            }
            sleep(PERIOD).await;
        }
    }

    fn publish_answer(&self, routes: KubednsRoutes) {
        self.last_answer.send_if_modified(|last| {
            let changed = last.as_ref() != Some(&routes);
            *last = Some(routes);
            changed
        });
    }
}

fn warn_of_missing_routes(kubedns: Nameserver, rcode: ResponseCode) {
    warn!(
        %kubedns,
        %rcode,
        "kubedns does not report which configuration it uses, so after an edit of the configuration \
         dnsmasq keeps old answers for their TTL: check that kubedns has the same version as the nanny"
    );
}

#[cfg(test)]
mod tests {
    use testkit::eventually;
    use testkit::reply::Reply;
    use testkit::upstream::{Asked, Reaction, Upstream};
    use tokio::task::JoinSet;

    use super::*;

    #[tokio::test]
    async fn last_complete_answer_of_kubedns_is_kept() {
        let (texts, says) = watch::channel(String::new());
        let kubedns = Upstream::start(move |asked: &Asked| {
            let reply = Reply::to(&asked.packet);
            match says.borrow().as_str() {
                "silence" => Reaction::silence(),
                "" => reply.rcode("REFUSED").into(),
                said => {
                    let text = |text: &str| format!("routes.kubedns. 0 CH TXT \"{text}\"");
                    said.split(' ')
                        .fold(reply, |reply, word| reply.answer(&text(word)))
                        .into()
                }
            }
        })
        .await;
        let (wanted, wants) = watch::channel(false);
        let poller = KubednsPoller::new(kubedns.addr().into(), wants);
        let said = poller.subscribe();
        let mut tasks = JoinSet::new();
        tasks.spawn(poller.run(CancellationToken::new()));
        let asked = |more: usize| {
            let before = kubedns.count();
            let kubedns = &kubedns;
            eventually(Duration::from_secs(30), move || {
                std::future::ready(kubedns.count() >= before + more)
            })
        };
        wanted.send_replace(true);
        asked(2).await;
        assert_eq!(*said.borrow(), None, "REFUSED must give no routes");
        for (text, expected) in [
            ("configuration=1 routes=2 topology=cache", "1 2 cache"),
            ("silence", "1 2 cache"),
            ("configuration=1", "1 2 cache"),
            (
                "topology=cache configuration=1 routes=3 more=4",
                "1 3 cache",
            ),
        ] {
            texts.send_replace(text.to_owned());
            asked(2).await;
            let said = said.borrow().clone().unwrap();
            assert_eq!(
                format!("{} {} {}", said.configuration, said.routes, said.topology),
                expected,
                "{text}"
            );
        }
    }
}
