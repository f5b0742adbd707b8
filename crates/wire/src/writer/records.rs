//! Records of the types that this server builds itself.

use std::net::IpAddr;

use super::{Full, Owner, Section, Writer, rtype};

/// The data of a SOA record (RFC 1035, section 3.3.13).
#[derive(Debug, Clone, Copy)]
pub struct SoaData<'d> {
    /// The primary name server, in parts that follow each other.
    pub mname: &'d [&'d [u8]],
    /// The mailbox of the person responsible for the zone, in parts that follow each other.
    pub rname: &'d [&'d [u8]],
    /// SERIAL, REFRESH, RETRY, EXPIRE and MINIMUM.
    pub numbers: [u32; 5],
}

impl Writer<'_, '_> {
    /// Writes an A or AAAA record.
    pub fn address_record(
        &mut self,
        section: Section,
        owner: Owner<'_>,
        address: IpAddr,
        ttl: u32,
    ) -> Result<(), Full> {
        match address {
            IpAddr::V4(ip) => self.record(section, owner, rtype::A, ttl, |m| m.bytes(&ip.octets())),
            IpAddr::V6(ip) => {
                self.record(section, owner, rtype::AAAA, ttl, |m| m.bytes(&ip.octets()))
            }
        }
    }

    /// Writes a CNAME record to the answer section.
    pub fn cname_record(&mut self, owner: Owner<'_>, target: &[u8], ttl: u32) -> Result<(), Full> {
        self.record(Section::Answer, owner, rtype::CNAME, ttl, |m| {
            m.name(Owner::Parts(&[target]));
        })
    }

    /// Writes a PTR record of the query name to the answer section. `target` is a name in parts.
    pub fn ptr_record(&mut self, target: &[&[u8]], ttl: u32) -> Result<(), Full> {
        self.record(Section::Answer, Owner::Question, rtype::PTR, ttl, |m| {
            m.name(Owner::Parts(target));
        })
    }

    /// Writes a TXT record of one character-string to the answer section. The text is cut after 255
    /// octets.
    pub fn text_record(
        &mut self,
        owner: Owner<'_>,
        class: u16,
        ttl: u32,
        text: &str,
    ) -> Result<(), Full> {
        self.record_of_class(Section::Answer, owner, (rtype::TXT, class), ttl, |m| {
            let text = text.as_bytes();
            let len = u8::try_from(text.len()).unwrap_or(u8::MAX);

            m.bytes(&[len]);
            m.bytes(text.get(..usize::from(len)).unwrap_or_default());
        })
    }

    /// Writes a SOA record.
    pub fn soa_record(
        &mut self,
        section: Section,
        owner: Owner<'_>,
        ttl: u32,
        data: &SoaData<'_>,
    ) -> Result<(), Full> {
        self.record(section, owner, rtype::SOA, ttl, |m| {
            m.name(Owner::Parts(data.mname));
            m.name(Owner::Parts(data.rname));
            for number in data.numbers {
                m.bytes(&number.to_be_bytes());
            }
        })
    }
}
