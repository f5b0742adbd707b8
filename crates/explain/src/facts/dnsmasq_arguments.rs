//! The options of dnsmasq that matter for a name, parsed from the options that the nanny reports.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use wire::{Name, reverse};

use crate::document::DnsmasqAsks;

/// Options that change the answers of every server, including kubedns.
const ABOUT_ANSWERS: [&str; 2] = ["filter-rr", "max-ttl"];
/// Options that change the addresses in the answers of every server.
const ABOUT_ADDRESSES: [&str; 5] = [
    "bogus-nxdomain",
    "filter-A",
    "filter-AAAA",
    "ignore-address",
    STOP_REBIND,
];
/// Rejects private addresses, except for the domains of [`REBIND_OK`].
const STOP_REBIND: &str = "stop-dns-rebind";
const REBIND_OK: &str = "rebind-domain-ok";
/// dnsmasq answers reverse names of private addresses itself, unless a domain that contains them
/// has servers of its own.
const BOGUS_PRIV: &str = "bogus-priv";
/// Options that give dnsmasq records of its own. The values contain the owner names of the records.
const ABOUT_RECORDS: [&str; 4] = ["cname", HOST_RECORD, "srv-host", "txt-record"];
/// dnsmasq answers queries for addresses of one-label names itself.
const DOMAIN_NEEDED: &str = "domain-needed";
/// Options about the servers of resolv.conf.
const ABOUT_RESOLV_CONF: [&str; 2] = ["no-resolv", "resolv-file"];
/// Addresses for the names of domains: `/DOMAIN/DOMAIN/ADDRESS`. Without an address, dnsmasq
/// answers NXDOMAIN for the names.
const ADDRESS: &str = "address";
/// Addresses for names: `NAME,NAME,ADDRESS`.
const HOST_RECORD: &str = "host-record";
/// The number of names in the cache; with 0, dnsmasq does not cache.
const CACHE_SIZE: &str = "cache-size";
/// In place of a domain, `#` means all names. In place of the server of a domain, `#` means the
/// standard servers: those without a domain, from the options or a resolv.conf. In place of an
/// address, `#` means `0.0.0.0` and `::`.
const STANDARD: &str = "#";

/// The options of one dnsmasq.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct DnsmasqArguments(Vec<DnsmasqOption>);

/// An option under its long name.
#[derive(Debug, Clone, PartialEq, Eq)]
struct DnsmasqOption {
    name: String,
    value: String,
}

/// The options for the longest domain that contains a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DomainOptions {
    pub(crate) domain: Name,
    /// The options as written.
    pub(crate) texts: Vec<String>,
    /// The servers of the domain. dnsmasq queries them if `decision` is
    /// [`DomainDecision::Servers`].
    pub(crate) servers: Vec<String>,
    pub(crate) decision: DomainDecision,
}

/// Addresses with which dnsmasq answers the names of a domain itself. Queries of a type for which
/// no address is given are forwarded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DomainAddresses {
    pub(crate) domain: Name,
    /// The options as written.
    pub(crate) texts: Vec<String>,
    pub(crate) addresses: Vec<IpAddr>,
}

/// The way in which dnsmasq treats the names of a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DomainDecision {
    /// dnsmasq answers NXDOMAIN, whatever servers the domain has (`--address=/DOMAIN/`).
    Denied,
    /// dnsmasq queries the standard servers, see [`STANDARD`] (`--server=/DOMAIN/#`).
    Standard,
    /// dnsmasq queries the servers of the domain. If there are none, dnsmasq answers NXDOMAIN.
    Servers,
}

impl DnsmasqArguments {
    /// Parses options such as `--filter-AAAA` and `--server=/corp.example/10.1.0.5`.
    pub(crate) fn parse(options: &[String]) -> Self {
        let mut parsed = Vec::new();
        for option in options {
            let option = option.trim_start_matches('-');
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            parsed.push(DnsmasqOption {
                name: name.to_owned(),
                value: value.to_owned(),
            });
        }
        Self(parsed)
    }

    /// Whether dnsmasq asks the servers of a resolv.conf.
    pub(crate) fn reads_resolv_conf(&self) -> bool {
        !self.0.iter().any(|option| option.name == "no-resolv")
    }

    /// Whether dnsmasq answers from the hosts file.
    pub(crate) fn reads_hosts(&self) -> bool {
        !self.0.iter().any(|option| option.name == "no-hosts")
    }

    /// Whether dnsmasq caches answers. The last `--cache-size` applies. Without this option,
    /// dnsmasq caches answers.
    pub(crate) fn have_cache(&self) -> bool {
        let mut sizes = self.0.iter().filter(|option| option.name == CACHE_SIZE);
        sizes.next_back().is_none_or(|option| option.value != "0")
    }

