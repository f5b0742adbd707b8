//! Follows aliases (ExternalName, federated names, own-name aliases) to their addresses.
//!
//! A chain of CNAMEs is written whole, with the addresses at its end, or not at all: a client that
//! follows the chain does not use the other addresses of its first name. A chain without addresses
//! is written only if it is all that the name has.

use std::collections::HashMap;
use std::net::IpAddr;

use indexmap::IndexSet;
use smallvec::SmallVec;
use wire::{
    CompressedRecord, MessageFull, Name, NameForm, NameOffsets, Section, WriterMark, class, rtype,
};

use super::lookup::{Alias, Families, Found};
use super::sample::Sample;
use super::{Answer, Answered, path};
use crate::backend::View;
use crate::backend::zones::{Authority, is_ours};
use crate::external::{ExternalAnswer, ExternalQuery, ExternalRecord, STALE_TTL};
use crate::own_names::{MAX_CHAIN, OwnTarget};

/// Maximum number of external queries for one answer. Without a limit, one client query could cause
/// hundreds.
const MAX_QUESTIONS: usize = 32;

/// Result of following a name. For a name with several aliases the greatest result counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ChaseResult {
    /// A loop, a chain that is too long, or no answer from an upstream.
    Failed,
    /// The target does not exist, or has no address of the query's families.
    NoData,
    /// Addresses were written.
    Addresses,
}

/// Whether an alias is written as a CNAME.
#[derive(Debug, Clone, Copy)]
enum CnameMode<'n> {
    /// Write a CNAME with this owner name; `None` is the query name.
    Owner(Option<&'n Name>),
    /// Write no CNAME: the owner name already has one.
    Suppressed,
}

/// The aliases of one name.
struct Aliases<'n> {
    /// The name; `None` for the query name.
    owner: Option<&'n Name>,
    targets: SmallVec<[Alias; 1]>,
    /// Whether the name has addresses besides its aliases, of any family.
    beside_addresses: bool,
}

/// The state of following aliases, within one section of the answer.
struct Walk<'o> {
    section: Section,
    families: Families,
    /// Names from the start of the walk to the current name, in lower case.
    chain: Vec<Name>,
    /// Names whose records are written, in lower case.
    done: IndexSet<Name>,
    /// Upstream records that were written. Two aliases may share records, which are written once.
    /// The set is hashed because an upstream decides the number of records.
    written: IndexSet<&'o ExternalRecord>,
    names: NameOffsets,
    /// Names without addresses, in lower case, each with its result and the length of the chain at
    /// that time. Each name is searched once, even if many aliases point to it.
    dead_ends: HashMap<Name, (ChaseResult, usize)>,
}

struct Step {
    mark: WriterMark,
    done: usize,
    written: usize,
    names: usize,
}

impl Walk<'_> {
    fn new(section: Section, families: Families, start: Option<Name>) -> Self {
        let chain = start.into_iter().collect();
        let (done, written, names) = (IndexSet::new(), IndexSet::new(), NameOffsets::default());
        Self {
            section,
            families,
            chain,
            done,
            written,
            names,
            dead_ends: HashMap::new(),
        }
    }

    /// Whether `name` may be visited: false for a loop, and for a chain at its limit.
    fn may_visit(&self, name: &Name) -> bool {
        !self.chain.contains(&name.to_lowercase()) && self.chain.len() <= MAX_CHAIN
    }

    /// The known result of a name without addresses. The result also holds for longer chains, which
    /// reach the limit earlier.
    fn dead_end(&self, name: &Name) -> Option<ChaseResult> {
        let (reached, length) = self.dead_ends.get(&name.to_lowercase())?;
        (self.chain.len() >= *length).then_some(*reached)
    }
}

