//! TXT answers: the texts of a name, or of the target of its alias.

use wire::{MessageFull, Name, NameForm, RecordHead, Section, rtype};

use super::sample::RandomSample;
use super::{AnswerStatus, AnswerWriter, label_path};
use crate::backend::zones::Authority;
use crate::backend::{Lookup, View};
use crate::own_names::MAX_CHAIN;
use crate::record::Host;

/// The texts and the alias of a name.
struct TextEntries<'q> {
    lookup: Lookup,
    /// Texts, each with its TTL in seconds.
    texts: RandomSample<(&'q str, u32), 4>,
    /// The alias with the lowest target in name order.
    alias: Option<TextAlias>,
}

struct TextAlias {
    target: Name,
    /// TTL in seconds.
    ttl: u32,
}

impl<'q, V: View> AnswerWriter<'q, '_, V> {
    /// Writes the texts of a name. Except in a zone transfer, aliases are followed to names in our
    /// zones. Aliases that lead to no texts are not written. But if the message becomes full, the
    /// records that were written before stay, and the answer is truncated.
    pub(super) fn write_texts(&mut self, path: &[&str]) -> AnswerStatus {
        let found = self.look_up_texts(self.authority, path);
        match found.lookup {
            Lookup::Missing => return AnswerStatus::Missing,
            Lookup::TargetUnknown => return AnswerStatus::Unknown,
            Lookup::Exists => {}
        }

        let mark = self.message.mark();
        match self.write_text_chain(found) {
            Ok(AnswerStatus::Written) => {
                self.lower_answer_ttls();
                AnswerStatus::Written
            }
            Ok(without_texts) => {
                self.message.rewind(mark);
                without_texts
            }
            Err(MessageFull) => {
                self.truncated = true;
                AnswerStatus::Written
            }
        }
    }

    /// Writes the CNAMEs that lead to a name with texts, and the texts. If there are no texts, the
    /// status is not [`AnswerStatus::Written`].
    fn write_text_chain(
        &mut self,
        mut found: TextEntries<'q>,
    ) -> Result<AnswerStatus, MessageFull> {
        let mut owner: Option<Name> = None;
        for _ in 0..=MAX_CHAIN {
            let parts = owner.as_ref().map(|name| [name.wire()]);
            let form = match &parts {
                Some(parts) => NameForm::Parts(parts),
                None => NameForm::Question,
            };

            let chosen = found.texts.into_shuffled();
            self.truncated |= chosen.is_cut;
            for (text, ttl) in &chosen.items {
                self.write_text_record(form, text, *ttl)?;
            }

            // A transfer contains only the zone's own records, so it follows no alias.
            let is_end = !chosen.items.is_empty() || self.context.zone_data;
            let Some(alias) = found.alias.filter(|_| !is_end) else {
                return Ok(if chosen.items.is_empty() {
                    AnswerStatus::Empty
                } else {
                    AnswerStatus::Written
                });
            };
            self.message
                .write_cname(form, alias.target.wire(), alias.ttl)?;

            // The texts of a target are looked up only in our zones, not at upstreams.
            let lower = alias.target.to_lowercase();
            let Some(authority) = Authority::of(self.view, lower.wire()) else {
                return Ok(AnswerStatus::Empty);
            };
            // Clients would cache NODATA, but retry after a failure.
            if !authority.records.has_synced() {
                self.unanswered = true;
                return Ok(AnswerStatus::Failed);
            }
            let Some(path) = label_path(authority.relative(lower.wire())) else {
                return Ok(AnswerStatus::Empty);
            };
            found = self.look_up_texts(authority, &path);
            owner = Some(alias.target);
        }

        // The chain is too long.
        Ok(AnswerStatus::Empty)
    }

    fn write_text_record(
        &mut self,
        owner: NameForm<'_>,
        text: &str,
        ttl: u32,
    ) -> Result<(), MessageFull> {
        let head = RecordHead::internet(Section::Answer, owner, rtype::TXT, ttl);
        self.message.write_record(&head, |m| {
            // A character-string has at most 255 octets, so a text may take several of them (RFC
            // 1035, section 3.3.14).
            for part in text.as_bytes().chunks(usize::from(u8::MAX)) {
                m.push_octets(&[u8::try_from(part.len()).unwrap_or(u8::MAX)]);
                m.push_octets(part);
            }
        })
    }

    fn look_up_texts(&self, of: Authority<'q>, path: &[&str]) -> TextEntries<'q> {
        let zone = self.view.zone();
        let mut found = TextEntries {
            lookup: Lookup::Missing,
            texts: RandomSample::new(self.max_records()),
            alias: None,
        };

        found.lookup = self.visit_entries(of, path, false, &mut |entry| {
            let ttl = of.ttl_of(zone, entry.record.ttl);
            if let Some(extras) = entry.record.extras.filter(|extras| !extras.text.is_empty()) {
                found.texts.add((&*extras.text, ttl));
            } else if let Host::Name(name) = &entry.record.host {
                found.keep_lowest_alias(name, ttl);
            }
        });
        found
    }
}

impl TextEntries<'_> {
    fn keep_lowest_alias(&mut self, target: &Name, ttl: u32) {
        if self
            .alias
            .as_ref()
            .is_none_or(|known| *target < known.target)
        {
            // The lowest target is kept, so that the answer does not depend on the order in which
            // the entries are visited.
            self.alias = Some(TextAlias {
                target: target.clone(),
                ttl,
            });
        }
    }
}
