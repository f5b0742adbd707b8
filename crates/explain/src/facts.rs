//! The facts about a name: answers of the query engine and of dnsmasq, the path of a query,
//! objects, and the state of the server. The module `reasoning` draws conclusions from the facts.

pub(crate) mod candidate;
pub(crate) mod dnsmasq_arguments;
pub(crate) mod dnsmasq_path;
pub(crate) mod evidence;
pub(crate) mod name_kind;
pub(crate) mod namespaces;
pub(crate) mod objects;
pub(crate) mod search_names;
pub(crate) mod server_state;
pub(crate) mod topology;
pub(crate) mod type_answer;
