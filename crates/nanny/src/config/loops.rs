//! Upstream servers that are dnsmasq itself.
//!
//! A node's resolv.conf may name 127.0.0.53 (systemd-resolved). If dnsmasq listens on all addresses
//! of the pod, port 53 of this address is dnsmasq itself. A query forwarded to this address would
//! loop until dnsmasq reaches its limit of concurrent queries. The listen addresses of dnsmasq
//! identify such servers. [`loop_finder`](crate::dnsmasq::loop_finder) detects loops through other
//! servers.

use std::collections::BTreeSet;
use std::net::IpAddr;

use wire::Nameserver;

use crate::config::arguments::{DnsmasqArguments, LOOPBACK};

/// The addresses at which dnsmasq answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenAddresses {
    port: u16,
    addresses: BTreeSet<IpAddr>,
    /// Whether dnsmasq listens on every loopback address, also on those that no interface has.
    every_loopback: bool,
}

impl ListenAddresses {
    /// Determines the addresses from dnsmasq's arguments. The addresses of `--listen-address` are
    /// always included. With `--interface`, the addresses of the given interfaces and of loopback
    /// are added. Without `--interface`, all addresses of the machine are added if
    /// `--listen-address` is missing or gives an unspecified address such as `0.0.0.0`. Interfaces
    /// of `--except-interface` add no addresses, unless `--listen-address` gives an unspecified
    /// address.
    pub fn from_arguments(arguments: &DnsmasqArguments) -> Self {
        let mut addresses: BTreeSet<IpAddr> = arguments.listen_addresses().into_iter().collect();
        let has_interfaces = arguments.has_option("interface");
        let on_all_interfaces = !has_interfaces
            && (addresses.is_empty() || addresses.iter().any(IpAddr::is_unspecified));

        for own in own_addresses() {
            // With `--interface`, dnsmasq adds loopback.
            let is_chosen = has_interfaces
                && (own.ip.is_loopback() || arguments.names_interface(&own.interface));
            let is_excepted = arguments.excepts_interface(&own.interface);
            if (on_all_interfaces || is_chosen) && !is_excepted {
                addresses.insert(own.ip);
            }
        }

        Self {
            port: arguments.port(),
            addresses,
            every_loopback: on_all_interfaces && !arguments.excepts_interface(LOOPBACK),
        }
    }

    /// Returns whether a query sent to `server` comes back to dnsmasq.
    pub fn contains(&self, server: Nameserver) -> bool {
        if server.port != self.port || self.port == 0 {
            return false;
        }

        let ip = server.ip.to_canonical();
        // A query to the unspecified address reaches this machine, like a query to loopback.
        self.addresses.contains(&ip)
            || (self.every_loopback && (ip.is_loopback() || ip.is_unspecified()))
    }
}

/// An address of this machine.
struct InterfaceAddress {
    interface: String,
    ip: IpAddr,
}

fn own_addresses() -> Vec<InterfaceAddress> {
    let Ok(interfaces) = nix::ifaddrs::getifaddrs() else {
        return Vec::new();
    };

    let mut addresses = Vec::new();
    for interface in interfaces {
        let Some(address) = interface.address else {
            continue;
        };
        let v4 = address.as_sockaddr_in().map(|v4| IpAddr::from(v4.ip()));
        let v6 = address.as_sockaddr_in6().map(|v6| IpAddr::from(v6.ip()));
        // Other families, such as packet sockets, have no IP address.
        if let Some(ip) = v4.or(v6) {
            addresses.push(InterfaceAddress {
                interface: interface.interface_name,
                ip,
            });
        }
    }

    addresses
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listening(line: &str) -> ListenAddresses {
        ListenAddresses::from_arguments(&DnsmasqArguments::from_words(
            line.split_whitespace().map(Into::into).collect(),
        ))
    }

    #[test]
    fn only_servers_that_lead_to_dnsmasq_are_contained() {
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
            ("-I lo", "127.0.0.53", false),
            ("-I lo", "127.0.0.1", false),
            ("--except-interface=eth0,l*", "127.0.0.53", false),
            ("-a 0.0.0.0 -I lo", "127.0.0.53", true),
            ("-i nosuch0 -I lo", "127.0.0.1", false),
            ("-I lo -a 127.0.0.1", "127.0.0.1", true),
            ("-I nosuch0", "127.0.0.53", true),
        ] {
            assert_eq!(
                listening(line).contains(server.parse().unwrap()),
                expected,
                "{line}: {server}"
            );
        }
    }

    #[test]
    fn machine_addresses_are_listened_on() {
        let addresses: Vec<IpAddr> = own_addresses().into_iter().map(|own| own.ip).collect();
        assert!(
            addresses.contains(&IpAddr::from([127, 0, 0, 1])),
            "{addresses:?}"
        );
        let listening = listening("-k");
        assert!(
            addresses
                .into_iter()
                .all(|ip| listening.contains(ip.into()))
        );
    }
}
