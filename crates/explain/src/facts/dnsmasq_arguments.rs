//! The options of dnsmasq that decide about forwarded names, as the nanny reports them.

use wire::Name;

/// Options that change the answers of every server, also of kubedns.
const ABOUT_ANSWERS: [&str; 8] = [
    "bogus-nxdomain",
    "bogus-priv",
    "filter-A",
    "filter-AAAA",
    "filter-rr",
    "ignore-address",
    "max-ttl",
    "stop-dns-rebind",
];
/// Options about names without a server of their own.
const ABOUT_OTHER_NAMES: [&str; 3] = ["domain-needed", "no-resolv", "resolv-file"];
/// Options whose value may begin with the domains that the option is about:
/// `/DOMAIN/DOMAIN/ADDRESS`.
const ABOUT_DOMAINS: [&str; 3] = ["address", "local", "server"];

/// The options of one dnsmasq.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct DnsmasqArguments(Vec<DnsmasqOption>);

/// An option under its long name.
#[derive(Debug, Clone, PartialEq, Eq)]
struct DnsmasqOption {
    name: String,
    value: String,
}

/// The option for the longest domain around a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DomainOption {
    pub(crate) domain: Name,
    /// The option as written.
    pub(crate) text: String,
    /// The server to ask; `None` if dnsmasq answers without one.
    pub(crate) server: Option<String>,
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

    /// The servers for all names without a domain of their own.
    pub(crate) fn servers(&self) -> Vec<String> {
        let servers = self.0.iter().filter(|option| option.is_server());
        servers
            .filter(|option| !option.value.starts_with('/'))
            .map(|option| option.value.clone())
            .collect()
    }

    /// The option for the longest domain around `name` (in lower case).
    pub(crate) fn domain_option(&self, name: &Name) -> Option<DomainOption> {
        let of_domains = self
            .0
            .iter()
            .filter(|option| ABOUT_DOMAINS.contains(&option.name.as_str()));
        let around_name = of_domains.flat_map(|option| option.around(name));
        around_name.max_by_key(|option| option.domain.label_count())
    }

    /// The options that matter for names without a server of their own, as written.
    pub(crate) fn about_forwarded_names(&self) -> Vec<String> {
        let options = self.0.iter().filter(|option| {
            let is_plain_server = option.is_server() && !option.value.starts_with('/');
            let is_about_names = ABOUT_OTHER_NAMES.contains(&option.name.as_str());
            is_plain_server || is_about_names || option.is_about_answers()
        });
        options.map(DnsmasqOption::text).collect()
    }

    /// The options that matter for the answers of any server, as written.
    pub(crate) fn about_answers(&self) -> Vec<String> {
        let options = self.0.iter().filter(|option| option.is_about_answers());
        options.map(DnsmasqOption::text).collect()
    }
}

impl DnsmasqOption {
    fn is_server(&self) -> bool {
        matches!(self.name.as_str(), "local" | "server")
    }

    fn is_about_answers(&self) -> bool {
        let is_uncached = self.name == "cache-size" && self.value == "0";
        is_uncached || ABOUT_ANSWERS.contains(&self.name.as_str())
    }

    fn text(&self) -> String {
        if self.value.is_empty() {
            format!("--{}", self.name)
        } else {
            format!("--{}={}", self.name, self.value)
        }
    }

    /// This option for each of its domains around `name`.
    fn around(&self, name: &Name) -> Vec<DomainOption> {
        let Some((domains, address)) = self
            .value
            .strip_prefix('/')
            .and_then(|v| v.rsplit_once('/'))
        else {
            return Vec::new();
        };

        let mut around = Vec::new();
        for domain in domains.split('/') {
            let Ok(domain) = Name::parse(domain) else {
                continue;
            };
            let domain = domain.to_lowercase();
            if name.is_within(&domain) {
                around.push(DomainOption {
                    domain,
                    text: self.text(),
                    server: (self.is_server() && !address.is_empty()).then(|| address.to_owned()),
                });
            }
        }
        around
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
        assert_eq!(given.about_forwarded_names(), expected);
        assert_eq!(given.about_answers(), ["--filter-AAAA", "--cache-size=0"]);
        assert_eq!(given.servers(), ["10.0.0.2"]);
        assert!(!given.reads_resolv_conf());
        assert!(arguments(&["--cache-size=0"]).reads_resolv_conf());
    }

    #[test]
    fn longest_domain_decides() {
        let given = arguments(&[
            "--server=/example/10.0.0.1",
            "--address=/ads.example/b.example/0.0.0.0",
            "--local=/Local.example/",
        ]);
        for (name, expected) in [
            ("www.example.", Some(("example.", Some("10.0.0.1")))),
            ("x.ads.example.", Some(("ads.example.", None))),
            ("b.example.", Some(("b.example.", None))),
            ("a.local.example.", Some(("local.example.", None))),
            ("www.test.", None),
        ] {
            let found = given.domain_option(&Name::parse(name).unwrap());
            let found = found.map(|option| (option.domain.to_string(), option.server));
            let expected =
                expected.map(|(domain, server)| (domain.to_owned(), server.map(ToOwned::to_owned)));
            assert_eq!(found, expected, "{name}");
        }
    }
}
