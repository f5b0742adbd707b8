//! Transaction signatures (TSIG, RFC 8945). This module checks the signatures of queries, and signs
//! responses and NOTIFY messages.

use std::sync::Arc;

use ring::hmac;

use super::key::TsigKey;
use wire::{
    Edns, ErrorResponse, Header, Name, Query, Record, RecordBody, RecordIter, flag, rcode, rtype,
};

/// CLASS of a TSIG record.
const ANY: u16 = 255;
/// The difference that our signatures permit between the clock of the peer and ours, in seconds
/// (RFC 8945, section 10).
const FUDGE: u16 = 300;
/// TSIG errors (RFC 8945, section 3).
const BADSIG: u16 = 16;
const BADKEY: u16 = 17;
const BADTIME: u16 = 18;

/// The content of a TSIG record.
struct TsigRecord<'m> {
    key: Name,
    algorithm: Name,
    /// Seconds since 1970.
    time: u64,
    fudge: u16,
    mac: &'m [u8],
    original_id: u16,
    error: u16,
    other: &'m [u8],
}

/// Reason why a TSIG record is rejected.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TsigRefusal {
    /// The record is malformed, is not the only TSIG record, or does not end the message.
    Malformed,
    /// The check failed. The value is the TSIG record of the response.
    Failed(Vec<u8>),
}

impl TsigRefusal {
    /// The RCODE of the response.
    pub(crate) fn rcode(&self) -> u16 {
        match self {
            Self::Malformed => rcode::FORMERR,
            Self::Failed(_) => rcode::NOTAUTH,
        }
    }

    /// Appends the error response to `out`. `message` is the query, whose question ends at
    /// `question_end`.
    pub(crate) fn append_response(&self, message: &[u8], question_end: usize, out: &mut Vec<u8>) {
        let start = out.len();
        let error = ErrorResponse {
            rcode: self.rcode(),
            question_end,
            dnssec_ok: None,
        };
        error.append_to(message, out);

        if let Self::Failed(record) = self {
            append_additional(record, start, out);
        }
    }
}

/// An exchange of messages with a peer that has the key.
#[derive(Debug, Clone)]
pub(crate) struct TsigSession {
    key: Arc<TsigKey>,
    /// The MAC of the previous message; `None` before the first message.
    previous: Option<Vec<u8>>,
    /// Whether the next message is the first that we sign.
    first: bool,
    original_id: u16,
}

/// The time in a signature, with an error if the clocks of client and server differ too much.
struct SignedTiming<'o> {
    /// Seconds since 1970.
    time: u64,
    error: u16,
    other: &'o [u8],
}

/// Signs a response that is a single message. The signer owns all its data, because the response
/// may be finished later, in another task.
#[derive(Debug, Clone)]
pub(crate) struct ResponseSigner {
    session: TsigSession,
    /// Header and question of the query.
    head: Box<[u8]>,
    /// The DO bit of the query's OPT record; `None` without EDNS.
    dnssec_ok: Option<bool>,
    /// Maximum size of the response, in octets.
    limit: usize,
}

/// Whether a message has additional records and, in any section, a TSIG record. The data of the
/// TSIG record are not checked. The first malformed record and all records after it are ignored.
fn is_signed(message: &[u8], question_end: usize) -> bool {
    let Ok(header) = Header::parse(message) else {
        return false;
    };
    let [_, counts @ ..] = header.counts;
    if counts[2] == 0 {
        return false;
    }

    RecordIter::new(message, question_end, counts).any(|record| record.rtype == rtype::TSIG)
}

