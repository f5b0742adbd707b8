//! Look-ups of names in a snapshot: Services, pods and federated names.

use std::any::Any;
use std::borrow::Cow;
use std::cell::Cell;
use std::net::IpAddr;

use skydns::{Entry, EntryVisit, Host, Lookup, Pointer, Records, ServiceRecord, View, Zone, Zones};
use smol_str::SmolStr;
use treecache::ANY;
use wire::Name;
use wire::rfc1123::is_label;

use super::{PodNames, Snapshot, label, pod};
use crate::objects::ObjectKey;

/// Number of steps that each Service costs if its name matches a wildcard (see
/// [`EntryVisit::steps`]). A Service costs more steps than an entry, because Services are scattered
/// in memory.
const SERVICE_STEPS: usize = 32;

/// Federated names and names of pods.
impl Snapshot {
    /// The record of a federated name; `None` if the target is unknown or invalid. If the Service
    /// has ready endpoints or is an ExternalName Service (see [`Snapshot::backed`]), the target is
    /// its name in this cluster. Otherwise the target is a name in the domain of the federation.
    fn federated_record(
        &self,
        domain: &str,
        federation: &str,
        key: &ObjectKey,
    ) -> Option<ServiceRecord<'static>> {
        let ObjectKey { namespace, name } = key;
        let target = if self.backed.get(key).is_some() {
            format!("{name}.{namespace}.svc.{}", self.zone.domain)
        } else {
            let topology = self.federation.as_ref()?.topology.as_ref()?;
            format!(
                "{name}.{namespace}.{federation}.svc.{}.{}.{domain}.",
                topology.zone, topology.region
            )
        };

        let target = Host::Name(Cow::Owned(Name::parse(&target).ok()?));
        Some(ServiceRecord {
            ttl: 0,
            priority: 0,
            weight: 0,
            ..ServiceRecord::new(target, &[])
        })
    }

    /// Looks up a federated name; `None` if `path` is not a federated name.
    fn find_federated<'v>(
        &'v self,
        path: &[&str],
        visit: &mut dyn FnMut(Entry<'v>),
    ) -> Option<Lookup> {
        let &["svc", federation, namespace, name] = path else {
            return None;
        };
        let domain = self.federation.as_ref()?.domains.get(federation)?;
        if !label::is_service_name(name) || !is_label(namespace) {
            return None;
        }

        let key = ObjectKey::new(namespace, name);
        // The name exists even if its target is unknown or invalid.
        let Some(record) = self.federated_record(domain, federation, &key) else {
            return Some(Lookup::TargetUnknown);
        };
        visit(Entry {
            label: "",
            record,
            synthesized: true,
        });
        Some(Lookup::Exists)
    }

    /// Whether a pod of the namespace has the address. With [`PodNames::Insecure`] and
    /// [`PodNames::OfNode`], the result is true for every address. With [`PodNames::Disabled`], the
    /// result is false.
    fn has_pod(&self, namespace: &str, address: IpAddr) -> bool {
        match &self.pods {
            PodNames::Insecure | PodNames::OfNode(_) => true,
            PodNames::Disabled => false,
            PodNames::Verified(pods) => match pods.get(&address) {
                Some(namespaces) => namespaces.iter().any(|other| other == namespace),
                None => false,
            },
        }
    }

    /// Whether names of pods in the namespace may exist.
    fn has_pod_names(&self, namespace: &str) -> bool {
        !matches!(self.pods, PodNames::Disabled)
            && self.serves(namespace)
            && pod::may_be_pod(namespace)
    }

    fn find_pod<'v>(
        &'v self,
        namespace: &str,
        label: &str,
        visit: &mut dyn FnMut(Entry<'v>),
    ) -> Lookup {
        if !self.has_pod_names(namespace) {
            return Lookup::Missing;
        }

        let Some(ip) = pod::parse_address(label) else {
            // kube-dns answers NODATA to any label that is not an address.
            let is_verified = matches!(self.pods, PodNames::Verified(_));
            return if self.zone.strict || is_verified {
                Lookup::Missing
            } else {
                Lookup::Exists
            };
        };
        if !self.has_pod(namespace, ip) {
            return Lookup::Missing;
        }

        visit(Entry {
            label: "",
            record: ServiceRecord::new(Host::Address(ip), &[]),
            synthesized: true,
        });
        Lookup::Exists
    }
}

/// Lookups of names below `svc`.
impl Snapshot {
    /// The namespaces that have a Service.
    pub fn namespaces(&self) -> impl Iterator<Item = &SmolStr> {
        let services = self
            .services
            .root()
            .children()
            .map(|(namespace, _)| namespace);
        let aliases = self
            .aliases
            .root()
            .children()
            .map(|(namespace, _)| namespace);
        services.chain(aliases.filter(|namespace| self.services.node(&[namespace]).is_none()))
    }

    /// Whether a namespace has a Service.
    pub fn has_namespace(&self, namespace: &str) -> bool {
        self.services.node(&[namespace]).is_some() || self.aliases.node(&[namespace]).is_some()
    }

