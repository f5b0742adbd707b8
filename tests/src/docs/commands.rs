//! The commands of a page, each with the output that the page shows.

use super::markdown::Block;

/// A command after a `$ ` in a code block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// The command, without a comment at the end of its first line.
    pub text: String,
    /// The lines of output that the page shows below the command.
    pub output: Vec<String>,
}

impl Command {
    /// The commands of a block, in order.
    pub fn all(block: &Block) -> Vec<Self> {
        let mut commands: Vec<Self> = Vec::new();
        for line in block.text.lines() {
            if let Some(typed) = line.trim_start().strip_prefix("$ ") {
                commands.push(Self {
                    text: without_comment(typed).to_owned(),
                    output: Vec::new(),
                });
            } else if let Some(command) = commands.last_mut() {
                if command.is_open() {
                    command.text = format!("{}\n{}", command.text, line.trim_start());
                } else {
                    command.output.push(line.trim_start().to_owned());
                }
            }
        }
        commands
    }

    /// Returns whether the command continues on the next line: it ends with a backslash or a pipe,
    /// or it has an open single quote or an open `for` loop.
    fn is_open(&self) -> bool {
        let goes_on = self.text.ends_with(['\\', '|']) || self.text.matches('\'').count() % 2 == 1;
        goes_on || self.text.starts_with("for ") && !self.text.ends_with("done")
    }

    /// The first word of each line of an output, without the labels of a metric. Words with digits
    /// are left out, since numbers vary. Words that the page abbreviates with `…` are left out,
    /// too.
    pub fn first_words(output: &[impl AsRef<str>]) -> Vec<&str> {
        let words = output
            .iter()
            .filter_map(|line| line.as_ref().split([' ', '\t', '{']).next());
        words
            .filter(|word| {
                !word.is_empty() && !word.contains(|c: char| c.is_ascii_digit() || c == '…')
            })
            .collect()
    }
}

fn without_comment(typed: &str) -> &str {
    // A comment has at least two blanks before its `#`: `grep ' #'` has no comment.
    let command = typed
        .split_once("  #")
        .map_or(typed, |(command, _)| command);
    command.trim_end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stable_first_words_are_kept() {
        let output = [
            "kubedns_synced 1",
            "a_total{x=\"1\"} 2",
            "10.96.0.1",
            "…",
            "",
            ";; ->>HEADER<<-",
        ];
        let words = Command::first_words(&output);
        assert_eq!(words, ["kubedns_synced", "a_total", ";;"]);
    }
}
