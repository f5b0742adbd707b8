//! dnsmasq's options: their letters, and whether they need a value (dnsmasq 2.90; older releases
//! have fewer options).

/// One of dnsmasq's options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OptionSpec {
    pub(super) name: &'static str,
    /// Whether this form of the option (the long name or the letter) needs a value: the rest of its
    /// word, or the next word. For some options, the letter needs a value, but the long name does
    /// not.
    pub(super) takes_value: bool,
}

/// The option with this name, or the only option with this prefix.
pub(super) fn find_long(name: &str) -> Option<OptionSpec> {
    if let Some(exact) = long_options().find(|option| option.name == name) {
        return Some(exact);
    }

    let mut beginning = long_options().filter(|option| option.name.starts_with(name));
    let first = beginning.next()?;
    let is_only = beginning.next().is_none();
    is_only.then_some(first)
}

fn long_options() -> impl Iterator<Item = OptionSpec> {
    let without_value = WITHOUT_VALUE.iter().map(|name| OptionSpec {
        name,
        takes_value: false,
    });
    let with_value = VALUE.iter().map(|name| OptionSpec {
        name,
        takes_value: true,
    });
    without_value.chain(with_value)
}

/// The option with this letter.
pub(super) fn find_short(letter: char) -> Option<OptionSpec> {
    if let Some(name) = name_of_letter(LETTERS_ALONE, letter) {
        return Some(OptionSpec {
            name,
            takes_value: false,
        });
    }
    let name = name_of_letter(LETTERS_WITH_VALUE, letter)?;
    Some(OptionSpec {
        name,
        takes_value: true,
    })
}

