//! Computes the routes again whenever one of their sources changes: the configuration, resolv.conf,
//! the addresses of server names, the routes of kubedns, or the forwarding loops.

use std::collections::BTreeSet;
use std::time::Duration;

use daemon::tasks::pending_if_none;
use dnsclient::resolv_conf::ResolvConf;
use dnsclient::resolve::{self, ResolvedNames};
use dnsconfig::{Config, ConfigState};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};
use wire::Nameserver;

use crate::config::arguments::DnsmasqArguments;
use crate::config::loops::ListenAddresses;
use crate::config::routes::{
    ComputedRoutes, ForwardMode, OmittedServer, RouteSources, RoutedServer, Routes, asks_kubedns,
};
use crate::kubedns_poller::KubednsRoutes;
use crate::report::Report;

/// The longest time that kubedns needs for an answer.
const LATEST_ANSWER: Duration = Duration::from_secs(2);
/// The time for which the configurations of kubedns and the nanny may differ without a warning. The
/// nanny reads a ConfigMap volume, which the kubelet updates up to 90 seconds after an edit. If
/// kubedns watches the ConfigMap, kubedns gets the edit at once.
const MAX_DIFFERENCE: Duration = Duration::from_mins(2);

#[derive(Debug)]
pub(crate) struct RouterInputs {
    pub(crate) config: watch::Receiver<ConfigState>,
    /// The resolv.conf whose servers the nanny gives to dnsmasq; empty if dnsmasq reads resolv.conf
    /// itself or uses none.
    pub(crate) resolv_conf: watch::Receiver<ResolvConf>,
    pub(crate) names: watch::Receiver<ResolvedNames>,
    pub(crate) kubedns: watch::Receiver<Option<KubednsRoutes>>,
    /// The servers that forward back to dnsmasq.
    pub(crate) loops: watch::Receiver<BTreeSet<RoutedServer>>,
}

/// Requests to the resolver and to the poller of kubedns.
#[derive(Debug, Default)]
pub(crate) struct RouterRequests {
    /// The names to resolve.
    pub(crate) names: watch::Sender<BTreeSet<String>>,
    /// True while the routes of kubedns have to be polled.
    pub(crate) kubedns: watch::Sender<bool>,
}

/// The settings that stay the same while the nanny runs.
#[derive(Debug)]
pub(crate) struct RouterSettings {
    pub(crate) arguments: DnsmasqArguments,
    /// The address of the [SERVFAIL server](crate::dnsmasq::servfail_server).
    pub(crate) servfail_server: Nameserver,
    /// The labels directly before the stub domain in the names of the probes for forwarding loops,
    /// such as `forward-loop.0123456789abcdef`. `None` if no server is probed.
    pub(crate) probe_label: Option<String>,
    pub(crate) kubedns: Nameserver,
    pub(crate) forward: ForwardMode,
    /// Whether the nanny follows edits of the configuration.
    pub(crate) follows_edits: bool,
}

#[derive(Debug)]
pub(crate) struct Router {
    inputs: RouterInputs,
    settings: RouterSettings,
    requests: RouterRequests,
    kubedns: KubednsState,
    routes: watch::Sender<Routes>,
    omitted: BTreeSet<OmittedServer>,
    report: Report,
}

impl Router {
    /// Computes the first routes.
    pub(crate) fn new(
        inputs: RouterInputs,
        settings: RouterSettings,
        requests: RouterRequests,
        report: Report,
    ) -> Self {
        let mut this = Self {
            inputs,
            settings,
            requests,
            kubedns: KubednsState::default(),
            routes: watch::Sender::default(),
            omitted: BTreeSet::new(),
            report,
        };
        this.take_configuration();
        this.recompute_routes();
        this
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<Routes> {
        self.routes.subscribe()
    }

    /// Returns whether a stub server is given by a name that has no address yet.
    pub(crate) fn has_unresolved_names(&self) -> bool {
        self.omitted
            .iter()
            .any(|omitted| matches!(omitted, OmittedServer::Unresolved { .. }))
    }

    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let _ = stop.run_until_cancelled(self.follow_inputs()).await;
    }

