//! Names that the server completes with a search list.

use skydns::forward::CacheLimits;

use super::*;

const SOA: &str = "test. 20 IN SOA ns.test. hostmaster.test. 1 2 3 4 20";

/// An upstream for a few names: addresses, aliases, names without records of the queried type, and
/// failures.
pub(super) async fn upstream() -> Upstream {
    Upstream::start(|asked: &Asked| {
        let reply = Reply::to(&asked.packet);
        let name = asked.name();
        let address = |reply: Reply, data: &str| reply.answer(&format!("{name} 300 IN {data}"));
        match (name.to_lowercase().as_str(), asked.rtype().as_str()) {
            ("www.example.test.", "A") => address(reply, "A 198.51.100.1"),
            ("alias.example.test.", "A") => reply
                .answer(&format!("{name} 10 IN CNAME www.example.test."))
                .answer("www.example.test. 300 IN A 198.51.100.1"),
            ("alias.example.test.", _) => reply
                .answer(&format!("{name} 10 IN CNAME www.example.test."))
                .authority(SOA),
            ("both.example.test.corp.test.", "A") => address(reply, "A 198.51.100.2"),
            ("both.example.test.", "A") => address(reply, "A 198.51.100.3"),
            ("both.example.test.", "AAAA") => address(reply, "AAAA 2001:db8::3"),
            ("empty.example.test.", "A") => address(reply, "A 198.51.100.4"),
            ("broken.example.test.", "A") => address(reply, "A 198.51.100.5"),
            ("broken.example.test.corp.test.", _) => reply.rcode("SERVFAIL"),
            ("mail.example.test.", "MX") => address(reply, "MX 10 mx.example.test."),
            ("large.example.test.", "A") => (0..60).fold(reply, |reply, n| {
                address(reply, &format!("A 198.51.100.{n}"))
            }),
            // Names that exist without records of the type.
            (
                "www.example.test."
                | "both.example.test.corp.test."
                | "empty.example.test.corp.test."
                | "gone.example.test.corp.test."
                | "empty.example.test."
                | "mail.example.test.",
                _,
            ) => reply.authority(SOA),
            _ => reply.rcode("NXDOMAIN").authority(SOA),
        }
        .into()
    })
    .await
}

/// Title, query, status and records of each case. `|` stands for `.apps.search.cluster.local.`.
/// `OURS n` stands for the SOA record of the cluster with TTL `n`, `THEIRS n` for the SOA record of
/// the upstream.
const CASES: &str = "
# a Service of the namespace
web A NOERROR
web| 30 CNAME web.apps.svc.cluster.local.
web.apps.svc.cluster.local. 30 A 10.96.0.9

# NODATA for its other address type
WEB AAAA NOERROR
WEB| 30 CNAME WEB.apps.svc.cluster.local.
OURS 60

# a Service of another namespace
web.apps A NOERROR
web.apps| 30 CNAME web.apps.svc.cluster.local.
web.apps.svc.cluster.local. 30 A 10.96.0.9

# a name with svc
web.apps.svc A NOERROR
web.apps.svc| 30 CNAME web.apps.svc.cluster.local.
web.apps.svc.cluster.local. 30 A 10.96.0.9

# a full name: an upstream is queried before it
web.apps.svc.cluster.local A NOERROR
web.apps.svc.cluster.local| 20 CNAME web.apps.svc.cluster.local.
web.apps.svc.cluster.local. 30 A 10.96.0.9

# an alias of the cluster without addresses
out A NOERROR
out| 30 CNAME out.apps.svc.cluster.local.
out.apps.svc.cluster.local. 30 CNAME www.outside.test.

# an external name
www.example.test A NOERROR
www.example.test| 20 CNAME www.example.test.
www.example.test. 300 A 198.51.100.1

# an external name without the other address type
www.example.test AAAA NOERROR
www.example.test| 20 CNAME www.example.test.
THEIRS 20

# an external alias
alias.example.test A NOERROR
alias.example.test| 10 CNAME alias.example.test.
alias.example.test. 10 CNAME www.example.test.
www.example.test. 300 A 198.51.100.1

# an external alias without addresses
alias.example.test AAAA NOERROR
alias.example.test| 10 CNAME alias.example.test.
alias.example.test. 10 CNAME www.example.test.

# a name found at two steps: the first counts
both.example.test A NOERROR
both.example.test| 30 CNAME both.example.test.corp.test.
both.example.test.corp.test. 300 A 198.51.100.2

# the first counts, even if only the second has the address type
both.example.test AAAA NOERROR
both.example.test| 20 CNAME both.example.test.corp.test.
THEIRS 20

