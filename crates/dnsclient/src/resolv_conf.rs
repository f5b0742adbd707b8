//! A resolv.conf(5) file: the upstream servers of a forwarder, and the search list.

mod follower;

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use wire::{DNS_PORT, Nameserver};

pub use self::follower::{EmptiedFile, ResolvConfFollower};

/// Maximum number of octets that are read. The rest of the file is ignored.
const MAX_FILE: u64 = 64 << 10;
/// Maximum number of servers. Further servers are ignored.
const MAX_NAMESERVERS: usize = 32;
/// Maximum number of search domains. Further domains are ignored.
const MAX_SEARCH: usize = 32;
/// Maximum value of `options ndots`.
const MAX_NDOTS: usize = 15;

/// A resolv.conf file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvConf {
    /// The servers of the `nameserver` lines, in order and without duplicates. Invalid addresses
    /// and link-local addresses (`fe80::1%eth0`) of a missing interface are ignored.
    pub nameservers: Vec<Nameserver>,
    /// The search list: the last `search` or `domain` line, without trailing dots.
    pub search: Vec<String>,
    /// A name with at least this number of dots is first looked up as an absolute name, before the
    /// search list is applied.
    pub ndots: usize,
}

impl Default for ResolvConf {
    fn default() -> Self {
        Self {
            nameservers: Vec::new(),
            search: Vec::new(),
            ndots: 1,
        }
    }
}

impl ResolvConf {
    /// Reads a file.
    pub fn read(path: &Path) -> io::Result<Self> {
        let mut octets = Vec::new();
        File::open(path)?.take(MAX_FILE).read_to_end(&mut octets)?;
        Ok(Self::parse(&String::from_utf8_lossy(&octets)))
    }

    /// Parses the text of a file. Invalid lines are ignored, as in other resolvers.
    pub fn parse(text: &str) -> Self {
        let mut file = Self::default();
        for line in text.lines() {
            let mut words = line.split_ascii_whitespace();
            match words.next() {
                Some("nameserver") => file.add_nameserver(words.next()),
                // The last `search` or `domain` line wins (resolv.conf(5)).
                Some("search") => file.set_search(words.take(MAX_SEARCH)),
                Some("domain") => file.set_search(words.take(1)),
                Some("options") => words.for_each(|option| file.add_option(option)),
                _ => {}
            }
        }
        file
    }

    fn add_nameserver(&mut self, word: Option<&str>) {
        let Some(server) = word.and_then(|word| Nameserver::with_interface(word, DNS_PORT)) else {
            return;
        };
        if self.nameservers.len() < MAX_NAMESERVERS && !self.nameservers.contains(&server) {
            self.nameservers.push(server);
        }
    }

    fn set_search<'a>(&mut self, domains: impl Iterator<Item = &'a str>) {
        let domains = domains.map(|domain| domain.trim_end_matches('.').to_owned());
        self.search = domains.filter(|domain| !domain.is_empty()).collect();
    }

    fn add_option(&mut self, option: &str) {
        if let Some(Ok(ndots)) = option.strip_prefix("ndots:").map(str::parse::<usize>) {
            self.ndots = ndots.min(MAX_NDOTS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Vec<Nameserver> {
        ResolvConf::parse(text).nameservers
    }

    #[test]
    fn nameserver_lines_are_parsed() {
        let text = "# nameserver 192.0.2.9\nsearch a.example\nnameserver 192.0.2.1\n nameserver\t2001:db8::1 # x\n\
                    nameserver 192.0.2.1\nnameserver dns.example\nnameserver\nnameserverx 192.0.2.2\r\n\
                    nameserver fe80::1%nosuch0\noptions ndots:5\nnameserver 192.0.2.3";
        let servers: Vec<String> = parse(text).iter().map(ToString::to_string).collect();
        assert_eq!(
            servers,
            ["192.0.2.1:53", "[2001:db8::1]:53", "192.0.2.3:53"]
        );
        assert_eq!(parse(""), []);
    }

    #[test]
    fn link_local_server_keeps_interface() {
        let text = "nameserver fe80::1%lo\nnameserver fe80::1%1\nnameserver fe80::2\nnameserver fe80::3%nosuch0\n\
                    nameserver 192.0.2.1%lo\nnameserver fe80::4%\nnameserver fe80::5%0\nnameserver fe80::6%2147483647\n";
        let servers: Vec<String> = parse(text).iter().map(ToString::to_string).collect();
        assert_eq!(servers, ["[fe80::1%1]:53", "[fe80::2]:53"]);
    }

    #[test]
    fn search_and_ndots_are_parsed() {
        let file = ResolvConf::parse(
            "domain a.example\nsearch b.example. c.example .\noptions timeout:1 ndots:5\n",
        );
        assert_eq!(file.search, ["b.example", "c.example"]);
        assert_eq!(file.ndots, 5);
        assert_eq!(ResolvConf::parse("options ndots:x ndots:99").ndots, 15);
        assert_eq!(ResolvConf::parse("").ndots, 1);
    }

    #[test]
    fn large_file_is_truncated() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let first = "nameserver 192.0.2.1\n";
        std::fs::write(
            file.path(),
            format!("{first}{}\nnameserver 192.0.2.2\n", "#".repeat(64 << 10)),
        )
        .unwrap();
        assert_eq!(
            ResolvConf::read(file.path()).unwrap(),
            ResolvConf::parse(first)
        );
    }

    #[test]
    fn nameserver_count_is_bounded() {
        use std::fmt::Write;
        let mut text = String::new();
        for i in 0..100 {
            let _ = writeln!(text, "nameserver 192.0.2.{i}");
        }
        assert_eq!(parse(&text).len(), MAX_NAMESERVERS);
    }
}
