//! Builds queries.

use std::sync::atomic::{AtomicU16, Ordering};

use wire::Header;

use crate::message::Edns;
use crate::{codes, name};

static NEXT_ID: AtomicU16 = AtomicU16::new(1);

/// A query to be sent: by default class IN, opcode QUERY, RD set and no OPT record.
#[derive(Clone, Debug)]
pub struct Query {
    id: u16,
    name: String,
    rtype: u16,
    class: u16,
    opcode: u8,
    bits: u16,
    edns: Option<Edns>,
}

impl Query {
    /// A query for `name` and `rtype` (`A`, `SRV`, `TYPE65280`) with a fresh ID.
    #[track_caller]
    pub fn new(name: &str, rtype: &str) -> Self {
        let rtype = codes::type_code(rtype).unwrap_or_else(|| panic!("no such type: {rtype}"));
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        Self {
            id,
            name: name.to_owned(),
            rtype,
            class: 1,
            opcode: 0,
            bits: 0x0100,
            edns: None,
        }
    }

    /// Sets the message ID.
    #[must_use]
    pub fn id(mut self, id: u16) -> Self {
        self.id = id;
        self
    }

    /// Sets the class, such as `CH`.
    #[track_caller]
    #[must_use]
    pub fn class(mut self, class: &str) -> Self {
        self.class = codes::class_code(class).unwrap_or_else(|| panic!("no such class: {class}"));
        self
    }

    /// Sets the opcode, such as `NOTIFY`.
    #[track_caller]
    #[must_use]
    pub fn opcode(mut self, opcode: &str) -> Self {
        self.opcode =
            codes::opcode_code(opcode).unwrap_or_else(|| panic!("no such opcode: {opcode}"));
        self
    }

    /// Replaces the flags with `flags`: any of `rd`, `ad` and `cd`, separated by blanks.
    #[track_caller]
    #[must_use]
    pub fn flags(mut self, flags: &str) -> Self {
        self.bits = flags.split_whitespace().fold(0, |bits, flag| {
            bits | match flag {
                "rd" => 0x0100,
                "ad" => 0x0020,
                "cd" => 0x0010,
                other => panic!("not a flag of a query: {other}"),
            }
        });
        self
    }

    /// Adds an OPT record with this UDP payload size.
    #[must_use]
    pub fn edns(self, udp: u16) -> Self {
        self.opt(Edns {
            udp,
            ..Edns::default()
        })
    }

    /// Adds this OPT record.
    #[must_use]
    pub fn opt(mut self, edns: Edns) -> Self {
        self.edns = Some(edns);
        self
    }

    /// The query in wire format.
    #[track_caller]
    pub fn wire(&self) -> Vec<u8> {
        let header = Header {
            id: self.id,
            flags: u16::from(self.opcode) << 11 | self.bits,
            counts: [1, 0, 0, u16::from(self.edns.is_some())],
        };
        let mut wire = header.octets().to_vec();

        // `to_wire` also encodes names that are too long for the crate `wire`.
        let name = name::to_wire(&self.name);
        wire.extend(name.unwrap_or_else(|error| panic!("{error}")));
        wire.extend(self.rtype.to_be_bytes());
        wire.extend(self.class.to_be_bytes());

        if let Some(edns) = &self.edns {
            append_opt(edns, 0, &mut wire);
        }
        wire
    }
}

/// Appends an OPT record for a message with this RCODE.
pub(crate) fn append_opt(edns: &Edns, rcode: u16, wire: &mut Vec<u8>) {
    let mut options = Vec::new();
    for (code, value) in &edns.options {
        let length = u16::try_from(value.len()).expect("the option must be below 64 KiB");
        options.extend(code.to_be_bytes());
        options.extend(length.to_be_bytes());
        options.extend(value);
    }

    let opt = wire::Edns {
        udp_size: edns.udp,
        version: edns.version,
        dnssec_ok: edns.dnssec_ok,
        options: &options[..],
    };
    opt.append(rcode, wire);
}
