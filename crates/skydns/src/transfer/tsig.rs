//! Transaction signatures (TSIG, RFC 8945): checks the signatures of queries, and signs each
//! message of a response.

use std::sync::Arc;

use ring::hmac;
use wire::{Edns, Header, Name, Query, Records, append_record_body, flag, rcode, rtype};

use super::key::TsigKey;

/// CLASS of a TSIG record.
const ANY: u16 = 255;
/// Maximum difference between the clocks of client and server, in seconds (RFC 8945, section 10).
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
    /// The record is malformed, or not the last record.
    Malformed,
    /// The check failed. The value is the TSIG record of the response.
    TsigRecord(Vec<u8>),
}

impl TsigRefusal {
    /// The RCODE of the response.
    pub(crate) fn rcode(&self) -> u16 {
        match self {
            Self::Malformed => rcode::FORMERR,
            Self::TsigRecord(_) => rcode::NOTAUTH,
        }
    }

    /// Appends the error response to `message`, whose question ends at `question_end`.
    pub(crate) fn append_response(&self, message: &[u8], question_end: usize, out: &mut Vec<u8>) {
        let start = out.len();
        wire::refuse(message, question_end, self.rcode(), None, out);
        if let Self::TsigRecord(record) = self {
            append(record, start, out);
        }
    }
}

/// An exchange of messages with a peer that has the key.
#[derive(Debug, Clone)]
pub(crate) struct TsigSession {
    key: Arc<TsigKey>,
    /// The MAC of the previous message: the query, or the last message of the response. `None`
    /// before our own query.
    previous: Option<Vec<u8>>,
    /// Whether the next message is the first that we sign.
    first: bool,
    original_id: u16,
}

/// Signs the one response to a query. It owns all that it needs: the response may be finished
/// later, in another task.
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

/// Whether the last record of a message is a TSIG record. The record may be malformed.
pub(crate) fn is_signed(message: &[u8], question_end: usize) -> bool {
    last_record(message, question_end).is_some_and(|(rtype, ..)| rtype == rtype::TSIG)
}

/// TYPE of the last additional record, the start of the record and the range of its data.
fn last_record(
    message: &[u8],
    question_end: usize,
) -> Option<(u16, usize, std::ops::Range<usize>)> {
    let [_, counts @ ..] = Header::parse(message).ok()?.counts;
    if counts[2] == 0 {
        return None;
    }
    let last = Records::new(message, question_end, counts).last()?;
    Some((last.rtype, last.range().start, last.data_range()))
}

/// Checks the signature of a query. `now` is the time in seconds since 1970. The result is `None`
/// if the query is not signed.
pub(crate) fn check(
    message: &[u8],
    question_end: usize,
    key: Option<&Arc<TsigKey>>,
    now: u64,
) -> Result<Option<TsigSession>, TsigRefusal> {
    if !is_signed(message, question_end) {
        return Ok(None);
    }
    let (tsig, start) = TsigRecord::read(message, question_end).ok_or(TsigRefusal::Malformed)?;
    let known = |key: &&Arc<TsigKey>| {
        *key.name() == tsig.key && key.algorithm().wire() == tsig.algorithm.wire()
    };
    let Some(key) = key.filter(known) else {
        return Err(tsig.refused(BADKEY));
    };
    let mut signed = unsigned(message, start, tsig.original_id).ok_or(TsigRefusal::Malformed)?;
    tsig.append_variables(&mut signed);
    if hmac::verify(key.secret(), &signed, tsig.mac).is_err() {
        return Err(tsig.refused(BADSIG));
    }
    let mut session = TsigSession {
        key: Arc::clone(key),
        previous: Some(tsig.mac.to_vec()),
        first: true,
        original_id: tsig.original_id,
    };
    if now.abs_diff(tsig.time) > u64::from(tsig.fudge) {
        let header = Header::parse(message).map_err(|_| TsigRefusal::Malformed)?;
        return Err(session.out_of_time(
            &tsig,
            header,
            message.get(..question_end).unwrap_or_default(),
            now,
        ));
    }
    Ok(Some(session))
}

