//! Limits the negative TTL of an upstream's message.
//!
//! With fall-through, a query for a name that our zones do not have is forwarded. The name may be
//! created in our zones at any time, so the upstream's negative answer must not be cached for
//! longer than our own negative answer would be.

use std::ops::Range;

use wire::{Message, Record, Section, rtype};

/// Lowers the time for which `message` may be cached as a negative answer (RFC 2308, section 5) to
/// at most `limit` seconds. This changes the TTLs of the authority section and, if the section is
/// not signed, MINIMUM of its SOA record. A malformed message stays unchanged, and so does a
/// message without an SOA record in the authority section.
pub(super) fn limit_ttls(message: &mut [u8], limit: u32) {
    for field in negative_ttl_fields(message) {
        lower_seconds(message, field, limit);
    }
}

/// The places of the fields with a negative TTL; empty unless the authority section has an SOA
/// record.
fn negative_ttl_fields(message: &[u8]) -> Vec<Range<usize>> {
    let Ok(message) = Message::parse(message) else {
        return Vec::new();
    };

    // Without an SOA record, the message is not a negative answer, or should not be cached as one.
    let authority: Vec<Record<'_>> = message.section(Section::Authority).collect();
    let Some(soa) = authority.iter().find(|record| record.rtype == rtype::SOA) else {
        return Vec::new();
    };

    let mut fields: Vec<Range<usize>> = authority.iter().map(Record::ttl_range).collect();

    // A signature covers MINIMUM, but not the TTL. Of MINIMUM and the TTL, the lower value applies.
    let is_signed = authority.iter().any(|record| record.rtype == rtype::RRSIG);
    if !is_signed {
        fields.push(minimum_field(soa));
    }
    fields
}

/// The place of MINIMUM, the last field of an SOA record.
fn minimum_field(soa: &Record<'_>) -> Range<usize> {
    let end = soa.data_range().end;
    end.saturating_sub(4)..end
}

/// Lowers the number of seconds in `field` to at most `limit`.
fn lower_seconds(message: &mut [u8], field: Range<usize>, limit: u32) {
    let Some(octets) = message.get_mut(field).and_then(<[u8]>::first_chunk_mut) else {
        return;
    };

    let seconds = u32::from_be_bytes(*octets);
    *octets = seconds.min(limit).to_be_bytes();
}

#[cfg(test)]
mod tests;
