//! The scenarios with the answers of CoreDNS, and with those answers of kubedns that differ.
//! `tests/conformance/coredns/README.md` describes the format.

use std::path::PathBuf;

use serde::Deserialize;
use serde_json::Value;
use tests::conformance::judge::diff;
use tests::conformance::{self, vector::Response};

/// A file in `scenarios`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Scenario {
    format: u32,
    #[serde(rename = "scenario")]
    pub(crate) name: String,
    #[serde(rename = "about")]
    _about: String,
    /// The name of the file of objects.
    objects: String,
    /// The configuration of CoreDNS' plugin `kubernetes`.
    #[serde(rename = "corefile")]
    pub(crate) plugin_options: Vec<String>,
    /// The configuration of other plugins.
    #[serde(rename = "plugins", default)]
    _plugins: Value,
    /// The zones of the plugin `kubernetes`; `None` for `cluster.local in-addr.arpa ip6.arpa`.
    #[serde(default)]
    pub(crate) zones: Option<String>,
    /// The flags of kubedns that correspond to the configuration.
    pub(crate) flags: Vec<String>,
    pub(crate) answers: Vec<Case>,
}

/// A question with the answers of both servers.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Case {
    /// The question, as `name type`.
    pub(crate) asks: String,
    /// The answer of CoreDNS.
    pub(crate) response: Response,
    /// The answer of kubedns, if it differs on purpose.
    ours: Option<Ours>,
}

/// A deliberate difference.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ours {
    why: String,
    /// The answer; `None` if the query is forwarded.
    response: Option<Response>,
}

impl Scenario {
    /// All scenarios, sorted by name.
    pub(crate) fn all() -> Vec<Self> {
        let entries = std::fs::read_dir(directory().join("scenarios"))
            .expect("the directory of the scenarios must be readable");
        let mut paths: Vec<_> = entries
            .map(|entry| {
                entry
                    .expect("the directory of the scenarios must be readable")
                    .path()
            })
            .collect();
        paths.sort();
        paths.iter().map(Self::read).collect()
    }

    fn read(path: &PathBuf) -> Self {
        let text = std::fs::read_to_string(path).expect("the scenario must be readable");
        let scenario: Self = serde_json::from_str(&text)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        assert_eq!(stem, Some(scenario.name.as_str()));
        assert_eq!(scenario.format, 1, "{}", scenario.name);
        scenario
    }

    /// The objects of the cluster.
    pub(crate) fn objects(&self) -> Vec<Value> {
        let path = directory().join(format!("objects/{}.json", self.objects));
        let text = std::fs::read_to_string(path).expect("the objects must be readable");
        serde_json::from_str(&text).expect("the file must be a list of objects")
    }
}

fn directory() -> PathBuf {
    conformance::directory().join("coredns")
}

impl Case {
    /// Compares `found` with the expected answer. `None` means that kubedns forwards the query. The
    /// error describes the difference. A listed difference that does not occur, or that has no
    /// reason, is an error, too.
    pub(crate) fn judge(&self, found: Option<&Response>) -> Result<(), String> {
        let theirs = self.theirs();
        let (expected, why) = match &self.ours {
            None => (theirs.as_ref(), None),
            Some(Ours { why, response }) => (response.as_ref(), Some(why)),
        };
        match why {
            Some(why) if found == theirs.as_ref() => Err(format!(
                "kubedns agrees with CoreDNS, but a difference is listed: {why}"
            )),
            Some(why) if why.is_empty() => {
                Err("the difference is listed without a reason".to_owned())
            }
            _ if found == expected => Ok(()),
            _ => Err(differences(expected, found)),
        }
    }
}

impl Case {
    /// The answer of CoreDNS, changed in the points in which kubedns always differs, such as RA.
    /// The README lists these differences. `None` if CoreDNS answers NXDOMAIN to a PTR query for a
    /// reverse name: kubedns forwards such a query.
    fn theirs(&self) -> Option<Response> {
        let is_reverse = self.asks.ends_with(".arpa. PTR");
        let records = |records: &[String]| {
            let mut records: Vec<String> =
                records.iter().map(|record| in_our_terms(record)).collect();
            records.sort();
            records
        };
        let (rcode, flags) = (&self.response.rcode, format!("{} ra", self.response.flags));
        (!is_reverse || rcode != "NXDOMAIN").then(|| Response {
            flags: if is_reverse {
                flags.replace("aa ", "")
            } else {
                flags
            },
            answer: records(&self.response.answer),
            authority: records(&self.response.authority),
            additional: records(&self.response.additional),
            ..self.response.clone()
        })
    }
}

fn differences(expected: Option<&Response>, found: Option<&Response>) -> String {
    match (expected, found) {
        (Some(expected), Some(found)) => diff(expected, found).join("\n"),
        (Some(expected), None) => format!("- {}\n+ forwarded", expected.to_lines().join("\n- ")),
        (None, Some(found)) => format!("- forwarded\n+ {}", found.to_lines().join("\n+ ")),
        (None, None) => String::new(),
    }
}

/// A record of CoreDNS with the values of kubedns: the priority of SRV records, the name of the
/// name server, and the mailbox, timers and TTL of SOA records.
fn in_our_terms(record: &str) -> String {
    let fields: Vec<&str> = record.split(' ').collect();
    match *fields.as_slice() {
        [owner, ttl, "IN", "SRV", _, weight, port, target] => {
            format!("{owner} {ttl} IN SRV 10 {weight} {port} {target}")
        }
        [owner, ttl, "IN", "SOA", server, mailbox, serial, ..] => {
            // A scenario without the option `ttl` was recorded with a TTL of 30 s. Such a scenario
            // has no flag `--ttl` either. So kubedns gives the SOA record a TTL of 60 s, the TTL of
            // negative answers.
            let ttl = if ttl == "30" { "60" } else { ttl };
            let (server, mailbox) = (
                server.replace("ns1.dns.", "ns.dns."),
                mailbox.replace("hostmaster.dns.", "hostmaster."),
            );
            format!("{owner} {ttl} IN SOA {server} {mailbox} {serial} 28800 7200 604800 {ttl}")
        }
        _ => record.replace("ns1.dns.", "ns.dns."),
    }
}
