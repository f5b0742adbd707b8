//! Parses the headings, tables, code blocks and links of a Markdown page.

use crate::repository;

/// A parsed page.
#[derive(Debug, Default)]
pub struct Page {
    /// The anchors of the headings, as [`anchor`] returns them.
    pub anchors: Vec<String>,
    /// The tables.
    pub tables: Vec<Table>,
    /// The code blocks.
    pub blocks: Vec<Block>,
    /// The targets of the links.
    pub links: Vec<String>,
}

/// A table.
#[derive(Debug)]
pub struct Table {
    /// The last heading of level two (`##`) above.
    pub section: String,
    /// The names of the columns.
    pub header: Vec<String>,
    /// The cells, row by row.
    pub rows: Vec<Vec<String>>,
}

/// A block of code between fences.
#[derive(Debug)]
pub struct Block {
    /// The last heading of level two (`##`) above.
    pub section: String,
    /// The text after the opening fence, such as `console`.
    pub info: String,
    /// The lines between the fences.
    pub text: String,
}

impl Page {
    /// Reads a page of `docs/`.
    pub fn read(name: &str) -> Self {
        let path = repository().join("docs").join(name);
        let text = std::fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self::parse(&text)
    }

    /// Parses a text.
    pub fn parse(text: &str) -> Self {
        let mut page = Self::default();
        let mut section = String::new();
        let mut in_table = false;
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            let row = line.starts_with('|');
            if row && in_table {
                page.add_row(line);
            } else if row {
                page.tables.push(Table {
                    section: section.clone(),
                    header: cells(line),
                    rows: Vec::new(),
                });
            } else if let Some(info) = line.trim_start().strip_prefix("```") {
                // A code block in a list is indented, so its fences are, too.
                let text: Vec<&str> = lines
                    .by_ref()
                    .take_while(|line| line.trim_start() != "```")
                    .collect();
                let text = text.join("\n") + "\n";
                page.blocks.push(Block {
                    section: section.clone(),
                    info: info.to_owned(),
                    text,
                });
            } else if line.starts_with('#') {
                let heading = line.trim_start_matches('#').trim();
                if line.starts_with("## ") {
                    heading.clone_into(&mut section);
                }
                page.anchors.push(anchor(heading));
            }
            page.links.extend(links(line));
            in_table = row;
        }
        page
    }

    /// The rows of all tables in `section` that have exactly these columns.
    pub fn rows(&self, section: &str, columns: &[&str]) -> Vec<&[String]> {
        let tables = self
            .tables
            .iter()
            .filter(|table| table.section == section && table.header == columns);
        tables
            .flat_map(|table| table.rows.iter().map(Vec::as_slice))
            .collect()
    }

    fn add_row(&mut self, line: &str) {
        let cells = cells(line);
        let is_rule = |cell: &String| !cell.is_empty() && cell.chars().all(|c| c == '-');
        if let Some(table) = self.tables.last_mut()
            && !cells.iter().all(is_rule)
        {
            table.rows.push(cells);
        }
    }
}

/// The text of a cell that is one code span, without the backquotes. Panics at any other cell.
pub fn code(cell: &str) -> &str {
    let inner = cell
        .strip_prefix('`')
        .and_then(|cell| cell.strip_suffix('`'));
    inner
        .filter(|inner| !inner.contains('`'))
        .unwrap_or_else(|| panic!("{cell:?} is not one code span in backquotes"))
}

/// The text of each code span in a cell.
pub fn codes(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// The anchor of a heading on GitHub: in lower case, with a dash for each blank, without
/// punctuation except `-` and `_`.
pub fn anchor(heading: &str) -> String {
    let kept = heading
        .chars()
        .filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
    kept.map(|c| {
        if c == ' ' {
            '-'
        } else {
            c.to_ascii_lowercase()
        }
    })
    .collect()
}

fn links(line: &str) -> Vec<String> {
    let parts = line.split("](").skip(1);
    parts
        .filter_map(|part| part.split_once(')'))
        .map(|(target, _)| target.to_owned())
        .collect()
}

/// The cells of a row. `\|` is a `|` inside a cell.
fn cells(line: &str) -> Vec<String> {
    let line = line.trim().trim_start_matches('|');
    let line = line
        .strip_suffix('|')
        .unwrap_or(line)
        .replace("\\|", "\u{0}");
    line.split('|')
        .map(|cell| cell.trim().replace('\u{0}', "|"))
        .collect()
}
