//! Computes the settings in force from the configuration and the other inputs.
//!
//! ```text
//! ConfigMap, directory or flags -- State ---------+
//! resolv.conf -------------------- ResolvConf ----+                               +-- index task (zone)
//! addresses of stub servers ------ ResolvedNames -+-- InForce::compute -- watch --+-- LoopFinder
//! forwarding loops --------------- Loops ---------+                               +-- probes, cache
//! flags -------------------------- ConfigFlags ---+                               +-- watch of Nodes
//! ```
//!
//! A stub server is a server of a stub domain.
//!
//! [`dnsconfig`] reads, validates and follows the `ConfigMap`. After a bad edit, the last good
//! configuration stays in force. Whenever an input changes, one task computes [`InForce`] from all
//! inputs, and publishes it if it differs. So a reader sees either all changes of an edit, or none.
//!
//! Two inputs depend on [`InForce`] itself. The resolver looks up [`InForce::server_names`], and
//! the addresses are an input. The loop finder probes [`InForce::probed_routes`], and the loops are
//! an input. New addresses change the probed routes, but not the names. New loops change neither.
//! So one change of an input cannot cause endless computations.

mod configmap;
mod external_rules;
mod feed;
mod in_force;
mod own_names;
mod report;
mod servers;

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use cluster::watch::FeedState;
use dnsclient::resolv_conf::{EmptiedFile, ResolvConf, ResolvConfFollower};
use dnsclient::resolve::{ResolvedNames, ServerNameResolver};
use dnsconfig::{ConfigFollower, ConfigState};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::loops::Loops;
use crate::metrics::ConfigMetrics;
use crate::options::Options;
use configmap::{ConfigMapFeed, until_read_refused};
pub use feed::ConfigFeed;
pub use in_force::{ConfigFlags, ConfigInputs, ConfigKnowledge, InForce, ZoneSettings};
pub(crate) use report::log_servers;
pub use servers::ConfiguredServers;

/// Maximum time for which queries for external names are answered with SERVFAIL because the
/// `ConfigMap` has not been read. Until it is read, its stub domains are unknown, so forwarding
/// could send queries for their names to the wrong servers. Used only in topologies in which
/// upstreams receive queries only from kubedns.
const WITHHOLD_TIMEOUT: Duration = Duration::from_secs(10);

/// The configuration and the settings in force; [`run`](Self::run) keeps them up to date.
pub struct Configuration {
    followers: ConfigFollowers,
    publisher: ConfigPublisher,
}

/// The tasks that follow the sources of the configuration.
struct ConfigFollowers {
    follower: ConfigFollower,
    from_api: Option<ConfigMapFeed>,
    resolv_conf: ResolvConfFollower,
    resolver: ServerNameResolver,
}

/// Computes what is in force from the latest inputs, and publishes it.
struct ConfigPublisher {
    flags: ConfigFlags,
    knowledge: ConfigKnowledge,
    inputs: InputReceivers,
    in_force: watch::Sender<Arc<InForce>>,
    /// The names of stub servers, which the resolver looks up.
    server_names: watch::Sender<BTreeSet<String>>,
    metrics: Arc<ConfigMetrics>,
}

/// Receivers of the inputs that change.
struct InputReceivers {
    state: watch::Receiver<ConfigState>,
    resolv_conf: watch::Receiver<ResolvConf>,
    names: watch::Receiver<ResolvedNames>,
    loops: watch::Receiver<Arc<Loops>>,
    /// The watch of the `ConfigMap`; `None` if the configuration has another source.
    config_map: Option<watch::Receiver<FeedState>>,
}

impl Configuration {
    /// Loads the configuration from the flags or a directory. A `ConfigMap` is read later, by
    /// [`run`](Self::run). `loops` has the loops that a [`LoopFinder`](crate::loops::LoopFinder)
    /// finds.
    pub fn open(
        options: &Options,
        flags: ConfigFlags,
        feed: ConfigFeed,
        loops: watch::Receiver<Arc<Loops>>,
        metrics: &Arc<ConfigMetrics>,
    ) -> Self {
        let follower = feed.content.open_for(flags.bare_domains());
        // If resolv.conf is emptied, its previous servers are no longer used. This differs from the
        // nanny, which keeps them.
        let resolv_conf = ResolvConfFollower::open(
            vec![options.resolv_conf.clone()],
            EmptiedFile::Final,
            options.config_period.duration(),
        );

        // The resolver receives the names of stub servers once the configuration is in force.
        let server_names = watch::Sender::default();
        let resolver = ServerNameResolver::new(
            feed::name_sources(options, &flags),
            server_names.subscribe(),
            resolv_conf.subscribe(),
        );

        let inputs = InputReceivers {
            state: follower.subscribe(),
            resolv_conf: resolv_conf.subscribe(),
            names: resolver.subscribe(),
            loops,
            config_map: feed.from_api.as_ref().map(ConfigMapFeed::state),
        };

        // A configuration that does not come from the API server is known from the start.
        let knowledge = match &feed.from_api {
            None => ConfigKnowledge::Known,
            Some(_) if flags.topology.forwards_all() => ConfigKnowledge::Withheld,
            Some(_) => ConfigKnowledge::Assumed,
        };
        let in_force = inputs.compute(&flags, knowledge);
        let publisher = ConfigPublisher {
            flags,
            knowledge,
            inputs,
            in_force: watch::Sender::new(Arc::new(in_force)),
            server_names,
            metrics: Arc::clone(metrics),
        };
        publisher.report_first();

        let followers = ConfigFollowers {
            follower,
            from_api: feed.from_api,
            resolv_conf,
            resolver,
        };
        Self {
            followers,
            publisher,
        }
    }

