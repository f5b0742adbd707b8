//! Keeps the routes up to date: whenever the configuration, resolv.conf or an address behind a name changes.

use std::collections::BTreeSet;

use dnsclient::resolve::{self, Resolutions};
use dnsconfig::resolv_conf::ResolvConf;
use dnsconfig::{Nameserver, State};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::config::arguments::Arguments;
use crate::config::loops::Listening;
use crate::config::routes::{Ingredients, Omission, Routes};
use crate::report::Report;

#[derive(Debug)]
pub(crate) struct Inputs {
    pub(crate) config: watch::Receiver<State>,
    /// The resolv.conf whose servers dnsmasq is to use; empty if none.
    pub(crate) resolv_conf: watch::Receiver<ResolvConf>,
    pub(crate) names: watch::Receiver<Resolutions>,
}

#[derive(Debug)]
pub(crate) struct Router {
    inputs: Inputs,
    arguments: Arguments,
    servfail_server: Nameserver,
    wanted: watch::Sender<BTreeSet<String>>,
    routes: watch::Sender<Routes>,
    omissions: BTreeSet<Omission>,
    report: Report,
}

impl Router {
    /// Computes the first routes. `wanted` is told which names to resolve; `servfail_server` is the server for stub domains
    /// without a usable one.
    pub(crate) fn new(
        inputs: Inputs,
        arguments: Arguments,
        servfail_server: Nameserver,
        wanted: watch::Sender<BTreeSet<String>>,
        report: Report,
    ) -> Self {
        let routes = watch::Sender::new(Routes::default());
        let mut this =
            Self { inputs, arguments, servfail_server, wanted, routes, omissions: BTreeSet::new(), report };
        this.take_configuration();
        this.recompute();
        this
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<Routes> {
        self.routes.subscribe()
    }

    /// Whether some stub server is a name without an address (yet).
    pub(crate) fn has_unresolved_names(&self) -> bool {
        self.omissions.iter().any(|omission| matches!(omission, Omission::Unresolved { .. }))
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
                // Nothing can change any more.
                else => return std::future::pending().await,
            }
            self.recompute();
        }
    }

    fn take_configuration(&mut self) {
        let state = self.inputs.config.borrow_and_update().clone();
        self.report.configuration(&state);
        resolve::want(&self.wanted, &state.config);
    }

    fn recompute(&mut self) {
        let config = self.inputs.config.borrow().config.clone();
        let resolv_conf = self.inputs.resolv_conf.borrow_and_update().clone();
        let names = self.inputs.names.borrow_and_update().clone();
        let (routes, omissions) = Routes::compute(&Ingredients {
            config: &config,
            resolv_conf: &resolv_conf.nameservers,
            names: &names,
            listening: &Listening::of(&self.arguments),
            servfail_server: self.servfail_server,
        });
        self.tell(omissions);
        self.routes.send_if_modified(|before| {
            let changed = *before != routes;
            *before = routes;
            changed
        });
    }

    /// Loops are told once, when they appear and when they are gone; unresolved names are the resolver's to tell.
    fn tell(&mut self, omissions: BTreeSet<Omission>) {
        for omission in omissions.difference(&self.omissions) {
            let all = "all other names";
            match omission {
                Omission::Loop { domain, server } => {
                    let domain = domain.as_deref().unwrap_or(all);
                    error!(%server, domain, "this server is dnsmasq itself: not used, or its queries would go in circles");
                }
                Omission::NotPlain { domain, server } => {
                    let domain = domain.as_deref().unwrap_or(all);
                    warn!(%server, domain, "dnsmasq cannot ask this server: not used");
                }
                Omission::Unresolved { .. } => {}
            }
        }
        for omission in self.omissions.difference(&omissions) {
            if let Omission::Loop { server, .. } = omission {
                info!(%server, "a server that was dnsmasq itself is not in use any more");
            }
        }
        if omissions != self.omissions {
            self.report.omissions(&omissions);
        }
        self.omissions = omissions;
    }
}
