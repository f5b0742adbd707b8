//! Rules for external names, from the configuration. Some rules answer queries that would be
//! forwarded. Others reject replies of upstreams.
//!
//! Rules do not apply to hosts and aliases of the configuration, or to names in our zones. If a
//! name does not exist in its zone but falls through (`--fallthrough`), its queries are forwarded
//! without regard to rules. Rules apply to the external target of an alias.

use std::net::{Ipv4Addr, Ipv6Addr};

use wire::name::Name;
use wire::{Message, Section, rcode, reverse, rtype};

use crate::answer::soa_owner;
use crate::domain_map::DomainMap;

/// Rules for external names. If the domains of several rules with the same key hold a name, only
/// the rule with the longest domain applies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExternalRules {
    filters: DomainMap<Vec<u16>>,
    denied: DomainMap<u16>,
    /// The reverse zones of private networks, if this server answers for their names; otherwise
    /// empty.
    private_zones: DomainMap<()>,
    /// The domains whose names may have private addresses; `None` if all names may.
    may_be_private: Option<DomainMap<()>>,
}

/// The key of the configuration whose rule answers a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleKey {
    /// `filterTypes`
    FilterTypes,
    /// `deniedNames`
    DeniedNames,
    /// `bogusPriv`
    BogusPriv,
    /// `rebindProtection`
    RebindProtection,
}

/// The answer of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleAnswer<'a> {
    /// The key of the configuration whose rule gives the answer.
    pub key: RuleKey,
    /// NXDOMAIN, or NOERROR for a NODATA answer.
    pub rcode: u16,
    /// The owner of the SOA record, in wire format.
    pub soa_owner: &'a [u8],
}

impl RuleKey {
    /// All keys, in the order of their discriminants.
    pub const ALL: [Self; 4] = [
        Self::FilterTypes,
        Self::DeniedNames,
        Self::BogusPriv,
        Self::RebindProtection,
    ];

    /// The key in the `ConfigMap`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::FilterTypes => "filterTypes",
            Self::DeniedNames => "deniedNames",
            Self::BogusPriv => "bogusPriv",
            Self::RebindProtection => "rebindProtection",
        }
    }
}

impl ExternalRules {
    /// Creates rules without effect.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a rule: queries of these types for names in `domain` get NODATA. Without types, the
    /// rule only exempts `domain` from the filters of its parent domains.
    pub fn filter_types(&mut self, domain: &Name, types: &[u16]) {
        self.filters.insert(domain, types.to_vec());
    }

    /// Adds a rule: queries for names in `domain` get `rcode`, which is NXDOMAIN, or NOERROR for
    /// NODATA.
    pub fn deny_names(&mut self, domain: &Name, rcode: u16) {
        self.denied.insert(domain, rcode);
    }

    /// Adds a rule: queries for reverse names of private networks get NXDOMAIN or NODATA, unless
    /// the name is in a stub domain.
    pub fn deny_private_reverse(&mut self) {
        for zone in reverse::private_reverse_zones() {
            if let Ok(zone) = Name::parse(&zone) {
                self.private_zones.insert(&zone, ());
            }
        }
    }

    /// Adds a rule: replies with private addresses are rejected, except for names in stub domains
    /// or in the domains `except`.
    pub fn reject_private_addresses_except(&mut self, except: impl IntoIterator<Item = Name>) {
        let mut may_be_private = DomainMap::default();
        for domain in except {
            may_be_private.insert(&domain, ());
        }
        self.may_be_private = Some(may_be_private);
    }

