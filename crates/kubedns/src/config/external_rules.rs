//! Converts the keys `filterTypes`, `deniedNames`, `bogusPriv` and `rebindProtection` for the DNS
//! server.

use std::sync::Arc;

use dnsconfig::{AddressType, Config, DeniedAnswer};
use skydns::ExternalRules;
use wire::{Name, rcode, rtype};

/// Converts the rules for external names; `None` if the rules have no effect. [`dnsconfig`] has
/// checked the domains, so each of them can be parsed.
pub(super) fn convert(config: &Config) -> Option<Arc<ExternalRules>> {
    if !config.has_external_rules() {
        return None;
    }
    let mut rules = ExternalRules::new();

    for (domain, types) in &config.external_rules.filter_types {
        if let Ok(domain) = Name::parse(domain) {
            let types: Vec<u16> = types.iter().copied().map(qtype).collect();
            rules.filter_types(&domain, &types);
        }
    }
    for (domain, answer) in &config.external_rules.denied_names {
        if let Ok(domain) = Name::parse(domain) {
            rules.deny_names(&domain, rcode_of(*answer));
        }
    }
    if config.external_rules.bogus_priv {
        rules.deny_private_reverse();
    }
    if let Some(protection) = &config.external_rules.rebind_protection {
        let except = protection.except.iter();
        rules.reject_private_addresses_except(except.filter_map(|domain| Name::parse(domain).ok()));
    }
    Some(Arc::new(rules))
}

fn qtype(filtered: AddressType) -> u16 {
    match filtered {
        AddressType::A => rtype::A,
        AddressType::Aaaa => rtype::AAAA,
    }
}

fn rcode_of(answer: DeniedAnswer) -> u16 {
    match answer {
        DeniedAnswer::NxDomain => rcode::NXDOMAIN,
        DeniedAnswer::NoData => rcode::NOERROR,
    }
}