    /// Whether dnsmasq caches NXDOMAIN and NODATA, if it [has a cache](Self::have_cache).
    pub(crate) fn cache_negative_answers(&self) -> bool {
        !self.0.iter().any(|option| option.name == "no-negcache")
    }

    /// The servers that are given without a domain.
    pub(crate) fn servers(&self) -> Vec<String> {
        let servers = self.0.iter().filter(|option| option.is_server());
        servers
            .filter(|option| !option.value.starts_with('/'))
            .map(|option| shown_server(&option.value))
            .collect()
    }

    /// The options that set the servers of the longest domain that contains `name` (in lower case),
    /// or that deny this domain (`--address=/DOMAIN/`).
    pub(crate) fn domain_options(&self, name: &Name) -> Option<DomainOptions> {
        let is_about_servers = |option: &DnsmasqOption| {
            option.is_server() || (option.name == ADDRESS && option.addresses().is_empty())
        };
        let (domain, of_domain) = self.of_longest_domain(name, is_about_servers)?;

        let mut options = DomainOptions::new(domain);
        for option in of_domain {
            options.add(option);
        }
        Some(options)
    }

    /// The addresses that `--address` gives for `name` (in lower case). Options without an address
    /// do not count. Of the others, those for the longest domain that contains `name` apply.
    pub(crate) fn domain_addresses(&self, name: &Name) -> Option<DomainAddresses> {
        let has_addresses =
            |option: &DnsmasqOption| option.name == ADDRESS && !option.addresses().is_empty();
        let (domain, of_domain) = self.of_longest_domain(name, has_addresses)?;
        Some(DomainAddresses {
            domain,
            texts: of_domain.iter().map(|option| option.text()).collect(),
            addresses: of_domain
                .iter()
                .flat_map(|option| option.addresses())
                .collect(),
        })
    }

    /// The addresses that `--host-record` gives for `name` (in lower case).
    pub(crate) fn host_addresses(&self, name: &Name) -> Vec<IpAddr> {
        let records = self.0.iter().filter(|option| option.name == HOST_RECORD);
        let of_name = records.filter(|option| option.names_owner(name));
        of_name
            .flat_map(|option| option.value.split(','))
            .filter_map(|field| field.parse().ok())
            .collect()
    }

    /// Returns the longest domain that contains `name`, and the options for this domain. Only
    /// options that `is_wanted` selects are considered.
    fn of_longest_domain(
        &self,
        name: &Name,
        is_wanted: impl Fn(&DnsmasqOption) -> bool,
    ) -> Option<(Name, Vec<&DnsmasqOption>)> {
        let wanted = self.0.iter().filter(|option| is_wanted(option));
        let around: Vec<(Name, &DnsmasqOption)> = wanted
            .filter_map(|option| Some((option.longest_domain(name)?, option)))
            .collect();
        let domains = around.iter().map(|(domain, _)| domain);
        let longest = domains.max_by_key(|domain| domain.label_count())?.clone();

        let of_longest = around.into_iter();
        let of_longest = of_longest.filter(|(domain, _)| *domain == longest);
        let options = of_longest.map(|(_, option)| option).collect();
        Some((longest, options))
    }

    /// The options, as written, that may matter for a `name` outside all domains that have servers
    /// of their own. `--domain-needed` is listed for every such name, although it affects only
    /// names of one label. The options about resolv.conf are not listed if kubedns is the server.
    pub(crate) fn about_forwarded_name(&self, name: &Name, asks: DnsmasqAsks) -> Vec<String> {
        let options = self.0.iter().filter(|option| match option.name.as_str() {
            DOMAIN_NEEDED => true,
            about if ABOUT_RESOLV_CONF.contains(&about) => asks != DnsmasqAsks::Kubedns,
            _ if option.is_server() => !option.value.starts_with('/'),
            _ => self.is_about_answers(option, name),
        });
        options.map(DnsmasqOption::text).collect()
    }

    /// The options, as written, that affect the answers about `name`, whichever servers dnsmasq
    /// queries.
    pub(crate) fn about_answers(&self, name: &Name) -> Vec<String> {
        let options = self.0.iter();
        let options = options.filter(|option| self.is_about_answers(option, name));
        options.map(DnsmasqOption::text).collect()
    }

