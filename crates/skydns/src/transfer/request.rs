//! Transfer queries: authorization, the requested zone and version, and the signature of the
//! response.

use std::net::IpAddr;
use std::sync::Arc;

use wire::{
    Edns, Header, Name, POINTER_TO_QUESTION, Query, Records, Section, Transport, flag, rcode, rtype,
};

use super::ZoneTransfers;
use super::content::ZoneRecord;
use super::history::ZoneVersion;
use super::tsig::{self, TsigSession};
use crate::backend::View;
use crate::serial;

/// A transfer query that was accepted, and the version in force at that time.
pub(super) struct AcceptedTransfer<V> {
    pub(super) request: TransferRequest,
    pub(super) version: Arc<ZoneVersion<V>>,
}

/// The query of an accepted transfer.
pub(super) struct TransferRequest {
    /// The zone, in lower case.
    pub(super) zone: Name,
    /// The client's version, if the client queries for the changes since that version (IXFR).
    pub(super) since: Option<ClientVersion>,
    /// Header and question, which begin every message of the response.
    head: Vec<u8>,
    dnssec_ok: Option<bool>,
    session: Option<TsigSession>,
}

/// The client's version, from its SOA record (RFC 1995, section 3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ClientVersion {
    pub(super) serial: u32,
    /// EXPIRE of the client's SOA record; 0 if the record does not include EXPIRE.
    pub(super) expire: u32,
}

/// The response to a transfer query that was rejected.
pub(super) struct TransferRejection {
    pub(super) rcode: u16,
    pub(super) response: Vec<u8>,
}

impl<V: View> ZoneTransfers<V> {
    /// Accepts or rejects a transfer query; `None` if the message is not a query.
    pub(super) fn accept(
        &self,
        message: &[u8],
        client: IpAddr,
        transport: Transport,
    ) -> Option<Result<AcceptedTransfer<V>, TransferRejection>> {
        let query = Query::parse(message, transport).ok()?;
        let reject = |rcode, session| Err(TransferRejection::new(&query, rcode, session));
        if !self.peers.allow(client) {
            return Some(reject(rcode::REFUSED, None));
        }
        let session = match tsig::check(
            message,
            query.question_end(),
            self.key.as_ref(),
            serial::now(),
        ) {
            Ok(session) => session,
            Err(refusal) => {
                let mut response = Vec::new();
                refusal.append_response(message, query.question_end(), &mut response);
                return Some(Err(TransferRejection {
                    rcode: refusal.rcode(),
                    response,
                }));
            }
        };
        if self.key.is_some() && session.is_none() {
            return Some(reject(rcode::REFUSED, None));
        }
        let zone = Name::from_wire(query.lower())?;
        let since = ClientVersion::read(&query);
        if query.qtype == rtype::IXFR && since.is_none()
            || query.qtype == rtype::AXFR && transport == Transport::Udp
        {
            return Some(reject(rcode::FORMERR, session));
        }
        let Some(version) = self.version(&zone) else {
            let rcode = if self.is_loading(&zone) {
                rcode::SERVFAIL
            } else {
                rcode::NOTAUTH
            };
            return Some(reject(rcode, session));
        };
        let request = TransferRequest::new(&query, zone, since, session);
        Some(Ok(AcceptedTransfer { request, version }))
    }
}

impl ClientVersion {
    /// Parses the SOA record of an IXFR query.
    fn read(query: &Query<'_>) -> Option<Self> {
        if query.qtype != rtype::IXFR {
            return None;
        }
        let [_, counts @ ..] = query.header.counts;
        let mut records = Records::new(query.message, query.question_end(), counts);
        let soa = records
            .find(|record| record.section == Section::Authority && record.rtype == rtype::SOA)?;
        if !soa.owner().ok()?.wire().eq_ignore_ascii_case(query.name) {
            return None;
        }
        let mut data = Vec::new();
        soa.append_data(&mut data).ok()?;
        let numbers: &[u8; 20] = data.last_chunk()?;
        let number = |at: usize| {
            let octets = numbers.get(4 * at..).and_then(<[u8]>::first_chunk);
            octets.copied().map(u32::from_be_bytes)
        };
        Some(Self {
            serial: number(0)?,
            expire: number(3)?,
        })
    }
}

impl TransferRejection {
    fn new(query: &Query<'_>, rcode: u16, session: Option<TsigSession>) -> Self {
        let mut response = Vec::new();
        let dnssec_ok = query.edns.as_ref().map(|edns| edns.dnssec_ok);
        wire::refuse(
            query.message,
            query.question_end(),
            rcode,
            dnssec_ok,
            &mut response,
        );
        if let Some(mut session) = session {
            session.sign(0, serial::now(), &mut response);
        }
        Self { rcode, response }
    }
}

impl TransferRequest {
    fn new(
        query: &Query<'_>,
        zone: Name,
        since: Option<ClientVersion>,
        session: Option<TsigSession>,
    ) -> Self {
        let mut head = query
            .message
            .get(..query.question_end())
            .unwrap_or_default()
            .to_vec();
        let flags = flag::QR | flag::AA | query.header.flags & flag::RD;
        Header {
            id: query.header.id,
            flags,
            counts: [1, 0, 0, 0],
        }
        .write_over(&mut head);
        let dnssec_ok = query.edns.as_ref().map(|edns| edns.dnssec_ok);
        Self {
            zone,
            since,
            head,
            dnssec_ok,
            session,
        }
    }

    /// Rejects an accepted query after all.
    pub(super) fn reject(mut self, rcode: u16) -> TransferRejection {
        let mut response = Vec::new();
        if let Ok(header) = Header::parse(&self.head) {
            Header {
                flags: header.flags & !flag::AA | rcode,
                ..header
            }
            .write_over(&mut self.head);
        }
        self.write(0, || None, &mut response);
        TransferRejection { rcode, response }
    }

    /// Writes the next message of the response. Records are added until the message has at least
    /// `size` octets. Returns false if the message is too large for TCP.
    pub(super) fn write(
        &mut self,
        size: usize,
        mut next: impl FnMut() -> Option<ZoneRecord>,
        out: &mut Vec<u8>,
    ) -> bool {
        out.extend_from_slice(&self.head);
        let mut answers = 0_u16;
        while out.len() < size
            && answers < u16::MAX
            && let Some(record) = next()
        {
            append(&record, out);
            answers += 1;
        }
        let mut additional = 0;
        if let Some(dnssec_ok) = self.dnssec_ok {
            Edns::ours(dnssec_ok).append(rcode::NOERROR, out);
            additional = 1;
        }
        if let Ok(header) = Header::parse(out) {
            Header {
                counts: [1, answers, 0, additional],
                ..header
            }
            .write_over(out);
        }
        if let Some(session) = &mut self.session {
            session.sign(0, serial::now(), out);
        }
        u16::try_from(out.len()).is_ok()
    }

    /// The response with only the SOA record, in a single message.
    pub(super) fn soa_alone(&mut self, soa: ZoneRecord) -> Vec<u8> {
        let (mut out, mut soa) = (Vec::new(), Some(soa));
        self.write(usize::MAX, || soa.take(), &mut out);
        out
    }
}

/// Appends a record. The owner name ends with a pointer to the question, which is the zone.
fn append(record: &ZoneRecord, out: &mut Vec<u8>) {
    out.extend_from_slice(&record.owner);
    out.extend_from_slice(&POINTER_TO_QUESTION);
    out.extend_from_slice(&record.body);
}
