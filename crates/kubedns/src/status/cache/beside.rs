//! Records outside the tree of `/cache`: further zones (of etcd, of `--external-zone` and of the
//! cluster set), and the hosts and aliases of the configuration. Without Kubernetes, the page has
//! only these records.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::ser::{Serialize, SerializeMap, Serializer};
use skydns::own_names::OwnTarget;
use skydns::{Entry, EntryVisit, FurtherZone, Zone, Zones};
use smol_str::SmolStr;
use wire::{Name, name};

use super::ShownZone;
use super::in_order::in_order;

/// The keys of `/cache` in addition to the tree.
#[derive(serde::Serialize)]
#[serde(rename_all = "PascalCase")]
pub(in crate::status) struct OtherRecords<'a> {
    /// The zones by their domain.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    zones: BTreeMap<String, ZoneContent<'a>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    hosts: BTreeMap<String, &'a [IpAddr]>,
    /// The target of each alias. A target may be another alias.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    aliases: BTreeMap<String, String>,
}

#[derive(serde::Serialize)]
#[serde(rename_all = "PascalCase")]
struct ZoneContent<'a> {
    /// Whether the zone has been loaded from at least one of its sources. Before that, queries for
    /// its names get SERVFAIL. A zone that has only PTR records (`FurtherZone::pointers`) is an
    /// exception: its names are then looked up as if the zone did not exist.
    loaded: bool,
    names: ZoneNames<'a>,
}

/// The entries of a zone, by owner name.
struct ZoneNames<'a>(&'a FurtherZone);

impl<'a> OtherRecords<'a> {
    /// Collects the zones in `further`, and the hosts and aliases of the configuration from
    /// `settings`.
    pub(in crate::status) fn new(settings: &'a Zone, further: &'a Zones) -> Self {
        let mut zones = BTreeMap::new();
        for zone in further.iter() {
            let content = ZoneContent {
                loaded: zone.records.has_synced(),
                names: ZoneNames(zone),
            };
            zones.insert(zone.domain.to_string(), content);
        }

        let mut own_names = Vec::new();
        for (wire, target) in settings.own_names.iter().flat_map(|own| own.iter()) {
            own_names.push((name::to_text(wire), target));
        }
        for (domain, target) in settings.own_names.iter().flat_map(|own| own.wildcards()) {
            own_names.push((format!("*.{}", name::to_text(domain)), target));
        }

        let mut hosts = BTreeMap::new();
        let mut aliases = BTreeMap::new();
        for (name, target) in own_names {
            match target {
                OwnTarget::Addresses(addresses) => {
                    hosts.insert(name, addresses);
                }
                OwnTarget::Name(target) => {
                    aliases.insert(name, target.to_string());
                }
                // This variant does not occur here. It only results from following a chain of
                // aliases, and these targets are not followed.
                OwnTarget::Unresolvable => {}
            }
        }
        Self {
            zones,
            hosts,
            aliases,
        }
    }
}

impl ZoneNames<'_> {
    /// Visits each owner name with its path, in any order. The path has the labels below the zone,
    /// from the zone downwards.
    fn visit_paths(&self, offer: &mut dyn FnMut(String, Vec<SmolStr>)) {
        // With `None`, `owner_names` does not compare with older records, so it visits all names.
        self.0.records.owner_names(None, &mut |path| {
            if let Some(name) = Name::from_path(path, &self.0.domain) {
                offer(name.to_string(), path.iter().map(SmolStr::new).collect());
            }
        });
    }
}

impl Serialize for ZoneNames<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        // The zone yields its names in no particular order.
        in_order(
            |offer| self.visit_paths(offer),
            |name, paths: Vec<Vec<SmolStr>>| {
                // A name may be visited more than once, always with the same path. The page shows
                // it once.
                let path = paths.last().into_iter().flatten().map(SmolStr::as_str);
                let entries = NameEntries {
                    zone: self.0,
                    path: &path.collect::<Vec<_>>(),
                };
                map.serialize_entry(&name, &entries)
            },
        )?;
        map.end()
    }
}

/// The entries of the name with this path in a zone.
struct NameEntries<'a, 'p> {
    zone: &'a FurtherZone,
    path: &'p [&'p str],
}

impl<'a> Serialize for NameEntries<'a, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { zone, path } = *self;
        let shown = ShownZone {
            domain: zone.domain.wire(),
            ttl: &|ttl| zone.ttl_of(ttl),
        };

        shown.serialize_entries(serializer, |offer: &mut dyn FnMut(Entry<'a>)| {
            // The page shows all entries, however much work that is.
            let mut steps = usize::MAX;
            zone.records.visit_entries(EntryVisit {
                path,
                exact: false,
                steps: &mut steps,
                on_entry: offer,
            });
        })
    }
}
