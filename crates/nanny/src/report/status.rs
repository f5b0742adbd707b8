//! The nanny's status for operators and programs. [`reports::nanny`] defines the status document,
//! and the operations here update it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use chrono::{DateTime, SecondsFormat, Utc};
use dnsconfig::ConfigState;
use reports::nanny::{ConfigurationFault, NannyStatus, PendingRoutes};

use crate::config::routes::{OmittedServer, RoutedServer, Routes};

/// The status document, with the operations that update it.
#[derive(Debug, Clone)]
pub(crate) struct StatusRecord {
    pub(crate) document: NannyStatus,
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

    /// Copies the routes in force.
    pub(crate) fn set_routes(&mut self, routes: &Routes) {
        let status = &mut self.document.routes;
        status.stub_domains = server_lists(&routes.stub_domains);
        status.upstreams = to_strings(&routes.upstreams);
        status.upstreams_from = Some(routes.upstreams_from.label().to_owned());
    }

    /// Copies the servers that the newest routes leave out.
    pub(crate) fn set_omissions(&mut self, omissions: &BTreeSet<OmittedServer>) {
        let status = &mut self.document.routes;
        status.loops.clear();
        status.unresolved.clear();
        for omission in omissions {
            match omission {
                OmittedServer::Unresolved { name, .. } => status.unresolved.insert(name.clone()),
                OmittedServer::Loop(RoutedServer { server, .. })
                | OmittedServer::LeadsBack(RoutedServer { server, .. }) => {
                    status.loops.insert(server.to_string())
                }
            };
        }
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
}

/// A time as in RFC 3339, to the millisecond.
pub(crate) fn format_time(time: SystemTime) -> String {
    DateTime::<Utc>::from(time).to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// The servers of each stub domain, as text.
fn server_lists<T: ToString>(domains: &BTreeMap<String, Vec<T>>) -> BTreeMap<String, Vec<String>> {
    domains
        .iter()
        .map(|(domain, servers)| (domain.clone(), to_strings(servers)))
        .collect()
}

fn to_strings<T: ToString>(values: &[T]) -> Vec<String> {
    values.iter().map(ToString::to_string).collect()
}
