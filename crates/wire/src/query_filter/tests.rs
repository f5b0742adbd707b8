use super::*;

fn compile_filter(
    name: &str,
    client: &str,
    rcode: &str,
    qtype: &str,
) -> Result<QueryFilter, String> {
    QueryFilter::compile(&QueryFilterText {
        name,
        client,
        rcode,
        qtype,
    })
    .map_err(|error| error.to_string())
}

#[test]
fn name_pattern_matches_whole_name() {
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
        (".", "", true),
        (".", ".", true),
        (".", "x", false),
        ("a,b,*.c", "x.c", true),
        ("a,b,*.c", "c", false),
        ("", "anything", true),
    ] {
        let filter = compile_filter(pattern, "", "", "").unwrap();
        let matches = filter.matches_name(name.as_bytes());
        assert_eq!(matches, expected, "{pattern:?} {name:?}");
    }
}

/// A match in exponential time would take years.
#[test]
fn pattern_with_many_stars_does_not_hang() {
    let filter = compile_filter(&"*a".repeat(100), "", "", "").unwrap();
    assert!(!filter.matches_name(&[b'a'; 99]));
    assert!(!filter.matches_name(&[&[b'a'; 250][..], b"b"].concat()));
}

#[test]
fn every_part_must_match() {
    let filter = compile_filter("", "10.0.0.0/8,fd00::1", "SERVFAIL,nxdomain", "A,TYPE65").unwrap();
    for (client, qtype, rcode, expected) in [
        ("10.1.2.3", 1, 2, true),
        ("::ffff:10.1.2.3", 65, 3, true),
        ("fd00::1", 1, 2, true),
        ("fd00::2", 1, 2, false),
        ("11.1.2.3", 1, 2, false),
        ("10.1.2.3", 28, 2, false),
        ("10.1.2.3", 1, 0, false),
    ] {
        let matches = filter.matches_query(client.parse().unwrap(), qtype, rcode);
        assert_eq!(matches, expected, "{client} {qtype} {rcode}");
    }
    assert!(QueryFilter::default().matches_query("192.0.2.1".parse().unwrap(), 1, 0));
}

#[test]
fn error_of_invalid_filter_is_one_line() {
    let many = vec!["A"; 33].join(",");
    for (found, line) in [
        (
            compile_filter("a b", "", "", ""),
            "name \"a b\": at most 300 letters, digits, -, _, dots, * and ? are accepted",
        ),
        (
            compile_filter("", "10.0.0.300", "", ""),
            "client \"10.0.0.300\": an address (10.0.0.1) or a network (10.0.0.0/8) is accepted",
        ),
        (
            compile_filter("", "10.0.0.0/33", "", ""),
            "client \"10.0.0.0/33\": an address (10.0.0.1) or a network (10.0.0.0/8) is accepted",
        ),
        (
            compile_filter("", "", "SERVFAI", ""),
            "rcode: unknown RCODE \"SERVFAI\"; expected one of NOERROR, FORMERR, SERVFAIL, NXDOMAIN, NOTIMP, REFUSED, NOTAUTH, BADVERS, \
             or RCODE followed by a number up to 65535",
        ),
        (
            compile_filter("", "", "", &many),
            "type: at most 32 values are accepted",
        ),
    ] {
        assert_eq!(found.unwrap_err(), line);
    }
}
