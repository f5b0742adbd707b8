//! Events of etcd for a zone that kubedns serves from etcd.

use std::collections::BTreeMap;
use std::sync::Arc;

use etcd::gateway::{self, KeyEvent, KeyEventKind, KeyValue, WatchFrames};
use etcd::records::ZoneRecords;
use etcd::{MessageTree, ZoneKeys};
use skydns::FurtherZone;
use skydns::engine::{self, EngineOutcome, Identity};
use skydns::external::ExternalAnswers;
use wire::Name;
use wire::{Transport, rtype};

use crate::{example, message};

/// Maximum number of keys whose names are queried.
const ASKED: usize = 8;

/// After any events of etcd, in any order, the records are the same as after a fresh list of the
/// existing keys. All answers with these records can be parsed. The messages of a watch do not
/// depend on the pieces in which the stream arrives.
///
/// A line of the input that begins with `{` is a message of a watch. A line that begins with `P`,
/// `L` or `D` is one change: `P` sets a key, `L` sets a key with a lease, `D` deletes a key. The
/// letter is followed by the key without the zone's prefix. The value follows after a blank. The
/// input is also read as a stream: its first octet is the size of the pieces.
pub fn etcd_zone(input: &[u8]) {
    let keys = ZoneKeys::new("/skydns", &example::name("skydns.test."));
    let (mut tree, mut known) = (MessageTree::default(), BTreeMap::new());
    for event in input.split(|octet| *octet == b'\n').flat_map(events) {
        // kubedns also skips a key with an invalid name or value.
        let _ = tree.apply(&keys, &event);
        match event.kind {
            KeyEventKind::Put => known.insert(event.kv.key.clone(), event),
            KeyEventKind::Delete => known.remove(&event.kv.key),
        };
    }
    let mut fresh = MessageTree::default();
    for event in known.values() {
        let _ = fresh.apply(&keys, event);
    }
    assert_eq!(tree, fresh, "a fresh list has different records");
    assert_eq!(
        (tree.len(), tree.octets()),
        (fresh.len(), fresh.octets()),
        "a fresh list has a different size"
    );
    let names = known.keys().filter_map(|key| name(&keys, key)).take(ASKED);
    let names: Vec<Name> = names
        .chain(["skydns.test.", "*.skydns.test."].map(example::name))
        .collect();
    answers(tree, &names);
    stream(input);
}

fn events(line: &[u8]) -> Vec<KeyEvent> {
    let Some((kind, change)) = line.split_first() else {
        return Vec::new();
    };
    if *kind == b'{' {
        return gateway::parse_frame(line)
            .map(|response| response.events)
            .unwrap_or_default();
    }
    let event_kind = match kind {
        b'P' | b'L' => KeyEventKind::Put,
        b'D' => KeyEventKind::Delete,
        _ => return Vec::new(),
    };
    let blank = change
        .iter()
        .position(|octet| *octet == b' ')
        .unwrap_or(change.len());
    let (key, value) = change.split_at(blank);
    let key = [b"/skydns/test/skydns", key].concat();
    let kv = KeyValue {
        key,
        value: value.to_vec(),
        mod_revision: 1,
        lease: i64::from(*kind == b'L'),
        ..KeyValue::default()
    };
    vec![KeyEvent {
        kind: event_kind,
        kv,
    }]
}

fn name(keys: &ZoneKeys, key: &[u8]) -> Option<Name> {
    let path = keys.path(key).ok()??;
    let labels = path.iter().rev().map(|label| {
        [&[u8::try_from(label.len()).ok()?], label.as_bytes()]
            .concat()
            .into()
    });
    let labels: Vec<Vec<u8>> = labels.collect::<Option<_>>()?;
    Name::from_wire(&[&labels.concat()[..], example::name("skydns.test.").wire()].concat())
}

fn answers(tree: MessageTree, names: &[Name]) {
    let (mut index, published) = example::index(example::zone(false));
    let zone = FurtherZone::new(
        &example::name("skydns.test."),
        Arc::new(ZoneRecords::from(tree)),
    );
    index.set_further_zone(FurtherZone {
        skydns: true,
        ..zone
    });
    index.publish();
    let (view, identity) = (
        published.get(),
        Identity {
            version: String::new(),
        },
    );
    let types = [
        rtype::A,
        rtype::AAAA,
        rtype::SRV,
        rtype::TXT,
        rtype::MX,
        rtype::NS,
        rtype::CNAME,
        rtype::SOA,
        rtype::PTR,
    ];
    for (name, rtype) in names
        .iter()
        .flat_map(|name| types.map(|rtype| (name, rtype)))
    {
        for transport in [Transport::Udp, Transport::Tcp] {
            let (query, mut out) = (message::query(name.wire(), rtype, Some(1232)), Vec::new());
            let outcome = engine::answer_message(
                &*view,
                &identity,
                &query,
                transport,
                &ExternalAnswers::none(),
                &mut out,
            );
            if let EngineOutcome::Reply(_) = outcome {
                message::answers(&query, transport, &out);
            }
        }
    }
}

/// Checks that the messages of a watch do not depend on the pieces in which the stream arrives.
fn stream(input: &[u8]) {
    let Some((&piece, stream)) = input.split_first() else {
        return;
    };
    let read = |piece: usize| {
        let (mut frames, mut read) = (WatchFrames::default(), Vec::new());
        for piece in stream.chunks(piece.max(1)) {
            if frames.push_octets(piece).is_err() {
                break;
            }
            while let Some(frame) = frames.next_frame() {
                read.push(frame.ok());
            }
        }
        read
    };
    assert_eq!(
        read(piece.into()),
        read(stream.len()),
        "the messages depend on the pieces of the stream"
    );
}
