//! A message as text similar to the output of `dig`, for comparing whole answers and for test
//! failures.

use std::fmt::Write as _;

use crate::codes;
use crate::hex::hex;
use crate::message::{Edns, Message};

/// The message, with the records of each section in wire order. A malformed message is shown up to
/// the defect.
pub fn show(wire: &[u8]) -> String {
    render_message(wire, |records| {
        records.iter().map(ToString::to_string).collect()
    })
}

/// The message, with the records of each section sorted, and with `<serial>` for SOA serials.
/// Answers that differ only in the order of records or in serials give the same text.
pub fn show_sorted(wire: &[u8]) -> String {
    render_message(wire, |records| {
        let mut lines: Vec<String> = records
            .iter()
            .map(crate::record::Record::normalised)
            .collect();
        lines.sort();
        lines
    })
}

fn render_message(
    wire: &[u8],
    lines_of: impl Fn(&[crate::record::Record]) -> Vec<String>,
) -> String {
    let (message, defect) = Message::read(wire);
    let mut text = header_text(&message);
    for question in &message.questions {
        push_line(&mut text, &format!(";{question}"));
    }

    let sections = [
        ("ANSWER", &message.answer),
        ("AUTHORITY", &message.authority),
        ("ADDITIONAL", &message.additional),
    ];
    for (title, records) in sections {
        if !records.is_empty() {
            push_line(&mut text, &format!(";; {title}"));
        }
        for record in lines_of(records) {
            push_line(&mut text, &record);
        }
    }

    if message.trailing > 0 {
        push_line(
            &mut text,
            &format!(";; {} octets after the last record", message.trailing),
        );
    }
    if let Some(defect) = defect {
        push_line(&mut text, &format!(";; malformed at {defect}"));
    }
    text
}

fn header_text(message: &Message) -> String {
    let opcode = match message.opcode() {
        0 => String::new(),
        other => format!("{} ", codes::opcode_name(other)),
    };
    let mut text = format!(
        ";; {opcode}{}, flags: {}\n",
        message.rcode_name(),
        message.flags()
    );
    if let Some(edns) = &message.edns {
        push_line(&mut text, &format!(";; {}", opt(edns)));
    }
    text
}

/// The OPT record as text: `EDNS version 0, udp 1232, do, option 10 0102`.
pub fn opt(edns: &Edns) -> String {
    let mut text = format!("EDNS version {}, udp {}", edns.version, edns.udp);
    if edns.dnssec_ok {
        text.push_str(", do");
    }
    for (code, value) in &edns.options {
        write!(text, ", option {code} {}", hex(value)).expect("a String must take any text");
    }
    text
}

fn push_line(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hex::unhex;

    #[test]
    fn broken_message_is_shown_up_to_defect() {
        let cases = [
            ("", ";; NOERROR, flags: \n;; malformed at octet 0: header\n"),
            (
                "000081",
                ";; NOERROR, flags: \n;; malformed at octet 2: header\n",
            ),
            (
                "00008182000100000000000001",
                ";; SERVFAIL, flags: qr rd ra\n;; malformed at octet 12: name of a question\n",
            ),
            (
                "0000818000000000000000000102",
                ";; NOERROR, flags: qr rd ra\n;; 2 octets after the last record\n",
            ),
        ];
        for (wire, expected) in cases {
            assert_eq!(
                show(&unhex(wire).expect("the message must be hex")),
                expected,
                "{wire}"
            );
        }
    }
}
