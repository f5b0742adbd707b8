//! Transfer queries: authorization, the requested zone and version, and the messages of the
//! response. The messages are signed if a peer sent the query with a valid signature.

use std::net::IpAddr;
use std::sync::Arc;

use super::ZoneTransfers;
use super::content::ZoneRecord;
use super::history::ZoneVersion;
use super::tsig::{self, TsigSession};
use crate::backend::View;
use crate::serial;
use wire::{
    Edns, ErrorResponse, Header, Name, POINTER_TO_QUESTION, Query, RecordIter, Section, Transport,
    flag, rcode, rtype,
};

/// A transfer query that was accepted, and the version of the zone at that time.
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
    /// The DO flag of the query; `None` if the query has no EDNS. The response then has no EDNS
    /// either.
    dnssec_ok: Option<bool>,
    /// Signs each message of the response; `None` for a query without a signature.
    session: Option<TsigSession>,
}

/// The client's version, from its SOA record (RFC 1995, section 3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ClientVersion {
    pub(super) serial: u32,
    /// EXPIRE of the client's SOA record.
    pub(super) expire: u32,
}

/// The response to a transfer query that was rejected.
pub(super) struct TransferRejection {
    pub(super) rcode: u16,
    pub(super) response: Vec<u8>,
}

/// A message is too large for TCP.
#[derive(Debug)]
pub(super) struct MessageTooLarge;

impl<V: View> ZoneTransfers<V> {
    /// Accepts or rejects a transfer query; `None` if [`Query::parse`] rejects the message.
    pub(super) fn accept_query(
        &self,
        message: &[u8],
        client: IpAddr,
        transport: Transport,
    ) -> Option<Result<AcceptedTransfer<V>, TransferRejection>> {
        let query = Query::parse(message, transport).ok()?;
        let session = match self.authorize_client(&query, client) {
            Ok(session) => session,
            Err(rejection) => return Some(Err(rejection)),
        };

        let zone = Name::from_wire(query.lower())?;
        let since = ClientVersion::read(&query);
        // An IXFR query must have the version of the client. AXFR is only for TCP (RFC 5936,
        // section 4.2).
        let lacks_version = query.qtype == rtype::IXFR && since.is_none();
        let is_axfr_over_udp = query.qtype == rtype::AXFR && transport == Transport::Udp;
        if lacks_version || is_axfr_over_udp {
            return Some(Err(TransferRejection::new(&query, rcode::FORMERR, session)));
        }

        // SERVFAIL tells the secondary to retry: the zone is not complete yet, but may be complete
        // soon.
        let Some(version) = self.current_version(&zone) else {
            let rcode = if self.is_incomplete(&zone) {
                rcode::SERVFAIL
            } else {
                rcode::NOTAUTH
            };
            return Some(Err(TransferRejection::new(&query, rcode, session)));
        };
        let request = TransferRequest::new(&query, zone, since, session);
        Some(Ok(AcceptedTransfer { request, version }))
    }

    /// Checks that the client is a peer, and that the signature of a signed query is valid. If a
    /// key is configured, the query must be signed. Returns the session of a signed query.
    fn authorize_client(
        &self,
        query: &Query<'_>,
        client: IpAddr,
    ) -> Result<Option<TsigSession>, TransferRejection> {
        if !self.peers.allows(client) {
            return Err(TransferRejection::new(query, rcode::REFUSED, None));
        }

        let question_end = query.question_end();
        let key = self.key.as_ref();
        let session = tsig::check_signature(query.message, question_end, key, serial::now())
            .map_err(|refusal| {
                let mut response = Vec::new();
                refusal.append_response(query.message, question_end, &mut response);
                TransferRejection {
                    rcode: refusal.rcode(),
                    response,
                }
            })?;

        // If a key is configured, the address of a client is not enough.
        if key.is_some() && session.is_none() {
            return Err(TransferRejection::new(query, rcode::REFUSED, None));
        }
        Ok(session)
    }
}

