//! A lenient parser of DNS messages. The parser reads up to the first defect, and reports that
//! defect. The library hickory decodes the parts, so that independent code checks the messages that
//! the crate `wire` writes.

use hickory_proto::serialize::binary::{BinDecoder, DecodeError};
use thiserror::Error;

use crate::record::{Record, read_data};
use crate::{codes, name};

/// The first defect of a message: its position, and the part that is malformed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("octet {at}: {what}")]
pub struct Malformed {
    /// Offset of the malformed part in octets.
    pub at: usize,
    /// The malformed part.
    pub what: &'static str,
}

/// A question in a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The name in presentation format, with upper and lower case as on the wire.
    pub name: String,
    /// Type number.
    pub rtype: u16,
    /// Class number.
    pub class: u16,
}

impl std::fmt::Display for Question {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} {} {}",
            self.name,
            codes::class_name(self.class),
            codes::type_name(self.rtype)
        )
    }
}

/// The OPT record (RFC 6891).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edns {
    /// The sender's UDP payload size.
    pub udp: u16,
    /// The DO bit (DNSSEC OK).
    pub dnssec_ok: bool,
    /// EDNS version.
    pub version: u8,
    /// Options: code and data.
    pub options: Vec<(u16, Vec<u8>)>,
}

/// A DNS message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// Message ID.
    pub id: u16,
    /// The second word of the header: QR, opcode, AA, TC, RD, RA, Z, AD, CD, RCODE.
    pub bits: u16,
    /// Upper eight bits of the RCODE, from the OPT record.
    pub extended_rcode: u8,
    /// Question section.
    pub questions: Vec<Question>,
    /// Answer section.
    pub answer: Vec<Record>,
    /// Authority section.
    pub authority: Vec<Record>,
    /// Additional section without the first OPT record.
    pub additional: Vec<Record>,
    /// The first OPT record of the additional section.
    pub edns: Option<Edns>,
    /// Number of octets after the last record.
    pub trailing: usize,
    /// Number of octets of the whole message.
    pub size: usize,
}

const FLAGS: &[(u16, &str)] = &[
    (0x8000, "qr"),
    (0x0400, "aa"),
    (0x0200, "tc"),
    (0x0100, "rd"),
    (0x0080, "ra"),
    (0x0040, "z"),
    (0x0020, "ad"),
    (0x0010, "cd"),
];

impl Message {
    /// Parses a whole message. Returns the first defect as an error.
    pub fn parse(wire: &[u8]) -> Result<Self, Malformed> {
        match Self::read(wire) {
            (message, None) => Ok(message),
            (_, Some(malformed)) => Err(malformed),
        }
    }

    /// Parses a message up to the first defect. Returns the parsed part, and the defect if any.
    pub fn read(wire: &[u8]) -> (Self, Option<Malformed>) {
        let mut message = Self {
            size: wire.len(),
            ..Self::default()
        };
        let mut reader = Reader {
            decoder: BinDecoder::new(wire),
        };
        let defect = message.read_sections(&mut reader).err();
        (message, defect)
    }

    fn read_sections(&mut self, reader: &mut Reader<'_>) -> Result<(), Malformed> {
        let mut words = [0; 6];
        for word in &mut words {
            *word = reader.u16("header")?;
        }
        let [id, bits, questions, answers, authorities, additionals] = words;
        self.id = id;
        self.bits = bits;

        for _ in 0..questions {
            self.questions.push(reader.question()?);
        }
        for _ in 0..answers {
            self.answer.push(reader.record()?.record);
        }
        for _ in 0..authorities {
            self.authority.push(reader.record()?.record);
        }

        for _ in 0..additionals {
            let read = reader.record()?;
            // A second OPT record is not allowed, but does not stop the parser. It is kept in
            // `additional`, where tests can see it.
            if codes::type_code("OPT") == Some(read.record.rtype) && self.edns.is_none() {
                self.set_opt(&read);
            } else {
                self.additional.push(read.record);
            }
        }
        self.trailing = reader.decoder.len();
        Ok(())
    }

