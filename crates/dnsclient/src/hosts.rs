//! Names and addresses in `/etc/hosts`, such as the `hostAliases` of a pod.

use std::net::IpAddr;
use std::path::Path;

/// The hosts file.
pub const FILE: &str = "/etc/hosts";
/// Largest file that is read, in octets.
const MAX_FILE: u64 = 1 << 20;

/// The addresses of a name in a hosts(5) file; empty if the file cannot be read or is larger than
/// 1 MiB.
pub fn lookup_addresses(path: &Path, name: &str) -> Vec<IpAddr> {
    addresses_in(&read_file(path), name)
}

/// The names of an address in a hosts(5) file, the canonical name first; empty if the file cannot
/// be read or is larger than 1 MiB.
pub fn lookup_names(path: &Path, address: IpAddr) -> Vec<String> {
    let text = read_file(path);
    let mut found = Vec::new();
    // An address may be in several lines. The first name in the first line is the canonical name.
    for (listed, names) in entries(&text) {
        if listed == address {
            found.extend(names.map(str::to_owned));
        }
    }
    found
}

/// The text of a regular file of at most [`MAX_FILE`] octets; otherwise empty.
fn read_file(path: &Path) -> String {
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_file() && metadata.len() <= MAX_FILE => {
            String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
        }
        _ => String::new(),
    }
}

/// The address and the names in each line. Lines without a valid address are left out.
fn entries(text: &str) -> impl Iterator<Item = (IpAddr, impl Iterator<Item = &str>)> {
    dnsconfig::hosts::lines(text)
        .filter_map(|(_, address, names)| Some((address.parse().ok()?, names)))
}

/// The addresses of a name, each once, in the order of the lines.
fn addresses_in(text: &str, wanted: &str) -> Vec<IpAddr> {
    let mut found: Vec<IpAddr> = Vec::new();
    for (address, mut names) in entries(text) {
        // The case of letters does not matter in DNS names (RFC 4343).
        if names.any(|name| name.eq_ignore_ascii_case(wanted)) && !found.contains(&address) {
            found.push(address);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_file_maps_names_to_addresses_and_back() {
        let text = "127.0.0.1 localhost\n192.0.2.1\tns.example NS2 # ns3.example\n2001:db8::1 ns.example\nx ns.example\n";
        assert_eq!(
            joined_addresses(text, "ns.example"),
            "192.0.2.1 2001:db8::1"
        );
        assert_eq!(joined_addresses(text, "ns2"), "192.0.2.1");
        assert_eq!(joined_addresses(text, "ns3.example"), "");
        assert!(lookup_addresses(Path::new("/no/such/file"), "localhost").is_empty());

        let address: IpAddr = "192.0.2.1".parse().unwrap();
        let names = entries(text).find(|(listed, _)| *listed == address);
        let names: Vec<_> = names.unwrap().1.collect();
        assert_eq!(names, ["ns.example", "NS2"]);
    }

    fn joined_addresses(text: &str, name: &str) -> String {
        let addresses = addresses_in(text, name);
        let texts: Vec<_> = addresses.iter().map(ToString::to_string).collect();
        texts.join(" ")
    }
}
