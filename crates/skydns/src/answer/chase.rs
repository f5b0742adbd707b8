//! Following aliases (ExternalName, SRV names asked for addresses, federation) to the addresses behind them.

use super::{Answer, Entries, Families, Records, path, shuffle};
use crate::backend::{Entry, View};
use crate::message::{Full, Owner, Section};
use crate::name::Name;
use crate::outside::{OutsideAnswer, OutsideQuestion, OutsideRecord};
use crate::query::rtype;
use crate::record::{Host, TTL};

/// The longest chain of aliases that is followed.
const MAX_CHAIN: usize = 8;

/// Questions that one answer may ask outside.
const MAX_QUESTIONS: usize = 32;

/// Why an alias leads nowhere.
enum Stop {
    /// A loop, a chain that is too long, or no answer from outside.
    Failed,
    /// No room is left in the message.
    Full,
}

impl From<Full> for Stop {
    fn from(_: Full) -> Self {
        Self::Full
    }
}

/// One walk over aliases, within one section of the answer.
struct Walk {
    section: Section,
    families: Families,
    /// The names on the way to where the walk is, in lower case.
    chain: Vec<Name>,
    /// Names whose records are written.
    done: Vec<Name>,
    /// Records from outside that are written: two aliases may lead to the same ones.
    written: Vec<OutsideRecord>,
}

impl Walk {
    fn new(section: Section, families: Families, start: Option<Name>) -> Self {
        Self { section, families, chain: start.into_iter().collect(), done: Vec::new(), written: Vec::new() }
    }
}

impl<V: View> Answer<'_, '_, V> {
    /// Writes what the aliases among `entries` lead to. They all stand under the name of the question.
    ///
    /// Where several aliases compete for the name, one CNAME is kept (a name has at most one) with the addresses
    /// behind all of them. It fails when all of them fail.
    pub(super) fn aliases(&mut self, entries: &Entries<'_>, families: Families) -> Records {
        let mut walk = Walk::new(Section::Answer, families, Name::from_wire(self.query.lower()));
        let mut aliases: Vec<(Name, u32)> = entries.iter().filter_map(|entry| self.target(entry)).collect();
        shuffle(&mut aliases);
        let mut records = Records::Failed;
        for (target, ttl) in aliases {
            let mark = self.message.mark();
            let (done, written) = (walk.done.len(), walk.written.len());
            let first = records == Records::Failed;
            let owner = first.then_some((Owner::Question, ttl));
            match self.follow(&mut walk, owner, &target) {
                Ok(()) => records = Records::Written,
                Err(Stop::Full) => {
                    self.truncated = true;
                    return Records::Written;
                }
                Err(Stop::Failed) => {
                    self.message.rewind(mark);
                    walk.done.truncate(done);
                    walk.written.truncate(written);
                }
            }
        }
        records
    }

    /// Writes the addresses of an alias's target to the additional section, as far as they can be found.
    pub(super) fn additional_of_name(&mut self, target: &Name) -> Result<(), Full> {
        let mut walk = Walk::new(Section::Additional, Families { v4: true, v6: true }, None);
        let mark = self.message.mark();
        match self.follow(&mut walk, None, target) {
            Ok(()) => Ok(()),
            Err(Stop::Full) => Err(Full),
            Err(Stop::Failed) => {
                self.message.rewind(mark);
                Ok(())
            }
        }
    }

    /// The name that an entry is an alias for, and the TTL of that.
    fn target(&self, entry: &Entry<'_>) -> Option<(Name, u32)> {
        let domain = self.view.zone().domain.wire();
        let record = &entry.record;
        let wire = match &record.host {
            Host::Name(name) => return Some((name.clone(), record.ttl)),
            Host::Base => [&record.base[..], domain].concat(),
            Host::Member => {
                let len = u8::try_from(entry.label.len()).ok()?;
                [&[len], entry.label.as_bytes(), &record.base, domain].concat()
            }
            _ => return None,
        };
        Some((Name::from_wire(&wire)?, record.ttl))
    }

