//! Computes the routes whenever the configuration, resolv.conf or the address of a server name
//! changes.

use std::collections::BTreeSet;
use std::time::Duration;

use dnsclient::resolv_conf::ResolvConf;
use dnsclient::resolve::{self, Resolutions};
use dnsconfig::{Config, ConfigState};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};
use wire::Nameserver;

use crate::config::arguments::Arguments;
use crate::config::loops::Listening;
use crate::config::routes::{Forward, Ingredients, Omission, Routes, needs_kubedns};
use crate::kubedns::KubednsRoutes;
use crate::or_never::or_never;
use crate::report::Report;

/// The longest time that kubedns takes for an answer.
const LATEST_ANSWER: Duration = Duration::from_secs(2);
/// The time for which the configurations of kubedns and the nanny may differ. An edit reaches a
/// mounted ConfigMap up to a minute and a half later than a watched one.
const MOMENT: Duration = Duration::from_mins(2);

#[derive(Debug)]
pub(crate) struct Inputs {
    pub(crate) config: watch::Receiver<ConfigState>,
    /// The resolv.conf whose servers dnsmasq uses; empty if none.
    pub(crate) resolv_conf: watch::Receiver<ResolvConf>,
    pub(crate) names: watch::Receiver<Resolutions>,
    pub(crate) kubedns: watch::Receiver<Option<KubednsRoutes>>,
}

/// Requests to the resolver and to the follower of kubedns.
#[derive(Debug)]
pub(crate) struct Requests {
    /// The names to resolve.
    pub(crate) names: watch::Sender<BTreeSet<String>>,
    /// True while the routes of kubedns have to be polled.
    pub(crate) kubedns: watch::Sender<bool>,
}

/// The settings that stay the same while the nanny runs.
#[derive(Debug)]
pub(crate) struct Fixed {
    pub(crate) arguments: Arguments,
    /// The server for domains without a usable server.
    pub(crate) servfail_server: Nameserver,
    pub(crate) kubedns: Nameserver,
    pub(crate) forward: Forward,
    /// The nanny follows edits of the configuration.
    pub(crate) follows: bool,
}

#[derive(Debug)]
pub(crate) struct Router {
    inputs: Inputs,
    fixed: Fixed,
    requests: Requests,
    behind: Behind,
    routes: watch::Sender<Routes>,
    omissions: BTreeSet<Omission>,
    report: Report,
}

impl Router {
    /// Computes the first routes.
    pub(crate) fn new(inputs: Inputs, fixed: Fixed, requests: Requests, report: Report) -> Self {
        let (routes, behind) = (watch::Sender::default(), Behind::default());
        let mut this = Self {
            inputs,
            fixed,
            requests,
            behind,
            routes,
            omissions: BTreeSet::new(),
            report,
        };
        this.take_configuration();
        this.recompute();
        this
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<Routes> {
        self.routes.subscribe()
    }

    /// Returns whether the name of a stub server has no address yet.
    pub(crate) fn has_unresolved_names(&self) -> bool {
        self.omissions
            .iter()
            .any(|omission| matches!(omission, Omission::Unresolved { .. }))
    }

    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let _ = stop.run_until_cancelled(self.follow()).await;
    }

    async fn follow(&mut self) {
        loop {
            tokio::select! {
                Ok(()) = self.inputs.config.changed() => self.take_configuration(),
                Ok(()) = self.inputs.resolv_conf.changed() => {}
                Ok(()) = self.inputs.names.changed() => {}
                Ok(()) = self.inputs.kubedns.changed() => self.take_kubedns(),
                () = or_never(self.behind.next().map(sleep_until)) => self.behind.tick(),
                // All sources have ended, so the routes stay as they are.
                else => return std::future::pending().await,
            }
            self.recompute();
        }
    }

    fn take_configuration(&mut self) {
        let state = self.inputs.config.borrow_and_update().clone();
        self.report.configuration(&state);
        let forwards = self.fixed.forward == Forward::Dnsmasq;
        let nothing = Config::default();
        resolve::want(
            &self.requests.names,
            if forwards { &state.config } else { &nothing },
        );
        let asks_kubedns =
            !forwards || needs_kubedns(&state.config) || state.config.has_own_names();
        self.requests
            .kubedns
            .send_if_modified(|wanted| std::mem::replace(wanted, asks_kubedns) != asks_kubedns);
        self.compare();
    }

    fn take_kubedns(&mut self) {
        let Some(said) = self.inputs.kubedns.borrow_and_update().clone() else {
            return;
        };
        let expected = self.fixed.forward == Forward::Kubedns;
        let forwards_all = ["cache", "alone"].contains(&said.topology.as_str());
        if expected && !forwards_all && self.behind.routes.is_none() {
            let topology = &said.topology;
            warn!(
                topology,
                "kubedns does not run with --topology=cache: names of one label and queries for ANY fail"
            );
        }
        self.behind.topology = Some(said.topology);
        self.behind.take(said.routes);
        self.compare();
    }

