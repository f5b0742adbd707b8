//! The apex of a zone: its SOA and NS records, and the SOA records of negative answers.

use std::net::IpAddr;

use smallvec::SmallVec;
use wire::name::MAX_NAME;
use wire::{MessageFull, Name, NameForm, RecordHead, ResponseWriter, Section, SoaData, rtype};

use super::lookup::AddressFamilies;
use super::srv::TargetType;
use super::{AnswerStatus, AnswerWriter, DNS_SERVICE};
use crate::backend::View;
use crate::backend::zones::Authority;
use crate::domain_map::parent;
use crate::record::TTL;
use crate::serial::{self, ZoneSerials};

/// The name of the zone's name server (MNAME of the SOA), without the domain of the zone.
pub(crate) const NAME_SERVER: &[u8] = b"\x02ns\x03dns";
/// The mailbox of the zone (RNAME of the SOA), without the domain of the zone.
pub(crate) const HOSTMASTER: &[u8] = b"\x0ahostmaster";

impl<'q, V: View> AnswerWriter<'q, '_, V> {
    /// Answers for the zone's apex.
    pub(super) fn write_apex(&mut self) -> AnswerStatus {
        let zone = self.view.zone();
        match self.query.qtype {
            rtype::SOA => {
                let ttl = self.authority.soa_ttl(zone);
                let soa = self.zone_soa(ttl);
                self.try_write(|m| soa.write(Section::Answer, m))
            }
            rtype::NS if self.is_whole_zone() => self.write_name_servers(),
            _ if self.authority.further.is_some() => self.write_further_apex(),
            _ if zone.strict => AnswerStatus::Empty,
            // In kube-dns the cluster domain has only an SOA record. Queries for other types get
            // NXDOMAIN.
            _ => AnswerStatus::Missing,
        }
    }

    /// The SOA record of the zone, with this TTL.
    fn zone_soa(&self, ttl: u32) -> ZoneSoa<'q> {
        let zone = self.view.zone();
        ZoneSoa {
            domain: self.authority.domain.wire(),
            numbers: soa_numbers(zone.serials.as_deref(), self.authority.domain),
            ttl,
            minimum: self.authority.negative_ttl(zone),
        }
    }

    /// Answers for the apex of a [further zone](crate::FurtherZone), such as a zone from etcd. In a
    /// zone with [`FurtherZone::skydns`](crate::FurtherZone::skydns), the apex has the addresses of
    /// `apex.dns`, if that name exists.
    fn write_further_apex(&mut self) -> AnswerStatus {
        let is_address = matches!(self.query.qtype, rtype::A | rtype::AAAA);
        if !is_address || !self.authority.is_skydns() {
            return self.write_path(&[]);
        }

        match self.write_path(&["dns", "apex"]) {
            AnswerStatus::Missing => self.write_path(&[]),
            status => status,
        }
    }

    /// Writes the NS records of the zone. In [SkyDNS style](crate::FurtherZone::skydns), the name
    /// servers are the entries of `ns.dns` that have addresses. Without such entries, or in any
    /// other zone, the name server is this server.
    fn write_name_servers(&mut self) -> AnswerStatus {
        if self.authority.is_skydns() {
            let status = self.write_targets(&["dns", "ns"], TargetType::NameServer);
            if status == AnswerStatus::Written {
                return status;
            }
        }
        self.write_this_name_server()
    }

    /// Writes the zone's NS record with this server as target, and the addresses of the name server
    /// as glue.
    fn write_this_name_server(&mut self) -> AnswerStatus {
        let domain = self.authority.domain;
        let ttl = self.authority.ttl_of(self.view.zone(), TTL);
        let head = RecordHead::internet(Section::Answer, NameForm::Question, rtype::NS, ttl);
        // The owner names of the glue records are pointers to the target of this record.
        let mut target = 0;
        let status = self.try_write(|m| {
            m.write_record(&head, |m| {
                target = u16::try_from(m.position()).unwrap_or_default();
                m.push_name(NameForm::Parts(&[NAME_SERVER, domain.wire()]));
            })
        });

        if status != AnswerStatus::Written {
            return status;
        }

        // Either all addresses are written or none, because a client would take an incomplete list
        // for the complete one.
        let mark = self.message.mark();
        let owner = NameForm::At(target);
        for address in self.name_server_addresses() {
            let written = self
                .message
                .write_address(Section::Additional, owner, address, ttl);
            if written.is_err() {
                self.message.rewind(mark);
                break;
            }
        }
        status
    }

    /// Returns the addresses of the name server: those that a further zone has at `ns.dns`, if any,
    /// otherwise those of the DNS Service.
    fn name_server_addresses(&self) -> SmallVec<[IpAddr; 8]> {
        if self.authority.further.is_some() {
            let stored = self.addresses_of(self.authority, &["dns", "ns"]);
            if !stored.is_empty() {
                return stored;
            }
        }
        self.addresses_of(Authority::cluster(self.view), &DNS_SERVICE)
    }

    fn addresses_of(&self, authority: Authority<'q>, path: &[&str]) -> SmallVec<[IpAddr; 8]> {
        let content = self.look_up(authority, path, AddressFamilies::BOTH);
        content.addresses.into_shuffled().items
    }

    /// Writes the SOA of a negative answer (RFC 2308, section 3).
    pub(crate) fn write_negative_soa(&mut self) {
        let negative_ttl = self.authority.negative_ttl(self.view.zone());
        let soa = if self.own {
            // A host or an alias of the configuration, or `localhost`, counts as outside our zones.
            // So the name itself owns the record, unless the name is too long (see `soa_owner`).
            ZoneSoa {
                domain: soa_owner(self.query.lower()),
                numbers: default_soa_numbers(),
                ttl: negative_ttl,
                minimum: negative_ttl,
            }
        } else {
            self.zone_soa(negative_ttl)
        };

        // If the SOA does not fit, it is left out, because the answer is complete without it.
        let _ = soa.write(Section::Authority, &mut self.message);
    }
}

