//! Forwarding loops: finds upstreams that forward queries back to us, and leaves them out while they do.
//!
//! [`Forwarder::find_loops`] recognises a loop. The task probes each upstream in force when the settings change, and
//! again later: a loop may end, or begin at the other end, as when a Service selects this pod only once it is ready.
//! Queries do not wait for probes: an upstream is used until a loop is found. The index task receives the loops, and
//! publishes a zone without those upstreams.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use dnsconfig::Upstream;
use skydns::forward::Forwarder;
use skydns::{Name, Zone};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::config::{Settings, send_changed};

/// Bound of the routes that are probed.
const MAX_PROBED: usize = 64;
/// Pause between probes while there is a loop, and after a change.
const MIN_PAUSE: Duration = Duration::from_secs(15);
/// Longest pause between probes: without a loop the pause doubles up to it.
const MAX_PAUSE: Duration = Duration::from_mins(15);
/// Domain of the probes of upstreams for external names. It is reserved (RFC 6761, section 6.2), and resolvers forward
/// it like any other name.
const ANYWHERE: &str = "test";

/// An upstream and the names that it is asked for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ForwardingRoute {
    /// The stub domain, or the zone of the cluster whose missing names are forwarded; `None` for external names, which
    /// come first.
    domain: Option<String>,
    upstream: Upstream,
}

impl ForwardingRoute {
    /// The route to `upstream` for the names of `domain`: a stub domain as the settings spell it, or a zone of the
    /// cluster; `None` for external names.
    pub fn new(domain: Option<&str>, upstream: Upstream) -> Self {
        Self { domain: domain.map(ToOwned::to_owned), upstream }
    }

    /// The upstream to probe, and the domain of the probe; `None` if the domain is not a valid name.
    fn probe(&self) -> Option<(Upstream, Name)> {
        let domain = Name::parse(self.domain.as_deref().unwrap_or(ANYWHERE)).ok()?;
        Some((self.upstream.clone(), domain))
    }
}

/// The routes on which queries come back to us.
pub type Loops = BTreeSet<ForwardingRoute>;

/// The task that looks for loops.
pub struct LoopFinder {
    forwarder: Arc<Forwarder>,
    settings: watch::Receiver<Arc<Settings>>,
    /// Zones of the cluster whose missing names are forwarded.
    fallthrough: Arc<[Name]>,
    found: watch::Sender<Arc<Loops>>,
}

impl LoopFinder {
    /// A finder without any loops yet. It probes for the [zones that fall through](Zone::fallthrough) of `zone`, too.
    pub fn new(forwarder: &Arc<Forwarder>, settings: watch::Receiver<Arc<Settings>>, zone: &Zone) -> Self {
        let (forwarder, fallthrough) = (Arc::clone(forwarder), Arc::clone(&zone.fallthrough));
        Self { forwarder, settings, fallthrough, found: watch::Sender::default() }
    }

    /// The loops, now and after each change.
    pub fn subscribe(&self) -> watch::Receiver<Arc<Loops>> {
        self.found.subscribe()
    }

    /// Looks for loops until `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        stop.run_until_cancelled(self.follow()).await;
    }

    /// Looks for loops until the sender of the settings is gone.
    async fn follow(&mut self) {
        let mut pause = MIN_PAUSE;
        loop {
            let settings = Arc::clone(&self.settings.borrow_and_update());
            self.forwarder.keep_only(&in_use(&settings));
            self.probe(&routes(&settings, &self.fallthrough)).await;
            if !self.found.borrow().is_empty() {
                pause = MIN_PAUSE;
            }
            match tokio::time::timeout(pause, self.settings.changed()).await {
                Ok(Ok(())) => pause = MIN_PAUSE,
                Ok(Err(_)) => return,
                Err(_) => pause = (pause * 2).min(MAX_PAUSE),
            }
        }
    }

    async fn probe(&self, routes: &BTreeSet<ForwardingRoute>) {
        let (routes, probes): (Vec<_>, Vec<_>) =
            routes.iter().filter_map(|route| Some((route, route.probe()?))).take(MAX_PROBED).unzip();
        let results = self.forwarder.find_loops(&probes).await;
        let before = Arc::clone(&self.found.borrow());
        // A route without a result this time keeps its former result.
        let is_loop = |route, back: Option<bool>| back.unwrap_or_else(|| before.contains(route));
        let found = routes.into_iter().zip(results).filter(|(route, back)| is_loop(route, *back));
        let found: Loops = found.map(|(route, _)| route.clone()).collect();
        log_changes(&before, &found);
        send_changed(&self.found, found);
    }
}

/// All upstreams of the settings.
fn in_use(settings: &Settings) -> BTreeSet<&Upstream> {
    settings.stub_domains.iter().flat_map(|(_, servers)| servers).chain(&settings.upstreams).collect()
}

/// All routes of the settings.
fn routes(settings: &Settings, fallthrough: &[Name]) -> BTreeSet<ForwardingRoute> {
    let stub = settings.stub_domains.iter().map(|(domain, servers)| (Some(domain.clone()), servers));
    let fallthrough = fallthrough.iter().map(|zone| (Some(zone.to_string()), &settings.upstreams));
    let all = std::iter::once((None, &settings.upstreams)).chain(stub).chain(fallthrough);
    all.flat_map(|(domain, servers)| {
        servers.iter().map(move |server| ForwardingRoute::new(domain.as_deref(), server.clone()))
    })
    .collect()
}

/// Whether an upstream forwards names of `zone` back to us; then missing names must not be forwarded to it.
pub fn loops_back(zone: &Name, settings: &Settings, loops: &Loops) -> bool {
    let zone = zone.to_string();
    settings
        .upstreams
        .iter()
        .any(|upstream| loops.contains(&ForwardingRoute::new(Some(&zone), upstream.clone())))
}

/// Logs loops that began or ended.
fn log_changes(before: &Loops, now: &Loops) {
    for route in now.difference(before) {
        tracing::warn!(upstream = %route.upstream, stub_domain = route.domain, "upstream server forwards to this server, left out while it does");
    }
    for route in before.difference(now) {
        tracing::info!(upstream = %route.upstream, stub_domain = route.domain, "forwarding loop has ended, upstream server in use again");
    }
}

/// Number of upstreams in `loops`.
pub fn upstreams(loops: &Loops) -> i64 {
    let upstreams: BTreeSet<&Upstream> = loops.iter().map(|route| &route.upstream).collect();
    daemon::metrics::gauge_value(upstreams.len())
}
