//! Parses the flags in the `--help` of a binary, in the layouts of Go's packages `pflag` and
//! `flag`.

use std::collections::BTreeMap;

/// A flag in a help text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flag {
    /// The displayed type; empty for booleans.
    pub kind: String,
    /// The displayed default; `None` for an empty, zero or false default.
    pub default: Option<String>,
    /// The description, without the default.
    pub text: String,
}

/// The flags of a help text by name. The name has its dashes: `--name` in the layout of `pflag`,
/// `-name` in that of `flag`. All other lines are ignored.
pub fn flags(help: &str) -> BTreeMap<String, Flag> {
    let mut flags = BTreeMap::new();
    let mut lines = help.lines().peekable();
    while let Some(line) = lines.next() {
        let pflag =
            line.starts_with("      --") || line.starts_with("  -") && line.contains(", --");
        if pflag {
            let (head, text) = line
                .trim_start()
                .split_once("   ")
                .unwrap_or((line.trim(), ""));
            insert(
                &mut flags,
                head.split_once(", ").map_or(head, |(_, long)| long),
                text,
            );
        } else if line.starts_with("  -") {
            let text = lines
                .next_if(|line| line.starts_with("    \t"))
                .unwrap_or_default();
            insert(&mut flags, line.trim(), text);
        }
    }
    flags
}

fn insert(flags: &mut BTreeMap<String, Flag>, head: &str, text: &str) {
    let (name, kind) = head.split_once(' ').unwrap_or((head, ""));
    let text = text.trim();
    let shown = text
        .strip_suffix(')')
        .and_then(|text| text.rsplit_once("(default "));
    // "(default port is 53)" is part of a description: the default of a string is in quotes.
    let shown = shown.filter(|(_, default)| kind != "string" || default.starts_with('"'));
    let (text, default) = match shown {
        Some((text, default)) => (text.trim_end(), Some(default.trim_matches('"').to_owned())),
        None => (text, None),
    };
    let flag = Flag {
        kind: kind.to_owned(),
        default,
        text: text.to_owned(),
    };
    flags.insert(name.to_owned(), flag);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_help_layouts_parse() {
        let pflag = "Usage of x:\n      --dns-port int        port. (default 53)\n      --on                  on or off\n      --at \
                     string           where (default is here)\n  -v, --v Level             verbosity\n      --domain string       the domain \
                     (default \"a.\")\n";
        let go = "$ x --help\n  -on\n    \ton or off\n  -domain string\n    \tthe domain (default \"a.\")\n";
        let found: Vec<(String, Option<String>)> = flags(pflag)
            .into_iter()
            .map(|(name, flag)| (name, flag.default))
            .collect();
        let expected = [
            ("--at", None),
            ("--dns-port", Some("53")),
            ("--domain", Some("a.")),
            ("--on", None),
            ("--v", None),
        ];
        let expected =
            expected.map(|(name, default)| (name.to_owned(), default.map(str::to_owned)));
        assert_eq!(found, expected);
        let found = flags(go);
        assert_eq!(
            found["-on"],
            Flag {
                kind: String::new(),
                default: None,
                text: "on or off".to_owned()
            }
        );
        assert_eq!(
            (
                found["-domain"].kind.as_str(),
                found["-domain"].text.as_str()
            ),
            ("string", "the domain")
        );
        assert_eq!(found.len(), 2);
    }
}
