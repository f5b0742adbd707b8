//! Looks up the addresses and aliases of a name in one of our zones.

use std::net::IpAddr;

use wire::{Name, Transport, rtype};

use super::sample::RandomSample;
use super::{AnswerWriter, label_path};
use crate::backend::zones::Authority;
use crate::backend::{Entry, Lookup, View};
use crate::record::Host;

/// The address families to look up.
#[derive(Debug, Clone, Copy)]
pub(super) struct AddressFamilies {
    pub(super) v4: bool,
    pub(super) v6: bool,
}

impl AddressFamilies {
    pub(super) const V4: Self = Self {
        v4: true,
        v6: false,
    };
    pub(super) const V6: Self = Self {
        v4: false,
        v6: true,
    };
    pub(super) const BOTH: Self = Self { v4: true, v6: true };

    /// The family of an address type; `None` for other types.
    pub(super) fn of_type(qtype: u16) -> Option<Self> {
        match qtype {
            rtype::A => Some(Self::V4),
            rtype::AAAA => Some(Self::V6),
            _ => None,
        }
    }

    pub(super) fn include(self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(_) => self.v4,
            IpAddr::V6(_) => self.v6,
        }
    }
}

/// An alias to be followed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Alias {
    pub(super) target: Name,
    pub(super) ttl: u32,
    /// Whether the CNAME may be written although the target has no addresses. False for federated
    /// names and in zones in SkyDNS style; true for all other aliases, such as an ExternalName.
    pub(super) external: bool,
}

/// The addresses and aliases of a name.
pub(super) struct NameContent {
    pub(super) lookup: Lookup,
    /// The lowest TTL of the addresses, or the maximum TTL of the zone if that is lower, in
    /// seconds.
    pub(super) ttl: u32,
    pub(super) addresses: RandomSample<IpAddr, 8>,
    /// Whether the name has addresses, of any family.
    pub(super) has_addresses: bool,
    pub(super) aliases: RandomSample<Alias, 1>,
}

impl NameContent {
    fn add_addresses(&mut self, entry: &Entry<'_>, families: AddressFamilies, ttl: u32) {
        for address in entry.record.addresses() {
            self.has_addresses = true;
            if families.include(address) {
                self.ttl = self.ttl.min(ttl);
                self.addresses.add(address);
            }
        }
    }
}

impl<'q, V: View> AnswerWriter<'q, '_, V> {
    /// A number that exceeds the number of A records that fit into an answer. An A record takes 16
    /// octets: an owner pointer of 2, a fixed part of 10 and an address of 4 octets.
    pub(super) fn max_records(&self) -> usize {
        self.query.limit() / 16 + 1
    }

    /// Looks up the addresses and aliases at `path`; `of` is the zone.
    pub(super) fn look_up(
        &self,
        of: Authority<'q>,
        path: &[&str],
        families: AddressFamilies,
    ) -> NameContent {
        let zone = self.view.zone();
        // Each address that is added lowers `ttl` to its own TTL, if that is lower.
        let mut content = NameContent {
            lookup: Lookup::Missing,
            ttl: of.max_ttl(zone),
            addresses: RandomSample::new(self.max_records()),
            has_addresses: false,
            aliases: RandomSample::new(self.max_records()),
        };

        content.lookup = self.visit_entries(of, path, false, &mut |entry| {
            let ttl = of.ttl_of(zone, entry.record.ttl);
            match &entry.record.host {
                Host::Name(target) => content.aliases.add(Alias {
                    target: Name::clone(target),
                    ttl,
                    external: !entry.synthesized && !of.is_skydns(),
                }),
                // The entry of an SRV name has no address of its own, but its target has addresses.
                Host::Base | Host::Member => {
                    self.add_addresses_of_target(&mut content, of, &entry, families);
                }
                Host::Address(_) | Host::Several(_) => {
                    content.add_addresses(&entry, families, ttl);
                }
                Host::Nothing => {}
            }
        });
        content
    }

    /// Adds the addresses of an SRV record's target. With `--strict-dns` an SRV name has no
    /// addresses.
    // Differs from kube-dns, which answers with a CNAME to the target. A cache applies a CNAME to
    // queries of all types. So the cache would answer SRV queries for the SRV name with the SRV
    // records of the target, which have port 0.
    fn add_addresses_of_target(
        &self,
        content: &mut NameContent,
        of: Authority<'q>,
        entry: &Entry<'q>,
        families: AddressFamilies,
    ) {
        let zone = self.view.zone();
        // Further addresses would not fit over UDP, so the client has to retry over TCP anyway.
        let has_enough = content.addresses.is_cut() && self.query.transport == Transport::Udp;
        if has_enough || zone.strict || self.is_exhausted() {
            return;
        }
        let Some(mut path) = label_path(entry.record.base) else {
            return;
        };

        // The target of a `Host::Member` is the label of the entry, followed by `base`.
        if entry.record.host == Host::Member {
            path.push(entry.label);
        }
        self.visit_entries(of, &path, false, &mut |target| {
            let ttl = of.ttl_of(zone, target.record.ttl);
            content.add_addresses(&target, families, ttl);
        });
    }
}
