//! The owner names of a zone: the names of its stored records, the hosts and aliases of the
//! configuration ("own names"), the names `_port._protocol.ALIAS` of these aliases, and the zone
//! cuts.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;

use super::content::{append_labels, zone_cuts};
use super::transferable_authority;
use crate::answer::NAME_SERVER;
use crate::backend::zones::Authority;
use crate::backend::{Records, View, Zone};
use crate::own_names::{OwnNames, OwnTarget};
use crate::search::Search;
use wire::Name;
use wire::name::{MAX_LABEL, labels};

/// Owner names, each as the labels below the zone in wire format, sorted and unique. Wildcards are
/// left out. The apex and its name server are left out, too:
/// [`ZoneContent::append_apex`](super::content::ZoneContent::append_apex) adds their records.
#[derive(Debug, Default)]
pub(super) struct OwnerNames {
    octets: Vec<u8>,
    spans: Vec<NameSpan>,
}

/// The place of a name in the octets of all names.
#[derive(Debug, Clone, Copy)]
struct NameSpan {
    start: u32,
    length: u8,
}

/// The owner names of aliases, by target in wire format.
type AliasesByTarget<'n> = HashMap<Vec<u8>, Vec<&'n [u8]>, RandomState>;

impl OwnerNames {
    /// All names of zone `domain`.
    pub(super) fn of_zone<V: View>(view: &V, domain: &Name) -> Self {
        let mut names = Self::default();
        names.add_zone(view, domain, None);
        names.sort_and_dedup();
        names
    }

    /// The names of zone `domain` whose records may differ between two views. The result is empty
    /// unless the zone can be transferred in both views.
    pub(super) fn differing<V: View>(older: &V, newer: &V, domain: &Name) -> Self {
        let before = transferable_authority(older, domain);
        let after = transferable_authority(newer, domain);
        let (Some(before), Some(after)) = (before, after) else {
            return Self::default();
        };

        // Equal stored records give equal answers only under the same settings.
        let is_comparable = NameSettings::of(older, before) == NameSettings::of(newer, after);

        let mut names = Self::default();
        names.add_zone(older, domain, is_comparable.then_some(after.records));
        names.add_zone(newer, domain, is_comparable.then_some(before.records));
        names.sort_and_dedup();
        names
    }

    pub(super) fn get(&self, position: usize) -> Option<&[u8]> {
        self.spans
            .get(position)
            .map(|span| name_at(&self.octets, *span))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.spans.iter().map(|span| name_at(&self.octets, *span))
    }

    /// Adds the names of zone `domain`, if the zone can be transferred. If `unlike` is given,
    /// stored names whose records are the same in `unlike` may be left out. All other names of the
    /// zone are still added.
    fn add_zone<V: View>(&mut self, view: &V, domain: &Name, unlike: Option<&dyn Records>) {
        let Some(authority) = transferable_authority(view, domain) else {
            return;
        };

        for cut in zone_cuts(view, domain) {
            self.push_name(authority.relative(cut.wire()));
        }
        self.add_own_names(view, domain);

        // If both views share the stored records, no stored record can differ.
        let is_unchanged = unlike.is_some_and(|other| std::ptr::addr_eq(other, authority.records));
        if !is_unchanged {
            self.add_stored_names(authority, unlike);
        }
    }

    /// Adds the names of stored records.
    fn add_stored_names(&mut self, authority: Authority<'_>, unlike: Option<&dyn Records>) {
        let mut owner = Vec::new();
        authority.records.owner_names(unlike, &mut |path| {
            let mut lengths = path.iter().map(|label| label.len());
            if !lengths.all(|length| (1..=MAX_LABEL).contains(&length)) {
                return;
            }

            owner.clear();
            append_labels(path, &mut owner);
            self.push_name(&owner);
        });
    }

    /// Adds the hosts and aliases of the configuration that are in zone `domain`, and the names of
    /// ports below the aliases.
    fn add_own_names<V: View>(&mut self, view: &V, domain: &Name) {
        let Some(own_names) = view.zone().own_names.as_deref() else {
            return;
        };

        let mut aliases = AliasesByTarget::default();
        for (name, _) in own_names.iter() {
            // A name below `domain` may belong to another zone, whose domain is longer.
            let holder = Authority::of(view, name).filter(|holder| holder.domain == domain);
            let Some(holder) = holder else {
                continue;
            };

            let owner = holder.relative(name);
            self.push_name(owner);
            if let Some(OwnTarget::Name(target)) = own_names.find(name) {
                aliases
                    .entry(target.wire().to_vec())
                    .or_default()
                    .push(owner);
            }
        }

        for target in holding_zones(view, aliases.keys()) {
            self.add_ports(target, &aliases);
        }
    }

