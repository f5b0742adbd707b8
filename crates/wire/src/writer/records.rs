//! Writes A, AAAA, CNAME, PTR, TXT and SOA records.

use std::net::IpAddr;

use super::{MessageFull, NameForm, RecordHead, ResponseWriter, Section, class, rtype};

/// The data of a SOA record (RFC 1035, section 3.3.13).
#[derive(Debug, Clone, Copy)]
pub struct SoaData<'d> {
    /// The name of the primary name server in wire format, split into slices that are written one
    /// after the other.
    pub mname: &'d [&'d [u8]],
    /// The mailbox of the person responsible for the zone, in the same form.
    pub rname: &'d [&'d [u8]],
    /// SERIAL, REFRESH, RETRY, EXPIRE and MINIMUM.
    pub numbers: [u32; 5],
}

impl ResponseWriter<'_, '_> {
    /// Writes an A or AAAA record.
    #[inline]
    pub fn write_address(
        &mut self,
        section: Section,
        owner: NameForm<'_>,
        address: IpAddr,
        ttl: u32,
    ) -> Result<(), MessageFull> {
        match address {
            IpAddr::V4(ip) => {
                let head = RecordHead::internet(section, owner, rtype::A, ttl);
                self.write_record(&head, |m| m.push_octets(&ip.octets()))
            }
            IpAddr::V6(ip) => {
                let head = RecordHead::internet(section, owner, rtype::AAAA, ttl);
                self.write_record(&head, |m| m.push_octets(&ip.octets()))
            }
        }
    }

    /// Writes a CNAME record to the answer section.
    pub fn write_cname(
        &mut self,
        owner: NameForm<'_>,
        target: &[u8],
        ttl: u32,
    ) -> Result<(), MessageFull> {
        let head = RecordHead::internet(Section::Answer, owner, rtype::CNAME, ttl);
        self.write_record(&head, |m| m.push_name(NameForm::Parts(&[target])))
    }

    /// Writes a PTR record to the answer section. The owner is the query name. `target` is a name,
    /// split into slices.
    pub fn write_ptr(&mut self, target: &[&[u8]], ttl: u32) -> Result<(), MessageFull> {
        let head = RecordHead::internet(Section::Answer, NameForm::Question, rtype::PTR, ttl);
        self.write_record(&head, |m| m.push_name(NameForm::Parts(target)))
    }

    /// Writes a TXT record with a single character-string to the answer section. The owner is the
    /// query name. The text is cut after 255 octets.
    pub fn write_text(&mut self, class: u16, ttl: u32, text: &str) -> Result<(), MessageFull> {
        let head = RecordHead {
            section: Section::Answer,
            owner: NameForm::Question,
            rtype: rtype::TXT,
            class,
            ttl,
        };
        self.write_record(&head, |m| {
            let text = text.as_bytes();
            let len = u8::try_from(text.len()).unwrap_or(u8::MAX);

            m.push_octets(&[len]);
            m.push_octets(text.get(..usize::from(len)).unwrap_or_default());
        })
    }

    /// Writes a SOA record.
    pub fn write_soa(
        &mut self,
        section: Section,
        owner: NameForm<'_>,
        ttl: u32,
        data: &SoaData<'_>,
    ) -> Result<(), MessageFull> {
        let head = RecordHead::internet(section, owner, rtype::SOA, ttl);
        self.write_record(&head, |m| {
            m.push_name(NameForm::Parts(data.mname));
            m.push_name(NameForm::Parts(data.rname));
            for number in data.numbers {
                m.push_octets(&number.to_be_bytes());
            }
        })
    }
}

impl<'n> RecordHead<'n> {
    /// The fields of a record of class IN.
    #[inline]
    pub fn internet(section: Section, owner: NameForm<'n>, rtype: u16, ttl: u32) -> Self {
        Self {
            section,
            owner,
            rtype,
            class: class::IN,
            ttl,
        }
    }
}