    /// The answer in place of an upstream's `message` for an external name (wire format, lower
    /// case); `None` if the message is passed on. `in_stub_domain` is true if the name has its own
    /// upstreams, which belong to the operator's network.
    pub fn answer_instead_of<'a>(
        &'a self,
        message: &[u8],
        name: &'a [u8],
        in_stub_domain: bool,
    ) -> Option<RuleAnswer<'a>> {
        if !self.rejects_private_addresses(name, in_stub_domain) || !has_private_address(message) {
            return None;
        }
        Some(RuleAnswer {
            key: RuleKey::RebindProtection,
            rcode: rcode::NOERROR,
            soa_owner: soa_owner(name),
        })
    }

    /// Whether an upstream's reply for the name is rejected if it has a private address.
    pub(crate) fn rejects_private_addresses(&self, name: &[u8], in_stub_domain: bool) -> bool {
        let may_be_private = self.may_be_private.as_ref();
        may_be_private.is_some_and(|except| !in_stub_domain && except.find(name).is_none())
    }

    /// The answer of a rule for an external name (wire format, lower case); `None` if the query is
    /// forwarded. `in_stub_domain` is true if the name has its own upstreams.
    pub fn answer_for<'a>(
        &'a self,
        name: &'a [u8],
        qtype: u16,
        in_stub_domain: bool,
    ) -> Option<RuleAnswer<'a>> {
        if let Some((domain, rcode)) = self.denied.find(name) {
            return Some(RuleAnswer {
                key: RuleKey::DeniedNames,
                rcode: *rcode,
                soa_owner: soa_owner(domain),
            });
        }
        // A stub domain in the reverse tree contains the names of the operator's own network.
        if let Some((zone, ())) = self.private_zones.find(name)
            && !in_stub_domain
        {
            return Some(RuleAnswer {
                key: RuleKey::BogusPriv,
                rcode: rcode_of_reverse(name),
                soa_owner: soa_owner(zone),
            });
        }

        let (_, types) = self.filters.find(name)?;
        types.contains(&qtype).then(|| RuleAnswer {
            key: RuleKey::FilterTypes,
            rcode: rcode::NOERROR,
            soa_owner: soa_owner(name),
        })
    }
}

/// Whether the answer section has an address for which [`is_private_v4`] or [`is_private_v6`] is
/// true.
fn has_private_address(message: &[u8]) -> bool {
    let Ok(message) = Message::parse(message) else {
        return false;
    };
    message
        .section(Section::Answer)
        .any(|record| match record.rtype {
            rtype::A => {
                let octets: Result<[u8; 4], _> = record.data().try_into();
                octets.is_ok_and(|octets| is_private_v4(Ipv4Addr::from(octets)))
            }
            rtype::AAAA => {
                let octets: Result<[u8; 16], _> = record.data().try_into();
                octets.is_ok_and(|octets| is_private_v6(Ipv6Addr::from(octets)))
            }
            _ => false,
        })
}

fn is_private_v4(address: Ipv4Addr) -> bool {
    let [first, ..] = address.octets();
    // An address in 0.0.0.0/8 is a host on the local network (RFC 1122, section 3.2.1.3).
    first == 0 || address.is_loopback() || address.is_private() || address.is_link_local()
}

fn is_private_v6(address: Ipv6Addr) -> bool {
    match address.to_ipv4_mapped() {
        Some(mapped) => is_private_v4(mapped),
        None => {
            address.is_unspecified()
                || address.is_loopback()
                || address.is_unique_local()
                || address.is_unicast_link_local()
        }
    }
}

/// NXDOMAIN for the reverse name of a whole address, and NOERROR for any other name. NXDOMAIN for a
/// shorter name would also deny the cluster's names below that name (RFC 8020).
fn rcode_of_reverse(name: &[u8]) -> u16 {
    match reverse::address_of_name(name) {
        Some(_) => rcode::NXDOMAIN,
        None => rcode::NOERROR,
    }
}

#[cfg(test)]
mod tests {
    use wire::name::MAX_NAME;

    use super::*;
    use crate::answer::HOSTMASTER;

    fn name(text: &str) -> Name {
        Name::parse(text).unwrap()
    }

