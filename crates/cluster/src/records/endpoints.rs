//! The endpoints of a Service, grouped by their ports.

use std::net::IpAddr;

use smol_str::SmolStr;

use super::PreferredZone;
use crate::objects::{Address, EndpointPlaces, EndpointPort, EndpointSlice, Endpoints, Subset};

/// The endpoints of a Service, from Endpoints or from slices.
#[derive(Debug, Clone)]
pub enum ServiceEndpoints {
    /// No endpoints are known.
    None,
    /// An Endpoints object.
    Endpoints(Endpoints),
    /// All slices of the Service.
    Slices(Vec<EndpointSlice>),
}

/// Addresses that share ports.
pub struct EndpointGroup<'o> {
    /// The addresses.
    pub members: Vec<EndpointMember<'o>>,
    /// The ports of all these addresses.
    pub ports: &'o [EndpointPort],
}

/// An endpoint address of a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndpointMember<'o> {
    /// Whether the address is ready.
    pub ready: bool,
    /// The address.
    pub ip: IpAddr,
    /// The hostname, if the endpoint has one.
    pub hostname: Option<&'o SmolStr>,
    /// The zone and the hints of the endpoint; `None` for an Endpoints object, which has neither.
    pub places: Option<&'o EndpointPlaces>,
}

impl ServiceEndpoints {
    /// Whether there is a ready address.
    pub fn has_ready_addresses(&self) -> bool {
        let groups = self.groups(false);
        groups.iter().any(|group| !group.members.is_empty())
    }

    /// The ready addresses, or all addresses if `not_ready_too` is true. Each subset or slice is
    /// one group.
    pub fn groups(&self, not_ready_too: bool) -> Vec<EndpointGroup<'_>> {
        match self {
            Self::None => Vec::new(),
            Self::Endpoints(endpoints) => endpoints
                .subsets
                .iter()
                .map(|subset| EndpointGroup::of_subset(subset, not_ready_too))
                .collect(),
            Self::Slices(slices) => slices
                .iter()
                .map(|slice| EndpointGroup::of_slice(slice, not_ready_too))
                .collect(),
        }
    }
}

impl<'o> EndpointGroup<'o> {
    fn of_subset(subset: &'o Subset, not_ready_too: bool) -> Self {
        let not_ready: &[Address] = if not_ready_too {
            &subset.not_ready
        } else {
            &[]
        };

        let mut members = Vec::with_capacity(subset.ready.len() + not_ready.len());
        for address in &subset.ready {
            members.push(EndpointMember::of_address(address, true));
        }
        for address in not_ready {
            members.push(EndpointMember::of_address(address, false));
        }
        Self {
            members,
            ports: &subset.ports,
        }
    }

    pub(crate) fn of_slice(slice: &'o EndpointSlice, not_ready_too: bool) -> Self {
        let mut members = Vec::with_capacity(slice.endpoints.len());
        for endpoint in &slice.endpoints {
            // An endpoint of unknown readiness is treated as ready (EndpointConditions in the
            // Kubernetes API).
            let ready = endpoint.ready != Some(false);
            if !ready && !not_ready_too {
                continue;
            }
            members.extend(endpoint.addresses.iter().map(|ip| EndpointMember {
                ready,
                ip: *ip,
                hostname: endpoint.hostname.as_ref(),
                places: Some(&endpoint.places),
            }));
        }

        Self {
            members,
            ports: &slice.ports,
        }
    }
}

impl<'o> EndpointMember<'o> {
    /// Whether the endpoint has a hint for the node.
    pub(super) fn serves_node(&self, node: &str) -> bool {
        let hinted = self.places.map(|places| &places.hinted_nodes);
        hinted.is_some_and(|nodes| nodes.iter().any(|other| other == node))
    }

    /// The zone of the endpoint itself, if it is known.
    pub(super) fn zone(&self) -> Option<&'o str> {
        self.places?.zone.as_deref()
    }

    /// Whether the endpoint serves the clients of the zone. An endpoint with zone hints serves the
    /// zones in these hints. An endpoint without zone hints serves its own zone, unless
    /// `hints_only` is set.
    pub(super) fn serves_zone(&self, zone: &PreferredZone) -> bool {
        let Some(places) = self.places else {
            return false;
        };
        if places.hinted_zones.is_empty() {
            return !zone.hints_only && places.zone.as_ref() == Some(&zone.name);
        }
        places.hinted_zones.contains(&zone.name)
    }

    fn of_address(address: &'o Address, ready: bool) -> Self {
        Self {
            ready,
            ip: address.ip,
            hostname: address.hostname.as_ref(),
            places: None,
        }
    }
}
