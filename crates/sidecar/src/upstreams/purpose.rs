//! The names that an upstream serves. The served names determine the query of the probe, and which
//! responses are failures.

use std::net::SocketAddr;
use std::time::Duration;

use dnsclient::{DnsAnswer, ExchangeError, rcode_name};
use hickory_proto::op::{Query, ResponseCode};
use hickory_proto::rr::{Name, RecordType};

use super::condition::{Cause, Trouble};
use crate::peers::Nanny;

/// The query of a probe, and the names that the upstream serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Purpose {
    /// The stub domains that the upstream serves, sorted; `.` for all other names. Empty if
    /// unknown.
    pub(super) domains: Vec<String>,
    pub(super) question: Query,
    /// SERVFAIL for the query is a failure. False for queries for the root, because a server of
    /// private names may be unable to answer them.
    must_know: bool,
}

impl Purpose {
    /// The purpose of an upstream with unknown names. The query is for the name servers of the
    /// root.
    pub(super) fn unknown() -> Self {
        let question = Query::query(Name::root(), RecordType::NS);
        Self {
            domains: Vec::new(),
            question,
            must_know: false,
        }
    }

    /// The purpose of this server in the nanny's routes. The purpose is unknown for servers from
    /// dnsmasq's command line.
    pub(super) fn of(address: SocketAddr, nanny: &Nanny) -> Self {
        let (text, routes) = (address.to_string(), &nanny.routes);
        let mut this = Self::unknown();
        for (domain, servers) in &routes.stub_domains {
            if !servers.contains(&text) {
                continue;
            }
            if let (true, Ok(name)) = (
                this.domains.is_empty(),
                Name::from_ascii(format!("{domain}.")),
            ) {
                this.question = Query::query(name, RecordType::SOA);
                this.must_know = true;
            }
            this.domains.push(domain.clone());
        }
        if routes.upstreams.contains(&text) {
            (this.question, this.must_know) = (Self::unknown().question, false);
            this.domains.push(".".to_owned());
        }
        this
    }

    /// The latency of the answer, or the failure.
    pub(super) fn judge(
        &self,
        asked: Result<DnsAnswer, ExchangeError>,
    ) -> Result<Duration, Trouble> {
        let trouble = |cause, text: String| Err(Trouble { cause, text });
        let answer = match asked {
            Ok(answer) => answer,
            Err(error) if error.is_timeout() => return trouble(Cause::Timeout, error.to_string()),
            Err(error) => return trouble(Cause::Unreachable, error.to_string()),
        };
        let rcode = answer.message.metadata.response_code;
        let cause = match rcode {
            ResponseCode::ServFail if self.must_know => Cause::Servfail,
            ResponseCode::Refused if !self.domains.is_empty() => Cause::Refused,
            _ => return Ok(answer.latency),
        };
        let (rcode, question) = (rcode_name(rcode), &self.question);
        trouble(
            cause,
            format!("{rcode} for {} {}", question.name(), question.query_type()),
        )
    }
}
