//! Options in dnsmasq's configuration files: `name` or `name=value`, one per line; `#` begins a
//! comment.

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use daemon::error_chain::without_number;

use super::GivenOption;

/// Maximum number of files to read; options in further files stay unknown.
const MAX_FILES: usize = 64;
/// Limit of the size of a file, in octets: 1 MiB.
const MAX_FILE_SIZE: u64 = 1 << 20;

/// The options found in the files.
#[derive(Debug, Default)]
pub(super) struct ConfFileOptions {
    pub(super) given: Vec<GivenOption>,
    /// The reason why there may be further options.
    pub(super) unknown: Option<String>,
}

/// Reads the files and directories, and all files that they include.
pub(super) fn read_all(files: &[PathBuf], directories: &[String]) -> ConfFileOptions {
    let mut found = ConfFileOptions::default();
    let mut waiting: Vec<PathBuf> = files.to_vec();
    for directory in directories {
        waiting.extend(files_of_conf_dir(directory));
    }

    let mut count = 0;
    while let Some(path) = waiting.pop() {
        // Files may include each other in a circle, so the number of files is limited.
        count += 1;
        if count > MAX_FILES {
            found.unknown = Some(format!(
                "there are more than {MAX_FILES} configuration files, or the files include each other"
            ));
            break;
        }
        let octets = match read_file(&path) {
            Ok(octets) => octets,
            Err(reason) => {
                found.unknown = Some(format!(
                    "the nanny cannot read the configuration file {}: {reason}",
                    path.display()
                ));
                continue;
            }
        };

        let text = String::from_utf8_lossy(&octets);
        for given in text.lines().filter_map(parse_line) {
            // Options may be in further files, or in the output of a script.
            match (given.name.as_str(), &given.value) {
                ("conf-file", Some(value)) => waiting.push(PathBuf::from(value)),
                ("conf-dir", Some(value)) => waiting.extend(files_of_conf_dir(value)),
                ("conf-script", _) => {
                    found.unknown = Some(format!("{} has the option conf-script", path.display()));
                }
                _ => {}
            }
            found.given.push(given);
        }
    }

    found
}

/// The octets of a configuration file, or the reason why the file cannot be read.
pub(crate) fn read_file(path: &Path) -> Result<Vec<u8>, String> {
    let metadata = std::fs::metadata(path).map_err(|error| without_number(&error))?;
    if metadata.file_type().is_char_device() {
        // A character device such as /dev/null has no options.
        return Ok(Vec::new());
    }

    if !metadata.is_file() {
        return Err("it is not a regular file".to_owned());
    }
    if metadata.len() > MAX_FILE_SIZE {
        return Err("it is larger than 1 MiB".to_owned());
    }
    std::fs::read(path).map_err(|error| without_number(&error))
}

/// The files that dnsmasq reads for a `conf-dir` value:
/// `directory[,.excluded-suffix|,*.included-suffix...]`.
fn files_of_conf_dir(value: &str) -> Vec<PathBuf> {
    let mut parts = value.split(',');
    let directory = PathBuf::from(parts.next().unwrap_or_default());
    let mut included = Vec::new();
    let mut excluded = Vec::new();
    for filter in parts.filter(|filter| !filter.is_empty()) {
        match filter.strip_prefix('*') {
            Some(suffix) => included.push(suffix),
            None => excluded.push(filter),
        }
    }

    let Ok(entries) = std::fs::read_dir(directory) else {
        // dnsmasq does not start if it cannot read such a directory, and logs the cause itself.
        return Vec::new();
    };
    let mut files = Vec::new();
    for entry in entries.flatten() {
        let path = entry.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_wanted = included.is_empty() || has_suffix(&name, &included);
        if is_wanted && !has_suffix(&name, &excluded) && !is_skipped(&name) && path.is_file() {
            files.push(path);
        }
    }

    files
}

fn has_suffix(name: &str, suffixes: &[&str]) -> bool {
    suffixes.iter().any(|suffix| name.ends_with(suffix))
}

/// Returns whether dnsmasq skips a file of this name, whatever suffixes `conf-dir` gives. dnsmasq
/// skips hidden files and the backups that editors make.
fn is_skipped(name: &str) -> bool {
    let is_autosave = name.starts_with('#') && name.ends_with('#');
    name.starts_with('.') || name.ends_with('~') || is_autosave
}

fn parse_line(line: &str) -> Option<GivenOption> {
    let line = strip_comment(line);
    let (name, value) = match line.split_once('=') {
        Some((name, value)) => (name, Some(value.trim().trim_matches('"').to_owned())),
        None => (line, None),
    };

    let name = name.trim();
    (!name.is_empty()).then(|| GivenOption {
        name: name.to_owned(),
        value,
        on_command_line: false,
    })
}

/// Removes a comment. A comment begins with `#` at the start of the line or after white space, and
/// outside quotation marks. `192.0.2.1#5353` contains no comment.
fn strip_comment(line: &str) -> &str {
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
