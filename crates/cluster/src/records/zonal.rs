//! Zonal names (`--zonal-names`): the addresses of a headless Service in one topology zone.
//!
//! `ZONE.pin._zone.SERVICE` has only the addresses in the zone. `ZONE.prefer._zone.SERVICE` has the
//! addresses in the zone, or all addresses if no address is in the zone. The zone of an address is
//! the zone of its endpoint. The topology hints of EndpointSlices have no effect on zonal names.

use std::collections::BTreeMap;
use std::net::IpAddr;

use skydns::{Entry, ServiceRecord};
use smol_str::SmolStr;

use super::LabelledAddresses;
use super::node::ServiceNode;

/// The label above the label `pin` or `prefer` in a zonal name.
pub const ZONE_LABEL: &str = "_zone";

/// The answer if no address is in the zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZoneDirective {
    /// No address.
    Pin,
    /// All addresses of the Service.
    Prefer,
}

/// A zonal name, as labels below the name of its Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ZonalName<'p> {
    /// The directive.
    pub directive: ZoneDirective,
    /// The labels of the zone from right to left, in lower case. A zone whose name has dots has
    /// several labels.
    pub zone: &'p [&'p str],
}

impl<'p> ZonalName<'p> {
    /// Reads the labels below the name of a Service, from right to left; `None` if they are not a
    /// zonal name.
    pub fn read(below: &'p [&'p str]) -> Option<Self> {
        let [ZONE_LABEL, directive, zone @ ..] = below else {
            return None;
        };
        let directive = match *directive {
            "pin" => ZoneDirective::Pin,
            "prefer" => ZoneDirective::Prefer,
            _ => return None,
        };

        (!zone.is_empty()).then_some(Self { directive, zone })
    }

    /// The zone as text.
    pub fn zone_text(&self) -> String {
        let labels: Vec<&str> = self.zone.iter().rev().copied().collect();
        labels.join(".")
    }

    fn is_of_zone(&self, zone: &str) -> bool {
        zone.rsplit('.').eq(self.zone.iter().copied())
    }
}

/// Whether a name in the subtree of a Service has zonal names below it. `below` holds the labels in
/// front of the Service's name, from right to left.
pub fn is_above_zonal_names(below: &[&str]) -> bool {
    matches!(below, [] | [ZONE_LABEL] | [ZONE_LABEL, "pin" | "prefer"])
}

/// The addresses of a headless Service, by their zone. Addresses whose zone is not known are left
/// out. Every zonal name of the Service exists, even if the name has no addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ZonalNode {
    /// The zones in lower case, each with its addresses, sorted by label.
    zones: Box<[(SmolStr, Box<[LabelledAddresses]>)]>,
}

impl ZonalNode {
    /// Visits the addresses at a zonal name. `service` holds the records of the same Service; it is
    /// `None` while the Service has no addresses. For `steps` see [`skydns::EntryVisit::steps`].
    pub fn visit<'v>(
        &'v self,
        name: &ZonalName<'_>,
        service: Option<&'v ServiceNode>,
        steps: &mut usize,
        visit: &mut dyn FnMut(Entry<'v>),
    ) {
        let Some(service) = service else {
            return;
        };
        let mut zones = self.zones.iter();
        let found = zones.find(|(zone, _)| name.is_of_zone(zone));
        let members: &[LabelledAddresses] = match (found, name.directive) {
            (Some((_, members)), _) => members,
            (None, ZoneDirective::Prefer) => &service.members,
            (None, ZoneDirective::Pin) => &[],
        };

        for member in members {
            if *steps == 0 {
                break;
            }
            *steps -= 1;
            visit(Entry {
                label: &member.label,
                record: ServiceRecord::for_addresses(&member.addresses, &service.base),
                synthesized: false,
            });
        }
    }

    /// The zones with addresses, in lower case, each with the number of its endpoint names.
    pub fn zones(&self) -> impl Iterator<Item = (&str, usize)> {
        let zones = self.zones.iter();
        zones.map(|(zone, members)| (zone.as_str(), members.len()))
    }
}

/// Collects the addresses of each zone and label.
#[derive(Default)]
pub(super) struct ZonalAddresses(BTreeMap<SmolStr, BTreeMap<SmolStr, Vec<IpAddr>>>);

impl ZonalAddresses {
    pub(super) fn add(&mut self, zone: &str, label: &SmolStr, address: IpAddr) {
        // Query names are looked up in lower case.
        let zone = SmolStr::new(zone.to_ascii_lowercase());
        let labels = self.0.entry(zone).or_default();
        labels.entry(label.clone()).or_default().push(address);
    }

    pub(super) fn into_node(self) -> ZonalNode {
        let zones = self.0.into_iter().map(|(zone, labels)| {
            let members = labels.into_iter().map(|(label, mut addresses)| {
                // Slices may repeat an endpoint while it moves from one slice to another.
                addresses.sort_unstable();
                addresses.dedup();
                LabelledAddresses {
                    label,
                    addresses: addresses.into(),
                }
            });
            (zone, members.collect())
        });
        ZonalNode {
            zones: zones.collect(),
        }
    }
}

#[cfg(test)]
mod tests;