    async fn follow_inputs(&mut self) {
        loop {
            let due = self.kubedns.next_due().map(sleep_until);
            tokio::select! {
                Ok(()) = self.inputs.config.changed() => self.take_configuration(),
                Ok(()) = self.inputs.resolv_conf.changed() => {}
                Ok(()) = self.inputs.names.changed() => {}
                Ok(()) = self.inputs.kubedns.changed() => self.take_kubedns_routes(),
                Ok(()) = self.inputs.loops.changed() => {}
                () = pending_if_none(due) => self.kubedns.act_if_due(),
            }
            self.recompute_routes();
        }
    }

    fn take_configuration(&mut self) {
        let state = self.inputs.config.borrow_and_update().clone();
        self.report.set_configuration(&state);

        // If kubedns forwards all queries, the nanny needs no addresses of stub servers.
        let forwards = self.settings.forward == ForwardMode::Dnsmasq;
        let empty = Config::default();
        let config = if forwards { &state.config } else { &empty };
        resolve::set_wanted_names(&self.requests.names, config);

        // The nanny needs the routes of kubedns only with `-forward=kubedns`, or if the
        // configuration needs kubedns (see `asks_kubedns`).
        let asks_kubedns = !forwards || asks_kubedns(&state.config);
        self.requests
            .kubedns
            .send_if_modified(|wanted| std::mem::replace(wanted, asks_kubedns) != asks_kubedns);
        self.compare_configurations();
    }

    fn take_kubedns_routes(&mut self) {
        let Some(reported) = self.inputs.kubedns.borrow_and_update().clone() else {
            return;
        };

        let is_cache = self.settings.forward == ForwardMode::Kubedns;
        // The topology is checked only at the first answer, so that the warning is logged once.
        let forwards_all = ["cache", "alone"].contains(&reported.topology.as_str());
        if is_cache && !forwards_all && self.kubedns.routes.is_none() {
            warn!(
                topology = reported.topology,
                "kubedns does not run with --topology=cache: \
                 names of one label and queries for ANY fail"
            );
        }

        self.kubedns.topology = Some(reported.topology);
        self.kubedns.take_routes(reported.routes);
        self.compare_configurations();
    }

    /// Compares the configuration of kubedns with the nanny's.
    fn compare_configurations(&mut self) {
        let is_polled = *self.requests.kubedns.borrow();
        let reported = self
            .inputs
            .kubedns
            .borrow()
            .as_ref()
            .map(|reported| reported.configuration.clone());
        let reported = reported.filter(|_| is_polled);

        let state = self.inputs.config.borrow();
        let own_version = state.version.to_string();
        // A kubedns that follows no configuration reports the version of the empty configuration.
        // So equal versions prove that kubedns follows the nanny's configuration only if that
        // configuration is not empty. It is not empty if `asks_kubedns` returns true.
        let is_proof = asks_kubedns(&state.config);
        drop(state);

        if reported.as_ref() == Some(&own_version) && is_proof {
            self.kubedns.follows = true;
        }
        let differs = reported
            .as_ref()
            .is_some_and(|version| *version != own_version)
            && self.settings.follows_edits;
        self.kubedns.set_differs(differs);
        self.report.set_kubedns(reported, differs);
    }

    fn recompute_routes(&mut self) {
        let config = self.inputs.config.borrow().config.clone();
        let resolv_conf = self.inputs.resolv_conf.borrow_and_update().clone();
        let names = self.inputs.names.borrow_and_update().clone();
        let loops = self.inputs.loops.borrow_and_update().clone();
        let ComputedRoutes {
            mut routes,
            omitted,
        } = Routes::compute(&RouteSources {
            config: &config,
            resolv_conf: &resolv_conf.nameservers,
            argument_servers: &self.settings.arguments.movable_servers(),
            names: &names,
            listening: &ListenAddresses::from_arguments(&self.settings.arguments),
            servfail_server: self.settings.servfail_server,
            probe_label: self.settings.probe_label.as_deref(),
            loops: &loops,
            forward: self.settings.forward,
            kubedns: self.settings.kubedns,
            kubedns_follows: self.kubedns.follows,
            kubedns_is_behind: self.is_kubedns_behind(),
        });
        routes.flush_count = self.kubedns.flush_count;

        self.record_omitted(omitted);
        self.routes.send_if_modified(|before| {
            let changed = *before != routes;
            *before = routes;
            changed
        });
    }

