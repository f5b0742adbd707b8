//! Differences that touch very many answers in the same small way: rules instead of lists.

use serde::Deserialize;

use crate::conformance::vector::{Case, Edns, Response};

/// The UDP payload size in the OPT record of every answer.
const OUR_UDP_SIZE: u16 = 1232;

const FLAGS: [&str; 8] = ["qr", "aa", "tc", "rd", "ra", "z", "ad", "cd"];

/// A rule that changes an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Edit {
    /// A question with an OPT record is answered with one (RFC 6891 section 6.1.1), unless the answer is an upstream's.
    AnswerOpt,
    /// NXDOMAIN about the cluster domain has AA and RA, SERVFAIL has RA, REFUSED copies RD.
    NegativeFlags,
}

impl Edit {
    /// The answer after the change; the same when the rule does not touch it.
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
                // What comes from outside has no SOA in the vectors, and the flags of the upstream.
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

/// Whether the answer is an upstream's: the question went there as it was.
fn is_passed_on(case: &Case) -> bool {
    case.upstream.iter().any(|exchange| exchange.question.starts_with(&format!("{} ", case.query.name)))
}

fn with_flags(flags: &str, more: &[&str]) -> String {
    let set: Vec<&str> = flags.split(' ').chain(more.iter().copied()).collect();
    let ordered: Vec<&str> = FLAGS.into_iter().filter(|flag| set.contains(flag)).collect();
    ordered.join(" ")
}