impl ClientVersion {
    /// Parses the SOA record of an IXFR query.
    fn read(query: &Query<'_>) -> Option<Self> {
        if query.qtype != rtype::IXFR {
            return None;
        }

        let [_, counts @ ..] = query.header.counts;
        let mut records = RecordIter::new(query.message, query.question_end(), counts);
        let soa = records
            .find(|record| record.section == Section::Authority && record.rtype == rtype::SOA)?;
        if !soa.owner().ok()?.wire().eq_ignore_ascii_case(query.name) {
            return None;
        }

        // SERIAL, REFRESH, RETRY, EXPIRE and MINIMUM follow the two names.
        let mut data = Vec::new();
        soa.append_data(&mut data).ok()?;
        let numbers: &[u8; 20] = data.last_chunk()?;
        let (serial, rest) = numbers.split_first_chunk()?;
        let expire = rest.get(8..)?.first_chunk()?;
        Some(Self {
            serial: u32::from_be_bytes(*serial),
            expire: u32::from_be_bytes(*expire),
        })
    }
}

impl TransferRejection {
    fn new(query: &Query<'_>, rcode: u16, session: Option<TsigSession>) -> Self {
        let mut response = Vec::new();
        let error = ErrorResponse {
            rcode,
            question_end: query.question_end(),
            dnssec_ok: query.edns.as_ref().map(|edns| edns.dnssec_ok),
        };
        error.append_to(query.message, &mut response);

        if let Some(mut session) = session {
            session.sign_message(0, serial::now(), &mut response);
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

        Self {
            zone,
            since,
            head,
            dnssec_ok: query.edns.as_ref().map(|edns| edns.dnssec_ok),
            session,
        }
    }

    /// Rejects an accepted query, for example because too many transfers are in progress. The
    /// response has no records of the zone.
    pub(super) fn reject(mut self, rcode: u16) -> TransferRejection {
        if let Ok(mut header) = Header::parse(&self.head) {
            header.flags = header.flags & !flag::AA | rcode;
            header.write_over(&mut self.head);
        }

        let mut response = Vec::new();
        // A message without records is never too large.
        let _ = self.write_message(0, || None, &mut response);
        TransferRejection { rcode, response }
    }

    /// Writes the next message of the response. Records are added until the message has at least
    /// `size` octets or 65,535 records, or no record is left.
    pub(super) fn write_message(
        &mut self,
        size: usize,
        mut next: impl FnMut() -> Option<ZoneRecord>,
        out: &mut Vec<u8>,
    ) -> Result<(), MessageTooLarge> {
        out.extend_from_slice(&self.head);
        let mut answers = 0_u16;
        // The count in the header has 16 bits.
        while out.len() < size
            && answers < u16::MAX
            && let Some(record) = next()
        {
            append_record(&record, out);
            answers += 1;
        }

        let mut additional = 0;
        if let Some(dnssec_ok) = self.dnssec_ok {
            Edns::ours(dnssec_ok).append(rcode::NOERROR, out);
            additional = 1;
        }

        if let Ok(mut header) = Header::parse(out) {
            header.counts = [1, answers, 0, additional];
            header.write_over(out);
        }
        if let Some(session) = &mut self.session {
            session.sign_message(0, serial::now(), out);
        }
        match u16::try_from(out.len()) {
            Ok(_) => Ok(()),
            Err(_) => Err(MessageTooLarge),
        }
    }

    /// The response with only the SOA record, in a single message.
    pub(super) fn soa_response(&mut self, soa: ZoneRecord) -> Vec<u8> {
        let mut out = Vec::new();
        let mut soa = Some(soa);
        // A message with one record is never too large.
        let _ = self.write_message(usize::MAX, || soa.take(), &mut out);
        out
    }
}

/// Appends a record. The owner name ends with a pointer to the name of the zone in the question.
fn append_record(record: &ZoneRecord, out: &mut Vec<u8>) {
    out.extend_from_slice(&record.owner);
    out.extend_from_slice(&POINTER_TO_QUESTION);
    out.extend_from_slice(&record.body);
}
