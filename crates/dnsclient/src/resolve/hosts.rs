//! `/etc/hosts`: what a pod's `hostAliases` end up in.

use std::net::IpAddr;
use std::path::Path;

/// The largest file looked at, in octets.
const MAX_FILE: u64 = 1 << 20;

/// The addresses a hosts(5) file gives a name; none when it cannot be read.
pub(super) fn addresses(path: &Path, name: &str) -> Vec<IpAddr> {
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_file() && metadata.len() <= MAX_FILE => {}
        _ => return Vec::new(),
    }
    let text = std::fs::read(path).unwrap_or_default();
    parse(&String::from_utf8_lossy(&text), name)
}

fn parse(text: &str, wanted: &str) -> Vec<IpAddr> {
    let mut found: Vec<IpAddr> = Vec::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_ascii_whitespace();
        let Some(Ok(address)) = words.next().map(str::parse) else {
            continue;
        };
        if words.any(|name| name.eq_ignore_ascii_case(wanted)) && !found.contains(&address) {
            found.push(address);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_addresses_of_a_name() {
        let text = "127.0.0.1 localhost\n192.0.2.1\tns.example NS2 # ns3.example\n2001:db8::1 ns.example\nx ns.example\n";
        let found = |name| parse(text, name).iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        assert_eq!(found("ns.example"), "192.0.2.1 2001:db8::1");
        assert_eq!(found("ns2"), "192.0.2.1");
        assert_eq!(found("ns3.example"), "");
        assert!(addresses(Path::new("/no/such/file"), "localhost").is_empty());
    }
}
