//! Parses the expiry and the public key of a validated certificate (RFC 5280 section 4.1).

use chrono::NaiveDateTime;

/// DER tags.
const SEQUENCE: u8 = 0x30;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const VERSION: u8 = 0xa0;

/// The parsed parts of a certificate.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CertificateInfo<'a> {
    /// notAfter in seconds since 1970.
    pub(super) expires: i64,
    /// The whole `SubjectPublicKeyInfo`.
    pub(super) key: &'a [u8],
}

impl<'a> CertificateInfo<'a> {
    /// Parses a certificate in DER; `None` if the expiry or the key cannot be parsed.
    pub(super) fn parse(der: &'a [u8]) -> Option<Self> {
        let certificate = DerElement::read(der)?.element;
        let signed = DerElement::read(certificate.value_of(SEQUENCE)?)?.element;
        let mut fields = DerFields(signed.value_of(SEQUENCE)?);

        // The version comes first, but may be missing. The serial number, the signature algorithm
        // and the issuer follow.
        let has_version = fields.next()?.tag == VERSION;
        let skipped = if has_version { 3 } else { 2 };
        for _ in 0..skipped {
            fields.next()?;
        }

        let mut validity = DerFields(fields.next()?.value_of(SEQUENCE)?);
        let _not_before = validity.next()?;
        let expires = validity.next()?.time()?;

        let _subject = fields.next()?;
        let key = fields.next()?.whole;
        Some(Self { expires, key })
    }
}

/// The elements of a sequence, one after the other.
struct DerFields<'a>(&'a [u8]);

impl<'a> Iterator for DerFields<'a> {
    type Item = DerElement<'a>;

    fn next(&mut self) -> Option<DerElement<'a>> {
        let DerRead { element, rest } = DerElement::read(self.0)?;
        self.0 = rest;
        Some(element)
    }
}

/// An element, and the octets after it.
struct DerRead<'a> {
    element: DerElement<'a>,
    rest: &'a [u8],
}

struct DerElement<'a> {
    tag: u8,
    value: &'a [u8],
    whole: &'a [u8],
}

impl<'a> DerElement<'a> {
    /// Reads the first element.
    fn read(der: &'a [u8]) -> Option<DerRead<'a>> {
        let (&[tag, short], long) = der.split_first_chunk()?;
        let octets = usize::from(short & 0x7f);
        let (length, begin) = match short {
            ..=0x7f => (octets, 2),
            // The length of any certificate fits into four octets.
            0x81..=0x84 => (be_number(long.get(..octets)?), 2 + octets),
            _ => return None,
        };

        let end = begin.checked_add(length)?;
        let element = Self {
            tag,
            value: der.get(begin..end)?,
            whole: der.get(..end)?,
        };
        let rest = der.get(end..)?;
        Some(DerRead { element, rest })
    }

    /// The value of an element with this tag.
    fn value_of(&self, tag: u8) -> Option<&'a [u8]> {
        (self.tag == tag).then_some(self.value)
    }

    /// The time in seconds since 1970. A two-digit year is in the range from 1950 to 2049.
    fn time(&self) -> Option<i64> {
        let text = str::from_utf8(self.value).ok()?;
        let text = match self.tag {
            UTC_TIME => format!("{}{text}", if text < "50" { "20" } else { "19" }),
            GENERALIZED_TIME => text.to_owned(),
            _ => return None,
        };
        let time = NaiveDateTime::parse_from_str(&text, "%Y%m%d%H%M%SZ").ok()?;
        Some(time.and_utc().timestamp())
    }
}

fn be_number(octets: &[u8]) -> usize {
    octets
        .iter()
        .fold(0, |number, octet| number << 8 | usize::from(*octet))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;

    use super::*;

    fn der() -> Vec<u8> {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../cluster/testdata/tls/server.pem"
        );
        CertificateDer::from_pem_file(path).unwrap().to_vec()
    }

    #[test]
    fn certificate_expiry_and_key_are_parsed() {
        let der = der();
        let certificate = CertificateInfo::parse(&der).unwrap();
        // Expected values are from openssl x509 -enddate and -pubkey.
        assert_eq!(certificate.expires, 4_733_510_400);
        assert_eq!(certificate.key.len(), 91);
    }

    #[test]
    fn certificate_times_are_parsed() {
        for (tag, text, expected) in [
            (UTC_TIME, "700101000001Z", Some(1)),
            (UTC_TIME, "491231235959Z", Some(2_524_607_999)),
            (UTC_TIME, "500101000000Z", Some(-631_152_000)),
            (GENERALIZED_TIME, "20500101000000Z", Some(2_524_608_000)),
            (GENERALIZED_TIME, "99991231235959Z", Some(253_402_300_799)),
            (GENERALIZED_TIME, "20501301000000Z", None),
            (SEQUENCE, "20500101000000Z", None),
            (UTC_TIME, "", None),
        ] {
            let element = DerElement {
                tag,
                value: text.as_bytes(),
                whole: &[],
            };
            assert_eq!(element.time(), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn broken_certificate_does_not_panic(at: prop::sample::Index, octet: u8, end: prop::sample::Index) {
            let whole = der();
            let end = end.index(whole.len());
            prop_assert_eq!(CertificateInfo::parse(&whole[..end]), None);

            // A changed length may make the shortened certificate complete, so the results are not
            // compared.
            let mut changed = whole;
            *at.get_mut(&mut changed) = octet;
            CertificateInfo::parse(&changed);
            CertificateInfo::parse(&changed[..end]);
        }
    }
}
