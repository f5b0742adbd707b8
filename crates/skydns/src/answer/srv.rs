//! SRV answers (RFC 2782), and MX and NS answers. An answer holds one record for each entry, and
//! the addresses of the targets in the additional section.

use smallvec::SmallVec;
use wire::{MessageFull, Name, NameForm, RecordHead, Section, pointer_to, rtype};

use super::lookup::Families;
use super::sample::Sample;
use super::{Answer, Answered, Path, path};
use crate::backend::{Entry, Lookup, View, has_room_for};
use crate::record::{Host, ServiceRecord};

/// The type of record that entries are written as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Service,
    /// Entries that are marked as mail exchanges. The priority of the entry is the preference of
    /// the MX record.
    MailExchange,
    /// Entries with addresses.
    NameServer,
}

impl Kind {
    fn rtype(self) -> u16 {
        match self {
            Self::Service => rtype::SRV,
            Self::MailExchange => rtype::MX,
            Self::NameServer => rtype::NS,
        }
    }

    fn includes(self, entry: &Entry<'_>) -> bool {
        match self {
            Self::Service => stands_in_tree(entry) && entry.record.host != Host::Nothing,
            Self::MailExchange => {
                entry.record.host != Host::Nothing
                    && entry.record.extras.is_some_and(|extras| extras.mail)
            }
            Self::NameServer => entry.record.addresses().next().is_some(),
        }
    }

    /// The fields that make records with the same target different.
    fn numbers(self, record: &ServiceRecord<'_>) -> (u16, u16) {
        match self {
            Self::Service => (record.port, record.priority),
            Self::MailExchange => (0, record.priority),
            Self::NameServer => (0, 0),
        }
    }
}

/// An entry to write as a record. Entries with the same target and the same numbers become one
/// record.
#[derive(Debug, Clone)]
struct Service<'v>(Entry<'v>, Kind);

impl PartialEq for Service<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Service<'_> {}

impl std::hash::Hash for Service<'_> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

impl Service<'_> {
    fn key(&self) -> (Target<'_>, (u16, u16)) {
        (Target::of(&self.0), self.1.numbers(&self.0.record))
    }
}

