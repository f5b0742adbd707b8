//! Numbers of record types and classes, named as in the IANA registry of DNS parameters. The
//! registry's name of the type `ANY` is `*`.

/// Named record types.
pub mod rtype {
    #![allow(missing_docs, reason = "the names are the registry's own")]
    pub const A: u16 = 1;
    pub const NS: u16 = 2;
    pub const CNAME: u16 = 5;
    pub const SOA: u16 = 6;
    pub const PTR: u16 = 12;
    pub const MX: u16 = 15;
    pub const TXT: u16 = 16;
    pub const AAAA: u16 = 28;
    pub const SRV: u16 = 33;
    pub const OPT: u16 = 41;
    pub const RRSIG: u16 = 46;
    pub const SVCB: u16 = 64;
    pub const HTTPS: u16 = 65;
    pub const TSIG: u16 = 250;
    pub const IXFR: u16 = 251;
    pub const AXFR: u16 = 252;
    pub const ANY: u16 = 255;
}

/// Classes.
pub mod class {
    #![allow(missing_docs, reason = "the names are the registry's own")]
    pub const IN: u16 = 1;
    pub const CH: u16 = 3;
}
