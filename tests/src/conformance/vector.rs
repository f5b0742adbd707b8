//! The recorded scenarios, as in the files. `tests/conformance/README.md` tells what each field means.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;
use serde::Deserialize;
use serde_json::Value;
use testkit::upstream::Transport;

/// One file: a course of events and the questions asked on the way.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Version of the format.
    pub format: u32,
    /// Its name, which is also that of its file.
    #[serde(rename = "scenario")]
    pub name: String,
    /// The group that its questions count for.
    pub category: String,
    /// One sentence.
    pub about: String,
    /// The cluster domain, with a dot at the end.
    pub domain: String,
    /// Command line of the server, with placeholders.
    pub flags: Vec<String>,
    /// Files of the configuration directory at the start.
    pub config_dir: Option<Files>,
    /// Content of `/etc/resolv.conf`.
    pub resolv_conf: Option<String>,
    /// Whether the API server can be reached.
    #[serde(default)]
    pub api_server: ApiServer,
    /// Objects that the first lists return.
    pub initial: Vec<Value>,
    /// The events, in order.
    pub steps: Vec<Step>,
}

/// Files by name.
pub type Files = BTreeMap<String, String>;

/// Whether the API server can be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ApiServer {
    /// It answers.
    #[default]
    Reachable,
    /// Nothing listens where the server looks for it.
    Unreachable,
}

/// Some events, then some questions.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// The event.
    pub name: String,
    /// Watch events, each to be digested before the next.
    pub events: Vec<Value>,
    /// The events happen while no watch is open, and force a new list.
    #[serde(default)]
    pub gap: bool,
    /// New content of the configuration directory.
    pub config_dir: Option<Files>,
    /// Operations that the API server refused, for the reader.
    #[serde(default)]
    pub refused: Value,
    /// The questions afterwards.
    pub queries: Vec<Case>,
}

/// One question with its recorded answer.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// The question.
    pub query: Question,
    /// The group, where it is not that of the scenario.
    pub category: Option<String>,
    /// The answer, where there was one and the same each time.
    pub response: Option<Response>,
    /// All answers that came, where they were not the same.
    #[serde(default)]
    pub responses: Vec<Response>,
    /// Whether the answers were not the same.
    #[serde(default)]
    pub unstable: bool,
    /// Whether the reference ended after answering.
    #[serde(default)]
    pub crash: bool,
    /// Whether each alias stood before what it leads to.
    #[serde(default)]
    pub cname_first: bool,
    /// Octets of the answer, for information.
    pub size: Option<usize>,
    /// Questions of the reference to the resolver behind it.
    #[serde(default)]
    pub upstream: Vec<Exchange>,
}

impl Case {
    /// The answers of which any one will do.
    pub fn recorded(&self) -> Vec<&Response> {
        self.response.iter().chain(&self.responses).collect()
    }
}

/// A question as recorded: fields, or a whole packet, or both.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// In presentation format.
    #[serde(default)]
    pub name: String,
    /// `A`, `TYPE65280`, ...
    #[serde(rename = "type", default)]
    pub rtype: String,
    /// `IN`, `CLASS0`, ...
    #[serde(default)]
    pub class: String,
    /// `udp` or `tcp`.
    pub transport: Transport,
    /// `QUERY`, ...
    #[serde(default)]
    pub opcode: String,
    /// Those of `rd`, `cd` and `ad` that are set.
    #[serde(default)]
    pub flags: String,
    /// The OPT record, if there is one.
    pub edns: Option<Edns>,
    /// The whole packet in hex with ID 0, where the fields do not say it all.
    pub wire: Option<String>,
    /// Fault of a packet that is not one well-formed question.
    pub what: Option<String>,
}

/// An OPT record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edns {
    /// UDP payload size.
    pub udp: u16,
    /// DNSSEC OK.
    #[serde(rename = "do")]
    pub dnssec_ok: bool,
    /// EDNS version.
    #[serde(default)]
    pub version: u8,
    /// Code and data (hex) of each option.
    #[serde(default)]
    pub options: Vec<(u16, String)>,
}

/// A normalised answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Response {
    /// `NOERROR`, ...
    pub rcode: String,
    /// Those set of `qr aa tc rd ra z ad cd`.
    pub flags: String,
    /// If not `QUERY`.
    pub opcode: Option<String>,
    /// `name class type` as echoed.
    pub question: Vec<String>,
    /// Records, sorted.
    pub answer: Vec<String>,
    /// In place of `answer` where TC is set.
    pub answer_count: Option<usize>,
    /// Records, sorted.
    pub authority: Vec<String>,
    /// Records other than OPT, sorted.
    pub additional: Vec<String>,
    /// The OPT record.
    pub edns: Option<Edns>,
    /// Whether one of several aliases stands for all.
    pub cname_choice: bool,
    /// In place of everything else: nothing came back.
    pub no_answer: Option<String>,
}

/// Questions of the reference to the resolver behind it, and the answers.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exchange {
    /// Its transport.
    pub transport: Transport,
    /// `name class type`.
    pub question: String,
    /// The query in hex, ID 0.
    pub query_wire: String,
    /// The packets that came back, in hex, ID 0, or `ffff` for one with another ID than the query.
    pub response_wire: Vec<String>,
}

/// All scenarios, in the order of their names.
pub fn load_all() -> anyhow::Result<Vec<Scenario>> {
    let directory = super::directory().join("vectors");
    let entries = std::fs::read_dir(&directory).with_context(|| format!("{}", directory.display()))?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?;
    paths.sort();
    paths.iter().map(|path| load(path)).collect()
}

fn load(path: &Path) -> anyhow::Result<Scenario> {
    let text = std::fs::read_to_string(path).with_context(|| format!("{}", path.display()))?;
    let scenario: Scenario = serde_json::from_str(&text).with_context(|| format!("{}", path.display()))?;
    anyhow::ensure!(scenario.format == 1, "{}: unknown format {}", path.display(), scenario.format);
    let stem = path.file_stem().unwrap_or_default();
    anyhow::ensure!(stem == scenario.name.as_str(), "{}: is scenario {}", path.display(), scenario.name);
    Ok(scenario)
}