/// Checks the signature of a query. `now` is the time in seconds since 1970. The result is `None`
/// if the query is not signed.
pub(crate) fn check_signature(
    message: &[u8],
    question_end: usize,
    key: Option<&Arc<TsigKey>>,
    now: u64,
) -> Result<Option<TsigSession>, TsigRefusal> {
    if !is_signed(message, question_end) {
        return Ok(None);
    }

    let (tsig, start) = TsigRecord::read(message, question_end).ok_or(TsigRefusal::Malformed)?;
    let Some(key) = key.filter(|key| tsig.names_key(key)) else {
        return Err(tsig.refuse(BADKEY));
    };

    let mut signed =
        without_signature(message, start, tsig.original_id).ok_or(TsigRefusal::Malformed)?;
    tsig.append_variables(&mut signed);
    if hmac::verify(key.secret(), &signed, tsig.mac).is_err() {
        return Err(tsig.refuse(BADSIG));
    }

    // The client may learn our time only after its signature has been verified.
    let mut session = TsigSession {
        key: Arc::clone(key),
        previous: Some(tsig.mac.to_vec()),
        first: true,
        original_id: tsig.original_id,
    };
    if now.abs_diff(tsig.time) > u64::from(tsig.fudge) {
        let header = Header::parse(message).map_err(|_| TsigRefusal::Malformed)?;
        let question = message.get(..question_end).unwrap_or_default();
        return Err(session.refuse_time(&tsig, header, question, now));
    }
    Ok(Some(session))
}

/// The message without its TSIG record, which begins at `start`. The header gets the original ID.
fn without_signature(message: &[u8], start: usize, original_id: u16) -> Option<Vec<u8>> {
    let mut header = Header::parse(message).ok()?;
    header.id = original_id;
    header.counts[3] = header.counts[3].checked_sub(1)?;

    let mut unsigned = message.get(..start)?.to_vec();
    header.write_over(&mut unsigned);
    Some(unsigned)
}

/// The TSIG record of a message, if it is the last record and the only one of its type.
fn only_signature(message: &[u8], question_end: usize) -> Option<Record<'_>> {
    let [_, counts @ ..] = Header::parse(message).ok()?.counts;
    let mut signature = None;
    for record in RecordIter::new(message, question_end, counts) {
        // The signature must be the last record.
        if signature.is_some() {
            return None;
        }
        signature = (record.rtype == rtype::TSIG).then_some(record);
    }
    signature
}

impl<'m> TsigRecord<'m> {
    /// Parses the TSIG record of a signed message. Returns the record and its offset.
    fn read(message: &'m [u8], question_end: usize) -> Option<(Self, usize)> {
        let record = only_signature(message, question_end)?;
        // CLASS and TTL are fixed (RFC 8945, section 4.2).
        if record.range().end != message.len() || record.class != ANY || record.ttl != 0 {
            return None;
        }

        let mut data = TsigFields(message.get(record.data_range())?);
        let algorithm = data.take_name()?.to_lowercase();
        let [high, low] = [data.take_u16()?, data.take_u16()?];
        let time = u64::from(high) << 32 | u64::from(low) << 16 | u64::from(data.take_u16()?);
        let tsig = Self {
            key: record.owner().ok()?.to_lowercase(),
            algorithm,
            time,
            fudge: data.take_u16()?,
            mac: data.take_counted()?,
            original_id: data.take_u16()?,
            error: data.take_u16()?,
            other: data.take_counted()?,
        };
        data.0.is_empty().then_some((tsig, record.range().start))
    }

    /// Whether the record names this key and its algorithm.
    fn names_key(&self, key: &TsigKey) -> bool {
        *key.name() == self.key && key.algorithm().wire() == self.algorithm.wire()
    }

