use testkit::query::Query;
use wire::query_filter::QueryFilterText;

use super::*;

fn query(name: &str) -> Vec<u8> {
    Query::new(name, "A").wire()
}

fn answered<'a>(client: &str, query: &'a [u8], code: u16) -> AnsweredQuery<'a> {
    AnsweredQuery {
        client: client.parse().unwrap(),
        transport: Transport::Udp,
        query,
        response: query,
        reply: Reply {
            system: System::Auth,
            qtype: 1,
            rcode: code,
            truncated: false,
            zone: None,
            reason: None,
        },
        took: Took::AtOnce(Duration::from_micros(7)),
    }
}

fn watch_settings(name: &str, client: &str, code: &str) -> WatchSettings {
    let filter = QueryFilter::compile(&QueryFilterText {
        name,
        client,
        rcode: code,
        qtype: "",
    })
    .unwrap();
    WatchSettings {
        filter,
        rate: 1_000_000,
        messages: false,
    }
}

/// The settings of a watch that receives all queries, with their messages.
fn with_messages() -> WatchSettings {
    WatchSettings {
        messages: true,
        ..watch_settings("", "", "")
    }
}

fn names(watch: &mut TapWatch) -> Vec<String> {
    std::iter::from_fn(|| watch.take_record())
        .map(|record| wire::name::to_text(&record.name))
        .collect()
}

#[test]
fn watch_receives_matching_queries_until_dropped() {
    let tap = Arc::new(QueryTap::default());
    assert!(!tap.is_on());
    let mut acme = tap.open_watch(watch_settings("*.acme", "", "")).unwrap();
    let mut failed = tap
        .open_watch(watch_settings("", "10.0.0.0/8", "SERVFAIL"))
        .unwrap();
    assert!(tap.is_on());
    for (client, name, code) in [
        ("10.1.2.3:5", "Web.ACME.", rcode::NOERROR),
        ("10.1.2.3:5", "acme.", rcode::SERVFAIL),
        ("11.1.2.3:5", "b.acme.", rcode::SERVFAIL),
        ("[::ffff:10.1.2.3]:5", "c.x.", rcode::SERVFAIL),
        ("10.1.2.3:5", ".", rcode::NOERROR),
    ] {
        tap.copy_to_watches(&answered(client, &query(name), code));
    }
    assert_eq!(names(&mut acme), ["Web.ACME.", "b.acme."]);
    assert_eq!(names(&mut failed), ["acme.", "c.x."]);
    drop(acme);
    assert!(tap.is_on());
    drop(failed);
    assert!(!tap.is_on());
    let expected = TapCounts {
        taken: 4,
        over_rate: 0,
        dropped: 0,
        watches: 0,
    };
    assert_eq!(tap.counts(), expected);
}

#[test]
fn record_has_answer_and_its_source() {
    let tap = Arc::new(QueryTap::default());
    let mut watch = tap.open_watch(with_messages()).unwrap();
    let query = query("a.");
    let waited = Took::Waited(Duration::from_millis(3));
    let at_once = answered("10.1.2.3:5", &query, rcode::NOERROR);
    for (system, took, code, by) in [
        (System::Auth, at_once.took, rcode::NOERROR, "auth"),
        (System::Reverse, at_once.took, rcode::NOERROR, "reverse"),
        (System::Stub, waited, rcode::NOERROR, "stub"),
        (System::Recursive, waited, rcode::NXDOMAIN, "recursive"),
        (System::Recursive, at_once.took, rcode::NXDOMAIN, "cache"),
        (
            System::Recursive,
            at_once.took,
            rcode::SERVFAIL,
            "recursive",
        ),
    ] {
        let reply = Reply {
            system,
            rcode: code,
            ..at_once.reply
        };
        tap.copy_to_watches(&AnsweredQuery {
            reply,
            took,
            ..at_once
        });
        let record = watch.take_record().unwrap();
        assert_eq!((record.by, record.rcode), (by, code));
        let messages = record.messages.unwrap();
        assert_eq!(*messages.query, query[..]);
        assert_eq!(*messages.response, query[..]);
        assert_eq!(record.size, query.len());
    }
    tap.copy_to_watches(&AnsweredQuery {
        query: b"\x00\x01",
        ..at_once
    });
    let of_malformed = watch.take_record().unwrap().name;
    assert_eq!(&*of_malformed, b"", "a malformed query must have no name");
}

