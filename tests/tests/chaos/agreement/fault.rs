//! The faults, and the expected effects of each fault: a name that clients cannot resolve, a
//! finding, and an alert.

use std::net::{Ipv4Addr, SocketAddr};

use nix::sys::signal::Signal;
use reports::finding::FindingKind;
use reports::sidecar::SidecarStatus;
use serde_json::json;
use testkit::eventually;
use testkit::processes::send;
use testkit::query::Query;
use testkit::reply::Reply;
use testkit::upstream::{Asked, Upstream};
use tests::chaos::{Mood, Outside, Relay, Rig, Topology};
use tests::e2e::{PATIENCE, Ports, get};
use tokio::net::UdpSocket;

/// A fault that the test causes, in the pod or outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    UpstreamsSilent,
    UpstreamsServfail,
    UpstreamsRefuse,
    OneUpstreamSilent,
    /// The upstreams begin to forward to the pod.
    LaterLoop,
    StubServerServfails,
    StubNameUnresolved,
    ConfigMapRejected,
    ApiServerAway,
    /// kubedns is killed while the API server is unreachable.
    NoFirstLists,
    KubednsFrozen,
    KubednsKilledThrice,
    DnsmasqKilledThrice,
    DnsmasqHangsThrice,
    /// dnsmasq hangs, and so does the nanny, which would otherwise kill dnsmasq.
    DnsmasqAndNannyFrozen,
    NannyFrozen,
    /// A client exceeds the rate of `--client-qps`.
    ClientLimited,
}

/// The expected effects of a fault.
pub(super) struct Expected {
    /// A name that clients cannot resolve during the fault; `None` if the test queries no name.
    pub(super) lost: Option<&'static str>,
    pub(super) finding: FindingKind,
    pub(super) alert: &'static str,
}

/// The number of queries that a client may send at once.
const CLIENT_BURST: u32 = 10;
const CLUSTER_NAME: &str = "web-1.shop.svc.cluster.local.";
/// An external name with a TTL of zero.
const EXTERNAL_NAME: &str = "host-0.outside.test.";
const STUB_NAME: &str = "host.corp.test.";

impl Fault {
    pub(super) fn expected(self) -> Expected {
        let (lost, finding, alert) = match self {
            Self::UpstreamsSilent
            | Self::UpstreamsServfail
            | Self::UpstreamsRefuse
            | Self::LaterLoop => (
                Some(EXTERNAL_NAME),
                FindingKind::UpstreamsDown,
                "KubeDNSUpstreamsDown",
            ),
            Self::OneUpstreamSilent => (None, FindingKind::UpstreamDown, "KubeDNSUpstreamDown"),
            Self::StubServerServfails => (
                Some(STUB_NAME),
                FindingKind::StubDomainDown,
                "KubeDNSStubDomainDown",
            ),
            Self::StubNameUnresolved => (
                Some(STUB_NAME),
                FindingKind::StubServerUnresolved,
                "KubeDNSStubServerUnresolved",
            ),
            Self::ConfigMapRejected => (None, FindingKind::ConfigRejected, "KubeDNSConfigRejected"),
            Self::ApiServerAway => (None, FindingKind::ApiServerLost, "KubeDNSAPIServerLost"),
            Self::NoFirstLists => (
                Some(CLUSTER_NAME),
                FindingKind::NotSynced,
                "KubeDNSNotSynced",
            ),
            Self::KubednsFrozen => (
                Some(CLUSTER_NAME),
                FindingKind::KubednsSilent,
                "KubeDNSNoAnswers",
            ),
            Self::DnsmasqAndNannyFrozen => (
                Some(EXTERNAL_NAME),
                FindingKind::DnsmasqSilent,
                "KubeDNSNoAnswers",
            ),
            Self::KubednsKilledThrice => (
                None,
                FindingKind::ContainerRestarts,
                "KubeDNSContainerRestarts",
            ),
            Self::DnsmasqKilledThrice | Self::DnsmasqHangsThrice => {
                (None, FindingKind::DnsmasqRestarts, "KubeDNSDnsmasqRestarts")
            }
            Self::ClientLimited => (None, FindingKind::ClientsLimited, "KubeDNSClientsLimited"),
            Self::NannyFrozen => (None, FindingKind::ReportMissing, "KubeDNSReportMissing"),
        };
        Expected {
            lost,
            finding,
            alert,
        }
    }
}

/// Reads the status of a pod's sidecar.
pub(super) async fn sidecar_status(ports: Ports) -> Result<SidecarStatus, String> {
    let page = get(ports.sidecar, "/status").await;
    let page = page.map_err(|error| format!("/status: {error}"))?;
    serde_json::from_str(&page.body).map_err(|error| error.to_string())
}

/// A pod with two upstreams, each behind a relay.
pub(super) struct Stage {
    pub(super) rig: Rig,
    second: Outside,
    relays: [Relay; 2],
    upstreams: [SocketAddr; 2],
    failing_stub_server: Upstream,
    _second: Upstream,
}

impl Stage {
    pub(super) async fn start(topology: Topology) -> Self {
        let outsides = [Outside::default(), Outside::default()];
        let first = Upstream::start(outsides[0].handler()).await;
        let second = Upstream::start(outsides[1].handler()).await;
        let upstreams = [first.addr(), second.addr()];
        let relays = [
            Relay::start(upstreams[0]).await,
            Relay::start(upstreams[1]).await,
        ];
        let addresses = [relays[0].addr(), relays[1].addr()];

        let failing = |asked: &Asked| Reply::to(&asked.packet).rcode("SERVFAIL").into();
        let [outside, other] = outsides;
        Self {
            rig: Rig::with(topology, &ARGUMENTS, &[], outside, first, &addresses).await,
            second: other,
            relays,
            upstreams,
            failing_stub_server: Upstream::start(failing).await,
            _second: second,
        }
    }

