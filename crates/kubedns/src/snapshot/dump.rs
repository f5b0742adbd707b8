//! The records as `/cache` shows them: nodes, entries and their fields as kube-dns writes them.

use serde_json::{Map as Json, Value, json};
use skydns::{Host, ServiceRecord, name};
use treecache::Node;

use super::Snapshot;
use crate::records::Records;

impl Snapshot {
    /// The tree from the root of the DNS down, as kube-dns dumps it.
    pub fn dump(&self) -> Value {
        let domain = self.zone.domain.wire();
        let tree = node(self.tree.root(), domain);
        name::labels(domain).fold(tree, |below, label| {
            let label = String::from_utf8_lossy(label).into_owned();
            json!({ "ChildNodes": { label: below }, "Entries": {} })
        })
    }
}

fn node(of: &Node<Records>, domain: &[u8]) -> Value {
    let mut children = Json::new();
    for (label, child) in of.children() {
        children.insert(label.to_string(), node(child, domain));
    }
    let mut entries = Json::new();
    for (label, records) in of.entries() {
        for (index, record) in records.into_iter().enumerate() {
            // A label that stands for several records shows them under one key each.
            for (more, host) in hosts(label, record, domain).into_iter().enumerate() {
                let key =
                    if index + more == 0 { label.to_string() } else { format!("{label}#{}", index + more) };
                entries.insert(key, entry(record, &host));
            }
        }
    }
    json!({ "ChildNodes": children, "Entries": entries })
}

fn hosts(label: &str, record: &ServiceRecord, domain: &[u8]) -> Vec<String> {
    let below = |label: Option<&str>| {
        let prefix = label.map(|label| format!("{label}.")).unwrap_or_default();
        format!("{prefix}{}", name::to_text(&[&record.base[..], domain].concat()))
    };
    match &record.host {
        Host::Base => vec![below(None)],
        Host::Member => vec![below(Some(label))],
        Host::Name(name) => vec![name.to_string()],
        Host::V4(_) | Host::V6(_) | Host::Several(_) => record.addresses().map(|ip| ip.to_string()).collect(),
    }
}

fn entry(record: &ServiceRecord, host: &str) -> Value {
    let mut fields = Json::new();
    fields.insert("host".into(), host.into());
    if record.port != 0 {
        fields.insert("port".into(), record.port.into());
    }
    fields.insert("priority".into(), record.priority.into());
    fields.insert("weight".into(), record.weight.into());
    fields.insert("ttl".into(), record.ttl.into());
    fields.into()
}
