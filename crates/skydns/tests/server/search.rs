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

/// Title, query, status and records of each case. `|` means `.apps.search.cluster.local.`. `OURS n`
/// means the SOA record of the cluster with TTL `n`, and `THEIRS n` means the SOA record of the
/// upstream with TTL `n`.
const CASES: &str = "
# a Service of the namespace
web A NOERROR
web| 30 CNAME web.apps.svc.cluster.local.
web.apps.svc.cluster.local. 30 A 10.96.0.9

# NODATA for AAAA: the Service has only an IPv4 address
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

# a full name; NXDOMAIN for web.apps.svc.cluster.local.corp.test has TTL 20, and so has the CNAME
web.apps.svc.cluster.local A NOERROR
web.apps.svc.cluster.local| 20 CNAME web.apps.svc.cluster.local.
web.apps.svc.cluster.local. 30 A 10.96.0.9

# an alias in the cluster, whose target has no addresses
out A NOERROR
out| 30 CNAME out.apps.svc.cluster.local.
out.apps.svc.cluster.local. 30 CNAME www.outside.test.

# an external name
www.example.test A NOERROR
www.example.test| 20 CNAME www.example.test.
www.example.test. 300 A 198.51.100.1

# NODATA for AAAA: the external name has only A records
www.example.test AAAA NOERROR
www.example.test| 20 CNAME www.example.test.
THEIRS 20

# an external alias
alias.example.test A NOERROR
alias.example.test| 10 CNAME alias.example.test.
alias.example.test. 10 CNAME www.example.test.
www.example.test. 300 A 198.51.100.1

# an external alias whose target has no AAAA records
alias.example.test AAAA NOERROR
alias.example.test| 10 CNAME alias.example.test.
alias.example.test. 10 CNAME www.example.test.

# two names of the search list have addresses: the walk ends at the first
both.example.test A NOERROR
both.example.test| 30 CNAME both.example.test.corp.test.
both.example.test.corp.test. 300 A 198.51.100.2

# the walk ends at the first name with addresses, even if only the second name has AAAA records
both.example.test AAAA NOERROR
both.example.test| 20 CNAME both.example.test.corp.test.
THEIRS 20

# a name without any address does not end the search
empty.example.test A NOERROR
empty.example.test| 20 CNAME empty.example.test.
empty.example.test. 300 A 198.51.100.4

# NODATA for AAAA: a name without any address does not end the search
empty.example.test AAAA NOERROR
empty.example.test| 20 CNAME empty.example.test.
THEIRS 20

# NODATA if the only existing name has no address
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

# an answer for another type has no CNAME, because a cache would use the CNAME for addresses, too
mail.example.test MX NOERROR
mail.example.test| 20 MX 10 mx.example.test.

# other types, NODATA
www.example.test MX NOERROR
THEIRS 20

# a CNAME query gets the same CNAME as an A query
www.example.test CNAME NOERROR
www.example.test| 20 CNAME www.example.test.

# the upstream's own CNAME is not in the answer
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

/// Removes the TTLs, because cached TTLs count down.
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

/// Sends the queries of all [`CASES`], with names below `suffix`. `expected` derives the answer
/// from the name, the status and the records of a case.
pub(super) async fn check_cases(
    view: impl Fn() -> Fixed,
    suffix: &str,
    expected: impl Fn(&str, &str, &[&str]) -> Vec<String>,
) {
    let (server, caching) = (start(view()), start(view().caching(CacheLimits::default())));
    for case in CASES.trim().split("\n\n") {
        let (what, case) = case.split_once('\n').expect("a case must have a question");
        let (question, records) = case.split_once('\n').unwrap_or((case, ""));
        let words: Vec<&str> = question.split(' ').collect();
        let expected = expected(words[0], words[2], &records.lines().collect::<Vec<_>>());
        let query = Query::new(&format!("{}.{suffix}", words[0]), words[1]);
        for query in [query.clone().wire(), query.edns(1232).wire()] {
            let wire = exchange_udp(server.address, &query).await;
            assert_eq!(said(&wire), expected, "{what}: {question}");
            let wire = exchange_tcp(server.address, &query).await;
            assert_eq!(said(&wire), expected, "{what}: {question}, over TCP");
            let without_ttl = without_ttls(expected.clone());
            for _ in 0..2 {
                let known = without_ttls(said(&exchange_udp(caching.address, &query).await));
                assert_eq!(known, without_ttl, "{what}: {question}, from the cache");
            }
        }
    }
    server.stop().await;
    caching.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn names_below_search_suffix_get_expected_answers() {
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
        let mut query = Query::new(&format!("{name}.apps.search.cluster.local."), "A");
        if limit > 512 {
            query = query.edns(limit);
        }
        let wire = exchange_udp(server.address, &query.wire()).await;
        let message = parsed(&wire);
        assert!(message.has("tc"), "{name}");
        assert!(wire.len() <= limit.into(), "{name}: {}", wire.len());
        let count = message.answer.len();
        assert!(count > 10, "{name}: {count}");

        let whole = client::ask_tcp(server.address, &query).await;
        assert!(!whole.has("tc"), "{name}");
        let count = whole.answer.len();
        assert!(count >= over_tcp, "{name}: {count}");
    }
    server.stop().await;
}

