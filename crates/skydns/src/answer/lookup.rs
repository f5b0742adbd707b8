//! Looks up the addresses and aliases of a name in one of our zones.

use std::net::IpAddr;

use super::sample::Sample;
use super::{Answer, path};
use crate::backend::{Entry, Lookup, View};
use crate::record::Host;
use crate::wire::{Name, Transport};
use crate::zones::Authority;

/// The address families that the query asks for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Families {
    pub(super) v4: bool,
    pub(super) v6: bool,
}

impl Families {
    pub(super) const V4: Self = Self { v4: true, v6: false };
    pub(super) const V6: Self = Self { v4: false, v6: true };
    pub(super) const BOTH: Self = Self { v4: true, v6: true };

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
    /// An ExternalName: it is shown even if it has no addresses. Federated names, and aliases in zones in SkyDNS
    /// style, are not.
    pub(super) external: bool,
}

/// Addresses and aliases of a name.
pub(super) struct Found {
    pub(super) lookup: Lookup,
    /// The lowest TTL of the addresses, in seconds.
    pub(super) ttl: u32,
    pub(super) addresses: Sample<IpAddr, 8>,
    pub(super) aliases: Sample<Alias, 1>,
}

impl Found {
    fn add_addresses(&mut self, entry: &Entry<'_>, families: Families, ttl: u32) {
        for address in entry.record.addresses().filter(|address| families.include(*address)) {
            self.ttl = self.ttl.min(ttl);
            self.addresses.add(address);
        }
    }
}

impl<'q, V: View> Answer<'q, '_, V> {
    /// One more than the maximum number of items of one kind in an answer: the smallest record is an address of 16
    /// octets (owner pointer, fixed part, four octets).
    pub(super) fn room(&self) -> usize {
        self.query.limit() / 16 + 1
    }

    /// Looks up the addresses and aliases of a name in the zone `of`.
    pub(super) fn look_up(&self, of: Authority<'q>, path: &[&str], families: Families) -> Found {
        let zone = self.view.zone();
        let (addresses, aliases) = (Sample::new(self.room()), Sample::new(self.room()));
        let mut found = Found { lookup: Lookup::Missing, ttl: of.max_ttl(zone), addresses, aliases };
        found.lookup = self.records_of(of, path, false, &mut |entry| match &entry.record.host {
            Host::Name(target) => {
                let target = Name::clone(target);
                let external = !entry.synthesized && !of.is_skydns();
                found.aliases.add(Alias { target, ttl: of.ttl_of(zone, entry.record.ttl), external });
            }
            Host::Base | Host::Member => self.add_addresses_of_target(&mut found, of, &entry, families),
            Host::Address(_) | Host::Several(_) => {
                found.add_addresses(&entry, families, of.ttl_of(zone, entry.record.ttl));
            }
            Host::Nothing => {}
        });
        found
    }

    /// Adds the addresses of the target of an SRV record. With `--strict-dns` an SRV name has no addresses.
    // Differs from kube-dns: it answers a CNAME for the target. A cache in front takes that for an alias of the SRV
    // name, and answers SRV queries for it with the records of the plain name, which have port 0.
    fn add_addresses_of_target(
        &self,
        found: &mut Found,
        of: Authority<'q>,
        entry: &Entry<'q>,
        families: Families,
    ) {
        // More addresses do not fit over UDP: the client has to retry over TCP.
        let enough = found.addresses.is_cut() && self.query.transport == Transport::Udp;
        if enough || self.view.zone().strict || self.exhausted() {
            return;
        }
        let (Some(mut path), zone) = (path(entry.record.base), self.view.zone()) else { return };
        path.extend((entry.record.host == Host::Member).then_some(entry.label));
        self.records_of(of, &path, false, &mut |target| {
            found.add_addresses(&target, families, of.ttl_of(zone, target.record.ttl));
        });
    }
}
