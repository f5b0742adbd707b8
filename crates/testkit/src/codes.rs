//! Conversion between numbers and mnemonics of types, classes, opcodes and RCODEs.

use wire::mnemonic;

/// Types whose mnemonics the crate `wire` lacks. That crate writes `TYPE` and the number.
const TYPES: &[(u16, &str)] = &[
    (13, "HINFO"),
    (41, "OPT"),
    (43, "DS"),
    (46, "RRSIG"),
    (47, "NSEC"),
    (48, "DNSKEY"),
    (52, "TLSA"),
    (99, "SPF"),
    (251, "IXFR"),
    (252, "AXFR"),
];

const CLASSES: &[(u16, &str)] = &[(1, "IN"), (3, "CH"), (4, "HS"), (254, "NONE"), (255, "ANY")];

const OPCODES: &[(u16, &str)] = &[
    (0, "QUERY"),
    (1, "IQUERY"),
    (2, "STATUS"),
    (4, "NOTIFY"),
    (5, "UPDATE"),
];

/// RCODEs whose mnemonics the crate `wire` lacks. That crate writes `RCODE` and the number.
const RCODES: &[(u16, &str)] = &[
    (6, "YXDOMAIN"),
    (7, "YXRRSET"),
    (8, "NXRRSET"),
    (10, "NOTZONE"),
    (23, "BADCOOKIE"),
];

fn known_name(table: &[(u16, &str)], code: u16) -> Option<String> {
    table
        .iter()
        .find(|(known, _)| *known == code)
        .map(|(_, name)| (*name).to_owned())
}

fn known_code(table: &[(u16, &str)], name: &str) -> Option<u16> {
    table
        .iter()
        .find(|(_, known)| *known == name)
        .map(|(code, _)| *code)
}

fn name_of(table: &[(u16, &str)], prefix: &str, code: u16) -> String {
    known_name(table, code).unwrap_or_else(|| format!("{prefix}{code}"))
}

fn code_of(table: &[(u16, &str)], prefix: &str, name: &str) -> Option<u16> {
    known_code(table, name).or_else(|| name.strip_prefix(prefix)?.parse().ok())
}

/// `A`, `SRV`, ...; `TYPE65280` for a type without a known mnemonic (RFC 3597).
pub fn type_name(code: u16) -> String {
    known_name(TYPES, code).unwrap_or_else(|| mnemonic::type_name(code))
}

/// The number of a type. `name` is a mnemonic, or `TYPE` and the number.
pub fn type_code(name: &str) -> Option<u16> {
    known_code(TYPES, name).or_else(|| mnemonic::parse_type(name).ok())
}

/// `IN`, `CH`, ...; `CLASS0` for a class without a known mnemonic (RFC 3597).
pub(crate) fn class_name(code: u16) -> String {
    name_of(CLASSES, "CLASS", code)
}

/// The number of a class. `name` is a mnemonic, or `CLASS` and the number.
pub(crate) fn class_code(name: &str) -> Option<u16> {
    code_of(CLASSES, "CLASS", name)
}

/// `QUERY`, `NOTIFY`, ...; `OPCODE3` for an opcode without a known mnemonic.
pub fn opcode_name(code: u8) -> String {
    name_of(OPCODES, "OPCODE", code.into())
}

/// The number of an opcode. `name` is a mnemonic, or `OPCODE` and the number.
pub(crate) fn opcode_code(name: &str) -> Option<u8> {
    code_of(OPCODES, "OPCODE", name).and_then(|code| u8::try_from(code).ok())
}

/// `NOERROR`, `NXDOMAIN`, ...; `RCODE12` for an RCODE without a known mnemonic. `code` includes the
/// upper eight bits from the OPT record.
pub fn rcode_name(code: u16) -> String {
    known_name(RCODES, code).unwrap_or_else(|| mnemonic::rcode_name(code))
}

/// The number of an RCODE. `name` is a mnemonic, or `RCODE` and the number.
pub(crate) fn rcode_code(name: &str) -> Option<u16> {
    known_code(RCODES, name).or_else(|| mnemonic::parse_rcode(name).ok())
}