# a name without any address does not end the search
empty.example.test A NOERROR
empty.example.test| 20 CNAME empty.example.test.
empty.example.test. 300 A 198.51.100.4

# the same for the other address type
empty.example.test AAAA NOERROR
empty.example.test| 20 CNAME empty.example.test.
THEIRS 20

# NODATA if no other name exists
gone.example.test A NOERROR
gone.example.test| 20 CNAME gone.example.test.corp.test.
THEIRS 20

# a failure ends the search
broken.example.test A SERVFAIL

# no name exists
missing.example.test A NXDOMAIN
OURS 20

# no name exists; the single-label name is not forwarded
missing AAAA NXDOMAIN
OURS 20

# other types have no CNAME: a cache would use it for addresses, too
mail.example.test MX NOERROR
mail.example.test| 20 MX 10 mx.example.test.

# other types, NODATA
www.example.test MX NOERROR
THEIRS 20

# the CNAME is the same as for addresses
www.example.test CNAME NOERROR
www.example.test| 20 CNAME www.example.test.

# the upstream's own CNAME is not shown
alias.example.test CNAME NOERROR
alias.example.test| 10 CNAME alias.example.test.

# type ANY
web ANY REFUSED
";

/// The status of an answer, and its records in order, in the notation of [`CASES`].
pub(super) fn said(wire: &[u8]) -> Vec<String> {
    let text = show(wire);
    let status = text
        .trim_start_matches(";; ")
        .split(',')
        .next()
        .unwrap_or_default()
        .to_owned();
    let short = |line: &str| {
        let line = line
            .replace(".apps.search.cluster.local.", "|")
            .replace(" IN ", " ");
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["cluster.local.", ttl, "SOA", ..] => format!("OURS {ttl}"),
            ["test.", ttl, "SOA", ..] => format!("THEIRS {ttl}"),
            _ => line,
        }
    };
    let records = text
        .lines()
        .filter(|line| !line.starts_with(';'))
        .map(short);
    std::iter::once(status).chain(records).collect()
}

/// Removes the TTLs, since cached TTLs count down.
fn without_ttls(mut records: Vec<String>) -> Vec<String> {
    for record in records.iter_mut().skip(1) {
        *record = record
            .split(' ')
            .enumerate()
            .filter(|(at, _)| *at != 1)
            .map(|(_, word)| word)
            .collect();
    }
    records
}

