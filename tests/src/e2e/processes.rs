//! Which processes run, from `/proc`: to see that none is left behind.

use std::fs;

/// A process ID.
pub type Pid = u32;

/// Whether the process runs. One that ended and was not yet waited for (a zombie) does not.
pub fn is_running(pid: Pid) -> bool {
    stat(pid).is_some_and(|(_, state)| !matches!(state, 'Z' | 'X'))
}

/// The process and everything below it.
pub fn descendants(pid: Pid) -> Vec<Pid> {
    let parents: Vec<(Pid, Pid)> =
        all().into_iter().filter_map(|child| Some((child, stat(child)?.0))).collect();
    let mut found = vec![pid];
    let mut at = 0;
    while let Some(&parent) = found.get(at) {
        found.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(child, _)| *child));
        at += 1;
    }
    found
}

fn all() -> Vec<Pid> {
    let entries = fs::read_dir("/proc").expect("/proc is there").flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Parent and state, from `/proc/<pid>/stat`; the name in parentheses may hold anything.
fn stat(pid: Pid) -> Option<(Pid, char)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = text.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?.chars().next()?;
    Some((fields.next()?.parse().ok()?, state))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_child_is_found_until_it_ends() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let me = std::process::id();
        assert!(descendants(me).contains(&child.id()));
        assert!(is_running(child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!is_running(child.id()));
        assert!(!descendants(me).contains(&child.id()));
    }
}
