//! TXT answers: the texts of a name, or of the target of its alias.

use wire::{MessageFull, Name, NameForm, RecordHead, Section, rtype};

use super::sample::Sample;
use super::{Answer, Answered, path};
use crate::backend::zones::Authority;
use crate::backend::{Lookup, View};
use crate::own_names::MAX_CHAIN;
use crate::record::Host;

struct Texts<'q> {
    lookup: Lookup,
    all: Sample<(&'q str, u32), 4>,
    /// The alias with the lowest target in name order, with its TTL in seconds.
    alias: Option<(Name, u32)>,
}

impl<'q, V: View> Answer<'q, '_, V> {
    /// Writes the texts of a name. Aliases within our zones are followed; an alias whose target has
    /// no texts is not written.
    pub(super) fn texts(&mut self, path: &[&str]) -> Answered {
        let found = self.texts_of(self.authority, path);
        match found.lookup {
            Lookup::Missing => return Answered::Missing,
            Lookup::TargetUnknown => return Answered::Unknown,
            Lookup::Exists => {}
        }
        let mark = self.message.mark();
        match self.write_texts(found) {
            Ok(true) => {
                self.settle_ttls();
                Answered::Written
            }
            Ok(false) => {
                self.message.rewind(mark);
                Answered::Empty
            }
            Err(MessageFull) => {
                self.truncated = true;
                Answered::Written
            }
        }
    }

    /// Writes the CNAMEs that lead to a name with texts, and the texts. Returns whether there are
    /// texts.
    fn write_texts(&mut self, mut found: Texts<'q>) -> Result<bool, MessageFull> {
        let mut owner: Option<Name> = None;
        for _ in 0..=MAX_CHAIN {
            let place = owner.as_ref().map(|name| [name.wire()]);
            let place = place
                .as_ref()
                .map_or(NameForm::Question, |parts| NameForm::Parts(parts));
            let (texts, cut) = found.all.into_shuffled();
            self.truncated |= cut;
            for (text, ttl) in &texts {
                let head = RecordHead::internet(Section::Answer, place, rtype::TXT, *ttl);
                self.message.write_record(&head, |m| {
                    // A text may take several character-strings of 255 octets (RFC 1035,
                    // section 3.3.14).
                    for part in text.as_bytes().chunks(usize::from(u8::MAX)) {
                        m.push_octets(&[u8::try_from(part.len()).unwrap_or(u8::MAX)]);
                        m.push_octets(part);
                    }
                })?;
            }
            let Some((target, ttl)) = found
                .alias
                .filter(|_| texts.is_empty() && !self.asker.zone_data)
            else {
                return Ok(!texts.is_empty());
            };
            self.message.write_cname(place, target.wire(), ttl)?;
            let lower = target.to_lowercase();
            let Some(authority) = Authority::of(self.view, lower.wire()) else {
                return Ok(false);
            };
            let Some(path) = path(authority.relative(lower.wire())) else {
                return Ok(false);
            };
            found = self.texts_of(authority, &path);
            owner = Some(target);
        }
        Ok(false)
    }

    fn texts_of(&self, of: Authority<'q>, path: &[&str]) -> Texts<'q> {
        let (zone, mut alias, mut texts) = (
            self.view.zone(),
            None::<(Name, u32)>,
            Sample::new(self.room()),
        );
        let lookup = self.records_of(of, path, false, &mut |entry| {
            let ttl = of.ttl_of(zone, entry.record.ttl);
            if let Some(extras) = entry.record.extras.filter(|extras| !extras.text.is_empty()) {
                texts.add((&*extras.text, ttl));
            } else if let Host::Name(name) = &entry.record.host {
                let first = alias.as_ref().is_none_or(|(known, _)| **name < *known);
                alias = if first {
                    Some((Name::clone(name), ttl))
                } else {
                    alias.take()
                };
            }
        });
        Texts {
            lookup,
            all: texts,
            alias,
        }
    }
}