impl<'q, V: View> Answer<'q, '_, V> {
    /// Writes the aliases of the query name and their addresses. `beside_addresses` tells whether
    /// the name has other addresses, of any family.
    pub(super) fn aliases(
        &mut self,
        aliases: Sample<Alias, 1>,
        beside_addresses: bool,
        families: Families,
    ) -> Answered {
        let (targets, cut) = aliases.into_shuffled();
        if targets.is_empty() {
            return Answered::Empty;
        }
        self.truncated |= cut;
        if self.asker.zone_data {
            return self.alias_alone(&targets);
        }
        let mut walk = Walk::new(
            Section::Answer,
            families,
            Name::from_wire(self.query.lower()),
        );
        match self.follow_all(
            &mut walk,
            Aliases {
                owner: None,
                targets,
                beside_addresses,
            },
        ) {
            Ok(ChaseResult::Addresses) => Answered::Written,
            Ok(ChaseResult::NoData) if self.message.record_count(Section::Answer) > 0 => {
                Answered::Written
            }
            Ok(ChaseResult::NoData) => Answered::Empty,
            // SkyDNS answers NODATA for a loop and for a name that must not be forwarded.
            Ok(ChaseResult::Failed) if self.authority.is_skydns() && !self.unanswered => {
                Answered::Empty
            }
            Ok(ChaseResult::Failed) => Answered::Failed,
            Err(MessageFull) => {
                self.truncated = true;
                Answered::Written
            }
        }
    }

    /// Writes one CNAME without following it. Of several aliases the choice is always the same.
    fn alias_alone(&mut self, aliases: &[Alias]) -> Answered {
        let Some(alias) = aliases
            .iter()
            .min_by_key(|alias| (&alias.target, alias.ttl))
        else {
            return Answered::Empty;
        };
        self.wrote(|m| m.write_cname(NameForm::Question, alias.target.wire(), alias.ttl))
    }

    /// Writes the addresses of an alias's target to the additional section. Nothing is written if
    /// the target cannot be resolved.
    pub(super) fn additional_of_name(&mut self, target: &Name) -> Result<(), MessageFull> {
        let mut walk = Walk::new(Section::Additional, Families::BOTH, None);
        let step = self.step(&walk);
        if self.visit(&mut walk, target)? == ChaseResult::Failed {
            self.roll_back(&mut walk, &step);
        }
        Ok(())
    }

    /// Follows all aliases of one name.
    ///
    /// A name has at most one CNAME: the CNAME of one alias is written, with the addresses of all
    /// aliases. If no alias has an address, a CNAME is written only for a name without addresses.
    fn follow_all(
        &mut self,
        walk: &mut Walk<'q>,
        aliases: Aliases<'_>,
    ) -> Result<ChaseResult, MessageFull> {
        let Aliases {
            owner,
            targets,
            beside_addresses,
        } = aliases;
        let mut reached = ChaseResult::Failed;
        let mut bare = None;
        for alias in targets {
            let step = self.step(walk);
            let cname = if reached == ChaseResult::Addresses {
                CnameMode::Suppressed
            } else {
                CnameMode::Owner(owner)
            };
            let result = match walk.dead_end(&alias.target) {
                Some(known) => known,
                None => self.follow(walk, cname, &alias)?,
            };
            if result != ChaseResult::Addresses {
                self.roll_back(walk, &step);
            }
            if result == ChaseResult::NoData {
                bare = bare.or(alias.external.then_some(alias));
            }
            reached = reached.max(result);
        }

        if beside_addresses {
            return Ok(reached);
        }
        if let (ChaseResult::NoData, Some(alias)) = (reached, bare) {
            self.write_bare_alias(walk, owner, &alias)?;
        }
        Ok(reached)
    }

    /// Writes an alias without addresses. In the answer section the CNAME is always written. The
    /// additional section is for addresses (RFC 2782): as in kube-dns, the CNAME is written there
    /// only if upstream records of the target follow.
    fn write_bare_alias(
        &mut self,
        walk: &mut Walk<'q>,
        owner: Option<&Name>,
        alias: &Alias,
    ) -> Result<(), MessageFull> {
        let (step, before) = (self.step(walk), self.message.record_count(walk.section));
        self.follow(walk, CnameMode::Owner(owner), alias)?;
        let alone = self.message.record_count(walk.section) == before + 1;
        if walk.section == Section::Additional && alone {
            self.roll_back(walk, &step);
        }
        Ok(())
    }

    /// Writes the CNAME of the alias if `cname` allows a CNAME, and then the records of the target.
    fn follow(
        &mut self,
        walk: &mut Walk<'q>,
        cname: CnameMode<'_>,
        alias: &Alias,
    ) -> Result<ChaseResult, MessageFull> {
        if !walk.may_visit(&alias.target) {
            return Ok(ChaseResult::Failed);
        }
        if let CnameMode::Owner(owner) = cname {
            self.record_of(walk, owner, rtype::CNAME, alias.ttl, alias.target.wire())?;
        }
        self.visit(walk, &alias.target)
    }

    /// Writes the addresses of a name: an own name, a name in one of our zones, or an external
    /// name.
    fn visit(&mut self, walk: &mut Walk<'q>, name: &Name) -> Result<ChaseResult, MessageFull> {
        let lower = name.to_lowercase();
        if !walk.done.insert(lower.clone()) {
            return Ok(ChaseResult::Addresses);
        }
        walk.chain.push(lower.clone());
        let authority = Authority::of(self.view, lower.wire());
        let reached = match (self.view.zone().own(lower.wire()), authority) {
            (Some(target), _) => self.own(walk, name, &target),
            (None, Some(authority)) => {
                self.inside(walk, name, authority, authority.relative(lower.wire()))
            }
            (None, None) => self.external(walk, name),
        };
        walk.chain.pop();
        if let Ok(dead_end @ (ChaseResult::NoData | ChaseResult::Failed)) = reached {
            walk.dead_ends.insert(lower, (dead_end, walk.chain.len()));
        }
        reached
    }

    /// Writes the addresses of an own name: a host or an alias in the configuration.
    fn own(
        &mut self,
        walk: &mut Walk<'q>,
        name: &Name,
        target: &OwnTarget<'_>,
    ) -> Result<ChaseResult, MessageFull> {
        let ttl = self.view.zone().ttl();
        match target {
            OwnTarget::Unresolvable => Ok(ChaseResult::Failed),
            OwnTarget::Name(target) => {
                let alias = Alias {
                    target: Name::clone(target),
                    ttl,
                    external: true,
                };
                let targets = SmallVec::from_iter([alias]);
                self.follow_all(
                    walk,
                    Aliases {
                        owner: Some(name),
                        targets,
                        beside_addresses: false,
                    },
                )
            }
            OwnTarget::Addresses(addresses) => {
                let (families, mut reached) = (walk.families, ChaseResult::NoData);
                for address in addresses
                    .iter()
                    .filter(|address| families.include(**address))
                {
                    self.address_of(walk, name, *address, ttl)?;
                    reached = ChaseResult::Addresses;
                }
                Ok(reached)
            }
        }
    }

    /// Writes the addresses of a name in one of our zones.
    fn inside(
        &mut self,
        walk: &mut Walk<'q>,
        name: &Name,
        authority: Authority<'q>,
        relative: &[u8],
    ) -> Result<ChaseResult, MessageFull> {
        if !authority.records.has_synced() {
            self.unanswered = true;
            return Ok(ChaseResult::Failed);
        }
        let Some(path) = path(relative) else {
            return Ok(ChaseResult::NoData);
        };
        let Found {
            ttl,
            addresses,
            has_addresses,
            aliases,
            ..
        } = self.look_up(authority, &path, walk.families);
        let (addresses, cut) = addresses.into_shuffled();
        let (targets, aliases_cut) = aliases.into_shuffled();
        if (cut || aliases_cut) && walk.section == Section::Additional {
            // The section is left out: a client would take a part of the addresses for all of them.
            return Err(MessageFull);
        }
        self.truncated |= cut || aliases_cut;
        for address in &addresses {
            self.address_of(walk, name, *address, ttl)?;
        }

        let reached = if targets.is_empty() {
            ChaseResult::NoData
        } else {
            let beside_addresses = has_addresses;
            self.follow_all(
                walk,
                Aliases {
                    owner: Some(name),
                    targets,
                    beside_addresses,
                },
            )?
        };
        Ok(if addresses.is_empty() {
            reached
        } else {
            ChaseResult::Addresses
        })
    }

    /// Writes an upstream's records of an external name, or adds a query for them to `needs`.
    fn external(&mut self, walk: &mut Walk<'q>, name: &Name) -> Result<ChaseResult, MessageFull> {
        let mut reached = ChaseResult::Failed;
        for (wanted, qtype) in [
            (walk.families.v4, rtype::A),
            (walk.families.v6, rtype::AAAA),
        ] {
            if !wanted {
                continue;
            }
            let question = ExternalQuery {
                name: name.clone(),
                qtype,
            };
            let answer = match self.external.get(&question) {
                None if !self.may_forward(name) || self.needs.len() == MAX_QUESTIONS => {
                    ChaseResult::Failed
                }
                None => {
                    self.needs.push(question);
                    ChaseResult::Addresses
                }
                Some(ExternalAnswer::Failed) => {
                    self.unanswered = true;
                    ChaseResult::Failed
                }
                Some(ExternalAnswer::Records(records)) => self.external_records(walk, records)?,
                Some(ExternalAnswer::Truncated(records)) => {
                    if walk.section == Section::Additional {
                        // The section is left out: a client would take a part of the addresses for
                        // all of them.
                        return Err(MessageFull);
                    }
                    self.truncated = true;
                    self.external_records(walk, records)?
                }
            };
            reached = reached.max(answer);
        }
        Ok(reached)
    }

    fn external_records(
        &mut self,
        walk: &mut Walk<'q>,
        records: &'q [ExternalRecord],
    ) -> Result<ChaseResult, MessageFull> {
        self.steps
            .set(self.steps.get().saturating_sub(records.len()));
        let ttl = if self.external.is_stale() {
            STALE_TTL
        } else {
            super::EXTERNAL_TTL
        };
        let mut reached = ChaseResult::NoData;
        let mut ours = None;
        for record in records {
            if record.rtype != rtype::CNAME {
                reached = ChaseResult::Addresses;
            }
            let target = (record.rtype == rtype::CNAME)
                .then(|| Name::from_wire(&record.rdata))
                .flatten();
            ours = ours.or_else(|| target.filter(|name| self.is_ours(name)));
            if walk.written.contains(record) {
                continue;
            }
            self.record_of(walk, Some(&record.owner), record.rtype, ttl, &record.rdata)?;
            walk.written.insert(record);
        }
        // A target in our zones is resolved here, not by the upstream.
        let ours = match ours {
            Some(name) if walk.may_visit(&name) => self.visit(walk, &name)?,
            Some(_) => ChaseResult::Failed,
            None => return Ok(reached),
        };
        Ok(if reached == ChaseResult::Addresses {
            reached
        } else {
            ours
        })
    }

    /// Whether an external name may be forwarded. Single-label names are forwarded only to the
    /// upstreams of a stub domain.
    fn may_forward(&self, name: &Name) -> bool {
        name.label_count() >= 2
            || self
                .view
                .zone()
                .servers_for(name.to_lowercase().wire())
                .1
                .is_some()
    }

    fn is_ours(&self, name: &Name) -> bool {
        is_ours(self.view, name.to_lowercase().wire())
    }

    fn address_of(
        &mut self,
        walk: &mut Walk<'q>,
        owner: &Name,
        address: IpAddr,
        ttl: u32,
    ) -> Result<(), MessageFull> {
        match address {
            IpAddr::V4(ip) => self.record_of(walk, Some(owner), rtype::A, ttl, &ip.octets()),
            IpAddr::V6(ip) => self.record_of(walk, Some(owner), rtype::AAAA, ttl, &ip.octets()),
        }
    }

    /// Writes a record of `owner`; without `owner`, a record of the query name.
    fn record_of(
        &mut self,
        walk: &mut Walk<'q>,
        owner: Option<&Name>,
        rtype: u16,
        ttl: u32,
        data: &[u8],
    ) -> Result<(), MessageFull> {
        let record = CompressedRecord {
            section: walk.section,
            owner,
            rtype,
            class: class::IN,
            ttl,
            data,
        };
        walk.names.write_record(&mut self.message, &record)
    }

    fn step(&self, walk: &Walk<'q>) -> Step {
        let (done, written, names) = (walk.done.len(), walk.written.len(), walk.names.count());
        Step {
            mark: self.message.mark(),
            done,
            written,
            names,
        }
    }

    fn roll_back(&mut self, walk: &mut Walk<'q>, step: &Step) {
        self.message.rewind(step.mark);
        walk.done.truncate(step.done);
        walk.written.truncate(step.written);
        walk.names.truncate(step.names);
    }
}
