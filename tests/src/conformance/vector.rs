//! The recorded scenarios, as in their files. `tests/conformance/README.md` describes each field.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;
use serde::Deserialize;
use serde_json::Value;
use wire::Transport;

/// A recorded scenario: a sequence of events and questions.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Version of the format.
    pub format: u32,
    /// The name of the scenario and of its file.
    #[serde(rename = "scenario")]
    pub name: String,
    /// The category in reports.
    pub category: String,
    /// A description in one sentence.
    pub about: String,
    /// The cluster domain, with a final dot.
    pub domain: String,
    /// Command line of the server, with placeholders.
    pub flags: Vec<String>,
    /// Files of the configuration directory at the start.
    pub config_dir: Option<Files>,
    /// Content of `/etc/resolv.conf`, with placeholders.
    pub resolv_conf: Option<String>,
    /// Reachability of the API server.
    #[serde(default)]
    pub api_server: ApiServer,
    /// The objects that exist at the start. The first list requests return them.
    pub initial: Vec<Value>,
    /// The steps, in order.
    pub steps: Vec<Step>,
}

/// Files by name.
pub type Files = BTreeMap<String, String>;

/// Reachability of the API server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ApiServer {
    /// The API server answers.
    #[default]
    Reachable,
    /// Nothing listens at its address.
    Unreachable,
}

/// Some events, then some questions.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// The name of the step.
    pub name: String,
    /// Watch events, in order. Without `gap`, the server applies each event of a Service or of
    /// Endpoints before the next event arrives.
    pub events: Vec<Value>,
    /// Whether the events happen while no watch is open, so that the server has to list again.
    #[serde(default)]
    pub gap: bool,
    /// New content of the configuration directory.
    pub config_dir: Option<Files>,
    /// Operations that the API server rejected in the recording. The suite ignores them.
    #[serde(default)]
    pub refused: Value,
    /// The questions after the events.
    pub queries: Vec<Case>,
}

/// One question with its recorded answer.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// The question.
    pub query: Question,
    /// The category, if it differs from the scenario's.
    pub category: Option<String>,
    /// The answer, if it was the same in all recordings.
    pub response: Option<Response>,
    /// The different answers, if the recordings differ.
    #[serde(default)]
    pub responses: Vec<Response>,
    /// Whether the recordings differ.
    #[serde(default)]
    pub unstable: bool,
    /// Whether kube-dns exited after the answer.
    #[serde(default)]
    pub crash: bool,
    /// Whether each CNAME in the recording precedes the records of its target.
    #[serde(default)]
    pub cname_first: bool,
    /// Length of the recorded answer in octets. The suite does not compare the length.
    pub size: Option<usize>,
    /// Queries of kube-dns to its resolver.
    #[serde(default)]
    pub upstream: Vec<Exchange>,
}

impl Case {
    /// The recorded answers, any of which is accepted.
    pub fn recorded(&self) -> Vec<&Response> {
        self.response.iter().chain(&self.responses).collect()
    }
}

/// A recorded question: fields, or a whole packet, or both.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// The queried name in presentation format.
    #[serde(default)]
    pub name: String,
    /// The queried type, such as `A` or `TYPE65280`.
    #[serde(rename = "type", default)]
    pub rtype: String,
    /// The class, such as `IN` or `CLASS0`.
    #[serde(default)]
    pub class: String,
    /// `udp` or `tcp`.
    pub transport: Transport,
    /// The opcode, such as `QUERY`.
    #[serde(default)]
    pub opcode: String,
    /// Those of the flags `rd`, `cd` and `ad` that are set.
    #[serde(default)]
    pub flags: String,
    /// The OPT record, if there is one.
    pub edns: Option<Edns>,
    /// The whole packet in hex, with ID 0. Without `what`, the other fields describe the same
    /// packet.
    pub wire: Option<String>,
    /// A description of a packet that is not one well-formed question. The packet is in `wire`.
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
    /// The RCODE, such as `NOERROR`.
    pub rcode: String,
    /// Those of the flags `qr aa tc rd ra z ad cd` that are set.
    pub flags: String,
    /// The opcode, if not `QUERY`.
    pub opcode: Option<String>,
    /// The questions, as `name class type`.
    pub question: Vec<String>,
    /// The answer records, sorted.
    pub answer: Vec<String>,
    /// The number of answer records, in place of `answer` if TC is set.
    pub answer_count: Option<usize>,
    /// The authority records, sorted.
    pub authority: Vec<String>,
    /// The additional records other than OPT, sorted.
    pub additional: Vec<String>,
    /// The OPT record.
    pub edns: Option<Edns>,
    /// Whether the server may choose any of several CNAMEs.
    pub cname_choice: bool,
    /// The reason why there is no response, in place of all other fields.
    pub no_answer: Option<String>,
}

/// A recorded query of kube-dns to its resolver, and the responses.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exchange {
    /// The transport.
    pub transport: Transport,
    /// The question, as `name class type`.
    pub question: String,
    /// The query in hex, with ID 0.
    pub query_wire: String,
    /// The responses in hex. If the ID of a response was that of the query, the ID here is 0,
    /// otherwise `ffff`.
    pub response_wire: Vec<String>,
}

/// All scenarios, in the order of their files.
pub fn load_all() -> anyhow::Result<Vec<Scenario>> {
    super::files("vectors")?
        .iter()
        .map(|path| load(path))
        .collect()
}

fn load(path: &Path) -> anyhow::Result<Scenario> {
    let text = std::fs::read_to_string(path).with_context(|| format!("{}", path.display()))?;
    let scenario: Scenario =
        serde_json::from_str(&text).with_context(|| format!("{}", path.display()))?;
    anyhow::ensure!(
        scenario.format == 1,
        "{}: unknown format {}",
        path.display(),
        scenario.format
    );
    let stem = path.file_stem().unwrap_or_default();
    anyhow::ensure!(
        stem == scenario.name.as_str(),
        "{}: the file does not have the name of its scenario, {}",
        path.display(),
        scenario.name
    );
    Ok(scenario)
}
