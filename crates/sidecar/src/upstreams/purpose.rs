//! The names that an upstream serves. The served names determine the query of the probe, and which
//! responses are failures.

use std::net::SocketAddr;
use std::time::Duration;

use dnsclient::{DnsAnswer, ExchangeError, rcode_name};
use hickory_proto::op::{Query, ResponseCode};
use hickory_proto::rr::{Name, RecordType};
use reports::nanny::NannyStatus;

use super::trouble::{TroubleCause, UpstreamTrouble};

/// The query of a probe, and the names that the upstream serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UpstreamPurpose {
    /// The stub domains that the upstream serves, sorted; `.` for all other names. Empty if
    /// unknown.
    pub(super) domains: Vec<String>,
    pub(super) question: Query,
    /// SERVFAIL for the query is a failure. False for queries for the root, because a server of
    /// private names may be unable to answer them.
    must_know: bool,
}

impl UpstreamPurpose {
    /// The purpose of an upstream with unknown names. The query is for the name servers of the
    /// root.
    pub(super) fn unknown() -> Self {
        Self {
            domains: Vec::new(),
            question: Query::query(Name::root(), RecordType::NS),
            must_know: false,
        }
    }

    /// The purpose of this server in the nanny's routes. The purpose is unknown for servers from
    /// dnsmasq's command line.
    pub(super) fn in_routes(address: SocketAddr, nanny: &NannyStatus) -> Self {
        let address = address.to_string();
        let routes = &nanny.routes;
        let mut this = Self::unknown();

        for (domain, servers) in &routes.stub_domains {
            if !servers.contains(&address) {
                continue;
            }

            // The query is for the first stub domain.
            if this.domains.is_empty()
                && let Ok(name) = Name::from_ascii(format!("{domain}."))
            {
                this.question = Query::query(name, RecordType::SOA);
                this.must_know = true;
            }
            this.domains.push(domain.clone());
        }

        if routes.upstreams.contains(&address) {
            this.question = Self::unknown().question;
            this.must_know = false;
            this.domains.push(".".to_owned());
        }
        this
    }

    /// The latency of the answer, or the failure.
    pub(super) fn judge(
        &self,
        asked: Result<DnsAnswer, ExchangeError>,
    ) -> Result<Duration, UpstreamTrouble> {
        let answer = asked.map_err(|error| UpstreamTrouble::of_error(&error))?;

        let rcode = answer.message.metadata.response_code;
        // A resolver without access to the root may still answer other names, and one whose names
        // are unknown may rightly refuse the root.
        let cause = match rcode {
            ResponseCode::ServFail if self.must_know => TroubleCause::Servfail,
            ResponseCode::Refused if !self.domains.is_empty() => TroubleCause::Refused,
            _ => return Ok(answer.latency),
        };

        let rcode = rcode_name(rcode);
        let name = self.question.name();
        let kind = self.question.query_type();
        Err(UpstreamTrouble {
            cause,
            text: format!("{rcode} for {name} {kind}"),
        })
    }
}