    /// Adds the names of the ports below each alias in `aliases` whose target is a name in the zone
    /// `target`.
    fn add_ports(&mut self, target: Authority<'_>, aliases: &AliasesByTarget<'_>) {
        target.records.owner_names(None, &mut |path| {
            let [above @ .., protocol, port] = path else {
                return;
            };

            // The labels of a port begin with an underscore (RFC 2782).
            if !protocol.starts_with('_') || !port.starts_with('_') {
                return;
            }

            let mut service = Vec::new();
            append_labels(above, &mut service);
            service.extend_from_slice(target.domain.wire());
            for alias in aliases.get(&service).into_iter().flatten() {
                let mut owner = Vec::new();
                append_labels(&[protocol, port], &mut owner);
                owner.extend_from_slice(alias);
                self.push_name(&owner);
            }
        });
    }

    /// Adds a name, unless it is a wildcard, the apex or the name server.
    fn push_name(&mut self, owner: &[u8]) {
        if owner.is_empty() || owner == NAME_SERVER || labels(owner).any(|label| label == b"*") {
            return;
        }

        let start = u32::try_from(self.octets.len());
        let length = u8::try_from(owner.len());
        // Labels of more than 255 octets in total are not a valid name, and are left out.
        if let (Ok(start), Ok(length)) = (start, length) {
            self.octets.extend_from_slice(owner);
            self.spans.push(NameSpan { start, length });
        }
    }

    fn sort_and_dedup(&mut self) {
        let octets = &self.octets;
        self.spans
            .sort_unstable_by_key(|span| name_at(octets, *span));
        self.spans.dedup_by_key(|span| name_at(octets, *span));
    }
}

fn name_at(octets: &[u8], span: NameSpan) -> &[u8] {
    let start = usize::try_from(span.start).unwrap_or(usize::MAX);
    let end = start.saturating_add(span.length.into());
    octets.get(start..end).unwrap_or_default()
}

/// The zones that hold `names` (wire format, lower case), each zone once.
fn holding_zones<'v, V: View>(
    view: &'v V,
    names: impl Iterator<Item = impl AsRef<[u8]>>,
) -> Vec<Authority<'v>> {
    let mut zones: Vec<Authority<'v>> = Vec::new();
    for holder in names.filter_map(|name| Authority::of(view, name.as_ref())) {
        if !zones.iter().any(|known| known.domain == holder.domain) {
            zones.push(holder);
        }
    }
    zones
}

/// All settings that the answers for a stored name depend on. Hosts and aliases of the
/// configuration override stored names, and an alias also overrides the ports below it.
#[derive(PartialEq)]
struct NameSettings<'v> {
    strict: bool,
    ttl: Option<u32>,
    zone_ttl: Option<u32>,
    skydns: bool,
    search: Option<&'v Search>,
    /// Comparing the pointers is enough, because [`OwnNames`] are never modified in place.
    own_names: Option<*const OwnNames>,
    cluster_domains: Vec<&'v Name>,
    stub_domains: Vec<&'v Name>,
    further_zones: Vec<&'v Name>,
}

impl<'v> NameSettings<'v> {
    fn of<V: View>(view: &'v V, authority: Authority<'v>) -> Self {
        let zone: &Zone = view.zone();
        let stub_domains = zone.stub_domains().iter();

        Self {
            strict: zone.strict,
            ttl: zone.ttl,
            zone_ttl: authority.further.and_then(|further| further.ttl),
            skydns: authority.is_skydns(),
            search: zone.search.as_deref(),
            own_names: zone.own_names.as_ref().map(Arc::as_ptr),
            cluster_domains: std::iter::once(&zone.domain)
                .chain(zone.other_domains.iter())
                .collect(),
            stub_domains: stub_domains.map(|(domain, _)| domain).collect(),
            further_zones: view.zones().iter().map(|zone| &zone.domain).collect(),
        }
    }
}
