//! Detects forwarding loops: upstreams that forward queries back to this server.
//!
//! A route ([`ForwardingRoute`]) is an upstream and the domain of the queries that it gets.
//! [`Forwarder::find_loops`] detects the routes with a loop. The task [`LoopFinder`] probes all
//! routes when the configuration changes, and periodically, because a loop may begin or end at any
//! time. For example, if the upstream is a Service that selects this pod, the loop begins when the
//! pod is ready. Queries do not wait for probes, so a route is used until a loop is found. After
//! that, kubedns does not use the route until the loop ends (see [`InForce::zone`]). If the route
//! is for missing names of a zone (`--fallthrough`), kubedns forwards no missing names of any zone
//! while the loop lasts.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use skydns::forward::Forwarder;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use wire::{Name, Upstream};

use crate::config::{InForce, send_changed};

/// Pause between probes during a loop. Also the first pause after the start, and after a change of
/// the configuration or of the routes.
const MIN_PAUSE: Duration = Duration::from_secs(15);
/// The longest pause between probes. Without a loop, the pause doubles after each probe. So a loop
/// that begins later is found within about this time.
const MAX_PAUSE: Duration = Duration::from_mins(1);
/// Domain in which upstreams for external names are probed. `test` is reserved (RFC 6761, section
/// 6.2), so a probe is never for an existing name.
const PROBE_DOMAIN: &str = "test";

/// An upstream, and the domain of the queries that kubedns forwards to it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ForwardingRoute {
    /// A stub domain, or a zone whose missing names are forwarded. `None` means external names, and
    /// sorts first.
    domain: Option<String>,
    upstream: Upstream,
}

impl ForwardingRoute {
    /// The route to `upstream` for names in `domain`: a stub domain as the configuration spells it,
    /// or a zone whose missing names are forwarded. `None` means external names.
    pub fn new(domain: Option<&str>, upstream: Upstream) -> Self {
        Self {
            domain: domain.map(ToOwned::to_owned),
            upstream,
        }
    }

    /// The upstream to probe, and the domain of the probe; `None` if the domain is not a valid
    /// name.
    fn probe(&self) -> Option<(Upstream, Name)> {
        let domain = Name::parse(self.domain.as_deref().unwrap_or(PROBE_DOMAIN)).ok()?;
        Some((self.upstream.clone(), domain))
    }
}

/// The routes that lead back to this server.
pub type Loops = BTreeSet<ForwardingRoute>;

/// Number of upstreams in `loops`.
pub fn count_upstreams(loops: &Loops) -> usize {
    let upstreams: BTreeSet<&Upstream> = loops.iter().map(|route| &route.upstream).collect();
    upstreams.len()
}

/// The task that detects loops.
pub struct LoopFinder {
    forwarder: Arc<Forwarder>,
    in_force: watch::Receiver<Arc<InForce>>,
    found: watch::Sender<Arc<Loops>>,
}

impl LoopFinder {
    /// Creates a finder that probes the routes of `in_force`, and sends the loops to `found`.
    pub fn new(
        forwarder: &Arc<Forwarder>,
        in_force: watch::Receiver<Arc<InForce>>,
        found: watch::Sender<Arc<Loops>>,
    ) -> Self {
        Self {
            forwarder: Arc::clone(forwarder),
            in_force,
            found,
        }
    }

    /// Detects loops until `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        stop.run_until_cancelled(self.probe_repeatedly()).await;
    }

    /// Detects loops until the sender of the configuration is dropped.
    async fn probe_repeatedly(&mut self) {
        let mut pause = MIN_PAUSE;
        loop {
            let in_force = Arc::clone(&self.in_force.borrow());
            // Closes the connections to upstreams that are no longer configured.
            self.forwarder.retain_upstreams(&in_force.servers.all());
            self.probe(&in_force.probed_routes).await;

            // During a loop, the pause is short, so that the end of the loop is noticed soon.
            if !self.found.borrow().is_empty() {
                pause = MIN_PAUSE;
            }
            match tokio::time::timeout(pause, self.routes_changed(&in_force)).await {
                Ok(Ok(())) => pause = MIN_PAUSE,
                Ok(Err(_)) => return,
                Err(_) => pause = (pause * 2).min(MAX_PAUSE),
            }
        }
    }

    /// Returns after an edit of the configuration, or if the routes are not those of `probed`. The
    /// settings in force also change when this task finds a loop; this function ignores that
    /// change.
    async fn routes_changed(&mut self, probed: &InForce) -> Result<(), watch::error::RecvError> {
        self.in_force
            .wait_for(|now| {
                now.version != probed.version || now.probed_routes != probed.probed_routes
            })
            .await
            .map(drop)
    }

    async fn probe(&self, routes: &BTreeSet<ForwardingRoute>) {
        let mut to_probe = Vec::new();
        let mut probes = Vec::new();
        for route in routes {
            if let Some(probe) = route.probe() {
                to_probe.push(route);
                probes.push(probe);
            }
        }
        let results = self.forwarder.find_loops(probes).await;

        let before = Arc::clone(&self.found.borrow());
        let mut found = Loops::new();
        for (route, leads_back) in to_probe.into_iter().zip(results) {
            // A route without a result keeps its previous result.
            if leads_back.unwrap_or_else(|| before.contains(route)) {
                found.insert(route.clone());
            }
        }

        log_changes(&before, &found);
        send_changed(&self.found, Arc::new(found));
    }
}

/// Logs loops that have begun or ended. A loop also ends when its route is removed from the
/// configuration.
fn log_changes(before: &Loops, now: &Loops) {
    for ForwardingRoute { domain, upstream } in now.difference(before) {
        match domain {
            None => tracing::warn!(
                %upstream,
                "upstream server forwards to this server, and gets no queries for external names while the loop lasts"
            ),
            // The upstream may still get queries for other names.
            Some(domain) => tracing::warn!(
                %upstream,
                domain,
                "upstream server forwards to this server, and gets no queries for names in the domain while the loop lasts"
            ),
        }
    }

    for ForwardingRoute { domain, upstream } in before.difference(now) {
        tracing::info!(
            %upstream,
            domain,
            "forwarding loop through the upstream server has ended"
        );
    }
}
