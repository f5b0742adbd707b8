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

/// The upstream, and a finder that probes it as a server for all names and as the server of a stub
/// domain.
struct LoopRig {
    forwarding: Arc<Mutex<Forwarding>>,
    upstream: Upstream,
    finder: LoopFinder,
    loops: watch::Receiver<BTreeSet<RoutedServer>>,
    _routes: watch::Sender<Routes>,
}

impl LoopRig {
    async fn start() -> Self {
        let mark = LoopMark::random();
        let forwarding = Arc::new(Mutex::new(Forwarding::Elsewhere));
        let stub_probes = StubProbes::new();
        let upstream = start_upstream(&mark, &stub_probes, &forwarding).await;

        let server = Nameserver::from(upstream.addr());
        let probed = [None, Some("acme.example".to_owned())];
        let probed = probed.map(|domain| RoutedServer { domain, server });
        let (routes, received) = watch::channel(Routes {
            probed: BTreeSet::from(probed),
            ..Routes::default()
        });
        let (sender, loops) = watch::channel(BTreeSet::new());
        Self {
            forwarding,
            upstream,
            finder: LoopFinder::new(mark, stub_probes, received, sender),
            loops,
            _routes: routes,
        }
    }

    /// The stub domains for which the upstream is in a loop, and `all` if it is in a loop as a
    /// server for all names.
    fn looping_names(&self) -> Vec<String> {
        let loops = self.loops.borrow();
        assert!(
            loops
                .iter()
                .all(|found| found.server == self.upstream.addr().into())
        );
        let names = loops.iter().map(|found| found.domain.clone());
        names
            .map(|domain| domain.unwrap_or("all".to_owned()))
            .collect()
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
async fn loop_that_begins_after_first_probes_is_found_and_ends() {
    let mut rig = LoopRig::start().await;
    let probed = rig.finder.routes.borrow().probed.clone();
    for (forwarding, is_loop, is_change) in [
        (Forwarding::ToNobody, false, false),
        (Forwarding::Elsewhere, false, false),
        (Forwarding::ToDnsmasq, true, true),
        (Forwarding::ToDnsmasq, true, false),
        (Forwarding::ToNobody, true, false),
        (Forwarding::Elsewhere, false, true),
    ] {
        *rig.forwarding.lock() = forwarding;
        rig.finder.probe_servers(&probed).await;
        let is_changed = rig.loops.has_changed().unwrap();
        rig.loops.mark_unchanged();
        assert_eq!(is_changed, is_change, "{forwarding:?}");
        let expected: &[&str] = if is_loop {
            &["all", "acme.example"]
        } else {
            &[]
        };
        assert_eq!(rig.looping_names(), expected, "{forwarding:?}");
    }
}

#[test]
fn mark_is_random_and_gives_address_argument() {
    let mark = LoopMark {
        domain: "forward-loop.00000000000000ab.test".to_owned(),
        address: "100::ab".parse().unwrap(),
    };
    let argument = "--address=/forward-loop.00000000000000ab.test/100::ab";
    assert_eq!(mark.argument(), argument);
    assert_ne!(LoopMark::random(), LoopMark::random());
}
