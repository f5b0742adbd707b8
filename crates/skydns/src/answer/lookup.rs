//! Looks up the addresses and aliases of a name in one of our zones.

use std::net::IpAddr;

use wire::{Name, Transport, rtype};

use super::sample::Sample;
use super::{Answer, path};
use crate::backend::zones::Authority;
use crate::backend::{Entry, Lookup, View};
use crate::record::Host;

/// The address families to look up.
#[derive(Debug, Clone, Copy)]
pub(super) struct Families {
    pub(super) v4: bool,
    pub(super) v6: bool,
}

impl Families {
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
    pub(super) fn of(qtype: u16) -> Option<Self> {
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
    /// Whether the CNAME is shown even if the target has no addresses. True for an ExternalName;
    /// false for federated names and for zones in SkyDNS style.
    pub(super) external: bool,
}

/// Addresses and aliases of a name.
pub(super) struct Found {
    pub(super) lookup: Lookup,
    /// The lowest TTL of the addresses, in seconds.
    pub(super) ttl: u32,
    pub(super) addresses: Sample<IpAddr, 8>,
    /// Whether the name has addresses, of any family.
    pub(super) has_addresses: bool,
    pub(super) aliases: Sample<Alias, 1>,
}

impl Found {
    fn add_addresses(&mut self, entry: &Entry<'_>, families: Families, ttl: u32) {
        for address in entry.record.addresses() {
            self.has_addresses = true;
            if families.include(address) {
                self.ttl = self.ttl.min(ttl);
                self.addresses.add(address);
            }
        }
    }
}

impl<'q, V: View> Answer<'q, '_, V> {
    /// One more than the number of items of one kind that fit into an answer. The smallest record
    /// takes 16 octets: an A record with an owner pointer of 2, a fixed part of 10 and an address
    /// of 4 octets.
    pub(super) fn room(&self) -> usize {
        self.query.limit() / 16 + 1
    }

    /// Looks up the addresses and aliases at `path` in the zone `of`.
    pub(super) fn look_up(&self, of: Authority<'q>, path: &[&str], families: Families) -> Found {
        let zone = self.view.zone();
        let mut found = Found {
            lookup: Lookup::Missing,
            ttl: of.max_ttl(zone),
            addresses: Sample::new(self.room()),
            has_addresses: false,
            aliases: Sample::new(self.room()),
        };
        found.lookup = self.records_of(of, path, false, &mut |entry| match &entry.record.host {
            Host::Name(target) => {
                let target = Name::clone(target);
                let external = !entry.synthesized && !of.is_skydns();
                found.aliases.add(Alias {
                    target,
                    ttl: of.ttl_of(zone, entry.record.ttl),
                    external,
                });
            }
            Host::Base | Host::Member => {
                self.add_addresses_of_target(&mut found, of, &entry, families);
            }
            Host::Address(_) | Host::Several(_) => {
                found.add_addresses(&entry, families, of.ttl_of(zone, entry.record.ttl));
            }
            Host::Nothing => {}
        });
        found
    }

    /// Adds the addresses of an SRV record's target. With `--strict-dns` an SRV name has no
    /// addresses.
    // Differs from kube-dns, which answers with a CNAME to the target. A cache would take that
    // CNAME for an alias of the SRV name. The cache would then answer SRV queries with the records
    // of the target, which have port 0.
    fn add_addresses_of_target(
        &self,
        found: &mut Found,
        of: Authority<'q>,
        entry: &Entry<'q>,
        families: Families,
    ) {
        // More addresses do not fit over UDP: the client must retry over TCP.
        let enough = found.addresses.is_cut() && self.query.transport == Transport::Udp;
        if enough || self.view.zone().strict || self.exhausted() {
            return;
        }
        let (Some(mut path), zone) = (path(entry.record.base), self.view.zone()) else {
            return;
        };
        path.extend((entry.record.host == Host::Member).then_some(entry.label));
        self.records_of(of, &path, false, &mut |target| {
            found.add_addresses(&target, families, of.ttl_of(zone, target.record.ttl));
        });
    }
}