    pub(super) async fn begin(&self, fault: Fault) {
        match fault {
            Fault::UpstreamsSilent => self.set_moods(Mood::Silent),
            Fault::UpstreamsServfail => self.set_moods(Mood::Rcode("SERVFAIL")),
            Fault::UpstreamsRefuse => self.set_moods(Mood::Rcode("REFUSED")),
            Fault::OneUpstreamSilent => self.rig.upstream_behaviour.set_mood(Mood::Silent),
            Fault::LaterLoop => {
                let pod = ([127, 0, 0, 1], self.rig.pod.ports.dns).into();
                self.relays.iter().for_each(|relay| relay.forward_to(pod));
            }
            Fault::StubServerServfails => {
                let server = self.failing_stub_server.addr().to_string();
                self.set_stub_server(&server);
            }
            Fault::StubNameUnresolved => self.set_stub_server("missing.outside.test"),
            Fault::ConfigMapRejected => self.rig.configure(&[("stubDomains", "{ not JSON")]),
            Fault::ApiServerAway => self.rig.api_faults().down(),
            Fault::NoFirstLists => {
                self.rig.api_faults().down();
                self.kill_kubedns().await;
            }
            Fault::KubednsFrozen => {
                send(self.rig.pod.container("kubedns").await, Signal::SIGSTOP);
            }
            Fault::KubednsKilledThrice => {
                for restart in 1..=3 {
                    self.kill_kubedns().await;
                    eventually(PATIENCE, || self.has_seen_restarts(restart)).await;
                }
            }
            Fault::DnsmasqKilledThrice => {
                self.end_dnsmasq_thrice(Signal::SIGKILL).await;
            }
            Fault::DnsmasqHangsThrice => self.end_dnsmasq_thrice(Signal::SIGSTOP).await,
            Fault::DnsmasqAndNannyFrozen => {
                send(self.rig.pod.container("dnsmasq").await, Signal::SIGSTOP);
                send(self.rig.dnsmasq().await, Signal::SIGSTOP);
            }
            Fault::ClientLimited => self.ask_too_much().await,
            Fault::NannyFrozen => {
                send(self.rig.pod.container("dnsmasq").await, Signal::SIGSTOP);
            }
        }
    }

    /// Ends the fault. The pod may still report the fault for up to ten minutes, because it
    /// remembers restarts and rejected queries.
    pub(super) async fn end(&self, fault: Fault) {
        self.set_moods(Mood::Honest);
        for (relay, upstream) in self.relays.iter().zip(self.upstreams) {
            relay.forward_to(upstream);
        }
        self.rig.configure(&[]);
        self.rig.api_faults().up();

        match fault {
            Fault::KubednsFrozen => {
                send(self.rig.pod.container("kubedns").await, Signal::SIGCONT);
            }
            Fault::NannyFrozen | Fault::DnsmasqAndNannyFrozen => {
                send(self.rig.dnsmasq().await, Signal::SIGCONT);
                send(self.rig.pod.container("dnsmasq").await, Signal::SIGCONT);
            }
            _ => {}
        }
    }

    fn set_moods(&self, mood: Mood) {
        self.rig.upstream_behaviour.set_mood(mood);
        self.second.set_mood(mood);
    }

    fn set_stub_server(&self, server: &str) {
        let stubs = json!({"corp.test": [server]}).to_string();
        self.rig.configure(&[("stubDomains", &stubs)]);
    }

    /// Sends a signal to dnsmasq three times. Each time, waits until the nanny has started a new
    /// dnsmasq.
    async fn end_dnsmasq_thrice(&self, signal: Signal) {
        for _ in 0..3 {
            let before = self.rig.dnsmasq().await;
            send(before, signal);
            eventually(PATIENCE, || async { self.rig.dnsmasq().await != before }).await;
        }
    }

    /// Sends more queries at once than one client may. The client is 127.0.0.2, because the limit
    /// does not apply to 127.0.0.1.
    async fn ask_too_much(&self) {
        let client = UdpSocket::bind((Ipv4Addr::new(127, 0, 0, 2), 0))
            .await
            .unwrap();
        let server = (Ipv4Addr::LOCALHOST, self.rig.pod.ports.dns);
        let query = Query::new(CLUSTER_NAME, "A").wire();
        for _ in 0..4 * CLIENT_BURST {
            client.send_to(&query, server).await.unwrap();
        }
    }

    /// Returns whether the sidecar has seen at least this number of restarts of kubedns.
    async fn has_seen_restarts(&self, count: usize) -> bool {
        let status = sidecar_status(self.rig.pod.ports).await;
        let containers = status.map(|status| status.containers).unwrap_or_default();
        let kubedns = containers
            .iter()
            .find(|container| container.name == "kubedns");
        kubedns.is_some_and(|kubedns| kubedns.restarts.len() >= count)
    }

    /// Kills kubedns, and waits until it has started again.
    async fn kill_kubedns(&self) {
        let before = self.rig.pod.container("kubedns").await;
        send(before, Signal::SIGKILL);
        eventually(PATIENCE, || async {
            let now = self.rig.pod.container("kubedns").await;
            let metrics = get(self.rig.pod.ports.kubedns_metrics, "/metrics").await;
            now != before && metrics.is_ok()
        })
        .await;
    }
}

/// The arguments of `localpod`, the program that runs the pod. The sidecar probes with the same
/// interval as in the manifests.
const ARGUMENTS: [&str; 4] = [
    "--probe-interval=5",
    "--kubedns-arg=--initial-sync-timeout=5s",
    "--kubedns-arg=--client-qps=1",
    "--kubedns-arg=--client-burst=10",
];