fn name_of_letter(options: &[(char, &'static str)], letter: char) -> Option<&'static str> {
    let found = options.iter().find(|(known, _)| *known == letter)?;
    Some(found.1)
}

/// Long options without a value, then long options with an optional value after `=`.
#[rustfmt::skip]
const WITHOUT_VALUE: &[&str] = &[
    "all-servers", "bind-dynamic", "bind-interfaces", "bogus-priv", "clear-on-reload", "conntrack",
    "dhcp-authoritative", "dhcp-client-update", "dhcp-fqdn", "dhcp-ignore-clid", "dhcp-no-override",
    "dhcp-rapid-commit", "dhcp-sequential-ip", "dns-loop-detect", "dnssec", "dnssec-check-unsigned",
    "dnssec-debug", "dnssec-no-timecheck", "domain-needed", "enable-ra", "expand-hosts", "filter-A",
    "filter-AAAA", "filterwin2k", "help", "keep-in-foreground", "leasefile-ro", "localise-queries",
    "localmx", "log-debug", "log-dhcp", "no-daemon", "no-hosts", "no-ident", "no-negcache", "no-ping",
    "no-poll", "no-resolv", "no-round-robin", "proxy-dnssec", "quiet-dhcp", "quiet-dhcp6", "quiet-ra",
    "quiet-tftp", "read-ethers", "rebind-localhost-ok", "script-arp", "script-on-renewal", "selfmx",
    "stop-dns-rebind", "strict-order", "strip-mac", "strip-subnet", "test", "tftp-lowercase",
    "tftp-no-blocksize", "tftp-no-fail", "tftp-secure", "tftp-single-port", "version",

    "add-mac", "add-subnet", "bootp-dynamic", "conf-file", "connmark-allowlist-enable",
    "dhcp-alternate-port", "dhcp-broadcast", "dhcp-generate-names", "dhcp-ignore-names", "dhcp-leasefile",
    "dhcp-proxy", "enable-dbus", "enable-tftp", "enable-ubus", "fast-dns-retry", "group", "local-service",
    "log-async", "log-queries", "pid-file", "resolv-file", "tftp-unique-root", "umbrella", "use-stale-cache",
    "user",
];

/// Long options that need a value.
#[rustfmt::skip]
const VALUE: &[&str] = &[
    "add-cpe-id", "addn-hosts", "address", "alias", "auth-peer", "auth-sec-servers", "auth-server",
    "auth-soa", "auth-ttl", "auth-zone", "bogus-nxdomain", "bridge-interface", "caa-record", "cache-rr",
    "cache-size", "cname", "conf-dir", "conf-script", "connmark-allowlist", "dhcp-boot", "dhcp-circuitid",
    "dhcp-duid", "dhcp-host", "dhcp-hostsdir", "dhcp-hostsfile", "dhcp-ignore", "dhcp-lease-max",
    "dhcp-luascript", "dhcp-mac", "dhcp-match", "dhcp-name-match", "dhcp-option", "dhcp-option-force",
    "dhcp-optsdir", "dhcp-optsfile", "dhcp-pxe-vendor", "dhcp-range", "dhcp-relay", "dhcp-remoteid",
    "dhcp-reply-delay", "dhcp-script", "dhcp-scriptuser", "dhcp-subscrid", "dhcp-ttl", "dhcp-userclass",
    "dhcp-vendorclass", "dns-forward-max", "dns-rr", "dnssec-limits", "dnssec-timestamp", "domain",
    "dumpfile", "dumpmask", "dynamic-host", "edns-packet-max", "except-interface", "filter-rr",
    "host-record", "hostsdir", "ignore-address", "interface", "interface-name", "ipset", "listen-address",
    "local", "local-ttl", "log-facility", "max-cache-ttl", "max-port", "max-tcp-connections", "max-ttl",
    "min-cache-ttl", "min-port", "mx-host", "mx-target", "naptr-record", "neg-ttl", "nftset",
    "no-dhcp-interface", "no-dhcpv4-interface", "no-dhcpv6-interface", "port", "port-limit", "ptr-record",
    "pxe-prompt", "pxe-service", "query-port", "ra-param", "rebind-domain-ok", "rev-server", "server",
    "servers-file", "shared-network", "srv-host", "synth-domain", "tag-if", "tftp-max", "tftp-mtu",
    "tftp-port-range", "tftp-root", "trust-anchor", "txt-record",
];

/// Letters that take no value.
#[rustfmt::skip]
const LETTERS_ALONE: &[(char, &str)] = &[
    ('z', "bind-interfaces"), ('b', "bogus-priv"), ('K', "dhcp-authoritative"), ('D', "domain-needed"),
    ('1', "enable-dbus"), ('E', "expand-hosts"), ('f', "filterwin2k"), ('w', "help"),
    ('k', "keep-in-foreground"), ('9', "leasefile-ro"), ('y', "localise-queries"), ('L', "localmx"),
    ('q', "log-queries"), ('d', "no-daemon"), ('h', "no-hosts"), ('N', "no-negcache"), ('5', "no-ping"),
    ('n', "no-poll"), ('R', "no-resolv"), ('Z', "read-ethers"), ('e', "selfmx"), ('o', "strict-order"),
    ('v', "version"),
];

/// Letters that need a value.
#[rustfmt::skip]
const LETTERS_WITH_VALUE: &[(char, &str)] = &[
    ('H', "addn-hosts"), ('A', "address"), ('V', "alias"), ('B', "bogus-nxdomain"), ('3', "bootp-dynamic"),
    ('c', "cache-size"), ('7', "conf-dir"), ('C', "conf-file"), ('M', "dhcp-boot"), ('G', "dhcp-host"),
    ('J', "dhcp-ignore"), ('X', "dhcp-lease-max"), ('l', "dhcp-leasefile"), ('4', "dhcp-mac"),
    ('O', "dhcp-option"), ('F', "dhcp-range"), ('6', "dhcp-script"), ('j', "dhcp-userclass"),
    ('U', "dhcp-vendorclass"), ('0', "dns-forward-max"), ('s', "domain"), ('P', "edns-packet-max"),
    ('I', "except-interface"), ('g', "group"), ('i', "interface"), ('a', "listen-address"),
    ('T', "local-ttl"), ('8', "log-facility"), ('m', "mx-host"), ('t', "mx-target"),
    ('2', "no-dhcp-interface"), ('x', "pid-file"), ('p', "port"), ('Q', "query-port"), ('r', "resolv-file"),
    ('S', "server"), ('W', "srv-host"), ('Y', "txt-record"), ('u', "user"),
];
