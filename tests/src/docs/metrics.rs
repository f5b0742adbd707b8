//! The metrics documented in `docs/metrics/`.

use std::collections::{BTreeMap, BTreeSet};

use super::markdown::codes;

/// The labels of the sidecar's probes in the stock manifest of kube-dns. They replace `<label>` in
/// the documented names of metrics.
const PROBES: [&str; 2] = ["dnsmasq", "kubedns"];
/// The names of the binaries. The pages have the same names.
pub const BINARIES: [&str; 3] = ["kubedns", "nanny", "sidecar"];
/// The page of the metrics that all binaries have.
const OF_ALL: &str = "process";

/// A documented metric. Its entry has a heading, a line of properties and a description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Documented {
    /// `counter`, `gauge` or `histogram`.
    pub kind: String,
    /// The names of the labels.
    pub labels: BTreeSet<String>,
    /// Whether kube-dns has the metric, too.
    pub old: bool,
    /// The condition under which the metric is exported.
    pub exported: String,
    /// The introduction of the section, followed by the description of the metric.
    pub text: String,
}

impl Documented {
    /// Returns whether the binary, on Linux, exports the metric from its start.
    pub fn is_always_there(&self) -> bool {
        ["always", "on Linux"].contains(&self.exported.as_str())
    }
}

/// The documented metrics of one binary by name, including the metrics that all binaries have.
pub fn of_binary(binary: &str) -> BTreeMap<String, Documented> {
    let mut all = BTreeMap::new();
    for page in [binary, OF_ALL] {
        let path = crate::repository().join(format!("docs/metrics/{page}.md"));
        let text = std::fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let entries: Vec<(&str, Documented)> =
            text.split("\n## ").skip(1).flat_map(entries).collect();
        assert!(
            entries.len() >= 10,
            "{page}: expected at least 10 entries, found {}",
            entries.len()
        );
        for (name, entry) in entries {
            for name in BTreeSet::from(PROBES.map(|probe| name.replace("<label>", probe))) {
                let found = all.insert(name.clone(), entry.clone());
                assert_eq!(found, None, "{name} is documented twice");
            }
        }
    }
    all
}

/// The documented metrics of all binaries by name.
pub fn all() -> BTreeMap<String, Documented> {
    BINARIES.into_iter().flat_map(of_binary).collect()
}

/// The entries of one section.
fn entries(section: &str) -> impl Iterator<Item = (&str, Documented)> {
    let mut parts = section.split("\n### ");
    let introduction = parts.next().unwrap_or_default();
    parts.map(move |entry| {
        let (name, entry) = read(entry).unwrap_or_else(|fault| panic!("{fault}:\n{entry}"));
        (
            name,
            Documented {
                text: format!("{introduction}\n{}", entry.text),
                ..entry
            },
        )
    })
}

fn read(entry: &str) -> Result<(&str, Documented), &'static str> {
    let mut parts = entry.splitn(3, "\n\n").map(str::trim);
    let [Some(heading), Some(line), Some(text)] = [parts.next(), parts.next(), parts.next()] else {
        return Err(
            "the entry does not consist of a heading, a line of properties and a description",
        );
    };
    let [name] = codes(heading)[..] else {
        return Err("the heading does not have exactly one name in backquotes");
    };
    let properties: Vec<&str> = line.split(" · ").collect();
    let [kind, labels, origin, exported] = properties[..] else {
        return Err("the line does not have four properties");
    };
    let kind = kind
        .strip_prefix("Type **")
        .and_then(|kind| kind.strip_suffix("**"))
        .ok_or("the line has no type")?;
    let labels = match labels
        .strip_prefix("labels ")
        .ok_or("the line has no labels")?
    {
        "none" => BTreeSet::new(),
        labels => codes(labels).into_iter().map(str::to_owned).collect(),
    };
    let old = match origin {
        "also in kube-dns" => true,
        "not in kube-dns" => false,
        _ => return Err("the line does not say whether kube-dns has the metric, too"),
    };
    let exported = exported
        .strip_prefix("exported ")
        .ok_or("the line does not say when the metric is exported")?;
    if text.is_empty() || text.starts_with("**When") {
        return Err("the entry has no description");
    }
    if text.ends_with("moves:**") {
        return Err("the entry has no text after **When it moves:**");
    }
    Ok((
        name,
        Documented {
            kind: kind.to_owned(),
            labels,
            old,
            exported: exported.to_owned(),
            text: text.to_owned(),
        },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "Type **counter** · labels `a`, `b` · not in kube-dns · exported always";

    #[test]
    fn faulty_entry_is_rejected() {
        for (entry, fault) in [
            (
                "`x`\n\nCounts.".to_owned(),
                "the entry does not consist of a heading, a line of properties and a description",
            ),
            (
                format!("x\n\n{LINE}\n\nCounts."),
                "the heading does not have exactly one name in backquotes",
            ),
            (
                "`x`\n\nType **counter** · labels none\n\nCounts.".to_owned(),
                "the line does not have four properties",
            ),
            (
                format!(
                    "`x`\n\n{}\n\nCounts.",
                    LINE.replace("not in kube-dns", "since 1.0")
                ),
                "the line does not say whether kube-dns has the metric, too",
            ),
            (
                format!("`x`\n\n{LINE}\n\n**When it moves:** Look."),
                "the entry has no description",
            ),
            (
                format!("`x`\n\n{LINE}\n\nCounts.\n\n**When it moves:**\n"),
                "the entry has no text after **When it moves:**",
            ),
        ] {
            assert_eq!(read(&entry), Err(fault), "{entry}");
        }
    }
}
