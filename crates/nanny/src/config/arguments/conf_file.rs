//! Options in dnsmasq's configuration files: `name` or `name=value`, one per line; `#` begins a
//! comment.

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use super::Given;

/// Limit of files read; options in further files stay unknown.
const MAX_FILES: usize = 64;
const MAX_FILE: u64 = 1 << 20;

/// The options found in the files.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) given: Vec<Given>,
    /// The reason why there may be further options.
    pub(super) unknown: Option<String>,
}

/// Reads the files and directories, and all files that they include.
pub(super) fn read_all(files: &[PathBuf], directories: &[String]) -> Found {
    let mut found = Found::default();
    let mut waiting: Vec<PathBuf> = files.to_vec();
    waiting.extend(directories.iter().flat_map(|value| files_of(value)));
    let mut count = 0;
    while let Some(path) = waiting.pop() {
        count += 1;
        if count > MAX_FILES {
            found.unknown = Some(format!("more than {MAX_FILES} configuration files"));
            break;
        }
        let Some(text) = read(&path) else {
            // dnsmasq logs the cause itself.
            found.unknown = Some(format!("unreadable configuration file {}", path.display()));
            continue;
        };
        for given in text.lines().filter_map(parse_line) {
            match (given.name.as_str(), &given.value) {
                ("conf-file", Some(value)) => waiting.push(PathBuf::from(value)),
                ("conf-dir", Some(value)) => waiting.extend(files_of(value)),
                ("conf-script", _) => {
                    found.unknown = Some(format!("conf-script in {}", path.display()));
                }
                _ => {}
            }
            found.given.push(given);
        }
    }
    found
}

fn read(path: &Path) -> Option<String> {
    let metadata = std::fs::metadata(path).ok()?;
    if metadata.file_type().is_char_device() {
        // A character device such as /dev/null has no options.
        return Some(String::new());
    }
    if !metadata.is_file() || metadata.len() > MAX_FILE {
        return None;
    }
    Some(String::from_utf8_lossy(&std::fs::read(path).ok()?).into_owned())
}

/// The files that dnsmasq reads for a `conf-dir` value:
/// `directory[,.excluded-suffix|,*.included-suffix...]`.
fn files_of(value: &str) -> Vec<PathBuf> {
    let mut parts = value.split(',');
    let directory = PathBuf::from(parts.next().unwrap_or_default());
    let filters: Vec<&str> = parts.filter(|filter| !filter.is_empty()).collect();
    let wanted: Vec<&str> = filters
        .iter()
        .filter_map(|filter| filter.strip_prefix('*'))
        .collect();
    let unwanted: Vec<&str> = filters
        .iter()
        .filter(|filter| !filter.starts_with('*'))
        .copied()
        .collect();
    let Ok(entries) = std::fs::read_dir(directory) else {
        return Vec::new();
    };
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let hidden = name.starts_with('.')
            || name.ends_with('~')
            || (name.starts_with('#') && name.ends_with('#'));
        path.is_file()
            && !hidden
            && (wanted.is_empty() || wanted.iter().any(|suffix| name.ends_with(suffix)))
            && !unwanted.iter().any(|suffix| name.ends_with(suffix))
    });
    files
}

fn parse_line(line: &str) -> Option<Given> {
    let line = without_comment(line);
    let (name, value) = match line.split_once('=') {
        Some((name, value)) => (name, Some(value.trim().trim_matches('"').to_owned())),
        None => (line, None),
    };
    let name = name.trim();
    (!name.is_empty()).then(|| Given {
        name: name.to_owned(),
        value,
        on_command_line: false,
    })
}

/// Removes a comment. A comment begins with `#` at the start of the line or after a blank;
/// `192.0.2.1#5353` has none.
fn without_comment(line: &str) -> &str {
    let mut quoted = false;
    let mut blank = true;
    for (at, c) in line.char_indices() {
        match c {
            '"' => quoted = !quoted,
            '#' if blank && !quoted => return line.get(..at).unwrap_or_default(),
            _ => {}
        }
        blank = c.is_whitespace();
    }
    line
}
