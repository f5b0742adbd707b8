//! The most work that names outside can make: ExternalName Services whose upstream fills whole messages.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a benchmark whose set-up fails has to end there, with the reason"
)]

use std::hint::black_box;

use cluster::objects::{Change, EndpointsSource, Event, ObjectKey, Service, ServiceKind};
use criterion::Criterion;
use skydns::engine::{Identity, Outcome, answer};
use skydns::outside::{Outside, OutsideQuestion};
use skydns::resolve::outside_answer;
use skydns::wire::Transport;
use skydns::{Backend, Name, Zone};
use testkit::query::Query;

use crate::cluster::empty;

/// As many questions as one answer may ask outside.
const TARGETS: usize = 32;
/// Addresses in a message of 64 KiB; fewer than make the answer too long.
const ADDRESSES: u16 = 3800;

/// Aliases that are followed within one message.
const ALIASES: u8 = 16;

/// Names of the greatest length that differ at their end.
fn long(number: u8) -> Name {
    let labels = ["d".repeat(61), "d".repeat(61), "d".repeat(61), format!("{}{number:02}", "d".repeat(59))];
    Name::parse(&labels.join(".")).unwrap()
}

/// What the upstream says: `aliases` from the question's name on, and addresses of the last.
fn reply(question: &OutsideQuestion, aliases: u8) -> Vec<u8> {
    let records = (ADDRESSES + u16::from(aliases)).to_be_bytes();
    let mut wire = vec![0, 0, 0x81, 0x80, 0, 1, records[0], records[1], 0, 0, 0, 0];
    wire.extend([question.name.wire(), &[0, 1, 0, 1]].concat());
    let mut owner = 12_u16;
    let pointer = |at: u16| (0xc000 | at).to_be_bytes();
    for alias in 0..aliases {
        let target = long(alias);
        let length = u8::try_from(target.wire().len()).unwrap();
        wire.extend([&pointer(owner)[..], &[0, 5, 0, 1, 0, 0, 0, 60, 0, length]].concat());
        owner = u16::try_from(wire.len()).unwrap();
        wire.extend(target.wire());
    }
    for address in 0..ADDRESSES {
        let [a, b] = address.to_be_bytes();
        wire.extend([&pointer(owner)[..], &[0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 198, 51, a, b]].concat());
    }
    wire
}

/// An upstream's message, and the answer made of many.
pub(crate) fn replies(criterion: &mut Criterion) {
    let (mut index, published) = empty();
    for number in 0..TARGETS {
        let target = format!("target-{number}.hostile.example").into();
        index.apply(Event::Service(Change::Apply(Service {
            key: ObjectKey::new("hostile", format!("out-{number}")),
            kind: ServiceKind::ExternalName(target),
            ports: [].into(),
            publish_not_ready: false,
            created: 1,
        })));
    }
    for event in [Event::Service(Change::RelistDone), Event::EndpointsFrom(EndpointsSource::Endpoints)] {
        index.apply(event);
    }
    index.publish();
    let (identity, view) = (Identity { version: String::new() }, published.view());
    let query = Query::new("*.hostile.svc.cluster.local", "A").wire();
    let mut out = Vec::new();
    let outcome = answer(&*view, &identity, &query, Transport::Tcp, &Outside::none(), &mut out);
    let Outcome::Ask(questions) = outcome else { panic!("{outcome:?}") };
    assert_eq!(questions.len(), TARGETS);
    let zone = Zone::new(&Name::parse("cluster.local").unwrap());
    let (first, message) = (questions[0].clone(), reply(&questions[0], ALIASES));
    criterion.bench_function("hostile/one_reply_of_64_kib", |bencher| {
        bencher.iter(|| black_box(outside_answer(&first, &zone, &message, 0)));
    });
    let mut outside = Outside::none();
    for question in questions {
        let said = outside_answer(&question, &zone, &reply(&question, 1), 0);
        outside.insert(question, said);
    }
    criterion.bench_function("hostile/answer_of_32_such_replies", |bencher| {
        bencher.iter(|| {
            out.clear();
            let outcome = answer(&*view, &identity, &query, Transport::Tcp, &outside, &mut out);
            assert!(matches!(outcome, Outcome::Reply(_)) && out.len() > 58_000, "{outcome:?}");
        });
    });
}