/// The status and the flags of the answer to an A query, and owner and TTL of its SOA record, if it
/// has one.
async fn negative(server: SocketAddr, name: &str) -> String {
    let text = answer_over_udp(server, &Query::new(name, "A")).await;
    let header = text.lines().next().unwrap_or_default();
    let soa = text.lines().find_map(|line| line.split_once(" IN SOA "));
    let (owner, _) = soa.unwrap_or_default();
    format!(
        "{} | {owner}",
        header.replace(";; ", "").replace("flags: ", "")
    )
}

/// Server and name of each query, and the answer as [`negative`] shows it. The search suffix of the
/// servers `below` and `unsynced` is below the cluster domain, and the suffix of `beside` is not.
/// The third name ends with the search domain `apps.search.cluster.local` twice. If the server
/// removes it once, the rest is still below the suffix. The server does not look up this rest,
/// because otherwise it would have to complete the rest, too.
const NEGATIVE_CASES: &str = "
    below search.cluster.local. NOERROR, qr aa rd ra | cluster.local. 60
    below apps.search.cluster.local. NOERROR, qr aa rd ra | cluster.local. 60
    below x.apps.search.cluster.local.apps.search.cluster.local. NXDOMAIN, qr aa rd ra | cluster.local. 60
    below xsearch.cluster.local. NXDOMAIN, qr rd | cluster.local. 60
    beside apps.search.test. NOERROR, qr aa rd ra | search.test. 60
    beside missing.apps.SEARCH.test. NXDOMAIN, qr aa rd ra | search.test. 60
    beside x.apps.search.cluster.local. NXDOMAIN, qr rd | cluster.local. 60
    unsynced web.apps.search.cluster.local. REFUSED, qr |
";

#[tokio::test(flavor = "multi_thread")]
async fn negative_and_refused_answers_need_no_upstream() {
    let upstream = upstream().await;
    let view = |suffix| Fixed::new(&[upstream.addr()]).search(suffix, &[]);
    let below = start(view("search.cluster.local"));
    let beside = start(view("Search.Test"));
    let unsynced = start(view("search.cluster.local").unsynced());
    for case in NEGATIVE_CASES.trim().lines() {
        let [server, name, expected] = case.trim().splitn(3, ' ').collect::<Vec<_>>()[..] else {
            panic!("not a case: {case}")
        };
        let server = match server {
            "below" => &below,
            "beside" => &beside,
            _ => &unsynced,
        };
        let found = negative(server.address, name).await;
        assert_eq!(found.trim_end(), expected, "{case}");
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
        let name = format!("{name}.apps.search.cluster.local.");
        answer_over_udp(server.address, &Query::new(&name, "A")).await;
    }
    let mut queries = series(&server.metrics, "kubedns_search_queries_total{result=");
    queries.sort();
    let expected = [
        "\"cluster\"} 2",
        "\"external\"} 1",
        "\"nodata\"} 1",
        "\"nxdomain\"} 1",
        "\"servfail\"} 1",
    ];
    assert_eq!(queries, expected);
    // `gone` takes one lookup more than `missing`: its name below `corp.test` exists without A
    // records, so the server also looks up AAAA records of that name.
    let steps = metric(&server.metrics, "kubedns_search_steps_total ");
    assert_eq!(steps, Some(f64::from(1 + 1 + 5 + 6 + 5 + 4)));
    server.stop().await;
}
