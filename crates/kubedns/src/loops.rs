//! Detects upstreams that forward queries back to this server, and excludes them until the loop
//! ends.
//!
//! [`Forwarder::find_loops`] detects a loop. The task probes all upstreams when the settings
//! change, and periodically. A loop may begin or end later: for example, a Service selects this pod
//! only once the pod is ready. Queries do not wait for probes, so an upstream is used until a loop
//! is found. The index task receives the loops, and publishes a zone without those upstreams.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use skydns::Zone;
use skydns::forward::Forwarder;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use wire::Name;
use wire::Upstream;

use crate::config::{Settings, send_changed};

/// Bound of the routes to probe.
const MAX_PROBED: usize = 64;
/// Pause between probes during a loop, and after a change of the settings.
const MIN_PAUSE: Duration = Duration::from_secs(15);
/// The longest pause between probes. Without a loop, the pause doubles after each probe.
const MAX_PAUSE: Duration = Duration::from_mins(15);
/// Domain of the probes of upstreams for external names. `test` is reserved (RFC 6761, section
/// 6.2), so the probes collide with no real name.
const ANYWHERE: &str = "test";

/// An upstream, and the domain of the queries that kubedns forwards to it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ForwardingRoute {
    /// A stub domain, or a cluster zone whose missing names are forwarded. `None` stands for
    /// external names, and sorts first.
    domain: Option<String>,
    upstream: Upstream,
}

impl ForwardingRoute {
    /// The route to `upstream` for names in `domain`: a stub domain as the settings spell it, or a
    /// cluster zone. `None` stands for external names.
    pub fn new(domain: Option<&str>, upstream: Upstream) -> Self {
        Self {
            domain: domain.map(ToOwned::to_owned),
            upstream,
        }
    }

    /// The upstream to probe, and the domain of the probe; `None` if the domain is not a valid
    /// name.
    fn probe(&self) -> Option<(Upstream, Name)> {
        let domain = Name::parse(self.domain.as_deref().unwrap_or(ANYWHERE)).ok()?;
        Some((self.upstream.clone(), domain))
    }
}

/// The routes that lead back to this server.
pub type Loops = BTreeSet<ForwardingRoute>;

/// The task that detects loops.
pub struct LoopFinder {
    forwarder: Arc<Forwarder>,
    settings: watch::Receiver<Arc<Settings>>,
    /// Cluster zones whose missing names are forwarded.
    fallthrough: Arc<[Name]>,
    found: watch::Sender<Arc<Loops>>,
}

impl LoopFinder {
    /// Creates a finder without known loops. The finder also probes the
    /// [`fallthrough`](Zone::fallthrough) zones of `zone`.
    pub fn new(
        forwarder: &Arc<Forwarder>,
        settings: watch::Receiver<Arc<Settings>>,
        zone: &Zone,
    ) -> Self {
        let (forwarder, fallthrough) = (Arc::clone(forwarder), Arc::clone(&zone.fallthrough));
        Self {
            forwarder,
            settings,
            fallthrough,
            found: watch::Sender::default(),
        }
    }

    /// Returns a receiver of the loops.
    pub fn subscribe(&self) -> watch::Receiver<Arc<Loops>> {
        self.found.subscribe()
    }

    /// Detects loops until `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        stop.run_until_cancelled(self.follow()).await;
    }

    /// Detects loops until the sender of the settings is dropped.
    async fn follow(&mut self) {
        let mut pause = MIN_PAUSE;
        loop {
            let settings = Arc::clone(&self.settings.borrow_and_update());
            self.forwarder.retain_upstreams(&in_use(&settings));
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
        let (routes, probes): (Vec<_>, Vec<_>) = routes
            .iter()
            .filter_map(|route| Some((route, route.probe()?)))
            .take(MAX_PROBED)
            .unzip();
        let results = self.forwarder.find_loops(&probes).await;
        let before = Arc::clone(&self.found.borrow());
        // A route without a result keeps its previous result.
        let is_loop = |route, back: Option<bool>| back.unwrap_or_else(|| before.contains(route));
        let found = routes
            .into_iter()
            .zip(results)
            .filter(|(route, back)| is_loop(route, *back));
        let found: Loops = found.map(|(route, _)| route.clone()).collect();
        log_changes(&before, &found);
        send_changed(&self.found, found);
    }
}

/// All upstreams of the settings.
fn in_use(settings: &Settings) -> BTreeSet<&Upstream> {
    settings
        .stub_domains
        .iter()
        .flat_map(|(_, servers)| servers)
        .chain(&settings.upstreams)
        .collect()
}

/// All routes of the settings.
fn routes(settings: &Settings, fallthrough: &[Name]) -> BTreeSet<ForwardingRoute> {
    let stub = settings
        .stub_domains
        .iter()
        .map(|(domain, servers)| (Some(domain.clone()), servers));
    let fallthrough = fallthrough
        .iter()
        .map(|zone| (Some(zone.to_string()), &settings.upstreams));
    let all = std::iter::once((None, &settings.upstreams))
        .chain(stub)
        .chain(fallthrough);
    all.flat_map(|(domain, servers)| {
        servers
            .iter()
            .map(move |server| ForwardingRoute::new(domain.as_deref(), server.clone()))
    })
    .collect()
}

/// Whether an upstream forwards missing names of `zone` back to this server.
pub fn loops_back(zone: &Name, settings: &Settings, loops: &Loops) -> bool {
    let zone = zone.to_string();
    settings
        .upstreams
        .iter()
        .any(|upstream| loops.contains(&ForwardingRoute::new(Some(&zone), upstream.clone())))
}

/// Logs loops that have begun or ended.
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
