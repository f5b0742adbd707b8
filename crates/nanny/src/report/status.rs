//! The nanny's status for operators and programs. [`reports::nanny`] defines the status document,
//! and the operations here update it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use chrono::{DateTime, SecondsFormat, Utc};
use dnsconfig::ConfigState;
use reports::nanny::{ConfigurationFault, NannyStatus, PendingRoutes};
use wire::Nameserver;

use crate::config::routes::{OmittedServer, Routes, StubServer};

/// The document, and the sets of servers from which its list of loops is computed.
#[derive(Debug, Clone)]
pub(crate) struct StatusRecord {
    pub(crate) document: NannyStatus,
    loops: LoopSources,
}

/// The servers in forwarding loops, grouped by how the loops were found.
#[derive(Debug, Clone, Default)]
struct LoopSources {
    /// The servers that are dnsmasq itself, or that forward the names of their stub domain to
    /// dnsmasq. The routes leave out these servers.
    omitted: BTreeSet<String>,
    /// The servers through which a probe sent by the nanny came back to dnsmasq.
    probed: BTreeSet<String>,
    /// The servers through which a probe sent by dnsmasq itself came back. dnsmasq probes at its
    /// start and at each reload.
    by_dnsmasq: BTreeSet<String>,
}

impl LoopSources {
    fn all(&self) -> BTreeSet<String> {
        let sources = [&self.omitted, &self.probed, &self.by_dnsmasq];
        sources.into_iter().flatten().cloned().collect()
    }
}

impl StatusRecord {
    /// The status of a nanny that has just started.
    pub(crate) fn new() -> Self {
        let document = NannyStatus::of_start(daemon::version::VERSION, daemon::version::COMMIT);
        Self {
            document: NannyStatus {
                started_at: Some(format_time(SystemTime::now())),
                ..document
            },
            loops: LoopSources::default(),
        }
    }

    /// Copies the state of the configuration to the document.
    pub(crate) fn set_configuration(&mut self, state: &ConfigState) {
        let configuration = &mut self.document.configuration;
        configuration.version = Some(state.version.to_string());
        configuration.loaded_at = Some(format_time(state.loaded_at));

        configuration.edits = state.edits.into();
        configuration.rejected = state.rejected;
        configuration.error = state.error.as_ref().map(|error| ConfigurationFault {
            text: Some(error.text.clone()),
            key: error.key.clone().into(),
            value: error.value.clone().into(),
            at: Some(format_time(error.at)),
        });

        configuration.warnings = to_strings(&state.unknown_keys);
        configuration.stub_domains = server_lists(&state.config.stub_domains);
        configuration.upstream_nameservers = to_strings(&state.config.upstream_nameservers);
    }

    /// Copies the routes in force. Loops that dnsmasq found are removed: after each reload dnsmasq
    /// looks for loops again.
    pub(crate) fn set_routes(&mut self, routes: &Routes) {
        let status = &mut self.document.routes;
        status.stub_domains = server_lists(&routes.stub_domains);
        status.upstreams = to_strings(&routes.upstreams);
        status.upstreams_from = Some(routes.upstreams_from.label().to_owned());
        self.loops.by_dnsmasq.clear();
        status.loops = self.loops.all();
    }

    /// Copies the servers that the newest routes leave out.
    pub(crate) fn set_omissions(&mut self, omissions: &BTreeSet<OmittedServer>) {
        let status = &mut self.document.routes;
        self.loops.omitted.clear();
        status.unresolved.clear();
        for omission in omissions {
            match omission {
                OmittedServer::Unresolved { name, .. } => status.unresolved.insert(name.clone()),
                OmittedServer::Loop { server, .. }
                | OmittedServer::LeadsBack(StubServer { server, .. }) => {
                    self.loops.omitted.insert(server.to_string())
                }
            };
        }
        status.loops = self.loops.all();
    }

    /// Sets the loops that the nanny's probes found. Returns the servers for which dnsmasq
    /// disagrees with the probes.
    pub(crate) fn set_probed_loops(&mut self, servers: &BTreeSet<Nameserver>) -> BTreeSet<String> {
        self.loops.probed = servers.iter().map(ToString::to_string).collect();
        self.document.routes.loops = self.loops.all();
        let LoopSources {
            probed, by_dnsmasq, ..
        } = &self.loops;
        probed.symmetric_difference(by_dnsmasq).cloned().collect()
    }

    /// Sets the reason why the newest routes are pending; `None` when they are in force.
    pub(crate) fn set_pending(&mut self, reason: Option<&str>) {
        let pending = &mut self.document.routes.pending;
        let since = match pending.take() {
            Some(PendingRoutes { since, .. }) => since,
            None => Some(format_time(SystemTime::now())),
        };
        *pending = reason.map(|reason| PendingRoutes {
            reason: Some(reason.to_owned()),
            since,
        });
    }

    /// Adds a loop that dnsmasq found.
    pub(crate) fn add_loop(&mut self, server: Nameserver) {
        self.loops.by_dnsmasq.insert(server.to_string());
        self.document.routes.loops = self.loops.all();
    }
}

/// A time as in RFC 3339, to the millisecond.
pub(crate) fn format_time(time: SystemTime) -> String {
    DateTime::<Utc>::from(time).to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// The addresses of each stub domain's servers.
fn server_lists<T: ToString>(domains: &BTreeMap<String, Vec<T>>) -> BTreeMap<String, Vec<String>> {
    domains
        .iter()
        .map(|(domain, servers)| (domain.clone(), to_strings(servers)))
        .collect()
}

fn to_strings<T: ToString>(values: &[T]) -> Vec<String> {
    values.iter().map(ToString::to_string).collect()
}
