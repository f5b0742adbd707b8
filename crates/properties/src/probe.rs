//! The value of `--probe`.

use hickory_proto::op::{Message, MessageType, OpCode};
use sidecar::spec::Spec;

/// Any value of `--probe` is rejected, or its label is valid in a metric name, its interval is at least a second, its query
/// can be sent, and the probe stays the same when it is written and parsed again.
pub fn probe(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let spec: Spec = match text.parse() {
        Ok(spec) => spec,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let letters = spec.label.bytes().all(|octet| octet.is_ascii_alphanumeric() || octet == b'_');
    assert!(letters && (1..=128).contains(&spec.label.len()), "label {:?}", spec.label);
    assert!(spec.interval.as_secs() >= 1, "{:?}", spec.interval);
    sent(&spec);
    let Spec { label, server, question, transport, interval } = &spec;
    let name = question.name().to_ascii();
    // A comma ends the name, even if it is escaped.
    if !name.contains(',') {
        let text =
            format!("{label},{server},{name},{},{}/{transport}", interval.as_secs(), question.query_type());
        assert_eq!(text.parse().as_ref(), Ok(&spec), "{text:?}");
    }
}

/// The query can be sent, and its receiver can parse it.
fn sent(spec: &Spec) {
    let mut message = Message::new(1, MessageType::Query, OpCode::Query);
    message.add_query(spec.question.clone());
    let wire = message.to_vec();
    let wire = wire.unwrap_or_else(|error| unreachable!("{error}: {:?}", spec.question));
    let heading = skydns::wire::Heading::parse(&wire);
    let question = heading.ok().and_then(|heading| heading.question);
    let Some(question) = question else { unreachable!("no question in {wire:02x?}") };
    assert_eq!(question.qtype, u16::from(spec.question.query_type()));
    assert_eq!(skydns::name::labels(question.name).count(), spec.question.name().iter().count());
}
