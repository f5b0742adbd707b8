//! The names that an upstream serves. The served names determine the queries of the probe.

use std::net::SocketAddr;

use dnsclient::external_queries;
use hickory_proto::op::Query;
use hickory_proto::rr::{Name, RecordType};
use reports::EXTERNAL_NAMES;
use reports::nanny::NannyStatus;

/// The queries of a probe, and the names that the upstream serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UpstreamPurpose {
    /// The stub domains that the upstream serves, sorted, and then `.` if it also serves all other
    /// names. Empty if unknown.
    pub(super) domains: Vec<String>,
    /// The queries. A probe sends them one after the other, until one has a usable answer or the
    /// upstream does not respond. The probe begins with the query that had a usable answer last.
    pub(super) questions: Vec<Query>,
}

impl UpstreamPurpose {
    /// The purpose of an upstream whose served names are unknown. Such an upstream is probed with
    /// the queries for external names.
    pub(super) fn unknown(probe_name: &Name) -> Self {
        Self {
            domains: Vec::new(),
            questions: external_queries(Some(probe_name.clone())),
        }
    }

    /// The purpose of the server with this address, from the nanny's routes. dnsmasq's arguments
    /// may give a server for one domain only (`--server=/<domain>/<address>`). The routes do not
    /// contain such servers, so their purpose is unknown.
    pub(super) fn in_routes(address: SocketAddr, nanny: &NannyStatus, probe_name: &Name) -> Self {
        let address = address.to_string();
        let routes = &nanny.routes;

        let has_address = |servers: &[String]| servers.contains(&address);
        let mut domains: Vec<String> = routes
            .stub_domains
            .iter()
            .filter(|(_, servers)| has_address(servers))
            .map(|(domain, _)| domain.clone())
            .collect();
        let stub_domain = domains
            .iter()
            .find_map(|domain| Name::from_ascii(format!("{domain}.")).ok());

        // A server that serves a stub domain and external names is probed with external names,
        // because clients notice failures of external names first.
        let is_external = has_address(&routes.upstreams) || has_address(&routes.argument_servers);
        let questions = match stub_domain {
            Some(domain) if !is_external => vec![Query::query(domain, RecordType::SOA)],
            _ => external_queries(Some(probe_name.clone())),
        };
        if is_external {
            domains.push(EXTERNAL_NAMES.to_owned());
        }
        Self { domains, questions }
    }

    /// Whether the upstream serves external names. Also true if its names are unknown.
    pub(super) fn may_be_external(&self) -> bool {
        self.domains.is_empty() || self.domains.iter().any(|domain| domain == EXTERNAL_NAMES)
    }
}