    fn mk_rules() -> ExternalRules {
        let mut rules = ExternalRules::new();
        rules.filter_types(&name("."), &[rtype::AAAA]);
        rules.filter_types(&name("both.test"), &[rtype::A, rtype::AAAA]);
        rules.filter_types(&name("free.test"), &[]);
        rules.deny_names(&name("gone.test"), rcode::NXDOMAIN);
        rules.deny_names(&name("Empty.gone.test"), rcode::NOERROR);
        rules.deny_private_reverse();
        rules
    }

    #[test]
    fn longest_domain_of_rule_applies() {
        let rules = mk_rules();
        for (asked, qtype, expected) in [
            (
                "www.other.test",
                rtype::AAAA,
                "filterTypes 0 www.other.test.",
            ),
            ("www.other.test", rtype::A, "-"),
            ("both.test", rtype::A, "filterTypes 0 both.test."),
            ("notboth.test", rtype::A, "-"),
            ("a.b.both.test", rtype::MX, "-"),
            ("www.free.test", rtype::AAAA, "-"),
            ("gone.test", rtype::MX, "deniedNames 3 gone.test."),
            ("a.b.gone.test", rtype::AAAA, "deniedNames 3 gone.test."),
            (
                "a.empty.gone.test",
                rtype::A,
                "deniedNames 0 empty.gone.test.",
            ),
            (
                "1.0.96.10.in-addr.arpa",
                rtype::PTR,
                "bogusPriv 3 10.in-addr.arpa.",
            ),
            (
                "96.10.in-addr.arpa",
                rtype::PTR,
                "bogusPriv 0 10.in-addr.arpa.",
            ),
            (
                "1.0.31.172.in-addr.arpa",
                rtype::PTR,
                "bogusPriv 3 31.172.in-addr.arpa.",
            ),
            ("1.0.32.172.in-addr.arpa", rtype::PTR, "-"),
            ("1.1.1.1.in-addr.arpa", rtype::PTR, "-"),
            (".", rtype::AAAA, "filterTypes 0 ."),
        ] {
            let asked_name = name(asked);
            let found = rules.answer_for(asked_name.wire(), qtype, false);
            let found = found.map_or("-".to_owned(), |answer| {
                let owner = Name::from_wire(answer.soa_owner).unwrap();
                format!("{} {} {owner}", answer.key.as_str(), answer.rcode)
            });
            assert_eq!(found, expected, "{asked} {qtype}");
        }
    }

    #[test]
    fn private_reverse_name_in_stub_domain_is_forwarded() {
        let asked = name("1.0.150.10.in-addr.arpa");
        let rules = mk_rules();
        assert_eq!(rules.answer_for(asked.wire(), rtype::PTR, true), None);
    }

    #[test]
    fn soa_owner_of_long_name_leaves_room_for_hostmaster() {
        let long = name(&[vec!["a".repeat(61); 4].join("."), "bcde".to_owned()].join("."));
        assert_eq!(long.wire().len(), 254);
        let rules = mk_rules();
        let answer = rules.answer_for(long.wire(), rtype::AAAA, false).unwrap();
        assert!(answer.soa_owner.len() + HOSTMASTER.len() <= MAX_NAME);
        assert!(long.wire().ends_with(answer.soa_owner));
    }

    #[test]
    fn private_addresses_are_recognised() {
        for (address, expected) in [
            ("10.255.0.1", true),
            ("172.16.0.1", true),
            ("172.32.0.1", false),
            ("192.168.1.1", true),
            ("169.254.169.254", true),
            ("127.0.0.1", true),
            ("0.0.0.0", true),
            ("192.0.2.1", false),
            ("9.255.255.255", false),
        ] {
            assert_eq!(
                is_private_v4(address.parse().unwrap()),
                expected,
                "{address}"
            );
        }
        for (address, expected) in [
            ("::", true),
            ("::1", true),
            ("fd00::1", true),
            ("fe80::1", true),
            ("::ffff:10.0.0.1", true),
            ("::ffff:192.0.2.1", false),
            ("2001:db8::1", false),
        ] {
            assert_eq!(
                is_private_v6(address.parse().unwrap()),
                expected,
                "{address}"
            );
        }
    }
}