    fn is_about_answers(&self, option: &DnsmasqOption, name: &Name) -> bool {
        let is_reverse = reverse::is_reverse_name(name);
        match option.name.as_str() {
            CACHE_SIZE => option.value == "0" && !self.have_cache(),
            BOGUS_PRIV => is_private_reverse(name) && self.domain_options(name).is_none(),
            STOP_REBIND if self.may_be_private(name) => false,
            about if ABOUT_ADDRESSES.contains(&about) => !is_reverse,
            about if ABOUT_RECORDS.contains(&about) => option.names_owner(name),
            about => ABOUT_ANSWERS.contains(&about),
        }
    }

    /// Whether an option exempts `name` from `--stop-dns-rebind`, so that `name` may have private
    /// addresses.
    fn may_be_private(&self, name: &Name) -> bool {
        let exceptions = self.0.iter().filter(|option| option.name == REBIND_OK);
        let mut domains = exceptions.flat_map(|option| option.value.split('/'));
        domains.any(|domain| !domain.is_empty() && is_around(domain, name))
    }
}

/// Whether `name` (in lower case) is `domain`, or below it.
fn is_around(domain: &str, name: &Name) -> bool {
    Name::parse(domain).is_ok_and(|domain| name.is_within(&domain.to_lowercase()))
}

fn is_private_reverse(name: &Name) -> bool {
    let zones = reverse::private_reverse_zones();
    zones.iter().any(|zone| is_around(zone, name))
}

impl DomainOptions {
    fn new(domain: Name) -> Self {
        Self {
            domain,
            texts: Vec::new(),
            servers: Vec::new(),
            decision: DomainDecision::Servers,
        }
    }

    fn add(&mut self, option: &DnsmasqOption) {
        self.texts.push(option.text());
        let (_, address) = option.value.rsplit_once('/').unwrap_or_default();
        if !option.is_server() {
            self.decision = DomainDecision::Denied;
        } else if address == STANDARD && self.decision == DomainDecision::Servers {
            self.decision = DomainDecision::Standard;
        } else if address != STANDARD && !address.is_empty() {
            self.servers.push(shown_server(address));
        }
    }
}

/// Converts a server from dnsmasq's notation, `IP#PORT@SOURCE`, to the notation of the ConfigMap.
fn shown_server(server: &str) -> String {
    let (server, _source) = server.split_once('@').unwrap_or((server, ""));
    match server.split_once('#') {
        Some((ip, port)) if ip.contains(':') => format!("[{ip}]:{port}"),
        Some((ip, port)) => format!("{ip}:{port}"),
        None => server.to_owned(),
    }
}

impl DnsmasqOption {
    fn is_server(&self) -> bool {
        matches!(self.name.as_str(), "local" | "server")
    }

    /// The addresses after the domains of `--address`.
    fn addresses(&self) -> Vec<IpAddr> {
        match self.value.rsplit_once('/') {
            Some((_, STANDARD)) => vec![Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()],
            Some((_, address)) => address.parse().into_iter().collect(),
            None => Vec::new(),
        }
    }

    /// Whether one of the comma-separated fields of the value is `name` (in lower case).
    fn names_owner(&self, name: &Name) -> bool {
        let owners = self.value.split(',').map(Name::parse);
        owners.flatten().any(|owner| owner.to_lowercase() == *name)
    }

    fn text(&self) -> String {
        if self.value.is_empty() {
            format!("--{}", self.name)
        } else {
            format!("--{}={}", self.name, self.value)
        }
    }