    /// Writes the alias from `owner`, if there is one to be written, to `target`, and what `target` leads to.
    fn follow(
        &mut self,
        walk: &mut Walk,
        owner: Option<(Owner<'_>, u32)>,
        target: &Name,
    ) -> Result<(), Stop> {
        let lower = target.to_lowercase();
        if walk.chain.contains(&lower) || walk.chain.len() > MAX_CHAIN {
            return Err(Stop::Failed);
        }
        if let Some((owner, ttl)) = owner {
            self.message
                .record(walk.section, owner, rtype::CNAME, ttl, |m| m.name(Owner::Parts(&[target.wire()])))?;
        }
        if walk.done.contains(&lower) {
            return Ok(());
        }
        walk.done.push(lower.clone());
        walk.chain.push(lower.clone());
        let result = match self.relative(lower.wire()) {
            Some(relative) => self.inside(walk, target, relative),
            None => self.outside(walk, target),
        };
        walk.chain.pop();
        result
    }

    /// Writes what a name of the zone leads to. A name that does not exist leads to nothing, which is an answer.
    fn inside(&mut self, walk: &mut Walk, name: &Name, relative: &[u8]) -> Result<(), Stop> {
        let Some(path) = path(relative) else { return Ok(()) };
        let found = self.collect(&path, |_| true);
        let mut addresses: Vec<_> = found
            .entries
            .iter()
            .flat_map(|entry| entry.record.addresses())
            .filter(|address| walk.families.include(*address))
            .collect();
        shuffle(&mut addresses);
        for address in addresses {
            self.message.address(walk.section, Owner::Parts(&[name.wire()]), address, TTL)?;
        }
        let aliases: Vec<_> = found.entries.iter().filter_map(|entry| self.target(entry)).collect();
        let mut outcome = if aliases.is_empty() { Ok(()) } else { Err(Stop::Failed) };
        let owner: [&[u8]; 1] = [name.wire()];
        for (target, ttl) in aliases {
            let mark = self.message.mark();
            // Only the first alias is written as one: a name has at most one CNAME.
            let alias = outcome.is_err().then_some((Owner::Parts(&owner), ttl));
            match self.follow(walk, alias, &target) {
                Ok(()) => outcome = Ok(()),
                Err(Stop::Full) => return Err(Stop::Full),
                Err(Stop::Failed) => self.message.rewind(mark),
            }
        }
        outcome
    }

    /// Writes what an upstream said of a name outside the zone, or notes that it has to be asked.
    fn outside(&mut self, walk: &mut Walk, name: &Name) -> Result<(), Stop> {
        if name.label_count() < 2 {
            // Such names are not sent out, see the engine.
            return Err(Stop::Failed);
        }
        let mut answered = false;
        for (wanted, qtype) in [(walk.families.v4, rtype::A), (walk.families.v6, rtype::AAAA)] {
            if !wanted {
                continue;
            }
            let question = OutsideQuestion { name: name.clone(), qtype };
            match self.outside.get(&question) {
                // One question of a client must not become hundreds of ours.
                None if self.needs.len() == MAX_QUESTIONS => {}
                None => {
                    answered = true;
                    self.needs.push(question);
                }
                Some(OutsideAnswer::Failed) => {}
                Some(OutsideAnswer::Records(records)) => {
                    answered = true;
                    self.outside_records(walk, records)?;
                }
            }
        }
        if answered { Ok(()) } else { Err(Stop::Failed) }
    }

    fn outside_records(&mut self, walk: &mut Walk, records: &[OutsideRecord]) -> Result<(), Stop> {
        for record in records {
            if walk.written.contains(record) {
                continue;
            }
            let owner: [&[u8]; 1] = [record.owner.wire()];
            self.message.record(walk.section, Owner::Parts(&owner), record.rtype, super::MIN_TTL, |m| {
                if record.rtype == rtype::CNAME {
                    m.name(Owner::Parts(&[&record.rdata]));
                } else {
                    m.bytes(&record.rdata);
                }
            })?;
            walk.written.push(record.clone());
        }
        Ok(())
    }
}
