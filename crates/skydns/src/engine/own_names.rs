//! Answers for own names (hosts and aliases of the configuration) and for `localhost`.
//!
//! An own name takes precedence over the zone that contains it. The records for an alias may come
//! from the zone of its target.

use wire::{Name, rcode, reverse, rtype};

use super::reply::truncation_flag;
use super::{AUTHORITATIVE, Engine, NameProgress, Reply, System};
use crate::answer::{AnswerStatus, AnswerWriter};
use crate::backend::View;
use crate::backend::zones::Authority;
use crate::cause::Cause;
use crate::own_names::{LOOPBACK, OwnNames, OwnTarget};

impl<V: View> Engine<'_, V> {
    /// Answers for `localhost`, as dnsmasq does from the hosts file.
    pub(super) fn answer_localhost(&self, out: &mut Vec<u8>) -> NameProgress {
        let cluster = Authority::cluster(self.view);
        self.write_own_name(cluster, out, |answer| answer.write_host(&LOOPBACK))
    }

    /// Answers a query for an own name, or a PTR query for the address of a host; `None` for other
    /// queries.
    pub(super) fn answer_own_name(
        &self,
        own: &OwnNames,
        out: &mut Vec<u8>,
    ) -> Option<NameProgress> {
        // Just as own names override all domains, their addresses override the reverse tree.
        if let Some(names) = self.own_names_of_address(own) {
            return Some(NameProgress::Reply(self.answer_own_address(names, out)));
        }

        let progress = match own.find(self.query.lower())? {
            OwnTarget::Unresolvable => {
                NameProgress::Reply(self.append_servfail(&Cause::Alias, out))
            }
            OwnTarget::Addresses(addresses) => {
                // The addresses of a host do not come from a zone, so the answer has the TTLs of
                // the cluster's zone.
                let cluster = Authority::cluster(self.view);
                self.write_own_name(cluster, out, |answer| answer.write_host(addresses))
            }
            OwnTarget::Name(target) => self.answer_own_alias(&target, out),
        };
        Some(progress)
    }

    /// The own names of the address in the query name, for a query of type PTR.
    fn own_names_of_address<'o>(&self, own: &'o OwnNames) -> Option<&'o [Name]> {
        if self.query.qtype != rtype::PTR {
            return None;
        }
        own.names_of(reverse::address_of_name(self.query.lower())?)
    }

    /// Answers as [`write_answer`](Self::write_answer) does. An own name whose target does not
    /// exist gets NXDOMAIN.
    fn write_own_name<'q>(
        &'q self,
        authority: Authority<'q>,
        out: &mut Vec<u8>,
        write: impl FnOnce(&mut AnswerWriter<'q, '_, V>) -> AnswerStatus,
    ) -> NameProgress {
        if let Some(progress) = self.write_answer(authority, out, write) {
            return progress;
        }

        out.truncate(self.start);
        let mut answer = self.begin_answer(authority, out);
        answer.mark_own();
        answer.write_negative_soa();
        NameProgress::Reply(self.finish_nxdomain(answer))
    }

    fn answer_own_address(&self, names: &[Name], out: &mut Vec<u8>) -> Reply {
        let mut answer = self.begin_answer(Authority::cluster(self.view), out);
        answer.write_own_pointers(names);

        let truncated = answer.truncated();
        let flags = self.copied_flags() | AUTHORITATIVE | truncation_flag(truncated, self.query);
        answer.message.finish(flags, rcode::NOERROR);
        self.new_reply(System::Reverse, rcode::NOERROR, truncated)
    }

    /// Answers a query for an alias of the configuration. If the target exists in our zones, the
    /// answer has the records of the target, with the alias as their owner. A target outside our
    /// zones is external, and so is a missing target whose name falls through (`--fallthrough`).
    /// For an external target, the answer has a CNAME, and a query for addresses also gets the
    /// addresses of the target.
    fn answer_own_alias(&self, target: &Name, out: &mut Vec<u8>) -> NameProgress {
        let Some(authority) = Authority::of(self.view, target.wire()) else {
            return self.answer_external_alias(target, out);
        };

        // A target whose records are not loaded may exist, so it is not denied.
        if !authority.records.has_synced() {
            let cause = match authority.further {
                Some(_) => Cause::ZoneNotLoaded,
                None => Cause::NotSynced,
            };
            return NameProgress::Reply(self.append_servfail(&cause, out));
        }

        if !authority.falls_through(self.view.zone(), target.wire()) {
            return self.write_own_name(authority, out, |answer| answer.write_target(target));
        }
        let written = self.write_answer(authority, out, |answer| answer.write_target(target));
        if let Some(progress) = written {
            return progress;
        }
        out.truncate(self.start);
        self.answer_external_alias(target, out)
    }

    fn answer_external_alias(&self, target: &Name, out: &mut Vec<u8>) -> NameProgress {
        let cluster = Authority::cluster(self.view);
        self.write_own_name(cluster, out, |answer| answer.write_external_alias(target))
    }
}
