//! SRV answers (RFC 2782), MX answers, and the NS answers of zones in [SkyDNS
//! style](crate::FurtherZone::skydns). An answer holds one record for each distinct entry, as far
//! as the records fit. Except in a zone transfer, the additional section holds the known addresses
//! of the targets, if all of them fit.

use std::net::IpAddr;

use smallvec::SmallVec;
use wire::{MessageFull, Name, NameForm, RecordHead, Section, pointer_to, rtype};

use super::lookup::AddressFamilies;
use super::sample::RandomSample;
use super::{AnswerStatus, AnswerWriter, LabelPath, label_path};
use crate::backend::{Entry, Lookup, View, has_room_for};
use crate::record::{Host, ServiceRecord};

/// The type of the records that entries are written as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TargetType {
    Service,
    /// MX records, for the entries that are marked as mail exchanges and have a host. The
    /// preference of the record is the priority of the entry.
    MailExchange,
    /// NS records, for the entries that have addresses.
    NameServer,
}

impl TargetType {
    fn rtype(self) -> u16 {
        match self {
            Self::Service => rtype::SRV,
            Self::MailExchange => rtype::MX,
            Self::NameServer => rtype::NS,
        }
    }

    fn includes(self, entry: &Entry<'_>) -> bool {
        match self {
            Self::Service => is_stored(entry) && entry.record.host != Host::Nothing,
            Self::MailExchange => {
                let is_mail = entry.record.extras.is_some_and(|extras| extras.mail);
                is_mail && entry.record.host != Host::Nothing
            }
            Self::NameServer => entry.record.addresses().next().is_some(),
        }
    }
}

/// An entry to write as a record. Entries with the same [identity](TargetIdentity) become one
/// record.
#[derive(Debug, Clone)]
struct TargetEntry<'v> {
    entry: Entry<'v>,
    target_type: TargetType,
}

/// The fields that are compared to find repeated records. The weight of an SRV record is not
/// compared.
#[derive(PartialEq, Eq, Hash)]
struct TargetIdentity<'e> {
    name: TargetName<'e>,
    port: u16,
    priority: u16,
}

impl PartialEq for TargetEntry<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }
}

impl Eq for TargetEntry<'_> {}

impl std::hash::Hash for TargetEntry<'_> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.identity().hash(state);
    }
}

impl TargetEntry<'_> {
    fn identity(&self) -> TargetIdentity<'_> {
        let record: &ServiceRecord<'_> = &self.entry.record;
        let (port, priority) = match self.target_type {
            TargetType::Service => (record.port, record.priority),
            TargetType::MailExchange => (0, record.priority),
            TargetType::NameServer => (0, 0),
        };
        TargetIdentity {
            name: TargetName::of_entry(&self.entry),
            port,
            priority,
        }
    }
}