/// Asks all questions of [`CASES`] below `suffix`. `expected` derives the answer from the name, the
/// status and the records of a case.
pub(super) async fn check_cases(
    view: impl Fn() -> Fixed,
    suffix: &str,
    expected: impl Fn(&str, &str, &[&str]) -> Vec<String>,
) {
    let (server, caching) = (start(view()), start(view().caching(CacheLimits::default())));
    for case in CASES.trim().split("\n\n") {
        let (what, case) = case.split_once('\n').expect("a question");
        let (question, records) = case.split_once('\n').unwrap_or((case, ""));
        let words: Vec<&str> = question.split(' ').collect();
        let expected = expected(words[0], words[2], &records.lines().collect::<Vec<_>>());
        let query = Query::new(&format!("{}.{suffix}", words[0]), words[1]);
        for query in [query.clone(), query.edns(1232)] {
            let wire = client::udp(server.address, &query.wire(), TIMEOUT)
                .await
                .expect("an answer");
            assert_eq!(said(&wire), expected, "{what}: {question}");
            let wire = client::tcp(server.address, &query.wire(), TIMEOUT)
                .await
                .expect("an answer");
            assert_eq!(said(&wire), expected, "{what}: {question}, over TCP");
            for _ in 0..2 {
                let wire = client::udp(caching.address, &query.wire(), TIMEOUT)
                    .await
                    .expect("an answer");
                let known = without_ttls(said(&wire));
                assert_eq!(
                    known,
                    without_ttls(expected.clone()),
                    "{what}: {question}, from the cache"
                );
            }
        }
    }
    server.stop().await;
    caching.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn completion_answers_for_whole_search_list() {
    let upstream = upstream().await;
    let view = || Fixed::new(&[upstream.addr()]).search("search.cluster.local", &["corp.test"]);
    check_cases(view, "apps.search.cluster.local.", |_, status, records| {
        [status]
            .iter()
            .chain(records)
            .map(ToString::to_string)
            .collect()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn completed_answer_is_truncated_to_limit() {
    let upstream = upstream().await;
    let server = start(Fixed::new(&[upstream.addr()]).search("search.cluster.local", &[]));
    for (name, limit, over_tcp) in [
        ("big", 512, 4000),
        ("large.example.test", 512, 61),
        ("big", 1232, 4000),
    ] {
        let query = Query::new(&format!("{name}.apps.search.cluster.local."), "A");
        let query = if limit == 512 {
            query
        } else {
            query.edns(1232)
        };
        let wire = client::udp(server.address, &query.wire(), TIMEOUT)
            .await
            .expect("an answer");
        let message = testkit::message::Message::parse(&wire).expect("well-formed");
        assert!(
            message.has("tc") && wire.len() <= limit,
            "{name}: {}",
            wire.len()
        );
        assert!(
            message.answer.len() > 10,
            "{name}: {}",
            message.answer.len()
        );
        let wire = client::tcp(server.address, &query.wire(), TIMEOUT)
            .await
            .expect("an answer");
        let message = testkit::message::Message::parse(&wire).expect("well-formed");
        assert!(!message.has("tc"), "{name}");
        assert!(
            message.answer.len() >= over_tcp,
            "{name}: {}",
            message.answer.len()
        );
    }
    server.stop().await;
}

/// The header and the SOA record of an answer.
async fn negative(server: SocketAddr, name: &str) -> (String, Option<String>) {
    let text = answer_over_udp(server, &Query::new(name, "A")).await;
    let soa = text
        .lines()
        .find_map(|line| line.split_once(" IN SOA "))
        .map(|(owner, _)| owner.to_owned());
    (text.lines().next().unwrap_or_default().to_owned(), soa)
}

#[tokio::test(flavor = "multi_thread")]
async fn name_below_suffix_is_never_forwarded() {
    let upstream = upstream().await;
    let below = start(Fixed::new(&[upstream.addr()]).search("search.cluster.local", &[]));
    let beside = start(Fixed::new(&[upstream.addr()]).search("Search.Test", &[]));
    let unsynced = start(
        Fixed::new(&[upstream.addr()])
            .search("search.cluster.local", &[])
            .unsynced(),
    );
    let ok = ";; NOERROR, flags: qr aa rd ra";
    let missing = ";; NXDOMAIN, flags: qr aa rd ra";
    for (server, name, head, soa) in [
        (
            &below,
            "search.cluster.local.",
            ok,
            Some("cluster.local. 60"),
        ),
        (
            &below,
            "apps.search.cluster.local.",
            ok,
            Some("cluster.local. 60"),
        ),
        // Without its search domain, this name is again below the suffix. Such a name is not looked
        // up, since the lookup would complete the name again.
        (
            &below,
            "x.apps.search.cluster.local.apps.search.cluster.local.",
            missing,
            Some("cluster.local. 60"),
        ),
        (
            &below,
            "xsearch.cluster.local.",
            ";; NXDOMAIN, flags: qr rd",
            Some("cluster.local. 60"),
        ),
        (&beside, "apps.search.test.", ok, Some("search.test. 60")),
        (
            &beside,
            "missing.apps.SEARCH.test.",
            missing,
            Some("search.test. 60"),
        ),
        (
            &beside,
            "x.apps.search.cluster.local.",
            ";; NXDOMAIN, flags: qr rd",
            Some("cluster.local. 60"),
        ),
        (
            &unsynced,
            "web.apps.search.cluster.local.",
            ";; REFUSED, flags: qr",
            None,
        ),
    ] {
        let expected = (head.to_owned(), soa.map(str::to_owned));
        assert_eq!(negative(server.address, name).await, expected, "{name}");
    }
    assert_eq!(upstream.count(), 0);
    for server in [below, beside, unsynced] {
        server.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn completed_name_is_counted_by_result() {
    let upstream = upstream().await;
    let server =
        start(Fixed::new(&[upstream.addr()]).search("search.cluster.local", &["corp.test"]));
    for name in [
        "web",
        "web",
        "www.example.test",
        "gone.example.test",
        "missing.example.test",
        "broken.example.test",
    ] {
        answer_over_udp(
            server.address,
            &Query::new(&format!("{name}.apps.search.cluster.local."), "A"),
        )
        .await;
    }
    let families = server.metrics.collect();
    let values = |name: &str| -> Vec<f64> {
        let family = families
            .iter()
            .find(|family| family.name() == name)
            .expect("the metric");
        family
            .get_metric()
            .iter()
            .map(|metric| metric.get_counter().get_value())
            .collect()
    };
    assert_eq!(
        values("kubedns_search_queries_total"),
        [2.0, 1.0, 1.0, 1.0, 1.0]
    );
    // `gone` takes one more lookup, for the other address type.
    assert_eq!(
        values("kubedns_search_steps_total"),
        [f64::from(1 + 1 + 5 + 6 + 5 + 4)]
    );
    server.stop().await;
}
