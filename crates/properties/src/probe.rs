//! The value of the sidecar's flag `--probe`.

use hickory_proto::op::{Message, MessageType, OpCode};
use sidecar::spec::ProbeSpec;

/// Any value of `--probe` is either rejected with an error text or accepted. In an accepted value
/// the label is valid in a metric name, the interval is at least one second, and the query can be
/// sent. The probe stays the same when it is written and parsed again, unless its DNS name contains
/// a comma.
pub fn probe(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let spec: ProbeSpec = match text.parse() {
        Ok(spec) => spec,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let letters = spec
        .label
        .bytes()
        .all(|octet| octet.is_ascii_alphanumeric() || octet == b'_');
    assert!(
        letters && (1..=128).contains(&spec.label.len()),
        "label {:?}",
        spec.label
    );
    assert!(spec.interval.as_secs() >= 1, "{:?}", spec.interval);
    sent(&spec);
    let ProbeSpec {
        label,
        server,
        question,
        transport,
        interval,
    } = &spec;
    let name = question.name().to_ascii();
    // In `--probe`, a comma ends the name, even after a backslash. So the text of a name with a
    // comma (from a numeric escape) cannot be parsed again.
    if !name.contains(',') {
        let text = format!(
            "{label},{server},{name},{},{}/{transport}",
            interval.as_secs(),
            question.query_type()
        );
        assert_eq!(text.parse().as_ref(), Ok(&spec), "{text:?}");
    }
}

/// Checks that the query of a probe can be sent, and that a server can parse it.
fn sent(spec: &ProbeSpec) {
    let mut message = Message::new(1, MessageType::Query, OpCode::Query);
    message.add_query(spec.question.clone());
    let wire = message.to_vec();
    let wire = wire.unwrap_or_else(|error| unreachable!("{error}: {:?}", spec.question));
    let heading = wire::MessageHeading::parse(&wire);
    let question = heading.ok().and_then(|heading| heading.question);
    let Some(question) = question else {
        unreachable!("no question in {wire:02x?}")
    };
    assert_eq!(question.qtype, u16::from(spec.question.query_type()));
    let labels = wire::name::labels(question.name).count();
    assert_eq!(labels, spec.question.name().iter().count());
}