    fn set_opt(&mut self, opt: &ReadRecord<'_>) {
        let [extended, version, high, _] = opt.record.ttl.to_be_bytes();
        self.extended_rcode = extended;

        let mut options = Vec::new();
        let mut data = opt.raw;
        while let [c0, c1, l0, l1, rest @ ..] = data {
            // If the data of an option are cut off, the octets that are present are kept.
            let length = usize::from(u16::from_be_bytes([*l0, *l1]));
            let (value, behind) = rest.split_at(length.min(rest.len()));
            options.push((u16::from_be_bytes([*c0, *c1]), value.to_vec()));
            data = behind;
        }

        self.edns = Some(Edns {
            udp: opt.record.class,
            dnssec_ok: high & 0x80 != 0,
            version,
            options,
        });
    }

    /// The RCODE with the upper bits of the OPT record.
    pub fn rcode(&self) -> u16 {
        u16::from(self.extended_rcode) << 4 | self.bits & 0x000f
    }

    /// The name of the RCODE, such as `NOERROR` or `NXDOMAIN`.
    pub fn rcode_name(&self) -> String {
        codes::rcode_name(self.rcode())
    }

    /// The opcode.
    pub fn opcode(&self) -> u8 {
        u8::try_from(self.bits >> 11 & 0x0f).unwrap_or_default()
    }

    /// Returns whether the flag is set: `qr`, `aa`, `tc`, `rd`, `ra`, `z`, `ad` or `cd`.
    #[track_caller]
    pub fn has(&self, flag: &str) -> bool {
        let known = FLAGS.iter().find(|(_, name)| *name == flag);
        let (bit, _) = known.unwrap_or_else(|| panic!("no such header flag: {flag}"));
        self.bits & bit != 0
    }

    /// The set flags, in the order `qr aa tc rd ra z ad cd`, separated by blanks.
    pub fn flags(&self) -> String {
        let set: Vec<&str> = FLAGS
            .iter()
            .filter(|(bit, _)| self.bits & bit != 0)
            .map(|(_, name)| *name)
            .collect();
        set.join(" ")
    }

    /// The data of all answer records of one type, sorted.
    pub fn answer_data(&self, rtype: &str) -> Vec<String> {
        let code = codes::type_code(rtype);
        let mut data: Vec<String> = self
            .answer
            .iter()
            .filter(|record| Some(record.rtype) == code)
            .map(|record| record.data.clone())
            .collect();
        data.sort();
        data
    }
}

/// A record, and the octets of its data.
struct ReadRecord<'a> {
    record: Record,
    raw: &'a [u8],
}

/// Reads the parts of a message. If hickory cannot read a part, the defect is at the start of that
/// part.
struct Reader<'a> {
    decoder: BinDecoder<'a>,
}

impl<'a> Reader<'a> {
    fn part<T>(
        &mut self,
        what: &'static str,
        read: impl FnOnce(&mut BinDecoder<'a>) -> Result<T, DecodeError>,
    ) -> Result<T, Malformed> {
        let at = self.decoder.index();
        read(&mut self.decoder).map_err(|_| Malformed { at, what })
    }

    fn u16(&mut self, what: &'static str) -> Result<u16, Malformed> {
        self.part(what, |decoder| Ok(decoder.read_u16()?.unverified()))
    }

    fn question(&mut self) -> Result<Question, Malformed> {
        Ok(Question {
            name: self.part("name of a question", name::read)?,
            rtype: self.u16("type of a question")?,
            class: self.u16("class of a question")?,
        })
    }

    fn record(&mut self) -> Result<ReadRecord<'a>, Malformed> {
        let name = self.part("name of a record", name::read)?;
        let rtype = self.u16("type of a record")?;
        let class = self.u16("class of a record")?;
        let ttl = self.part("TTL of a record", |decoder| {
            Ok(decoder.read_u32()?.unverified())
        })?;
        let length = self.u16("data length of a record")?;

        let (raw, data) = self.part("data of a record", |decoder| {
            read_data(decoder, usize::from(length), &codes::type_name(rtype))
        })?;
        let record = Record {
            name,
            ttl,
            class,
            rtype,
            data,
        };
        Ok(ReadRecord { record, raw })
    }
}
