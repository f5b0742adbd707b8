//! The nanny's status for operators and programs: what changes the document of [`reports::nanny`].

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use chrono::{DateTime, SecondsFormat, Utc};
use dnsconfig::ConfigState;
use reports::nanny::{ConfigurationFault, NannyStatus, PendingRoutes};
use wire::Nameserver;

use crate::config::routes::{OmittedServer, Routes};

/// The document, and what its next change depends on.
#[derive(Debug, Clone)]
pub(crate) struct StatusRecord {
    pub(crate) document: NannyStatus,
    /// The servers among the loops that the nanny found, not those that dnsmasq found.
    omitted_loops: BTreeSet<String>,
}

impl StatusRecord {
    /// The status of a nanny that has just started.
    pub(crate) fn new() -> Self {
        Self {
            document: NannyStatus::of_start(daemon::version::VERSION, daemon::version::COMMIT),
            omitted_loops: BTreeSet::new(),
        }
    }

    /// Copies the state of the configuration's source.
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
        status.loops.clone_from(&self.omitted_loops);
    }

    /// Copies the omissions of the newest routes.
    pub(crate) fn set_omissions(&mut self, omissions: &BTreeSet<OmittedServer>) {
        let status = &mut self.document.routes;
        let before = std::mem::take(&mut self.omitted_loops);
        status.unresolved.clear();
        for omission in omissions {
            match omission {
                OmittedServer::Unresolved { name, .. } => status.unresolved.insert(name.clone()),
                OmittedServer::Loop { server, .. } => self.omitted_loops.insert(server.to_string()),
            };
        }

        // The loops that dnsmasq found stay.
        status.loops.retain(|server| !before.contains(server));
        status.loops.extend(self.omitted_loops.iter().cloned());
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
        self.document.routes.loops.insert(server.to_string());
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
