use std::sync::Arc;

use parking_lot::Mutex;
use testkit::reply::Reply;
use testkit::upstream::{Asked, Reaction, Upstream};

use super::*;

/// The reaction of an upstream to a probe.
#[derive(Clone, Copy, Debug)]
enum Forwarding {
    ToDnsmasq,
    Elsewhere,
    ToNobody,
}

/// The upstream, the finder, and the requests for reloads of dnsmasq.
struct LoopRig {
    forwarding: Arc<Mutex<Forwarding>>,
    upstream: Upstream,
    finder: LoopFinder,
    reloads: watch::Receiver<u64>,
    stub_loops: watch::Receiver<BTreeSet<StubServer>>,
    report: Report,
    _routes: watch::Sender<Routes>,
}

impl LoopRig {
    /// Starts the upstream, and creates the finder. The upstream is in the arguments of dnsmasq if
    /// `is_argument`, and otherwise in the routes.
    async fn start(is_argument: bool) -> Self {
        let mark = LoopMark::random();
        let forwarding = Arc::new(Mutex::new(Forwarding::Elsewhere));
        let stub_probes = StubProbes::new();
        let upstream = start_upstream(&mark, &stub_probes, &forwarding).await;
        let server = Nameserver::from(upstream.addr());

        let mut routes = Routes {
            upstreams_from: UpstreamOrigin::Configuration,
            ..Routes::default()
        };
        let mut in_arguments = Vec::new();
        if is_argument {
            in_arguments.push(server);
        } else {
            routes.upstreams.push(server);
        }
        routes.probed.insert(stub_server(server));

        let (routes, received) = watch::channel(routes);
        let requests = LoopRequests::default();
        let reloads = requests.reloads.subscribe();
        let stub_loops = requests.stub_loops.subscribe();
        let report = Report::new().unwrap();
        Self {
            forwarding,
            upstream,
            finder: LoopFinder::new(
                mark,
                in_arguments,
                received,
                stub_probes,
                requests,
                report.clone(),
            ),
            reloads,
            stub_loops,
            report,
            _routes: routes,
        }
    }

    /// Probes the upstream, which reacts with this `forwarding`. Returns whether the status shows a
    /// loop, and the number of requested reloads.
    async fn probe(&mut self, forwarding: Forwarding) -> (bool, u64) {
        *self.forwarding.lock() = forwarding;
        self.finder.probe_servers().await;
        let is_loop = self.report.is_loop(self.upstream.addr().into());
        (is_loop, *self.reloads.borrow())
    }

    /// Reports that dnsmasq has read its servers again, and has found the loop or no loop.
    fn reload(&self, finds_loop: bool) {
        self.report.set_routes(&Routes::default());
        if finds_loop {
            self.report.add_loop(self.upstream.addr().into());
        }
    }
}

/// Makes `server` the server of a stub domain.
fn stub_server(server: Nameserver) -> StubServer {
    StubServer {
        domain: "acme.example".to_owned(),
        server,
    }
}

async fn start_upstream(
    mark: &LoopMark,
    stub_probes: &StubProbes,
    forwarding: &Arc<Mutex<Forwarding>>,
) -> Upstream {
    let address = mark.address;
    let stub_probes = stub_probes.clone();
    let forwarding = Arc::clone(forwarding);
    Upstream::start_with_loop_probes(move |asked: &Asked| {
        let reply = Reply::to(&asked.packet);
        match *forwarding.lock() {
            Forwarding::ToDnsmasq if asked.name().ends_with(".acme.example.") => {
                stub_probes.record_return(&asked.name());
                reply.rcode("SERVFAIL").into()
            }
            Forwarding::ToDnsmasq => {
                let record = format!("{} 0 IN AAAA {address}", asked.name());
                Reaction::from(reply.answer(&record))
            }
            Forwarding::Elsewhere => reply.rcode("NXDOMAIN").into(),
            Forwarding::ToNobody => reply.rcode("SERVFAIL").into(),
        }
    })
    .await
}

#[tokio::test]
async fn later_loop_is_found_and_ends() {
    for is_argument in [false, true] {
        let mut rig = LoopRig::start(is_argument).await;
        assert_eq!(rig.probe(Forwarding::Elsewhere).await, (false, 0));

        assert_eq!(rig.probe(Forwarding::ToDnsmasq).await, (true, 1));
        rig.reload(true);
        assert_eq!(rig.probe(Forwarding::ToDnsmasq).await, (true, 1));
        assert_eq!(
            rig.probe(Forwarding::ToNobody).await,
            (true, 1),
            "SERVFAIL must not end the loop"
        );

        assert_eq!(rig.probe(Forwarding::Elsewhere).await, (true, 2));
        rig.reload(false);
        assert_eq!(rig.probe(Forwarding::Elsewhere).await, (false, 2));
    }
}

#[tokio::test]
async fn short_loop_is_found_and_ends() {
    let mut rig = LoopRig::start(false).await;
    assert_eq!(rig.probe(Forwarding::ToDnsmasq).await, (true, 1));
    rig.reload(true);
    assert_eq!(rig.probe(Forwarding::Elsewhere).await, (true, 2));
}

#[tokio::test]
async fn loop_of_stub_domain_is_found_and_ends() {
    let mut rig = LoopRig::start(false).await;
    let server = stub_server(rig.upstream.addr().into());
    for (forwarding, is_loop) in [
        (Forwarding::ToNobody, false),
        (Forwarding::Elsewhere, false),
        (Forwarding::ToDnsmasq, true),
        (Forwarding::ToNobody, true),
        (Forwarding::Elsewhere, false),
    ] {
        rig.probe(forwarding).await;
        let found = rig.stub_loops.borrow().contains(&server);
        assert_eq!(found, is_loop, "{forwarding:?}");
    }
}

/// A dnsmasq without loop detection queries the server even after the nanny has found a loop. So
/// dnsmasq and the nanny disagree until the loop ends, and a further reload would not help.
#[tokio::test]
async fn lasting_dispute_takes_one_reload() {
    let mut rig = LoopRig::start(false).await;
    for _ in 0..3 {
        assert_eq!(rig.probe(Forwarding::ToDnsmasq).await, (true, 1));
        rig.reload(false);
    }
}

#[tokio::test]
async fn loop_found_at_start_ends() {
    let mut rig = LoopRig::start(false).await;
    rig.reload(true);
    assert_eq!(rig.probe(Forwarding::ToNobody).await, (true, 0));
    assert_eq!(rig.probe(Forwarding::Elsewhere).await, (true, 1));
}

#[test]
fn upstreams_of_kubedns_are_not_probed() {
    let routes = Routes {
        upstreams: vec!["127.0.0.1:10053".parse().unwrap()],
        upstreams_from: UpstreamOrigin::Kubedns,
        ..Routes::default()
    };
    assert_eq!(probed_servers(&routes, &[]), ProbedServers::default());
}

#[test]
fn mark_is_an_argument_of_dnsmasq() {
    let mark = LoopMark {
        domain: "forward-loop.00000000000000ab.test".to_owned(),
        address: "100::ab".parse().unwrap(),
    };
    let argument = "--address=/forward-loop.00000000000000ab.test/100::ab";
    assert_eq!(mark.argument(), argument);
    assert_ne!(LoopMark::random(), LoopMark::random());
}