    /// Appends the fields of the TSIG record that are signed (RFC 8945, section 4.3.3).
    fn append_variables(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.key.wire());
        out.extend_from_slice(&ANY.to_be_bytes());
        out.extend_from_slice(&0_u32.to_be_bytes());
        out.extend_from_slice(self.algorithm.wire());
        self.append_timers(out);
        out.extend_from_slice(&self.error.to_be_bytes());
        append_counted(self.other, out);
    }

    /// Appends the time and the fudge (RFC 8945, section 5.3.1).
    fn append_timers(&self, out: &mut Vec<u8>) {
        out.extend(self.time.to_be_bytes().into_iter().skip(2));
        out.extend_from_slice(&self.fudge.to_be_bytes());
    }

    /// The whole record in wire format.
    fn to_wire(&self) -> Vec<u8> {
        let mut data = self.algorithm.wire().to_vec();
        self.append_timers(&mut data);
        append_counted(self.mac, &mut data);
        data.extend_from_slice(&self.original_id.to_be_bytes());
        data.extend_from_slice(&self.error.to_be_bytes());
        append_counted(self.other, &mut data);

        let mut record = self.key.wire().to_vec();
        let body = RecordBody {
            rtype: rtype::TSIG,
            class: ANY,
            ttl: 0,
            data: &data,
        };
        body.append(&mut record);
        record
    }

    /// Rejects the query with `error`, in an unsigned response (RFC 8945, section 5.2).
    fn refuse(self, error: u16) -> TsigRefusal {
        let response = Self {
            mac: &[],
            error,
            other: &[],
            ..self
        };
        TsigRefusal::Failed(response.to_wire())
    }
}

impl TsigSession {
    /// Begins an exchange with our own request, such as a NOTIFY. The request has the ID `id`.
    pub(super) fn of_request(key: &Arc<TsigKey>, id: u16) -> Self {
        Self {
            key: Arc::clone(key),
            previous: None,
            first: true,
            original_id: id,
        }
    }

    /// Number of octets that [`sign_message`](Self::sign_message) adds to a message.
    fn signature_size(&self) -> usize {
        /// Octets of TYPE, CLASS, TTL, the lengths, time and fudge, the original ID and the error.
        const FIXED: usize = 2 + 2 + 4 + 2 + 8 + 2 + 2 + 2 + 2;

        let algorithm = self.key.algorithm();
        let mac = self
            .key
            .secret()
            .algorithm()
            .digest_algorithm()
            .output_len();
        self.key.name().wire().len() + algorithm.wire().len() + FIXED + mac
    }

    /// Signs the next message of the exchange. The message begins at `start` of `out`.
    pub(crate) fn sign_message(&mut self, start: usize, now: u64, out: &mut Vec<u8>) {
        let message = out.get(start..).unwrap_or_default();
        let timing = SignedTiming {
            time: now,
            error: 0,
            other: &[],
        };
        let record = self.signature(message, &timing);
        append_additional(&record, start, out);
    }

    /// Makes the TSIG record of a message.
    fn signature(&mut self, message: &[u8], timing: &SignedTiming<'_>) -> Vec<u8> {
        let tsig = TsigRecord {
            key: self.key.name().clone(),
            algorithm: Name::from_wire(self.key.algorithm().wire()).unwrap_or_default(),
            time: timing.time,
            fudge: FUDGE,
            mac: &[],
            original_id: self.original_id,
            error: timing.error,
            other: timing.other,
        };

        // Each MAC also covers the previous MAC, so that no message can be left out or replaced.
        let mut octets = Vec::with_capacity(message.len() + 256);
        if let Some(previous) = &self.previous {
            append_counted(previous, &mut octets);
        }
        octets.extend_from_slice(message);
        if self.first {
            tsig.append_variables(&mut octets);
        } else {
            tsig.append_timers(&mut octets);
        }

        let mac = hmac::sign(self.key.secret(), &octets).as_ref().to_vec();
        let record = TsigRecord { mac: &mac, ..tsig }.to_wire();
        self.previous = Some(mac);
        self.first = false;
        record
    }

    /// Rejects a query whose time differs too much from our clock. The response is signed and holds
    /// the time of our clock (RFC 8945, section 5.2.3).
    fn refuse_time(
        &mut self,
        tsig: &TsigRecord<'_>,
        request: Header,
        question: &[u8],
        now: u64,
    ) -> TsigRefusal {
        let flags =
            flag::QR | request.flags & (flag::OPCODE | flag::RD | flag::CD) | rcode::NOTAUTH;
        let header = Header {
            id: request.id,
            flags,
            counts: [1, 0, 0, 0],
        };
        let mut response = question.to_vec();
        header.write_over(&mut response);

        // The time has 48 bits.
        let [_, _, now @ ..] = now.to_be_bytes();
        let timing = SignedTiming {
            time: tsig.time,
            error: BADTIME,
            other: &now,
        };
        TsigRefusal::Failed(self.signature(&response, &timing))
    }
}

