//! Rules for deliberate differences from kube-dns. Each rule changes many expected answers in the
//! same way.

use serde::Deserialize;

use crate::conformance::vector::{Case, Edns, Response};

/// The UDP payload size in the OPT record of our answers.
const OUR_UDP_SIZE: u16 = 1232;

const FLAGS: [&str; 8] = ["qr", "aa", "tc", "rd", "ra", "z", "ad", "cd"];

/// A rule that changes an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Edit {
    /// The response to a query with an OPT record has an OPT record (RFC 6891, section 6.1.1).
    /// Responses of upstreams stay unchanged.
    AnswerOpt,
    /// Under `--strict-dns`, NXDOMAIN for a name of the cluster domain has AA and RA, SERVFAIL has
    /// RA, and REFUSED has RD if the query has RD.
    NegativeFlags,
}

impl Edit {
    /// Applies the rule to an expected answer.
    pub fn apply(self, case: &Case, response: &Response) -> Response {
        let mut edited = response.clone();
        match self {
            Self::AnswerOpt => {
                let ours = response.no_answer.is_none() && !is_passed_on(case);
                if let Some(asked) = case.query.edns.as_ref().filter(|_| ours) {
                    let dnssec_ok = asked.dnssec_ok;
                    edited.edns = Some(Edns {
                        udp: OUR_UDP_SIZE,
                        dnssec_ok,
                        ..Edns::default()
                    });
                }
            }
            Self::NegativeFlags => match response.rcode.as_str() {
                // The recorded NXDOMAIN responses of upstreams have no SOA record, and keep the
                // upstream's flags.
                "NXDOMAIN" if !response.authority.is_empty() => {
                    edited.flags = with_flags(&response.flags, &["aa", "ra"]);
                }
                "SERVFAIL" => edited.flags = with_flags(&response.flags, &["ra"]),
                "REFUSED" if case.query.flags.split(' ').any(|flag| flag == "rd") => {
                    edited.flags = with_flags(&response.flags, &["rd"]);
                }
                _ => {}
            },
        }
        edited
    }
}

/// Returns whether kube-dns forwarded the query unchanged, so that the answer is the upstream's.
fn is_passed_on(case: &Case) -> bool {
    case.upstream.iter().any(|exchange| {
        exchange
            .question
            .starts_with(&format!("{} ", case.query.name))
    })
}

fn with_flags(flags: &str, more: &[&str]) -> String {
    let set: Vec<&str> = flags.split(' ').chain(more.iter().copied()).collect();
    let ordered: Vec<&str> = FLAGS
        .into_iter()
        .filter(|flag| set.contains(flag))
        .collect();
    ordered.join(" ")
}
