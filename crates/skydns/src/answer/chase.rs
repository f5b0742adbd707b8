//! Follows aliases to their addresses: ExternalName Services, federated names, and aliases of
//! further zones and of the configuration. The targets of SRV and MX records are followed, too.
//!
//! A chain of CNAMEs is written as a whole, together with the addresses at its end. A client that
//! follows a CNAME ignores the other addresses of the queried name. A chain without addresses would
//! hide these addresses, so it is written only if the queried name has no other addresses.

use std::collections::HashMap;
use std::net::IpAddr;

use indexmap::IndexSet;
use smallvec::SmallVec;
use wire::{
    CompressedRecord, MessageFull, Name, NameForm, NameOffsets, Section, WriterMark, class, rtype,
};

use super::lookup::{AddressFamilies, Alias};
use super::sample::RandomSample;
use super::{AnswerStatus, AnswerWriter, label_path};
use crate::backend::zones::{Authority, external_route, is_ours};
use crate::backend::{ExternalRoute, Lookup, View};
use crate::external::{ExternalAnswer, ExternalQuery, ExternalRecord, MAX_QUESTIONS, STALE_TTL};
use crate::own_names::{LOOPBACK, MAX_CHAIN, OwnTarget};

/// Result of following a name. A name with several aliases has the greatest of their results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ChaseResult {
    /// A loop, a chain that is too long, a target that must not be forwarded, records that are not
    /// loaded, or no usable answer from an upstream.
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
struct AliasSet<'n> {
    /// The name; `None` for the query name.
    owner: Option<&'n Name>,
    targets: SmallVec<[Alias; 1]>,
    /// Whether the name has addresses of any family, in addition to its aliases.
    beside_addresses: bool,
}

/// The state of a walk along aliases, within one section of the answer.
struct AliasWalk<'o> {
    section: Section,
    families: AddressFamilies,
    /// Names from the start of the walk to the current name, in lower case.
    chain: Vec<Name>,
    /// Names that were followed and not rolled back, in lower case.
    done: IndexSet<Name>,
    /// Upstream records that were written. Two aliases may share records, which are written once.
    /// An upstream may send many records, so the records are in a hash set.
    written: IndexSet<&'o ExternalRecord>,
    names: NameOffsets,
    /// Names without addresses, in lower case. Without this map, such a name would be followed once
    /// for each alias that points to it.
    dead_ends: HashMap<Name, DeadEnd>,
}

/// A name without addresses.
struct DeadEnd {
    result: ChaseResult,
    /// The length of the chain to the name.
    chain_length: usize,
}

/// A position to which the walk can be rolled back.
struct WalkMark {
    mark: WriterMark,
    done: usize,
    written: usize,
    names: usize,
}

impl AliasWalk<'_> {
    fn new(section: Section, families: AddressFamilies, start: Option<Name>) -> Self {
        Self {
            section,
            families,
            chain: start.into_iter().collect(),
            done: IndexSet::new(),
            written: IndexSet::new(),
            names: NameOffsets::default(),
            dead_ends: HashMap::new(),
        }
    }

    /// Whether `name` may be visited: false for a loop, and for a chain at its limit.
    fn may_visit(&self, name: &Name) -> bool {
        !self.chain.contains(&name.to_lowercase()) && self.chain.len() <= MAX_CHAIN
    }

    /// The known result of a name without addresses. The result holds for chains that are at least
    /// as long as the chain with which it was found. A shorter chain reaches the limit later, so
    /// the name is followed again.
    fn dead_end(&self, name: &Name) -> Option<ChaseResult> {
        let known = self.dead_ends.get(&name.to_lowercase())?;
        (self.chain.len() >= known.chain_length).then_some(known.result)
    }
}

