//! The upstream servers a resolv.conf(5) file names. Its other keywords mean nothing to a forwarder.

use std::net::IpAddr;

use crate::server::Nameserver;

/// The largest file read, in octets; what is behind it is not looked at.
pub const MAX_FILE: usize = 64 << 10;
/// The most servers taken from one file.
pub const MAX_NAMESERVERS: usize = 32;

/// The `nameserver` lines of `text` in their order, without repetitions; lines that are no address are left out.
///
/// A scope (`fe80::1%eth0`) is not supported: such a server is left out.
pub fn parse(text: &str) -> Vec<Nameserver> {
    let mut servers: Vec<Nameserver> = Vec::new();
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        if words.next() != Some("nameserver") {
            continue;
        }
        let Some(Ok(ip)) = words.next().map(str::parse::<IpAddr>) else {
            continue;
        };
        if !servers.contains(&ip.into()) {
            servers.push(ip.into());
        }
        if servers.len() == MAX_NAMESERVERS {
            break;
        }
    }
    servers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nameserver_lines_only() {
        let text = "# nameserver 192.0.2.9\nsearch a.example\nnameserver 192.0.2.1\n nameserver\t2001:db8::1 # x\n\
                    nameserver 192.0.2.1\nnameserver dns.example\nnameserver\nnameserverx 192.0.2.2\r\n\
                    nameserver fe80::1%eth0\noptions ndots:5\nnameserver 192.0.2.3";
        let servers: Vec<String> = parse(text).iter().map(ToString::to_string).collect();
        assert_eq!(servers, ["192.0.2.1:53", "[2001:db8::1]:53", "192.0.2.3:53"]);
        assert_eq!(parse(""), []);
    }

    #[test]
    fn number_is_bounded() {
        use std::fmt::Write;
        let mut text = String::new();
        for i in 0..100 {
            let _ = writeln!(text, "nameserver 192.0.2.{i}");
        }
        assert_eq!(parse(&text).len(), MAX_NAMESERVERS);
    }
}