/// The message without its TSIG record, which begins at `start`. The header gets the original ID.
fn unsigned(message: &[u8], start: usize, original_id: u16) -> Option<Vec<u8>> {
    let mut header = Header::parse(message).ok()?;
    header.id = original_id;
    header.counts[3] = header.counts[3].checked_sub(1)?;
    let mut unsigned = message.get(..start)?.to_vec();
    header.write_over(&mut unsigned);
    Some(unsigned)
}

impl<'m> TsigRecord<'m> {
    /// Parses the TSIG record of a signed message. Returns the record and its offset.
    fn read(message: &'m [u8], question_end: usize) -> Option<(Self, usize)> {
        let [_, counts @ ..] = Header::parse(message).ok()?.counts;
        let mut records = Records::new(message, question_end, counts);
        let mut found = None;
        for record in records.by_ref() {
            if found.is_some() {
                return None;
            }
            found = (record.rtype == rtype::TSIG).then_some(record);
        }
        let record = found?;
        if record.range().end != message.len() || record.class != ANY || record.ttl != 0 {
            return None;
        }
        let (key, start) = (record.owner().ok()?.to_lowercase(), record.range().start);
        let mut data = TsigFields(message.get(record.data_range())?);
        let algorithm = data.name()?.to_lowercase();
        let [high, low] = [data.u16()?, data.u16()?];
        let time = u64::from(high) << 32 | u64::from(low) << 16 | u64::from(data.u16()?);
        let (fudge, mac) = (data.u16()?, data.counted()?);
        let (original_id, error, other) = (data.u16()?, data.u16()?, data.counted()?);
        let tsig = Self {
            key,
            algorithm,
            time,
            fudge,
            mac,
            original_id,
            error,
            other,
        };
        data.0.is_empty().then_some((tsig, start))
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
    fn record(&self) -> Vec<u8> {
        let mut data = self.algorithm.wire().to_vec();
        self.append_timers(&mut data);
        append_counted(self.mac, &mut data);
        data.extend_from_slice(&self.original_id.to_be_bytes());
        data.extend_from_slice(&self.error.to_be_bytes());
        append_counted(self.other, &mut data);
        let mut record = self.key.wire().to_vec();
        append_record_body((rtype::TSIG, ANY), 0, &data, &mut record);
        record
    }

    /// Rejects the query with `error`, in a response without signature (RFC 8945, section 5.2).
    fn refused(self, error: u16) -> TsigRefusal {
        TsigRefusal::TsigRecord(
            Self {
                mac: &[],
                error,
                other: &[],
                ..self
            }
            .record(),
        )
    }
}

impl TsigSession {
    /// Begins an exchange with our own query, which has the ID `id`.
    pub(super) fn of_request(key: &Arc<TsigKey>, id: u16) -> Self {
        Self {
            key: Arc::clone(key),
            previous: None,
            first: true,
            original_id: id,
        }
    }

