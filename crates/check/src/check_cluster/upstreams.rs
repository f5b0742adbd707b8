//! Queries the upstreams of the pod, each over its own transport.
//!
//! The status of the sidecar names the upstreams. An upstream over TLS is not queried: only kubedns
//! has the certificate authorities and pins for it, so the check repeats the state that kubedns
//! reports.

use std::time::Duration;

use dnsclient::{external_queries, query_server};
use futures::future::join_all;
use hickory_proto::op::Query;
use hickory_proto::rr::{Name, RecordType};
use reports::EXTERNAL_NAMES;
use reports::sidecar::SidecarStatus;
use wire::{ServerAddr, Transport, Upstream, UpstreamProtocol};

use super::report::{CheckLine, milliseconds};

pub(super) const GROUP: &str = "upstreams";

/// Maximum number of upstreams that are queried. All are queried at the same time.
const MAX_ASKED: usize = 64;
/// Timeout of a query.
const TIMEOUT: Duration = Duration::from_secs(3);

/// An upstream and the names that it serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RouteUpstream {
    /// Whether kubedns, not dnsmasq, forwards to this upstream.
    of_kubedns: bool,
    /// The address, with a scheme for TCP and TLS.
    address: String,
    /// The stub domains that the upstream serves; `.` for all other names. Empty if unknown.
    domains: Vec<String>,
    /// Whether the pod considers the upstream usable.
    is_up: bool,
}

/// The upstreams in a status, with the names that they serve.
pub(super) fn list_upstreams(status: &SidecarStatus) -> Vec<RouteUpstream> {
    let mut upstreams: Vec<RouteUpstream> = Vec::new();
    if let Some(dnsmasq) = &status.dnsmasq {
        for upstream in &dnsmasq.upstreams {
            upstreams.push(RouteUpstream {
                of_kubedns: false,
                address: upstream.address.clone(),
                domains: upstream.serves.clone(),
                is_up: upstream.error.is_empty(),
            });
        }
    }

    for server in status.servers_of_kubedns() {
        upstreams.push(RouteUpstream {
            of_kubedns: true,
            address: server.address.clone(),
            domains: vec![server.route.clone()],
            is_up: server.is_up,
        });
    }
    upstreams
}

/// Queries the first [`MAX_ASKED`] upstreams. `RouteUpstream::questions` describes the use of
/// `external_name`.
pub(super) async fn query_upstreams(
    upstreams: &[RouteUpstream],
    external_name: &str,
) -> Vec<CheckLine> {
    let asked = upstreams.iter().take(MAX_ASKED);
    let mut checks = join_all(asked.map(|upstream| upstream.check(external_name))).await;

    let left = upstreams.len().saturating_sub(MAX_ASKED);
    if left > 0 {
        let text = format!("{left} further upstreams are not queried");
        checks.push(CheckLine::skipped(GROUP, text));
    }
    checks
}

impl RouteUpstream {
    /// Sends the upstream its `questions` one by one. Stops at the first usable answer, and when
    /// a query gets no answer.
    async fn check(&self, external_name: &str) -> CheckLine {
        let names = self.served_names();
        let subject = if self.of_kubedns {
            format!("kubedns: {}", self.address)
        } else {
            self.address.clone()
        };
        let Ok(upstream) = self.address.parse::<Upstream>() else {
            let text = format!(
                "{subject} serves {names}, but is not an address that this command can query"
            );
            return CheckLine::skipped(GROUP, text);
        };
        let transport = match upstream.protocol {
            UpstreamProtocol::Udp => Transport::Udp,
            UpstreamProtocol::Tcp => Transport::Tcp,
            UpstreamProtocol::Tls => return self.repeat_state(&subject, &names),
        };

        let server = ServerAddr::from(upstream.socket_addr());
        let mut refusals = Vec::new();
        for question in self.questions(external_name) {
            let answer = match query_server(&server, transport, &question, TIMEOUT).await {
                Ok(answer) => answer,
                Err(error) => {
                    let text = format!("{subject} ({names}) does not answer");
                    return CheckLine::warning(GROUP, text).with_detail(error.to_string());
                }
            };
            if answer.is_usable() {
                let time = milliseconds(answer.latency);
                let text = format!("{subject} ({names}) answers in {time}");
                return CheckLine::passed(GROUP, text);
            }
            refusals.push(answer.describe_rcode());
        }

        let text = format!("{subject} ({names}) gives no usable answer");
        CheckLine::warning(GROUP, text).with_detail(refusals.join(", "))
    }

    /// Repeats the state that kubedns reports. dnsmasq has no upstreams over TLS.
    fn repeat_state(&self, subject: &str, names: &str) -> CheckLine {
        if self.is_up {
            CheckLine::passed(GROUP, format!("{subject} ({names}) is in use"))
        } else {
            let text = format!("{subject} ({names}) gives kubedns no usable answer");
            CheckLine::warning(GROUP, text)
        }
    }

    fn served_names(&self) -> String {
        let mut names = Vec::with_capacity(self.domains.len());
        for domain in &self.domains {
            names.push(match domain.as_str() {
                EXTERNAL_NAMES => "external names".to_owned(),
                domain => format!("names of {domain}"),
            });
        }
        if names.is_empty() {
            names.push("the names that dnsmasq's arguments route to it".to_owned());
        }
        names.join(", ")
    }

    /// The queries that test the upstream. If the upstream does not serve external names, and has a
    /// stub domain with a valid name, the only query is for the SOA record of the first such stub
    /// domain. Otherwise, the first query is for the NS records of the root, and the second query is
    /// for the A records of `external_name`. The second query is left out if `external_name` is
    /// empty or invalid.
    fn questions(&self, external_name: &str) -> Vec<Query> {
        let mut domains = self.domains.iter();
        let is_external = domains.any(|domain| domain == EXTERNAL_NAMES);
        if !is_external && let Some(domain) = self.domains.iter().find_map(|name| absolute(name)) {
            return vec![Query::query(domain, RecordType::SOA)];
        }

        let external_name = Some(external_name).filter(|name| !name.is_empty());
        external_queries(external_name.and_then(absolute))
    }
}

fn absolute(name: &str) -> Option<Name> {
    let name = name.trim_end_matches('.');
    Name::from_ascii(format!("{name}.")).ok()
}

#[cfg(test)]
mod tests;
