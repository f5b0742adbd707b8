//! Upstream servers that are dnsmasq itself.
//!
//! A node's resolv.conf may name 127.0.0.53 (systemd-resolved). Inside the pod, port 53 of this
//! address is dnsmasq itself. Every query would loop until dnsmasq reaches its limit of concurrent
//! queries. The listen addresses of dnsmasq identify such servers. `--dns-loop-detect`, which the
//! nanny adds, finds loops through other servers.

use std::collections::BTreeSet;
use std::net::IpAddr;

use wire::Nameserver;

use crate::config::arguments::Arguments;

/// The addresses at which dnsmasq answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listening {
    port: u16,
    addresses: BTreeSet<IpAddr>,
    /// dnsmasq listens on the unspecified address, and therefore on every loopback address.
    unspecified: bool,
}

impl Listening {
    /// Reads the addresses from dnsmasq's arguments. With `--interface`, the addresses of these
    /// interfaces and loopback are added. Without `--interface`, all addresses of the machine are
    /// added if no address or the unspecified address is given.
    pub fn of(arguments: &Arguments) -> Self {
        let mut addresses: BTreeSet<IpAddr> = arguments.listen_addresses().into_iter().collect();
        let interfaces = arguments.all("interface");
        let unspecified = interfaces.is_empty()
            && (addresses.is_empty() || addresses.iter().any(IpAddr::is_unspecified));
        for (interface, address) in own_addresses() {
            // With `--interface`, dnsmasq adds loopback.
            let chosen = !interfaces.is_empty()
                && (address.is_loopback() || interfaces.iter().any(|list| names(list, &interface)));
            if unspecified || chosen {
                addresses.insert(address);
            }
        }
        Self {
            port: arguments.port(),
            addresses,
            unspecified,
        }
    }

    /// Returns whether a query sent to `server` comes back to dnsmasq.
    pub fn includes(&self, server: Nameserver) -> bool {
        if server.port != self.port || self.port == 0 {
            return false;
        }
        let ip = server.ip.to_canonical();
        // A query to the unspecified address reaches this machine, like a query to loopback.
        self.addresses.contains(&ip)
            || (self.unspecified && (ip.is_loopback() || ip.is_unspecified()))
    }
}

/// Returns whether a list such as `eth0,wlan*` contains an interface.
fn names(list: &str, interface: &str) -> bool {
    list.split(',')
        .map(str::trim)
        .any(|pattern| match pattern.strip_suffix('*') {
            Some(beginning) => interface.starts_with(beginning),
            None => interface == pattern,
        })
}

/// The addresses of this machine with their interfaces.
fn own_addresses() -> Vec<(String, IpAddr)> {
    let Ok(interfaces) = nix::ifaddrs::getifaddrs() else {
        return Vec::new();
    };
    let addresses = interfaces.filter_map(|interface| {
        let address = interface.address?;
        let v4 = address
            .as_sockaddr_in()
            .map(|address| IpAddr::from(address.ip()));
        let ip = v4.or_else(|| {
            address
                .as_sockaddr_in6()
                .map(|address| IpAddr::from(address.ip()))
        })?;
        Some((interface.interface_name, ip))
    });
    addresses.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listening(line: &str) -> Listening {
        Listening::of(&Arguments::from_words(
            line.split_whitespace().map(Into::into).collect(),
        ))
    }

    #[test]
    fn own_ports_are_loops_and_others_are_not() {
        for (line, server, expected) in [
            ("-k", "127.0.0.53", true),
            ("-k", "127.0.0.1", true),
            ("-k", "0.0.0.0", true),
            ("-k", "[::1]:53", true),
            ("-k", "[::ffff:127.0.0.53]:53", true),
            ("-k", "127.0.0.1:10053", false),
            ("-k", "192.0.2.1", false),
            ("-p 5353", "127.0.0.53", false),
            ("-p 5353", "127.0.0.53:5353", true),
            ("-a 127.0.0.1", "127.0.0.53", false),
            ("-a 127.0.0.1", "127.0.0.1", true),
            ("-a 192.0.2.1", "127.0.0.1", false),
            ("-p 0", "127.0.0.1", false),
            ("-i nosuch0", "127.0.0.1", true),
            ("-i nosuch0", "127.0.0.53", false),
            ("-i lo", "127.0.0.1", true),
            ("-i l*", "192.0.2.1", false),
        ] {
            assert_eq!(
                listening(line).includes(server.parse().unwrap()),
                expected,
                "{line}: {server}"
            );
        }
    }

    #[test]
    fn addresses_of_the_machine_are_own_ones() {
        let addresses: Vec<IpAddr> = own_addresses().into_iter().map(|(_, ip)| ip).collect();
        assert!(
            addresses.contains(&IpAddr::from([127, 0, 0, 1])),
            "{addresses:?}"
        );
        let listening = listening("-k");
        assert!(
            addresses
                .into_iter()
                .all(|ip| listening.includes(ip.into()))
        );
    }
}