    /// Number of octets that [`sign`](Self::sign) adds to a message.
    fn room(&self) -> usize {
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
    pub(crate) fn sign(&mut self, start: usize, now: u64, out: &mut Vec<u8>) {
        let record = self.signed(out.get(start..).unwrap_or_default(), (now, 0, &[]));
        append(&record, start, out);
    }

    /// Makes the TSIG record of a message with the given time, error and other data.
    fn signed(&mut self, message: &[u8], (time, error, other): (u64, u16, &[u8])) -> Vec<u8> {
        let tsig = TsigRecord {
            key: self.key.name().clone(),
            algorithm: Name::from_wire(self.key.algorithm().wire()).unwrap_or_default(),
            time,
            fudge: FUDGE,
            mac: &[],
            original_id: self.original_id,
            error,
            other,
        };
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
        let record = TsigRecord { mac: &mac, ..tsig }.record();
        (self.previous, self.first) = (Some(mac), false);
        record
    }

    /// Rejects a query whose time differs too much. The response is signed and holds the time of
    /// our clock (RFC 8945, section 5.2.3).
    fn out_of_time(
        &mut self,
        tsig: &TsigRecord<'_>,
        request: Header,
        question: &[u8],
        now: u64,
    ) -> TsigRefusal {
        let flags =
            flag::QR | request.flags & (flag::OPCODE | flag::RD | flag::CD) | rcode::NOTAUTH;
        let mut response = question.to_vec();
        Header {
            id: request.id,
            flags,
            counts: [1, 0, 0, 0],
        }
        .write_over(&mut response);
        let [_, _, now @ ..] = now.to_be_bytes();
        TsigRefusal::TsigRecord(self.signed(&response, (tsig.time, BADTIME, &now)))
    }
}

impl ResponseSigner {
    /// A signer for the response to `query`, whose signature was checked in `session`.
    pub(crate) fn new(session: TsigSession, query: &Query<'_>) -> Self {
        let head = query
            .message
            .get(..query.question_end())
            .unwrap_or_default()
            .into();
        let dnssec_ok = query.edns.as_ref().map(|edns| edns.dnssec_ok);
        Self {
            session,
            head,
            dnssec_ok,
            limit: query.limit(),
        }
    }

    /// Signs a finished response, which begins at `start` of `out`. `now` is the time in seconds
    /// since 1970. Returns true if the response has no room for the signature: it was then replaced
    /// by a truncated response without records and with RCODE 0 (RFC 8945, section 5.3), and the
    /// client retries over TCP.
    pub(crate) fn sign_response(mut self, start: usize, now: u64, out: &mut Vec<u8>) -> bool {
        let size = out.len().saturating_sub(start) + self.session.room();
        let is_too_large = size > self.limit;
        if is_too_large {
            self.replace_by_truncated(start, out);
        }
        self.session.sign(start, now, out);
        is_too_large
    }

    fn replace_by_truncated(&self, start: usize, out: &mut Vec<u8>) {
        let (Ok(query), Ok(response)) = (
            Header::parse(&self.head),
            Header::parse(out.get(start..).unwrap_or_default()),
        ) else {
            return;
        };
        out.truncate(start);
        out.extend_from_slice(&self.head);
        let mut additional = 0;
        if let Some(dnssec_ok) = self.dnssec_ok {
            Edns::ours(dnssec_ok).append(rcode::NOERROR, out);
            additional = 1;
        }
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
fn append(record: &[u8], start: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(record);
    let message = out.get_mut(start..).unwrap_or_default();
    if let Ok(mut header) = Header::parse(message) {
        header.counts[3] = header.counts[3].saturating_add(1);
        header.write_over(message);
    }
}

fn append_counted(octets: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(
        &u16::try_from(octets.len())
            .unwrap_or_default()
            .to_be_bytes(),
    );
    out.extend_from_slice(octets);
}

struct TsigFields<'m>(&'m [u8]);

impl<'m> TsigFields<'m> {
    fn take(&mut self, octets: usize) -> Option<&'m [u8]> {
        let (taken, rest) = self.0.split_at_checked(octets)?;
        self.0 = rest;
        Some(taken)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take(2)?.first_chunk().copied().map(u16::from_be_bytes)
    }

    fn counted(&mut self) -> Option<&'m [u8]> {
        let octets = self.u16()?;
        self.take(octets.into())
    }

    /// Takes a name. Names in a TSIG record are not compressed.
    fn name(&mut self) -> Option<Name> {
        let mut end = 0;
        while *self.0.get(end)? != 0 {
            end += 1 + usize::from(*self.0.get(end)?);
        }
        Name::from_wire(self.take(end + 1)?)
    }
}

#[cfg(test)]
mod tests;