    /// Returns whether kubedns is known to be behind dnsmasq. Before kubedns has reported its
    /// topology, the arguments of dnsmasq decide.
    fn is_kubedns_behind(&self) -> bool {
        match &self.kubedns.topology {
            // kubedns is in front of dnsmasq only in the topology `direct`.
            Some(topology) => topology != "direct",
            None => self.settings.arguments.forwards_to(self.settings.kubedns),
        }
    }

    /// Reports the servers left out, and logs the beginning and the end of loops. The resolver logs
    /// unresolved names.
    fn record_omitted(&mut self, omitted: BTreeSet<OmittedServer>) {
        for new in omitted.difference(&self.omitted) {
            log_begun_loop(new);
        }
        for gone in self.omitted.difference(&omitted) {
            log_ended_loop(gone);
        }

        if omitted != self.omitted {
            self.report.set_omitted(&omitted);
        }
        self.omitted = omitted;
    }
}

/// The last known state of kubedns.
#[derive(Debug, Default)]
struct KubednsState {
    /// The hash of kubedns' routes.
    routes: Option<String>,
    /// The value of kubedns' `--topology`. It shows whether kubedns is in front of dnsmasq.
    topology: Option<String>,
    /// See [`RouteSources::kubedns_follows`].
    follows: bool,
    /// See [`Routes::flush_count`].
    flush_count: u64,
    /// The time of a second flush: dnsmasq may have cached answers that were in flight when the
    /// routes changed.
    second_flush: Option<Instant>,
    /// The time of the warning about different configurations; `None` if no warning is due.
    warning: Option<Instant>,
    differs: bool,
}

impl KubednsState {
    fn take_routes(&mut self, routes: String) {
        if self.routes.as_ref() == Some(&routes) {
            return;
        }

        info!(
            routes,
            "the routes that kubedns reports are new or have changed, so the cache of dnsmasq is flushed"
        );
        self.routes = Some(routes);
        self.flush_count += 1;
        self.second_flush = Some(Instant::now() + LATEST_ANSWER);
    }

    fn set_differs(&mut self, differs: bool) {
        if std::mem::replace(&mut self.differs, differs) != differs {
            self.warning = differs.then(|| Instant::now() + MAX_DIFFERENCE);
        }
    }

    /// The time of the next [`Self::act_if_due`], if any.
    fn next_due(&self) -> Option<Instant> {
        self.second_flush.into_iter().chain(self.warning).min()
    }

    fn act_if_due(&mut self) {
        let now = Instant::now();
        if self.second_flush.take_if(|due| *due <= now).is_some() {
            self.flush_count += 1;
        }
        if self.warning.take_if(|due| *due <= now).is_some() {
            warn!(
                waited = ?MAX_DIFFERENCE,
                "the configurations of kubedns and the nanny differ: \
                 check that both follow the same ConfigMap"
            );
        }
    }
}

fn log_begun_loop(omitted: &OmittedServer) {
    match omitted {
        OmittedServer::Loop(RoutedServer { domain, server }) => error!(
            %server,
            domain = described_domain(domain.as_deref()),
            "this server is dnsmasq itself and is not used, because queries to it would loop"
        ),
        OmittedServer::LeadsBack(RoutedServer {
            domain: None,
            server,
        }) => warn!(
            %server,
            "upstream server forwards to dnsmasq, and gets no queries for names outside the stub domains while the loop lasts"
        ),
        OmittedServer::LeadsBack(RoutedServer {
            domain: Some(domain),
            server,
        }) => warn!(
            %server,
            domain,
            "server of stub domain forwards to dnsmasq, and gets no queries for names in the domain while the loop lasts"
        ),
        OmittedServer::Unresolved { .. } => {}
    }
}

fn log_ended_loop(omitted: &OmittedServer) {
    match omitted {
        OmittedServer::Loop(RoutedServer { domain, server })
        | OmittedServer::LeadsBack(RoutedServer { domain, server }) => info!(
            %server,
            domain = described_domain(domain.as_deref()),
            "forwarding loop through this server has ended"
        ),
        OmittedServer::Unresolved { .. } => {}
    }
}

/// The stub domain of a server, in a log line.
fn described_domain(domain: Option<&str>) -> &str {
    domain.unwrap_or("names outside the stub domains")
}
