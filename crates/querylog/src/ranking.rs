//! Clients and names with the most queries: the JSON document that `GET /top` returns, and its text
//! form.

use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use wire::top::{TopRanking, TopRow};

/// Maximum number of rows of each table.
pub const ROWS: usize = 20;

/// The document of `/top`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RankingDocument {
    /// Length of the ranked period, in seconds: two to four minutes, or less after a start.
    pub seconds: u64,
    /// Estimated number of answers in the ranked period.
    pub queries: u64,
    /// Number of answers that were sampled.
    pub samples: u64,
    /// A remark, for example when the clients shown are not the original clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Clients with the most answers.
    pub clients: Vec<RankingRow>,
    /// Names with the most answers.
    pub names: Vec<RankingRow>,
    /// Names with the most NXDOMAIN answers.
    pub nxdomain: Vec<RankingRow>,
    /// Names with the most SERVFAIL answers.
    pub servfail: Vec<RankingRow>,
}

/// A client or a name, with its number of answers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RankingRow {
    /// The address, or the name in presentation format.
    pub key: String,
    /// The owner of the address, if the row is about a client.
    #[serde(flatten)]
    pub owner: ClientOwner,
    /// Estimated number of answers.
    pub queries: u64,
    /// The row's share of all answers, between 0 and 1. In the tables of NXDOMAIN and SERVFAIL: the
    /// row's share of all answers with this RCODE.
    pub share: f64,
}

/// The known owner of a client's address: a pod, a node, or the namespace of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClientOwner {
    /// The namespace of the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The name of the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// The node that the pod runs on. If no pod is known, this is the node that has the address.
    /// Pods on the host network have the same address as their node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

impl ClientOwner {
    /// Returns a text such as `pod apps/web-0 on node-1`, `pod apps/web-0`, `in apps` or
    /// `node node-1`; `None` if nothing is known.
    pub fn text(&self) -> Option<String> {
        let node = self.node.as_deref();
        let Some(namespace) = &self.namespace else {
            return node.map(|node| format!("node {node}"));
        };

        let text = match (&self.pod, node) {
            (Some(pod), Some(node)) => format!("pod {namespace}/{pod} on {node}"),
            (Some(pod), None) => format!("pod {namespace}/{pod}"),
            (None, _) => format!("in {namespace}"),
        };
        Some(text)
    }
}

impl RankingDocument {
    /// The document of a ranking, with the known owners of its clients.
    pub fn new(found: &TopRanking, owners: &HashMap<IpAddr, ClientOwner>) -> Self {
        let mut clients = Vec::with_capacity(found.clients.len());
        for row in &found.clients {
            let owner = owners.get(&row.key).cloned().unwrap_or_default();
            clients.push(RankingRow::new(row, owner, found.queries));
        }

        Self {
            seconds: found.time.as_secs(),
            queries: found.queries,
            samples: found.samples,
            note: None,
            clients,
            names: name_rows(&found.names, found.queries),
            nxdomain: name_rows(&found.nxdomain, found.missing),
            servfail: name_rows(&found.servfail, found.failed),
        }
    }

    /// The tables with their titles.
    pub fn tables(&self) -> [(&'static str, &[RankingRow]); 4] {
        [
            ("clients", &self.clients),
            ("names", &self.names),
            ("NXDOMAIN", &self.nxdomain),
            ("SERVFAIL", &self.servfail),
        ]
    }
}

fn name_rows(found: &[TopRow<String>], all: u64) -> Vec<RankingRow> {
    let rows = found.iter();
    rows.map(|row| RankingRow::new(row, ClientOwner::default(), all))
        .collect()
}

impl fmt::Display for RankingDocument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            seconds,
            queries,
            samples,
            note,
            ..
        } = self;
        writeln!(
            f,
            "about {queries} queries in the last {seconds} s ({samples} sampled)"
        )?;
        if let Some(note) = note {
            writeln!(f, "{note}")?;
        }

        for (title, rows) in self.tables() {
            // A table without rows has no title.
            if rows.is_empty() {
                continue;
            }
            writeln!(f, "\n{title}")?;
            for row in rows {
                row.write_text(f)?;
            }
        }
        Ok(())
    }
}

impl RankingRow {
    #[allow(clippy::cast_precision_loss, reason = "a share for people to read")]
    fn new<T: ToString>(row: &TopRow<T>, owner: ClientOwner, all: u64) -> Self {
        Self {
            key: row.key.to_string(),
            owner,
            queries: row.queries,
            share: row.queries as f64 / all.max(1) as f64,
        }
    }

    /// Writes the row as a line of text.
    fn write_text(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = self.share * 100.0;
        write!(f, "{percent:6.1} % {:>9}  {}", self.queries, self.key)?;
        if let Some(owner) = self.owner.text() {
            write!(f, "  {owner}")?;
        }
        f.write_char('\n')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(namespace: &str, pod: &str, node: &str) -> ClientOwner {
        ClientOwner {
            namespace: non_empty(namespace),
            pod: non_empty(pod),
            node: non_empty(node),
        }
    }

    fn non_empty(text: &str) -> Option<String> {
        (!text.is_empty()).then(|| text.to_owned())
    }

    #[test]
    fn ranking_is_text_and_json() {
        let row = |key: &str, owner: ClientOwner, queries, share| RankingRow {
            key: key.to_owned(),
            owner,
            queries,
            share,
        };
        let ranking = RankingDocument {
            seconds: 150,
            queries: 1000,
            samples: 500,
            note: Some("a note".to_owned()),
            clients: vec![
                row("10.244.0.7", owner("apps", "web-0", "node-1"), 900, 0.9),
                row("10.244.0.8", ClientOwner::default(), 50, 0.05),
            ],
            nxdomain: vec![row("x.acme.example.", ClientOwner::default(), 3, 1.0)],
            ..RankingDocument::default()
        };
        let text = "about 1000 queries in the last 150 s (500 sampled)\n\
                    a note\n\
                    \n\
                    clients\n  90.0 %       900  10.244.0.7  pod apps/web-0 on node-1\n   5.0 %        50  10.244.0.8\n\
                    \n\
                    NXDOMAIN\n 100.0 %         3  x.acme.example.\n";
        assert_eq!(ranking.to_string(), text);
        let json = serde_json::to_string(&ranking).unwrap();
        assert!(json.contains(
            r#""key":"10.244.0.7","namespace":"apps","pod":"web-0","node":"node-1","queries""#
        ));
        assert!(json.contains(r#""key":"10.244.0.8","queries""#), "{json}");
        assert_eq!(
            serde_json::from_str::<RankingDocument>(&json).unwrap(),
            ranking
        );
    }

    #[test]
    fn owner_is_formatted_by_known_parts() {
        for (known, text) in [
            (owner("", "", ""), None),
            (
                owner("apps", "web-0", "node-1"),
                Some("pod apps/web-0 on node-1"),
            ),
            (owner("apps", "web-0", ""), Some("pod apps/web-0")),
            (owner("apps", "", ""), Some("in apps")),
            (owner("", "", "node-1"), Some("node node-1")),
        ] {
            assert_eq!(known.text().as_deref(), text);
        }
    }
}