    /// The longest domain that contains `name` (in lower case), in a value such as
    /// `/DOMAIN/DOMAIN/ADDRESS`.
    fn longest_domain(&self, name: &Name) -> Option<Name> {
        let (domains, _) = self.value.strip_prefix('/')?.rsplit_once('/')?;
        let domains = domains.split('/').filter_map(|domain| match domain {
            STANDARD => Some(Name::default()),
            // The empty domain means names of one label. Options for such names are ignored.
            "" => None,
            domain => Name::parse(domain).ok(),
        });
        let domains = domains.map(|domain| domain.to_lowercase());
        let around = domains.filter(|domain| name.is_within(domain));
        around.max_by_key(Name::label_count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(options: &[&str]) -> DnsmasqArguments {
        let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
        DnsmasqArguments::parse(&options)
    }

    #[test]
    fn options_about_forwarded_names_are_listed() {
        let given = arguments(&[
            "--cache-size=1000",
            "--no-resolv",
            "--server=10.0.0.2",
            "--server=/corp.example/10.1.0.5",
            "--filter-AAAA",
            "--log-facility=-",
            "--cache-size=0",
        ]);
        let expected = [
            "--no-resolv",
            "--server=10.0.0.2",
            "--filter-AAAA",
            "--cache-size=0",
        ];
        let name = Name::parse("www.test.").unwrap();
        let about = given.about_forwarded_name(&name, DnsmasqAsks::Arguments);
        assert_eq!(about, expected);
        let about = given.about_forwarded_name(&name, DnsmasqAsks::Kubedns);
        assert_eq!(about, expected[1..]);
        assert_eq!(
            given.about_answers(&name),
            ["--filter-AAAA", "--cache-size=0"]
        );
        assert_eq!(given.servers(), ["10.0.0.2"]);
        assert!(!given.reads_resolv_conf());
        assert!(arguments(&["--cache-size=0"]).reads_resolv_conf());
    }

    #[test]
    fn longest_domain_decides() {
        use DomainDecision::{Denied, Servers, Standard};
        let given = arguments(&[
            "--server=/example/10.0.0.1#5353",
            "--address=/ads.example/b.example/",
            "--local=/Local.example/",
            "--server=/two.example/2001:db8::1#53@eth0",
            "--server=/two.example/10.0.0.2",
            "--server=/up.two.example/#",
            "--address=/both.example/192.0.2.1",
            "--server=/both.example/10.0.0.3",
            "--server=//10.0.0.4",
        ]);
        for (name, expected) in [
            ("www.example.", Some((Servers, "example. 10.0.0.1:5353"))),
            ("x.ads.example.", Some((Denied, "ads.example."))),
            ("b.example.", Some((Denied, "b.example."))),
            ("a.local.example.", Some((Servers, "local.example."))),
            (
                "www.two.example.",
                Some((Servers, "two.example. [2001:db8::1]:53 10.0.0.2")),
            ),
            ("www.up.two.example.", Some((Standard, "up.two.example."))),
            ("both.example.", Some((Servers, "both.example. 10.0.0.3"))),
            ("www.test.", None),
        ] {
            let found = given.domain_options(&Name::parse(name).unwrap());
            let found = found.map(|options| {
                let words = [vec![options.domain.to_string()], options.servers].concat();
                (options.decision, words.join(" "))
            });
            let expected = expected.map(|(decision, words)| (decision, words.to_owned()));
            assert_eq!(found, expected, "{name}");
        }
    }

    #[test]
    fn addresses_come_from_longest_domain() {
        let given = arguments(&[
            "--address=/#/192.0.2.1",
            "--address=/ads.test/192.0.2.2",
            "--address=/ads.test/2001:db8::2",
            "--address=/null.test/#",
            "--address=/gone.test/",
            "--host-record=web.test,www.web.test,192.0.2.7,3600",
        ]);
        for (name, domain, addresses) in [
            ("a.ads.test.", "ads.test.", "192.0.2.2 2001:db8::2"),
            ("null.test.", "null.test.", "0.0.0.0 ::"),
            ("a.gone.test.", ".", "192.0.2.1"),
            ("www.test.", ".", "192.0.2.1"),
        ] {
            let found = given.domain_addresses(&Name::parse(name).unwrap()).unwrap();
            let shown: Vec<String> = found.addresses.iter().map(ToString::to_string).collect();
            let found = (found.domain.to_string(), shown.join(" "));
            assert_eq!(found, (domain.to_owned(), addresses.to_owned()), "{name}");
        }

        let host = |name| given.host_addresses(&Name::parse(name).unwrap());
        assert_eq!(host("www.web.test."), [IpAddr::from([192, 0, 2, 7])]);
        assert!(host("www.test.").is_empty());
    }

    /// Each row has options, a name, and whether the first option matters for the name.
    #[test]
    fn only_options_that_matter_for_name_are_listed() {
        let reverse = "1.2.3.10.in-addr.arpa.";
        for (options, name, matter) in [
            (&["--filter-AAAA"][..], "www.test.", true),
            (&["--filter-AAAA"], reverse, false),
            (&["--filter-rr=PTR"], reverse, true),
            (&["--stop-dns-rebind"], "www.test.", true),
            (&["--stop-dns-rebind"], reverse, false),
            (
                &["--stop-dns-rebind", "--rebind-domain-ok=/ok.test/vpn.test/"],
                "www.vpn.test.",
                false,
            ),
            (&["--bogus-priv"], reverse, true),
            (&["--bogus-priv"], "8.8.8.8.in-addr.arpa.", false),
            (&["--bogus-priv"], "www.test.", false),
            (
                &["--bogus-priv", "--server=/in-addr.arpa/127.0.0.1#10053"],
                reverse,
                false,
            ),
            (&["--host-record=Web.test,192.0.2.1"], "web.test.", true),
            (&["--host-record=web.test,192.0.2.1"], "www.test.", false),
        ] {
            let name = Name::parse(name).unwrap();
            let about = arguments(options).about_answers(&name);
            let expected = &options[..usize::from(matter)];
            assert_eq!(about, expected, "{options:?} {name}");
        }
    }
}
