//! Differences that affect very many answers in the same small way: rules instead of lists.

use serde::Deserialize;

use crate::conformance::vector::{Case, Edns, Response};

/// The UDP payload size in the OPT record of every answer.
const OUR_UDP_SIZE: u16 = 1232;

const FLAGS: [&str; 8] = ["qr", "aa", "tc", "rd", "ra", "z", "ad", "cd"];

/// A rule that changes an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Edit {
    /// A query with an OPT record gets a response with one (RFC 6891 section 6.1.1), unless the response is an
    /// upstream's.
    AnswerOpt,
    /// NXDOMAIN about the cluster domain has AA and RA, SERVFAIL has RA, REFUSED copies RD.
    NegativeFlags,
}

impl Edit {
    /// The answer after the change; unchanged if the rule does not apply.
    pub fn apply(self, case: &Case, response: &Response) -> Response {
        let mut edited = response.clone();
        match self {
            Self::AnswerOpt => {
                let ours = response.no_answer.is_none() && !is_passed_on(case);
                if let Some(asked) = case.query.edns.as_ref().filter(|_| ours) {
                    let dnssec_ok = asked.dnssec_ok;
                    edited.edns = Some(Edns { udp: OUR_UDP_SIZE, dnssec_ok, ..Edns::default() });
                }
            }
            Self::NegativeFlags => match response.rcode.as_str() {
                // In the vectors an upstream's answer has no SOA; it keeps the flags of the upstream.
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

/// Returns whether the answer is an upstream's: the query was forwarded unchanged.
fn is_passed_on(case: &Case) -> bool {
    case.upstream.iter().any(|exchange| exchange.question.starts_with(&format!("{} ", case.query.name)))
}

fn with_flags(flags: &str, more: &[&str]) -> String {
    let set: Vec<&str> = flags.split(' ').chain(more.iter().copied()).collect();
    let ordered: Vec<&str> = FLAGS.into_iter().filter(|flag| set.contains(flag)).collect();
    ordered.join(" ")
}
