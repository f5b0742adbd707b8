use super::*;

fn filter(name: &str, client: &str, rcode: &str, qtype: &str) -> Result<Filter, String> {
    Filter::new(&FilterText {
        name,
        client,
        rcode,
        qtype,
    })
    .map_err(|error| error.to_string())
}

#[test]
fn patterns_of_names() {
    for (pattern, name, expected) in [
        ("*.acme.example", "a.acme.example", true),
        ("*.acme.example", "a.b.acme.example", true),
        ("*.ACME.example.", "a.acme.example", true),
        ("*.acme.example", "acme.example", false),
        ("*acme.example", "acme.example", true),
        ("acme.example", "acme.example", true),
        ("acme.example", "a.acme.example", false),
        ("web-?", "web-1", true),
        ("web-?", "web-", false),
        ("web-?", "web-10", false),
        ("*a*b*", "xxaxxbxx", true),
        ("*a*b*", "xxbxxaxx", false),
        ("*", "", true),
        ("*", "x", true),
        (".", "", false),
        ("a,b,*.c", "x.c", true),
        ("a,b,*.c", "c", false),
        ("", "anything", true),
    ] {
        let filter = filter(pattern, "", "", "").unwrap();
        assert_eq!(
            filter.has_name(name.as_bytes()),
            expected,
            "{pattern:?} {name:?}"
        );
    }
}

/// A pattern with many `*` does not take exponential time.
#[test]
fn a_hostile_pattern_takes_few_steps() {
    let filter = filter(&"*a".repeat(100), "", "", "").unwrap();
    assert!(!filter.has_name(&[b'a'; 99]));
    assert!(!filter.has_name(&[&[b'a'; 250][..], b"b"].concat()));
}

#[test]
fn every_part_has_to_match() {
    let filter = filter("", "10.0.0.0/8,fd00::1", "SERVFAIL,nxdomain", "A,TYPE65").unwrap();
    for (client, qtype, rcode, expected) in [
        ("10.1.2.3", 1, 2, true),
        ("::ffff:10.1.2.3", 65, 3, true),
        ("fd00::1", 1, 2, true),
        ("fd00::2", 1, 2, false),
        ("11.1.2.3", 1, 2, false),
        ("10.1.2.3", 28, 2, false),
        ("10.1.2.3", 1, 0, false),
    ] {
        assert_eq!(
            filter.has(client.parse().unwrap(), qtype, rcode),
            expected,
            "{client} {qtype} {rcode}"
        );
    }
    assert!(Filter::default().has("192.0.2.1".parse().unwrap(), 1, 0));
}

#[test]
fn mistakes_have_a_line() {
    let many = vec!["A"; 33].join(",");
    for (found, line) in [
        (
            filter("a b", "", "", ""),
            "name \"a b\": letters, digits, -, _, dots, * and ? are accepted",
        ),
        (
            filter("", "10.0.0.300", "", ""),
            "client \"10.0.0.300\": an address (10.0.0.1) or a network (10.0.0.0/8) is accepted",
        ),
        (
            filter("", "10.0.0.0/33", "", ""),
            "client \"10.0.0.0/33\": an address (10.0.0.1) or a network (10.0.0.0/8) is accepted",
        ),
        (
            filter("", "", "SERVFAI", ""),
            "rcode: unknown RCODE \"SERVFAI\": NOERROR, FORMERR, SERVFAIL, NXDOMAIN, NOTIMP, REFUSED, BADVERS, \
             or RCODE and a number",
        ),
        (
            filter("", "", "", &many),
            "type: at most 32 values are accepted",
        ),
    ] {
        assert_eq!(found.unwrap_err(), line);
    }
}

#[test]
fn the_earlier_end_counts() {
    let second = Duration::from_secs(1);
    let begun = SystemTime::UNIX_EPOCH + 1000 * second;
    let log = |until: Option<u64>, lasts: Option<u64>| QueryLog {
        until: until.map(|until| SystemTime::UNIX_EPOCH + Duration::from_secs(until)),
        lasts: lasts.map(Duration::from_secs),
        ..QueryLog::default()
    };
    for (until, lasts, expected) in [
        (None, None, None),
        (Some(1100), None, Some(90)),
        (None, Some(30), Some(20)),
        (Some(1100), Some(30), Some(20)),
        (Some(1015), Some(30), Some(5)),
        (Some(900), None, Some(0)),
        (None, Some(5), Some(0)),
    ] {
        let left = log(until, lasts).remaining(begun, begun + 10 * second);
        assert_eq!(
            left,
            expected.map(Duration::from_secs),
            "{until:?} {lasts:?}"
        );
    }
}