    /// Visits the entry whose label is the last label of `path`, as [`EntryVisit::exact`] requires.
    fn find_exactly<'v>(
        &'v self,
        path: &[&str],
        steps: &mut usize,
        visit: &mut dyn FnMut(Entry<'v>),
    ) -> bool {
        let ["svc", namespace, name, below @ ..] = path else {
            return false;
        };
        if !below.is_empty() {
            let service = self.services.entry(&[namespace], name);
            return service.is_some_and(|service| service.visit(below, true, steps, visit));
        }

        // Only ExternalName Services have entries at this depth. The entries of other Services are
        // at deeper levels.
        let aliases = self.aliases.node(&[namespace]);
        let Some((label, alias)) = aliases.and_then(|aliases| aliases.entry_of(name)) else {
            return false;
        };
        visit(Entry {
            label,
            record: alias.record(),
            synthesized: false,
        });
        true
    }

    /// Visits all entries that a path with or without wildcards matches, see
    /// [`Records::visit_entries`].
    fn find_matching<'v>(
        &'v self,
        path: &[&str],
        steps: &mut usize,
        visit: &mut dyn FnMut(Entry<'v>),
    ) -> bool {
        let ["svc" | ANY, path @ ..] = path else {
            return false;
        };

        let mut found = false;
        if let [_, _] | [_] = path {
            found = self.aliases.visit(path, steps, &mut |label, alias| {
                visit(Entry {
                    label,
                    record: alias.record(),
                    synthesized: false,
                });
            });
        }

        match path {
            // The path ends with a wildcard in place of the Service name: it matches only
            // ExternalName Services. The entries of other Services are at deeper levels.
            [_, ANY] => found,
            [namespace, name, below @ ..] => {
                self.find_services([namespace, name], below, steps, visit) || found
            }
            _ => found,
        }
    }

    /// For each Service that matches namespace and name, visits the entries that match the labels
    /// `below`.
    fn find_services<'v>(
        &'v self,
        [namespace, name]: [&str; 2],
        below: &[&str],
        steps: &mut usize,
        visit: &mut dyn FnMut(Entry<'v>),
    ) -> bool {
        let is_wildcard = name == ANY;
        let before = *steps;
        let left = Cell::new(before);
        let mut found = false;

        // The tree borrows `steps` during the visit, so the Services take their steps from `left`.
        // The steps that the Services took are subtracted afterwards.
        self.services
            .visit(&[namespace, name], steps, &mut |label, service| {
                let mut steps = left.get();
                if is_wildcard {
                    steps = steps.saturating_sub(SERVICE_STEPS);
                }
                // A wildcard matches no label that begins with `_`. The tree checks this for the
                // namespace, but not for the name of the Service.
                if !is_wildcard || !label.starts_with('_') {
                    found |= service.visit(below, false, &mut steps, visit);
                }
                left.set(steps);
            });

        *steps = steps.saturating_sub(before - left.get());
        found
    }
}

impl Records for Snapshot {
    fn has_synced(&self) -> bool {
        self.records_from.has_synced()
    }

    fn has_listed(&self) -> bool {
        self.records_from.has_listed()
    }

    fn visit_entries<'v>(&'v self, visit: EntryVisit<'_, 'v>) -> Lookup {
        let EntryVisit {
            path,
            exact,
            steps,
            on_entry: visit,
        } = visit;
        // The answer for a pod name is computed from its labels. The trees store no pod names.
        if let &["pod", namespace, label] = path
            && pod::may_be_pod(namespace)
            && pod::may_be_pod(label)
        {
            return self.find_pod(namespace, label, visit);
        }

        // As in kube-dns, the name of a namespace (`NAMESPACE.svc`) has the entries of the
        // namespace's ExternalName Services. In strict mode, this name has no records.
        if self.zone.strict && matches!(path, ["svc", _]) {
            return Lookup::Missing;
        }
        if let Some(lookup) = self.find_federated(path, visit) {
            return lookup;
        }
        if let Some(lookup) = self.find_zonal(path, steps, visit) {
            return lookup;
        }

        let found = if exact {
            self.find_exactly(path, steps, visit)
        } else {
            self.find_matching(path, steps, visit)
        };
        Lookup::of_found(found)
    }

    fn is_enumerable(&self) -> bool {
        true
    }

    fn owner_names(&self, unlike: Option<&dyn Records>, visit: &mut dyn FnMut(&[&str])) {
        let other = unlike.and_then(|other| (other as &dyn Any).downcast_ref::<Self>());
        self.visit_owner_names(other, visit);
    }

    fn has_descendants(&self, path: &[&str]) -> bool {
        if self.is_above_zonal_name(path) {
            return true;
        }
        match path {
            // `pod` exists even if names of pods are disabled. `dns` exists because of the name
            // server `ns.dns`.
            [] | ["pod" | "dns"] => true,
            ["pod", namespace] => self.has_pod_names(namespace),
            ["svc"] => {
                self.namespaces().next().is_some() || self.selected_namespaces().next().is_some()
            }
            ["svc", namespace] => {
                self.has_namespace(namespace) || self.served.is_some() && self.serves(namespace)
            }
            ["svc", namespace, name, below @ ..] => self
                .services
                .entry(&[namespace], name)
                .is_some_and(|service| service.has_descendants(below)),
            _ => false,
        }
    }
}

impl View for Snapshot {
    fn reverse_record<'v>(&'v self, address: IpAddr, visit: &mut dyn FnMut(&'v Pointer)) {
        if let Some(owners) = self.reverse.get(&address) {
            owners.iter().for_each(visit);
        }
    }

    fn namespace_of(&self, client: IpAddr) -> Option<&str> {
        self.namespace_of_pod(client).map(SmolStr::as_str)
    }

    fn zone(&self) -> &Zone {
        &self.zone
    }

    fn zones(&self) -> &Zones {
        &self.zones
    }
}