/// The target of an SRV, MX or NS record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum TargetName<'e> {
    /// The first label as text, and the other labels below the zone in wire format.
    Member(&'e str, &'e [u8]),
    /// Labels in wire format below the zone.
    Base(&'e [u8]),
    /// An absolute name.
    Name(&'e Name),
}

impl<'e> TargetName<'e> {
    fn of_entry(entry: &'e Entry<'_>) -> Self {
        match &entry.record.host {
            Host::Name(name) => Self::Name(name),
            Host::Base => Self::Base(entry.record.base),
            // An entry without a label is at the apex of the zone.
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

/// The owner of an address record in the additional section.
struct TargetOwner<'n> {
    /// The offset of the name in the message; 0 if a pointer cannot reach it.
    offset: u16,
    /// The first label, if `base` lacks it.
    label: Option<&'n str>,
    /// Labels in wire format below the zone.
    base: &'n [u8],
}

impl<'q, V: View> AnswerWriter<'q, '_, V> {
    /// Writes the records of this type for the entries of a name.
    pub(super) fn write_targets(&mut self, path: &[&str], target_type: TargetType) -> AnswerStatus {
        let domain = self.authority.domain;
        let mut entries = RandomSample::<_, 4>::new(self.max_records());
        let mut weights = WeightSums::default();
        let lookup = self.visit_entries(self.authority, path, false, &mut |entry| {
            let is_possible = TargetName::of_entry(&entry).is_possible(domain);
            if is_possible && target_type.includes(&entry) {
                // A weight is a percentage of the sum over all entries of the same priority,
                // including those that are dropped later.
                weights.add(&entry);
                entries.add(TargetEntry { entry, target_type });
            }
        });
        match lookup {
            Lookup::Missing => return AnswerStatus::Missing,
            Lookup::TargetUnknown => return AnswerStatus::Unknown,
            Lookup::Exists => {}
        }

        // Of several equal entries, the first is kept, although the entries may differ in weight. A
        // transfer needs no random order.
        let chosen = if self.context.zone_data {
            entries.into_distinct()
        } else {
            entries.into_shuffled()
        };
        if chosen.items.is_empty() {
            return AnswerStatus::Empty;
        }
        self.truncated |= chosen.is_cut;

        let mut offsets: SmallVec<[u16; 4]> = SmallVec::new();
        for target in &chosen.items {
            let Ok(offset) = self.write_target_record(target, weights.share_of(&target.entry))
            else {
                self.truncated = true;
                return AnswerStatus::Written;
            };
            offsets.push(offset);
        }
        if self.authority.further.is_some() {
            self.lower_answer_ttls();
        }

        // If the additional section does not fit, it is left out, because a client would take an
        // incomplete list of addresses for the complete one.
        let mark = self.message.mark();
        if !self.context.zone_data && self.write_additional(&chosen.items, &offsets).is_err() {
            self.message.rewind(mark);
        }
        AnswerStatus::Written
    }

    /// Writes one record and returns the offset of its target.
    fn write_target_record(
        &mut self,
        target: &TargetEntry<'q>,
        weight: u16,
    ) -> Result<u16, MessageFull> {
        let entry = &target.entry;
        let record = &entry.record;
        let domain = self.authority.domain.wire();
        let ttl = self.authority.ttl_of(self.view.zone(), record.ttl);

        let rtype = target.target_type.rtype();
        let head = RecordHead::internet(Section::Answer, NameForm::Question, rtype, ttl);
        let mut at = 0;
        self.message.write_record(&head, |m| {
            let numbers: &[u16] = match target.target_type {
                TargetType::Service => &[record.priority, weight, record.port],
                TargetType::MailExchange => &[record.priority],
                TargetType::NameServer => &[],
            };
            for number in numbers {
                m.push_u16(*number);
            }

            // RFC 2782: the target of an SRV record is not compressed.
            at = m.position();
            match TargetName::of_entry(entry) {
                TargetName::Name(name) => m.push_uncompressed(&[name.wire()]),
                TargetName::Base(base) => m.push_uncompressed(&[base, domain]),
                TargetName::Member(label, base) => {
                    let len = u8::try_from(label.len()).unwrap_or_default();
                    m.push_uncompressed(&[&[len], label.as_bytes(), base, domain]);
                }
            }
        })?;

        // Compression pointers cannot reach far offsets. The offset 0 means that the owner name is
        // written in full.
        Ok(pointer_to(at).unwrap_or_default())
    }

    /// Writes the addresses of all targets, each target once.
    fn write_additional(
        &mut self,
        targets: &[TargetEntry<'q>],
        offsets: &[u16],
    ) -> Result<(), MessageFull> {
        let mut seen: SmallVec<[TargetName<'_>; 8]> = SmallVec::new();
        let mut node = TargetNode {
            base: &[],
            path: label_path(&[]),
        };

        for (target, &offset) in targets.iter().zip(offsets) {
            let entry = &target.entry;
            let name = TargetName::of_entry(entry);
            // The addresses of a target with several ports are written once. Most answers hold few
            // targets, so a linear search is fast enough.
            if seen.contains(&name) {
                continue;
            }
            seen.push(name);

            match name {
                TargetName::Name(name) => self.write_additional_of_name(name)?,
                TargetName::Base(base) => {
                    let owner = TargetOwner {
                        offset,
                        label: None,
                        base,
                    };
                    self.write_additional_of_node(&mut node, &owner)?;
                }
                TargetName::Member(label, base) => {
                    let owner = TargetOwner {
                        offset,
                        label: Some(label),
                        base,
                    };
                    // In SkyDNS style, several entries may hold addresses of the same target.
                    if entry.record.is_alias() || self.authority.is_skydns() {
                        self.write_additional_of_node(&mut node, &owner)?;
                    } else {
                        let ttl = self.target_ttl(entry.record.ttl);
                        for address in entry.record.addresses() {
                            self.write_target_address(&owner, address, ttl)?;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Looks up a target in the zone, and writes its addresses. The name of the target is
    /// `owner.label`, if there is one, then `owner.base` and the domain of the zone.
    fn write_additional_of_node<'n>(
        &mut self,
        node: &mut TargetNode<'n>,
        owner: &TargetOwner<'n>,
    ) -> Result<(), MessageFull> {
        let Some(path) = node.path_of(owner.base) else {
            return Ok(());
        };
        let depth = path.len();
        path.extend(owner.label);
        let content = self.look_up(self.authority, path, AddressFamilies::BOTH);
        // The next target may have the same `base`. So the path is kept, but without the label.
        path.truncate(depth);

        let ttl = self.target_ttl(content.ttl);
        for address in content.addresses.into_shuffled().items {
            self.write_target_address(owner, address, ttl)?;
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

    fn write_target_address(
        &mut self,
        owner: &TargetOwner<'_>,
        address: IpAddr,
        ttl: u32,
    ) -> Result<(), MessageFull> {
        // A pointer is shorter than the name, but can only reach a near offset.
        if owner.offset != 0 {
            let name = NameForm::At(owner.offset);
            return self
                .message
                .write_address(Section::Additional, name, address, ttl);
        }

        let label_len = owner.label.map_or(0, str::len);
        let len = [u8::try_from(label_len).unwrap_or_default()];
        let domain = self.authority.domain.wire();
        let parts: &[&[u8]] = match owner.label {
            Some(label) => &[&len, label.as_bytes(), owner.base, domain],
            None => &[owner.base, domain],
        };
        self.message
            .write_address(Section::Additional, NameForm::Parts(parts), address, ttl)
    }
}

/// The `base` of the last target that was looked up, and the labels of this `base` as a path. If
/// the next target has the same `base`, the path is used again.
struct TargetNode<'n> {
    base: &'n [u8],
    path: Option<LabelPath<'n>>,
}

impl<'n> TargetNode<'n> {
    fn path_of(&mut self, base: &'n [u8]) -> Option<&mut LabelPath<'n>> {
        if self.base != base {
            self.base = base;
            self.path = label_path(base);
        }
        self.path.as_mut()
    }
}

/// Sums of the weights of entries, by priority. A repeated entry is added each time.
#[derive(Default)]
struct WeightSums(SmallVec<[(u16, u64); 2]>);

impl WeightSums {
    fn add(&mut self, entry: &Entry<'_>) {
        let priority = entry.record.priority;
        match self.0.iter_mut().find(|(known, _)| *known == priority) {
            Some((_, sum)) => *sum += raw_weight(entry),
            None => self.0.push((priority, raw_weight(entry))),
        }
    }

    /// The weight of an entry, as a percentage of the sum for its priority.
    fn share_of(&self, entry: &Entry<'_>) -> u16 {
        let priority = entry.record.priority;
        let sum = match self.0.iter().find(|(known, _)| *known == priority) {
            Some((_, sum)) => *sum,
            None => 1,
        };
        // SkyDNS writes percentages, and gives an entry without a weight the weight 100.
        u16::try_from(100 * raw_weight(entry) / sum.max(1)).unwrap_or(u16::MAX)
    }
}

fn raw_weight(entry: &Entry<'_>) -> u64 {
    match entry.record.weight {
        0 => 100,
        weight => u64::from(weight),
    }
}

/// Whether the entry is not synthesized, or is an alias. A synthesized pod name has no SRV record,
/// because it offers no service.
fn is_stored(entry: &Entry<'_>) -> bool {
    !entry.synthesized || entry.record.is_alias()
}