    /// Returns a receiver of what is in force.
    pub fn subscribe(&self) -> watch::Receiver<Arc<InForce>> {
        self.publisher.in_force.subscribe()
    }

    /// Returns a receiver of the state of the configuration, including the reason for a rejection.
    pub fn state(&self) -> watch::Receiver<ConfigState> {
        self.publisher.inputs.state.clone()
    }

    /// Follows the configuration and all other inputs until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let Self {
            followers,
            mut publisher,
        } = self;
        tokio::join!(
            followers.run(&stop),
            stop.run_until_cancelled(publisher.follow_inputs())
        );
    }
}

impl ConfigFollowers {
    async fn run(self, stop: &CancellationToken) {
        let config_map = async {
            if let Some(watch) = self.from_api {
                watch.run(stop.clone()).await;
            }
        };
        tokio::join!(
            self.follower.run(stop.clone()),
            self.resolv_conf.run(stop.clone()),
            self.resolver.run(stop.clone()),
            config_map
        );
    }
}

impl ConfigPublisher {
    /// Calls [`publish`](Self::publish) after each change that may affect what is in force, until
    /// the follower of the configuration ends.
    async fn follow_inputs(&mut self) {
        let mut withhold_timeout = pin!(tokio::time::sleep(WITHHOLD_TIMEOUT));
        loop {
            // Once the configuration is known, it does not matter if the API server refuses
            // requests for the `ConfigMap`.
            let inputs = &mut self.inputs;
            let is_known = self.knowledge == ConfigKnowledge::Known;
            tokio::select! {
                changed = inputs.state.changed() => if changed.is_err() {
                    return;
                },
                Ok(()) = inputs.resolv_conf.changed() => {}
                Ok(()) = inputs.names.changed() => {}
                Ok(()) = inputs.loops.changed() => {}
                () = until_read_refused(&mut inputs.config_map), if !is_known => {
                    self.knowledge = ConfigKnowledge::Known;
                }
                () = &mut withhold_timeout, if self.knowledge == ConfigKnowledge::Withheld => {
                    self.knowledge = ConfigKnowledge::Assumed;
                    tracing::warn!("ConfigMap not read yet, forwarding with the defaults");
                }
            }

            self.publish();
        }
    }

    /// Computes what is in force, and publishes it if it has changed.
    fn publish(&mut self) {
        if self.inputs.state.borrow().has_data {
            self.knowledge = ConfigKnowledge::Known;
        }
        let in_force = self.inputs.compute(&self.flags, self.knowledge);

        // A warning about an edit is logged once, and not again when another input changes.
        let is_new = {
            let before = self.in_force.borrow();
            in_force.version != before.version || in_force.zone.is_known != before.zone.is_known
        };
        self.report(&in_force, is_new);
        send_changed(&self.in_force, Arc::new(in_force));
    }

    /// Reports what is in force at the start.
    fn report_first(&self) {
        self.report(&self.in_force.borrow(), true);
    }

    /// Sets the metrics, and requests the addresses of stub servers. If `is_new`, also warns of a
    /// stub domain that equals a cluster domain, and of an `--upstream-tls-pin` whose name matches
    /// no upstream over TLS.
    fn report(&self, in_force: &InForce, is_new: bool) {
        let state = self.inputs.state.borrow();
        if is_new {
            report::warn_of_stub_domain(&state.config, &self.flags);
            report::warn_of_unmatched_pins(in_force, &self.flags);
        }
        report::set_metrics(&self.metrics, &state, in_force);
        send_changed(&self.server_names, in_force.server_names.clone());
    }
}

impl InputReceivers {
    fn compute(&self, flags: &ConfigFlags, knowledge: ConfigKnowledge) -> InForce {
        InForce::compute(&ConfigInputs {
            flags,
            knowledge,
            config: &self.state.borrow().config,
            resolv_conf: &self.resolv_conf.borrow(),
            names: &self.names.borrow(),
            loops: &self.loops.borrow(),
        })
    }
}

/// Sends a value to the receivers, unless the previous value is equal.
pub(crate) fn send_changed<T: PartialEq>(sender: &watch::Sender<T>, new: T) {
    sender.send_if_modified(|old| {
        let has_changed = *old != new;
        if has_changed {
            *old = new;
        }
        has_changed
    });
}

#[cfg(test)]
mod tests;
