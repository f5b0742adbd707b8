//! Purpose of an upstream, and so the question it is asked and the answers that do not count.

use std::net::SocketAddr;
use std::time::Duration;

use dnsclient::{Answer, ExchangeError, rcode_name};
use hickory_proto::op::{Query, ResponseCode};
use hickory_proto::rr::{Name, RecordType};

use super::condition::{Cause, Trouble};
use crate::peers::Nanny;

/// The question to an upstream, and its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Purpose {
    /// The stub domains it serves, sorted; `.` stands for all other names. Empty when that is not known.
    pub(super) domains: Vec<String>,
    pub(super) question: Query,
    /// Whether it has to know the answer. The root need not be in reach of a server that answers its own names.
    must_know: bool,
}

impl Purpose {
    /// Any question that every resolver knows an answer to will do.
    pub(super) fn unknown() -> Self {
        let question = Query::query(Name::root(), RecordType::NS);
        Self { domains: Vec::new(), question, must_know: false }
    }

    /// The purpose for which the nanny has this server. Servers of dnsmasq's command line are unknown to it.
    pub(super) fn of(address: SocketAddr, nanny: &Nanny) -> Self {
        let (text, routes) = (address.to_string(), &nanny.routes);
        let mut this = Self::unknown();
        for (domain, servers) in &routes.stub_domains {
            if !servers.contains(&text) {
                continue;
            }
            if let (true, Ok(name)) = (this.domains.is_empty(), Name::from_ascii(format!("{domain}."))) {
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

    /// Latency of the answer, or the reason why none counts.
    pub(super) fn judge(&self, asked: Result<Answer, ExchangeError>) -> Result<Duration, Trouble> {
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
        trouble(cause, format!("{rcode} for {} {}", question.name(), question.query_type()))
    }
}