    /// Compares the configuration of kubedns with the nanny's.
    fn compare(&mut self) {
        let said = self
            .inputs
            .kubedns
            .borrow()
            .clone()
            .filter(|_| *self.requests.kubedns.borrow());
        let (own, tells) = {
            let state = self.inputs.config.borrow();
            // A kubedns that follows no configuration reports the version of the empty
            // configuration. So equal versions are a proof only if the configuration has one of
            // these settings, which the empty configuration lacks.
            let tells = needs_kubedns(&state.config) || state.config.has_own_names();
            (state.version.to_string(), tells)
        };
        let differs = said.as_ref().is_some_and(|said| said.configuration != own);
        self.behind.follows |= said.is_some() && !differs && tells;
        self.behind.differs(differs && self.fixed.follows);
        self.report.kubedns(
            said.map(|said| said.configuration),
            differs && self.fixed.follows,
        );
    }

    fn recompute(&mut self) {
        let config = self.inputs.config.borrow().config.clone();
        let resolv_conf = self.inputs.resolv_conf.borrow_and_update().clone();
        let names = self.inputs.names.borrow_and_update().clone();
        let (mut routes, omissions) = Routes::compute(&Ingredients {
            config: &config,
            resolv_conf: &resolv_conf.nameservers,
            names: &names,
            listening: &Listening::of(&self.fixed.arguments),
            servfail_server: self.fixed.servfail_server,
            forward: self.fixed.forward,
            kubedns: self.fixed.kubedns,
            kubedns_follows: self.behind.follows,
            kubedns_is_behind: self.behind.is_behind(),
        });
        routes.forgotten = self.behind.forgotten;
        self.tell(omissions);
        self.routes.send_if_modified(|before| {
            let changed = *before != routes;
            *before = routes;
            changed
        });
    }

    /// Logs each loop once when it appears, and once when it is gone. The resolver logs unresolved
    /// names.
    fn tell(&mut self, omissions: BTreeSet<Omission>) {
        for omission in omissions.difference(&self.omissions) {
            let all = "all other names";
            match omission {
                Omission::Loop { domain, server } => {
                    let domain = domain.as_deref().unwrap_or(all);
                    error!(%server, domain, "this server is dnsmasq itself: not used, its queries would loop");
                }
                Omission::Unresolved { .. } => {}
            }
        }
        for omission in self.omissions.difference(&omissions) {
            if let Omission::Loop { server, .. } = omission {
                info!(%server, "a server that was dnsmasq itself is no longer configured");
            }
        }
        if omissions != self.omissions {
            self.report.omissions(&omissions);
        }
        self.omissions = omissions;
    }
}

/// The last known state of kubedns.
#[derive(Debug, Default)]
struct Behind {
    /// The hash of kubedns' routes.
    routes: Option<String>,
    /// The position of dnsmasq, according to kubedns' `--topology`.
    topology: Option<String>,
    /// See [`Ingredients::kubedns_follows`].
    follows: bool,
    /// See [`Routes::forgotten`].
    forgotten: u64,
    /// The time of a second flush: dnsmasq may have cached answers that were in flight when the
    /// routes changed.
    late: Option<Instant>,
    /// The time of the warning about different configurations; `None` if no warning is due.
    complaint: Option<Instant>,
    differs: bool,
}

impl Behind {
    /// Returns whether kubedns has reported a topology in which it is not in front of dnsmasq.
    fn is_behind(&self) -> bool {
        self.topology
            .as_ref()
            .is_some_and(|topology| topology != "direct")
    }

    fn take(&mut self, routes: String) {
        if self.routes.as_ref() != Some(&routes) {
            info!(
                routes,
                "kubedns forwards to other servers now, dnsmasq cache flushed"
            );
            self.routes = Some(routes);
            self.forgotten += 1;
            self.late = Some(Instant::now() + LATEST_ANSWER);
        }
    }

    fn differs(&mut self, differs: bool) {
        if std::mem::replace(&mut self.differs, differs) != differs {
            self.complaint = differs.then(|| Instant::now() + MOMENT);
        }
    }

    /// The time of the next [`Self::tick`], if any.
    fn next(&self) -> Option<Instant> {
        self.late.into_iter().chain(self.complaint).min()
    }

    fn tick(&mut self) {
        let now = Instant::now();
        if self.late.take_if(|due| *due <= now).is_some() {
            self.forgotten += 1;
        }
        if self.complaint.take_if(|due| *due <= now).is_some() {
            warn!(waited = ?MOMENT, "the configurations of kubedns and the nanny differ: check that both follow the same ConfigMap");
        }
    }
}