/// The target of an SRV, MX or NS record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Target<'e> {
    /// A label, and the labels after it in wire format, below the zone.
    Member(&'e str, &'e [u8]),
    /// Labels in wire format below the zone.
    Base(&'e [u8]),
    /// An absolute name.
    Name(&'e Name),
}

impl<'e> Target<'e> {
    fn of(entry: &'e Entry<'_>) -> Self {
        match &entry.record.host {
            Host::Name(name) => Self::Name(name),
            Host::Base => Self::Base(entry.record.base),
            // An entry without a label is the apex of the zone.
            _ if entry.label.is_empty() => Self::Base(entry.record.base),
            Host::Member | Host::Address(_) | Host::Several(_) | Host::Nothing => {
                Self::Member(entry.label, entry.record.base)
            }
        }
    }

    /// Whether the target is within the maximum length of a name.
    fn is_possible(self, domain: &Name) -> bool {
        match self {
            Self::Name(_) => true,
            Self::Base(base) => has_room_for(base.len(), domain),
            Self::Member(label, base) => has_room_for(1 + label.len() + base.len(), domain),
        }
    }
}

impl<'q, V: View> Answer<'q, '_, V> {
    /// Writes the records of this type for the entries of a name.
    pub(super) fn services(&mut self, path: &[&str], kind: Kind) -> Answered {
        let domain = self.authority.domain;
        let mut services = Sample::<_, 4>::new(self.room());
        let mut shares = Shares::default();
        let lookup = self.records(path, false, &mut |entry| {
            if kind.includes(&entry) && Target::of(&entry).is_possible(domain) {
                shares.add(&entry);
                services.add(Service(entry, kind));
            }
        });
        match lookup {
            Lookup::Missing => return Answered::Missing,
            Lookup::TargetUnknown => return Answered::Unknown,
            Lookup::Exists => {}
        }
        // Equal services may have different weights. For a transfer the choice is always the same.
        let (services, cut) = if self.asker.zone_data {
            services.into_distinct()
        } else {
            services.into_shuffled()
        };
        if services.is_empty() {
            return Answered::Empty;
        }
        self.truncated |= cut;
        let mut targets: SmallVec<[u16; 4]> = SmallVec::new();
        for service in &services {
            let Ok(target) = self.service(service, shares.weight_of(&service.0)) else {
                self.truncated = true;
                return Answered::Written;
            };
            targets.push(target);
        }
        if self.authority.further.is_some() {
            self.settle_ttls();
        }
        let mark = self.message.mark();
        if !self.asker.zone_data && self.additional(&services, &targets).is_err() {
            // The additional section is left out: a client would take a part of the addresses for
            // all of them.
            self.message.rewind(mark);
        }
        Answered::Written
    }

    /// Writes one record and returns the offset of its target.
    fn service(
        &mut self,
        Service(entry, kind): &Service<'q>,
        weight: u16,
    ) -> Result<u16, MessageFull> {
        let (record, authority) = (&entry.record, self.authority);
        let (domain, ttl) = (
            authority.domain.wire(),
            authority.ttl_of(self.view.zone(), record.ttl),
        );
        let head = RecordHead::internet(Section::Answer, NameForm::Question, kind.rtype(), ttl);
        let mut at = 0;
        self.message.write_record(&head, |m| {
            let numbers: &[u16] = match kind {
                Kind::Service => &[record.priority, weight, record.port],
                Kind::MailExchange => &[record.priority],
                Kind::NameServer => &[],
            };
            for number in numbers {
                m.push_u16(*number);
            }
            at = m.position();
            match Target::of(entry) {
                Target::Name(name) => m.push_uncompressed(&[name.wire()]),
                Target::Base(base) => m.push_uncompressed(&[base, domain]),
                Target::Member(label, base) => {
                    let len = u8::try_from(label.len()).unwrap_or_default();
                    m.push_uncompressed(&[&[len], label.as_bytes(), base, domain]);
                }
            }
        })?;
        // Compression pointers cannot reach far offsets. The offset 0 means that the owner name is
        // written in full.
        Ok(pointer_to(at).unwrap_or_default())
    }

    fn additional(&mut self, services: &[Service<'q>], targets: &[u16]) -> Result<(), MessageFull> {
        let mut seen: SmallVec<[Target<'_>; 8]> = SmallVec::new();
        let mut node = Node {
            base: &[],
            path: path(&[]),
        };
        for (Service(entry, _), &offset) in services.iter().zip(targets) {
            let target = Target::of(entry);
            // The addresses of a target with several ports are written once. An answer holds few
            // targets, so a linear search is fast enough.
            if seen.contains(&target) {
                continue;
            }
            seen.push(target);
            match target {
                Target::Name(name) => self.additional_of_name(name)?,
                Target::Base(base) => self.additional_of_node(&mut node, None, base, offset)?,
                // In SkyDNS style several entries may hold addresses of the same target.
                Target::Member(label, base)
                    if entry.record.is_alias() || self.authority.is_skydns() =>
                {
                    self.additional_of_node(&mut node, Some(label), base, offset)?;
                }
                Target::Member(label, base) => {
                    let ttl = self.target_ttl(entry.record.ttl);
                    for address in entry.record.addresses() {
                        self.target_address(offset, Some(label), base, (address, ttl))?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Writes the addresses of a tree node, or of the entry `label` of the node.
    fn additional_of_node<'n>(
        &mut self,
        node: &mut Node<'n>,
        label: Option<&'n str>,
        base: &'n [u8],
        offset: u16,
    ) -> Result<(), MessageFull> {
        let Some(path) = node.path(base) else {
            return Ok(());
        };
        let depth = path.len();
        path.extend(label);
        let found = self.look_up(self.authority, path, Families::BOTH);
        path.truncate(depth);
        let ttl = self.target_ttl(found.ttl);
        for address in found.addresses.into_shuffled().0 {
            self.target_address(offset, label, base, (address, ttl))?;
        }
        Ok(())
    }

    /// The TTL of a target's addresses, in seconds. All targets in the cluster's zone have the same
    /// TTL.
    fn target_ttl(&self, stored: u32) -> u32 {
        let zone = self.view.zone();
        if self.authority.further.is_some() {
            self.authority.ttl_of(zone, stored)
        } else {
            zone.ttl()
        }
    }

    fn target_address(
        &mut self,
        offset: u16,
        label: Option<&str>,
        base: &[u8],
        (address, ttl): (std::net::IpAddr, u32),
    ) -> Result<(), MessageFull> {
        if offset != 0 {
            return self.message.write_address(
                Section::Additional,
                NameForm::At(offset),
                address,
                ttl,
            );
        }
        let len = [label
            .and_then(|label| u8::try_from(label.len()).ok())
            .unwrap_or_default()];
        let domain = self.authority.domain.wire();
        let owner: &[&[u8]] = match label {
            Some(label) => &[&len, label.as_bytes(), base, domain],
            None => &[base, domain],
        };
        self.message
            .write_address(Section::Additional, NameForm::Parts(owner), address, ttl)
    }
}

/// The node of the last target. The members of one Service share a node, so its path is converted
/// once.
struct Node<'n> {
    base: &'n [u8],
    path: Option<Path<'n>>,
}

impl<'n> Node<'n> {
    fn path(&mut self, base: &'n [u8]) -> Option<&mut Path<'n>> {
        if self.base != base {
            *self = Self {
                base,
                path: path(base),
            };
        }
        self.path.as_mut()
    }
}

/// Sums of the weights in an answer, by priority. A repeated entry counts each time.
#[derive(Default)]
struct Shares(SmallVec<[(u16, u64); 2]>);

impl Shares {
    fn add(&mut self, entry: &Entry<'_>) {
        let priority = entry.record.priority;
        match self.0.iter_mut().find(|(known, _)| *known == priority) {
            Some((_, sum)) => *sum += raw_weight(entry),
            None => self.0.push((priority, raw_weight(entry))),
        }
    }

    /// The weight of an entry, as a percentage of the sum for its priority.
    fn weight_of(&self, entry: &Entry<'_>) -> u16 {
        let sum = self
            .0
            .iter()
            .find(|(priority, _)| *priority == entry.record.priority)
            .map_or(1, |(_, sum)| *sum);
        u16::try_from(100 * raw_weight(entry) / sum.max(1)).unwrap_or(u16::MAX)
    }
}

fn raw_weight(entry: &Entry<'_>) -> u64 {
    match entry.record.weight {
        0 => 100,
        weight => u64::from(weight),
    }
}

/// Whether the entry is stored in the tree, or is an alias. A synthesized pod name has no SRV
/// record, because it offers no service.
fn stands_in_tree(entry: &Entry<'_>) -> bool {
    !entry.synthesized || entry.record.is_alias()
}