#[test]
fn records_beyond_queue_are_counted() {
    let tap = Arc::new(QueryTap::default());
    let mut slow = tap.open_watch(watch_settings("", "", "")).unwrap();
    let query = query("a.");
    for _ in 0..MAX_QUEUED + 5 {
        tap.copy_to_watches(&answered("10.1.2.3:5", &query, 0));
    }
    assert_eq!((slow.take_left_out(), slow.take_left_out()), (5, 0));
    assert_eq!(names(&mut slow).len(), MAX_QUEUED);
    assert_eq!(slow.sink.octets.load(Relaxed), 0);

    // With large messages the limit on octets is reached before the limit on records.
    let mut large = tap.open_watch(with_messages()).unwrap();
    let response = vec![0; 65_535];
    for _ in 0..100 {
        tap.copy_to_watches(&AnsweredQuery {
            response: &response,
            ..answered("10.1.2.3:5", &query, 0)
        });
    }
    let kept = names(&mut large).len();
    let counts = (kept, large.take_left_out());
    assert_eq!(counts, (MAX_QUEUED_OCTETS / 65_570, 100 - kept as u64));
    assert!(tap.counts().dropped >= 105 - kept as u64);
}

#[test]
fn records_beyond_rate_are_counted() {
    let rate = RecordRate {
        limit: 3,
        taken: AtomicU64::new(0),
    };
    let admitted =
        [7, 7, 8, 9].map(|second| (0..10).filter(|_| rate.admits_record(second)).count());
    assert_eq!(admitted, [3, 0, 3, 3]);

    let tap = Arc::new(QueryTap::default());
    let watch = tap
        .open_watch(WatchSettings {
            rate: 1,
            ..watch_settings("", "", "")
        })
        .unwrap();
    let query = query("a.");
    (0..1000).for_each(|_| tap.copy_to_watches(&answered("10.1.2.3:5", &query, 0)));
    let counts = tap.counts();
    assert!(counts.taken >= 1 && counts.over_rate > 900, "{counts:?}");
    assert_eq!(counts.taken + counts.over_rate, 1000);
    assert_eq!(watch.take_left_out(), counts.over_rate);
}

#[test]
fn watch_beyond_maximum_is_rejected() {
    let tap = Arc::new(QueryTap::default());
    let mut all: Vec<TapWatch> = (0..MAX_WATCHES)
        .map(|_| tap.open_watch(watch_settings("", "", "")).unwrap())
        .collect();
    let rejected = tap.open_watch(watch_settings("", "", ""));
    assert_eq!(rejected.err(), Some(TooManyWatches));
    all.pop();
    assert!(tap.open_watch(watch_settings("", "", "")).is_ok());
}

#[test]
fn name_text_is_lower_case_with_dots() {
    for (wire, text) in [
        (&b"\x03Web\x04apps\x00"[..], &b"web.apps"[..]),
        (b"\x01a\x00", b"a"),
        (b"\x00", b""),
        (b"", b""),
        (b"\x03a.b\x01c\x00", b"a.b.c"),
    ] {
        assert_eq!(write_name_text(wire, &mut [0; MAX_NAME]), text, "{wire:?}");
    }
    let longest = [&b"\x01a".repeat(127)[..], b"\x00"].concat();
    assert_eq!(write_name_text(&longest, &mut [0; MAX_NAME]).len(), 253);
}