impl<'q, V: View> AnswerWriter<'q, '_, V> {
    /// Writes the aliases of the query name and their addresses. `beside_addresses` is true if the
    /// name also has addresses of any family.
    pub(super) fn write_aliases(
        &mut self,
        aliases: RandomSample<Alias, 1>,
        beside_addresses: bool,
        families: AddressFamilies,
    ) -> AnswerStatus {
        let chosen = aliases.into_shuffled();
        if chosen.items.is_empty() {
            return AnswerStatus::Empty;
        }
        self.truncated |= chosen.is_cut;
        // A transfer contains only the zone's own records, not the records of an alias's target.
        if self.context.zone_data {
            return self.write_alias_alone(&chosen.items);
        }

        // The query name begins the chain, so that an alias back to it is a loop.
        let query_name = Name::from_wire(self.query.lower());
        let mut walk = AliasWalk::new(Section::Answer, families, query_name);
        let aliases = AliasSet {
            owner: None,
            targets: chosen.items,
            beside_addresses,
        };
        let Ok(result) = self.follow_all(&mut walk, aliases) else {
            self.truncated = true;
            return AnswerStatus::Written;
        };
        self.status_of_chase(result)
    }

    fn status_of_chase(&self, result: ChaseResult) -> AnswerStatus {
        match result {
            ChaseResult::Addresses => AnswerStatus::Written,
            ChaseResult::NoData if self.message.record_count(Section::Answer) > 0 => {
                AnswerStatus::Written
            }
            ChaseResult::NoData => AnswerStatus::Empty,
            // A zone in SkyDNS style answers NODATA for a loop and for a name that must not be
            // forwarded, as the server SkyDNS did.
            ChaseResult::Failed if self.authority.is_skydns() && !self.unanswered => {
                AnswerStatus::Empty
            }
            ChaseResult::Failed => AnswerStatus::Failed,
        }
    }

    /// Writes the CNAME of one alias without following it. Of several aliases, the same one is
    /// always written.
    fn write_alias_alone(&mut self, aliases: &[Alias]) -> AnswerStatus {
        // A random choice would look like a change of the zone in an incremental transfer.
        let first = aliases
            .iter()
            .min_by_key(|alias| (&alias.target, alias.ttl));
        match first {
            Some(alias) => self
                .try_write(|m| m.write_cname(NameForm::Question, alias.target.wire(), alias.ttl)),
            None => AnswerStatus::Empty,
        }
    }

    /// Writes the addresses of the target of an SRV or MX record to the additional section. Nothing
    /// is written if the target cannot be resolved.
    pub(super) fn write_additional_of_name(&mut self, target: &Name) -> Result<(), MessageFull> {
        let mut walk = AliasWalk::new(Section::Additional, AddressFamilies::BOTH, None);
        let mark = self.mark_walk(&walk);
        if self.follow_name(&mut walk, target)? == ChaseResult::Failed {
            self.roll_back(&mut walk, &mark);
        }
        Ok(())
    }

    /// Follows all aliases of one name.
    ///
    /// A name has at most one CNAME: the CNAME of one alias is written, with the addresses of all
    /// aliases. If no alias leads to an address, a CNAME is written only if the name itself has no
    /// addresses either.
    fn follow_all(
        &mut self,
        walk: &mut AliasWalk<'q>,
        aliases: AliasSet<'_>,
    ) -> Result<ChaseResult, MessageFull> {
        let AliasSet {
            owner,
            targets,
            beside_addresses,
        } = aliases;
        let mut reached = ChaseResult::Failed;
        let mut bare = None;

        for alias in targets {
            let mark = self.mark_walk(walk);
            let cname = if reached == ChaseResult::Addresses {
                CnameMode::Suppressed
            } else {
                CnameMode::Owner(owner)
            };
            let result = match walk.dead_end(&alias.target) {
                Some(known) => known,
                None => self.follow_alias(walk, cname, &alias)?,
            };

            // A client that follows an alias without addresses would ignore the addresses of the
            // other aliases.
            if result != ChaseResult::Addresses {
                self.roll_back(walk, &mark);
            }
            if result == ChaseResult::NoData && alias.external && bare.is_none() {
                bare = Some(alias);
            }
            reached = reached.max(result);
        }

        // The CNAME of an alias without addresses is written only after the loop, because any alias
        // may lead to an address.
        if reached == ChaseResult::NoData
            && !beside_addresses
            && let Some(alias) = bare
        {
            self.write_bare_alias(walk, owner, &alias)?;
        }
        Ok(reached)
    }

    /// Writes an alias without addresses. In the answer section, the CNAME is always written. The
    /// additional section is for addresses (RFC 2782). There, the CNAME is left out if no other
    /// record follows it. kube-dns does the same.
    fn write_bare_alias(
        &mut self,
        walk: &mut AliasWalk<'q>,
        owner: Option<&Name>,
        alias: &Alias,
    ) -> Result<(), MessageFull> {
        let mark = self.mark_walk(walk);
        let before = self.message.record_count(walk.section);
        self.follow_alias(walk, CnameMode::Owner(owner), alias)?;

        let is_alone = self.message.record_count(walk.section) == before + 1;
        if walk.section == Section::Additional && is_alone {
            self.roll_back(walk, &mark);
        }
        Ok(())
    }

    /// Writes the CNAME of the alias if `cname` allows a CNAME, and then the records of the target.
    fn follow_alias(
        &mut self,
        walk: &mut AliasWalk<'q>,
        cname: CnameMode<'_>,
        alias: &Alias,
    ) -> Result<ChaseResult, MessageFull> {
        if !walk.may_visit(&alias.target) {
            return Ok(ChaseResult::Failed);
        }

        if let CnameMode::Owner(owner) = cname {
            self.write_walk_record(walk, owner, rtype::CNAME, alias.ttl, alias.target.wire())?;
        }
        self.follow_name(walk, &alias.target)
    }

    /// Writes the addresses of a name: a host or an alias of the configuration, a name in one of
    /// our zones, or an external name.
    fn follow_name(
        &mut self,
        walk: &mut AliasWalk<'q>,
        name: &Name,
    ) -> Result<ChaseResult, MessageFull> {
        let lower = name.to_lowercase();
        // If another alias has led to this name before, its records are already in the message, or
        // the name is a dead end.
        if !walk.done.insert(lower.clone()) {
            let known = walk.dead_ends.get(&lower);
            return Ok(known.map_or(ChaseResult::Addresses, |dead_end| dead_end.result));
        }

        walk.chain.push(lower.clone());
        // Hosts and aliases of the configuration override all domains, as they do for a query name.
        let result = if let Some(target) = self.view.zone().own(lower.wire()) {
            self.follow_own_name(walk, name, &target)
        } else if let Some(authority) = Authority::of(self.view, lower.wire()) {
            let relative = authority.relative(lower.wire());
            self.follow_zone_name(walk, name, authority, relative)
        } else {
            self.follow_external_name(walk, name)
        };
        walk.chain.pop();

        if let Ok(dead_end @ (ChaseResult::NoData | ChaseResult::Failed)) = result {
            let known = DeadEnd {
                result: dead_end,
                chain_length: walk.chain.len(),
            };
            walk.dead_ends.insert(lower, known);
        }
        result
    }

    /// Writes the addresses of an own name: a host or an alias in the configuration.
    fn follow_own_name(
        &mut self,
        walk: &mut AliasWalk<'q>,
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
                let aliases = AliasSet {
                    owner: Some(name),
                    targets: SmallVec::from_iter([alias]),
                    beside_addresses: false,
                };
                self.follow_all(walk, aliases)
            }
            OwnTarget::Addresses(addresses) => {
                self.follow_host(walk, name, addresses, walk.families)
            }
        }
    }

    /// Writes the addresses of a host of the configuration, or of `localhost`.
    fn follow_host(
        &mut self,
        walk: &mut AliasWalk<'q>,
        name: &Name,
        addresses: &[IpAddr],
        families: AddressFamilies,
    ) -> Result<ChaseResult, MessageFull> {
        let ttl = self.view.zone().ttl();
        let mut reached = ChaseResult::NoData;
        for address in addresses {
            if families.include(*address) {
                self.write_walk_address(walk, name, *address, ttl)?;
                reached = ChaseResult::Addresses;
            }
        }
        Ok(reached)
    }

    /// Writes the addresses of a name in one of our zones. A missing name may fall through.
    fn follow_zone_name(
        &mut self,
        walk: &mut AliasWalk<'q>,
        name: &Name,
        authority: Authority<'q>,
        relative: &[u8],
    ) -> Result<ChaseResult, MessageFull> {
        // Before the first sync, the answer is a failure: clients retry after a failure, but would
        // cache NODATA.
        if !authority.records.has_synced() {
            self.unanswered = true;
            return Ok(ChaseResult::Failed);
        }
        let Some(path) = label_path(relative) else {
            return self.follow_missing_name(walk, name, authority);
        };

        let content = self.look_up(authority, &path, walk.families);
        if content.lookup == Lookup::Missing && !self.exists_without_records(authority, &path) {
            return self.follow_missing_name(walk, name, authority);
        }
        let addresses = content.addresses.into_shuffled();
        let aliases = content.aliases.into_shuffled();
        let is_cut = addresses.is_cut || aliases.is_cut;
        if is_cut && walk.section == Section::Additional {
            // The additional section is left out, because a client would take an incomplete list of
            // addresses for the complete one.
            return Err(MessageFull);
        }
        self.truncated |= is_cut;

        for address in &addresses.items {
            self.write_walk_address(walk, name, *address, content.ttl)?;
        }
        let mut reached = ChaseResult::NoData;
        if !aliases.items.is_empty() {
            let aliases = AliasSet {
                owner: Some(name),
                targets: aliases.items,
                beside_addresses: content.has_addresses,
            };
            reached = self.follow_all(walk, aliases)?;
        }

        if addresses.items.is_empty() {
            Ok(reached)
        } else {
            Ok(ChaseResult::Addresses)
        }
    }

    /// Follows a name that does not exist in its zone. If the name falls through, upstreams are
    /// queried for it.
    fn follow_missing_name(
        &mut self,
        walk: &mut AliasWalk<'q>,
        name: &Name,
        authority: Authority<'q>,
    ) -> Result<ChaseResult, MessageFull> {
        if authority.falls_through(self.view.zone(), name.to_lowercase().wire()) {
            self.follow_external_name(walk, name)
        } else {
            Ok(ChaseResult::NoData)
        }
    }

    /// Writes an upstream's records of an external name, or adds a query for them to `needs`.
    fn follow_external_name(
        &mut self,
        walk: &mut AliasWalk<'q>,
        name: &Name,
    ) -> Result<ChaseResult, MessageFull> {
        let mut reached = ChaseResult::Failed;
        if walk.families.v4 {
            reached = reached.max(self.follow_external_type(walk, name, rtype::A)?);
        }
        if walk.families.v6 {
            reached = reached.max(self.follow_external_type(walk, name, rtype::AAAA)?);
        }
        Ok(reached)
    }

    fn follow_external_type(
        &mut self,
        walk: &mut AliasWalk<'q>,
        name: &Name,
        qtype: u16,
    ) -> Result<ChaseResult, MessageFull> {
        let lower = name.to_lowercase();
        match external_route(self.view, lower.wire(), qtype) {
            // A rule of the configuration may answer the name instead of an upstream. The resolver
            // applies this rule when it looks up the queries in `needs`.
            ExternalRoute::Rule(_) | ExternalRoute::Forward => {}
            ExternalRoute::SingleLabel => return Ok(ChaseResult::Failed),
            ExternalRoute::Localhost => {
                let families = AddressFamilies::of_type(qtype).unwrap_or(walk.families);
                return self.follow_host(walk, name, &LOOPBACK, families);
            }
        }

        let question = ExternalQuery {
            name: name.clone(),
            qtype,
        };
        match self.external.get(&question) {
            None if self.external.is_closed() => {
                self.unanswered = true;
                // If the maximum number of queries is reached, some aliases were never looked up. A
                // client would take the message for complete. `steps` is the work that this answer
                // may still do. If it is zero, the engine discards the message.
                if self.external.is_full() && walk.section == Section::Answer {
                    self.steps.set(0);
                }
                Ok(ChaseResult::Failed)
            }
            // The result does not matter: the engine discards this message and runs again.
            None => {
                let is_known = self.needs.contains(&question);
                // Several aliases may have the same target.
                if !is_known && self.needs.len() < MAX_QUESTIONS {
                    self.needs.push(question);
                }
                Ok(ChaseResult::Addresses)
            }
            Some(ExternalAnswer::Failed) => {
                self.unanswered = true;
                Ok(ChaseResult::Failed)
            }
            Some(ExternalAnswer::Records(records)) => self.write_external_records(walk, records),
            // The additional section is left out, because a client would take an incomplete list of
            // addresses for the complete one.
            Some(ExternalAnswer::Truncated(_)) if walk.section == Section::Additional => {
                Err(MessageFull)
            }
            Some(ExternalAnswer::Truncated(records)) => {
                self.truncated = true;
                self.write_external_records(walk, records)
            }
        }
    }

    fn write_external_records(
        &mut self,
        walk: &mut AliasWalk<'q>,
        records: &'q [ExternalRecord],
    ) -> Result<ChaseResult, MessageFull> {
        // An upstream decides the number of records, so each record counts as a step of work.
        let left = self.steps.get().saturating_sub(records.len());
        self.steps.set(left);
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
            } else if let Some(target) = Name::from_wire(&record.rdata)
                && ours.is_none()
                && self.is_ours(&target)
            {
                ours = Some(target);
            }

            if !walk.written.contains(record) {
                let owner = Some(&record.owner);
                self.write_walk_record(walk, owner, record.rtype, ttl, &record.rdata)?;
                walk.written.insert(record);
            }
        }

        // A target in our zones is resolved by this server, not by the upstream.
        let Some(target) = ours else {
            return Ok(reached);
        };
        let mut result = ChaseResult::Failed;
        if walk.may_visit(&target) {
            result = self.follow_name(walk, &target)?;
        }
        if reached == ChaseResult::Addresses {
            Ok(reached)
        } else {
            Ok(result)
        }
    }

    fn is_ours(&self, name: &Name) -> bool {
        is_ours(self.view, name.to_lowercase().wire())
    }

    fn write_walk_address(
        &mut self,
        walk: &mut AliasWalk<'q>,
        owner: &Name,
        address: IpAddr,
        ttl: u32,
    ) -> Result<(), MessageFull> {
        match address {
            IpAddr::V4(ip) => {
                self.write_walk_record(walk, Some(owner), rtype::A, ttl, &ip.octets())
            }
            IpAddr::V6(ip) => {
                self.write_walk_record(walk, Some(owner), rtype::AAAA, ttl, &ip.octets())
            }
        }
    }

    /// Writes a record of `owner`; without `owner`, a record of the query name.
    fn write_walk_record(
        &mut self,
        walk: &mut AliasWalk<'q>,
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

    fn mark_walk(&self, walk: &AliasWalk<'q>) -> WalkMark {
        WalkMark {
            mark: self.message.mark(),
            done: walk.done.len(),
            written: walk.written.len(),
            names: walk.names.count(),
        }
    }

    fn roll_back(&mut self, walk: &mut AliasWalk<'q>, mark: &WalkMark) {
        self.message.rewind(mark.mark);
        walk.done.truncate(mark.done);
        walk.written.truncate(mark.written);
        walk.names.truncate(mark.names);
    }
}
