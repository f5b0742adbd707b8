//! Clients and names with the most queries: the document behind `GET /top`, and its text.

use std::fmt::{self, Write as _};

use serde::{Deserialize, Serialize};

/// The document of `/top`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ranking {
    /// Length of the ranked period, in seconds: two to four minutes, or since the start.
    pub seconds: u64,
    /// Answers in that period, estimated.
    pub queries: u64,
    /// Answers that were sampled.
    pub samples: u64,
    /// A remark, for example when the clients shown are not the original clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Clients with the most answers.
    pub clients: Vec<Row>,
    /// Names with the most answers.
    pub names: Vec<Row>,
    /// Names with the most NXDOMAIN answers.
    pub nxdomain: Vec<Row>,
    /// Names with the most SERVFAIL answers.
    pub servfail: Vec<Row>,
}

/// A client or a name, with its number of answers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// The address, or the name in presentation format.
    pub key: String,
    /// The namespace of the pod with this address, if known (`--pods=verified`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Number of answers, estimated.
    pub queries: u64,
    /// Share of all answers of the table, between 0 and 1.
    pub share: f64,
}

impl Ranking {
    /// The tables with their titles.
    pub fn tables(&self) -> [(&'static str, &[Row]); 4] {
        [
            ("clients", &self.clients),
            ("names", &self.names),
            ("NXDOMAIN", &self.nxdomain),
            ("SERVFAIL", &self.servfail),
        ]
    }
}

impl fmt::Display for Ranking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seconds, queries, samples, note, .. } = self;
        writeln!(f, "about {queries} queries in the last {seconds} s ({samples} sampled)")?;
        if let Some(note) = note {
            writeln!(f, "{note}")?;
        }
        for (title, rows) in self.tables() {
            if rows.is_empty() {
                continue;
            }
            writeln!(f, "\n{title}")?;
            for Row { key, namespace, queries, share } in rows {
                write!(f, "{:6.1} % {queries:>9}  {key}", share * 100.0)?;
                if let Some(namespace) = namespace {
                    write!(f, "  in {namespace}")?;
                }
                f.write_char('\n')?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text() {
        let row = |key: &str, namespace: Option<&str>, queries, share| Row {
            key: key.to_owned(),
            namespace: namespace.map(str::to_owned),
            queries,
            share,
        };
        let ranking = Ranking {
            seconds: 150,
            queries: 1000,
            samples: 500,
            note: Some("a note".to_owned()),
            clients: vec![row("10.244.0.7", Some("apps"), 900, 0.9), row("10.244.0.8", None, 50, 0.05)],
            nxdomain: vec![row("x.acme.example.", None, 3, 1.0)],
            ..Ranking::default()
        };
        let text = "about 1000 queries in the last 150 s (500 sampled)\n\
                    a note\n\
                    \n\
                    clients\n  90.0 %       900  10.244.0.7  in apps\n   5.0 %        50  10.244.0.8\n\
                    \n\
                    NXDOMAIN\n 100.0 %         3  x.acme.example.\n";
        assert_eq!(ranking.to_string(), text);
        let json = serde_json::to_string(&ranking).unwrap();
        assert_eq!(serde_json::from_str::<Ranking>(&json).unwrap(), ranking);
    }
}