/// SERIAL, REFRESH, RETRY and EXPIRE of the SOA. Without transfers, the serial is the Unix time at
/// the start of the current hour.
pub(crate) fn soa_numbers(serials: Option<&ZoneSerials>, domain: &Name) -> [u32; 4] {
    if let Some(serials) = serials {
        return serials.current_soa_numbers(domain);
    }
    default_soa_numbers()
}

/// SERIAL, REFRESH, RETRY and EXPIRE as in SkyDNS, for an SOA record that is never transferred.
pub(crate) fn default_soa_numbers() -> [u32; 4] {
    let now = serial::now();
    [
        u32::try_from(now - now % 3600).unwrap_or(u32::MAX),
        28_800,
        7_200,
        604_800,
    ]
}

/// The owner of the SOA record for a name in no zone of ours: `name`, or the nearest name above
/// `name` that leaves room for [`HOSTMASTER`] in front.
pub(crate) fn soa_owner(name: &[u8]) -> &[u8] {
    let mut owner = name;
    while owner.len() + HOSTMASTER.len() > MAX_NAME {
        let Some(parent) = parent(owner) else {
            break;
        };
        owner = parent;
    }
    owner
}

/// The SOA record of a zone of ours, or of a negative answer for a name in no zone.
pub(crate) struct ZoneSoa<'d> {
    /// The owner name of the record, in wire format.
    pub(crate) domain: &'d [u8],
    /// SERIAL, REFRESH, RETRY and EXPIRE.
    pub(crate) numbers: [u32; 4],
    pub(crate) ttl: u32,
    /// The field MINIMUM: the TTL of negative answers (RFC 2308, section 4).
    pub(crate) minimum: u32,
}

impl ZoneSoa<'_> {
    pub(crate) fn write(
        &self,
        section: Section,
        message: &mut ResponseWriter<'_, '_>,
    ) -> Result<(), MessageFull> {
        let [serial, refresh, retry, expire] = self.numbers;
        let data = SoaData {
            mname: &[NAME_SERVER, self.domain],
            rname: &[HOSTMASTER, self.domain],
            numbers: [serial, refresh, retry, expire, self.minimum],
        };
        message.write_soa(section, NameForm::Parts(&[self.domain]), self.ttl, &data)
    }
}
