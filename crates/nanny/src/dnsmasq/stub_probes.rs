//! Probes that find forwarding loops through the servers of stub domains.
//!
//! The server of a stub domain may forward names outside the domain to the cluster DNS, but must
//! not forward names of the domain back to this dnsmasq. So a probe asks the server for a random
//! name of the domain. dnsmasq forwards the names of probes to the [SERVFAIL server]. If the
//! SERVFAIL server receives the name of a probe, there is a loop.
//!
//! [SERVFAIL server]: crate::dnsmasq::servfail_server

use std::collections::HashMap;
use std::sync::Arc;

use hickory_proto::op::Query;
use hickory_proto::rr::{Name, RecordType};
use parking_lot::Mutex;

/// Maximum length of a probe's name in dotted text.
const MAX_NAME: usize = 253;
/// Number of digits in the first label of a probe's name.
const DIGITS: usize = 16;

/// The probes in flight. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct StubProbes(Arc<SharedProbes>);

#[derive(Debug)]
struct SharedProbes {
    /// The labels between the number of a probe and the stub domain. The second label is random, so
    /// other nannies use other labels.
    label: String,
    /// The number of each probe, and whether it came back.
    in_flight: Mutex<HashMap<u64, bool>>,
}

impl StubProbes {
    /// Creates an empty set of probes, with labels that no other nanny uses.
    pub(crate) fn new() -> Self {
        Self(Arc::new(SharedProbes {
            label: format!("forward-loop.{:016x}", fastrand::u64(..)),
            in_flight: Mutex::default(),
        }))
    }

    /// The labels in the names of all probes. dnsmasq has to forward names with these labels to the
    /// SERVFAIL server.
    pub(crate) fn label(&self) -> &str {
        &self.0.label
    }

    /// Creates a probe of a server of `domain`; `None` if the name of the probe would be invalid,
    /// for example too long. The probe is recognized until it is dropped.
    pub(crate) fn start(&self, domain: &str) -> Option<StubProbe> {
        // A random name is in no cache on the way, and nobody can guess it.
        let number = fastrand::u64(..);
        let text = format!("{number:016x}.{}.{domain}", self.0.label);
        if text.len() > MAX_NAME {
            return None;
        }
        let mut name = Name::from_ascii(text).ok()?;
        name.set_fqdn(true);

        self.0.in_flight.lock().insert(number, false);
        Some(StubProbe {
            probes: Arc::clone(&self.0),
            number,
            name,
        })
    }

    /// Records that a query with this name, in lower case, came to the SERVFAIL server.
    pub(crate) fn record_return(&self, name: &str) {
        let Some((digits, rest)) = name.split_at_checked(DIGITS) else {
            return;
        };
        let is_ours = rest
            .strip_prefix('.')
            .is_some_and(|rest| rest.starts_with(self.label()));
        let number = u64::from_str_radix(digits, 16).ok();

        if let Some(number) = number.filter(|_| is_ours)
            && let Some(came_back) = self.0.in_flight.lock().get_mut(&number)
        {
            *came_back = true;
        }
    }
}

/// A query for a random name. In a loop, the query comes back to dnsmasq.
#[derive(Debug)]
pub(crate) struct StubProbe {
    probes: Arc<SharedProbes>,
    number: u64,
    name: Name,
}

impl StubProbe {
    /// The query to send.
    pub(crate) fn query(&self) -> Query {
        Query::query(self.name.clone(), RecordType::AAAA)
    }

    /// Whether the query has come back so far.
    pub(crate) fn came_back(&self) -> bool {
        let in_flight = self.probes.in_flight.lock();
        in_flight.get(&self.number).copied().unwrap_or_default()
    }
}

impl Drop for StubProbe {
    fn drop(&mut self) {
        self.probes.in_flight.lock().remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_probe_is_recognized() {
        let probes = StubProbes::new();
        let probe = probes.start("acme.example").unwrap();
        let name = probe.query().name().to_string();
        assert!(name.ends_with(&format!(".{}.acme.example.", probes.label())));

        let other = StubProbes::new().start("acme.example").unwrap();
        for foreign in [
            &other.query().name().to_string(),
            "",
            "x.acme.example.",
            &name[1..],
        ] {
            probes.record_return(foreign);
        }
        assert!(!probe.came_back());

        probes.record_return(&name);
        assert!(probe.came_back());
        drop(probe);
        probes.record_return(&name);
        assert!(probes.0.in_flight.lock().is_empty());
    }

    #[test]
    fn long_domain_has_no_probe() {
        let domain = [["a"; 32].concat().as_str(); 7].join(".");
        assert!(StubProbes::new().start(&domain).is_none());
    }
}