impl ResponseSigner {
    /// A signer for the response to `query`. `session` comes from the check of the query's
    /// signature.
    pub(crate) fn new(session: TsigSession, query: &Query<'_>) -> Self {
        let head = query
            .message
            .get(..query.question_end())
            .unwrap_or_default()
            .into();

        Self {
            session,
            head,
            dnssec_ok: query.edns.as_ref().map(|edns| edns.dnssec_ok),
            limit: query.limit(),
        }
    }

    /// Signs a finished response, which begins at `start` of `out`. `now` is the time in seconds
    /// since 1970. Returns true if the response has no room for the signature. Such a response is
    /// replaced by a truncated response with RCODE 0 and no records except OPT and TSIG (RFC 8945,
    /// section 5.3), so that the client retries over TCP.
    pub(crate) fn sign_response(mut self, start: usize, now: u64, out: &mut Vec<u8>) -> bool {
        let size = out.len().saturating_sub(start) + self.session.signature_size();
        let is_too_large = size > self.limit;
        if is_too_large {
            self.replace_by_truncated(start, out);
        }

        self.session.sign_message(start, now, out);
        is_too_large
    }

    fn replace_by_truncated(&self, start: usize, out: &mut Vec<u8>) {
        let query = Header::parse(&self.head);
        let response = Header::parse(out.get(start..).unwrap_or_default());
        let (Ok(query), Ok(response)) = (query, response) else {
            return;
        };

        out.truncate(start);
        out.extend_from_slice(&self.head);
        let mut additional = 0;
        if let Some(dnssec_ok) = self.dnssec_ok {
            Edns::ours(dnssec_ok).append(rcode::NOERROR, out);
            additional = 1;
        }

        // The RCODE is 0 (RFC 8945, section 5.3).
        let copied = response.flags & !response.rcode() | query.flags & flag::RD;
        let header = Header {
            id: query.id,
            flags: copied | flag::TC,
            counts: [1, 0, 0, additional],
        };
        header.write_over(out.get_mut(start..).unwrap_or_default());
    }
}

/// Appends a record to the additional section of the message that begins at `start` of `out`.
fn append_additional(record: &[u8], start: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(record);
    let message = out.get_mut(start..).unwrap_or_default();
    if let Ok(mut header) = Header::parse(message) {
        header.counts[3] = header.counts[3].saturating_add(1);
        header.write_over(message);
    }
}

/// Appends a length of 16 bits, and the octets.
fn append_counted(octets: &[u8], out: &mut Vec<u8>) {
    let length = u16::try_from(octets.len()).unwrap_or_default();
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(octets);
}

/// The data of a TSIG record that are still to be parsed.
struct TsigFields<'m>(&'m [u8]);

impl<'m> TsigFields<'m> {
    fn take_octets(&mut self, octets: usize) -> Option<&'m [u8]> {
        let (taken, rest) = self.0.split_at_checked(octets)?;
        self.0 = rest;
        Some(taken)
    }

    fn take_u16(&mut self) -> Option<u16> {
        let octets = self.take_octets(2)?.first_chunk()?;
        Some(u16::from_be_bytes(*octets))
    }

    fn take_counted(&mut self) -> Option<&'m [u8]> {
        let octets = self.take_u16()?;
        self.take_octets(octets.into())
    }

    /// Takes a name. Names in a TSIG record are not compressed.
    fn take_name(&mut self) -> Option<Name> {
        let mut end = 0;
        while *self.0.get(end)? != 0 {
            end += 1 + usize::from(*self.0.get(end)?);
        }
        Name::from_wire(self.take_octets(end + 1)?)
    }
}

#[cfg(test)]
mod tests;
