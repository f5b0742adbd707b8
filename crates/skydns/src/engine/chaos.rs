//! Answers to queries of a class other than IN. A few CHAOS names have TXT strings, such as the
//! version of this server.

use wire::{class, flag, rcode, rtype};

use super::{AUTHORITATIVE, Engine, Reply, System};
use crate::backend::View;
use crate::backend::zones::Authority;
use crate::cause::Cause;

/// The wire format of the CHAOS name that is answered with
/// [`Zone::routes`](crate::backend::Zone::routes).
const ROUTES: &[u8] = b"\x06routes\x07kubedns\x00";

/// The authors of SkyDNS, as SkyDNS lists them in its answer.
const AUTHORS: [&str; 4] = [
    "Erik St. Martin",
    "Brian Ketelsen",
    "Miek Gieben",
    "Michael Crosby",
];

impl<V: View> Engine<'_, V> {
    /// Answers a query of a class other than IN: with texts for a TXT query for some CHAOS names,
    /// otherwise with REFUSED.
    pub(super) fn answer_other_class(&self, out: &mut Vec<u8>) -> Reply {
        // Until the records of the cluster are loaded, queries for names other than
        // `routes.kubedns.` get REFUSED. The nanny needs the answer for `routes.kubedns.` even
        // during this time.
        if !self.view.has_synced() && self.query.lower() != ROUTES {
            return self.refuse_query(&Cause::NotSynced, out);
        }

        let texts = self.chaos_texts();
        if texts.is_empty() {
            self.append_empty(rcode::REFUSED, flag::RD, out);
            return self.append_cause(&Cause::OtherClass, rcode::REFUSED, System::Auth, out);
        }

        let mut answer = self.begin_answer(Authority::cluster(self.view), out);
        answer.write_chaos_texts(&texts);
        answer
            .message
            .finish(self.copied_flags() | AUTHORITATIVE, rcode::NOERROR);
        // The texts are few and short, so they always fit.
        self.new_reply(System::Auth, rcode::NOERROR, false)
    }

    /// The TXT strings that answer the query. Empty if the query is not a TXT query of class CHAOS,
    /// or if its name has no strings.
    fn chaos_texts(&self) -> Vec<&str> {
        if self.query.qclass != class::CH || self.query.qtype != rtype::TXT {
            return Vec::new();
        }

        match self.query.lower() {
            b"\x07version\x04bind\x00" | b"\x07version\x06server\x00" => {
                vec![&self.identity.version]
            }
            ROUTES => self.view.zone().routes.iter().map(String::as_str).collect(),
            // As in SkyDNS, the name of the host is not disclosed, and the cluster domain also
            // returns the authors.
            b"\x08hostname\x04bind\x00" | b"\x02id\x06server\x00" => vec!["localhost"],
            b"\x07authors\x04bind\x00" => AUTHORS.to_vec(),
            name if self.is_cluster_domain(name) => AUTHORS.to_vec(),
            _ => Vec::new(),
        }
    }

    /// Whether a name is one of the cluster's domains itself, not a name below it.
    fn is_cluster_domain(&self, name: &[u8]) -> bool {
        let domain = self.view.cluster_domain_of(name);
        domain.is_some_and(|domain| domain.wire() == name)
    }
}
