//! `kube-dns explain NAME [TYPE]`: explains how a name resolves, or why the name does not resolve.
//! Suggests similar names.
//!
//! [`Explainer`] reports everything that kubedns knows about a name. The report has the names that
//! a pod's search list produces, the responsible servers, the records, and their Services and
//! endpoints. It also has the path through dnsmasq, similar names, and warnings about the records.
//! `GET /explain` on the status port returns the report as JSON (`document`); [`command()`] requests
//! the JSON and prints it as text.
//!
//! ```text
//! ExplainRequest ─> NameSurvey::query_records (published snapshot) ─> ObjectLookup ─> published objects
//!                                        Explanation <─ NameSurvey::conclude <─ FoundObjects <─┘
//! ```
//!
//! The table shows the modules in layers. A module uses modules of the layers below it, and of its
//! own layer. No two modules use each other.
//!
//! | layer | modules | content |
//! | --- | --- | --- |
//! | 5 | `http`, `command` | `GET /explain`, and the command that requests it |
//! | 4 | `explainer`, `text` | explanations on a blocking thread; an explanation as text |
//! | 3 | `survey` | the steps from a request to facts, to conclusions, and to the document |
//! | 2 | `reasoning` | reasons, similar names, the answer in one line, warnings |
//! | 1 | `facts` | the names to look up, their answers and paths; objects; the server's state |
//! | 0 | `document`, `request`, `moment`, `list` | the JSON document, the parsed request, times and lists as text |
//!
//! Explanations change no state, and neither DNS queries nor watch events wait for them. For
//! explanations, as for clients, the query engine answers from the published snapshot. If dnsmasq
//! is in front of kubedns, the options of dnsmasq are requested from the nanny. The other steps run
//! on a blocking thread, one explanation at a time. Explanations send no queries to upstream
//! servers. Names, search lists, requests and visited objects all have bounds.

mod command;
mod document;
mod explainer;
mod facts;
mod http;
mod list;
mod moment;
mod reasoning;
mod request;
mod survey;
mod text;

pub use command::{Options as CommandOptions, command};
pub use explainer::{Explainer, ReadServerState};
pub use facts::server_state::{FailingCause, FailingUpstream, LostZone, ServerState};
pub use facts::topology::DnsmasqTopology;

#[cfg(test)]
mod tests;
