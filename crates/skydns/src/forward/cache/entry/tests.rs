use std::net::SocketAddr;

use proptest::prelude::*;
use testkit::message::{self, Edns as Opt, Message as Read};
use testkit::query::Query as Ask;
use testkit::reply::Reply as Answer;

use super::*;
use crate::forward::{ReplyCheck, check_reply};

const SOA: &str = "test. 900 IN SOA ns.test. admin.test. 1 3600 600 86400 60";

fn query(name: &str, rtype: &str) -> UpstreamQuery {
    let ask = Ask::new(name, rtype).wire();
    let asked = wire::Query::parse(&ask, wire::Transport::Udp).unwrap();
    UpstreamQuery::of_client(&asked)
}

/// A reply to a query for `name` and `rtype`.
fn to(name: &str, rtype: &str) -> Answer {
    Answer::to(&Ask::new(name, rtype).id(7).wire())
}

fn entry(query: &UpstreamQuery, wire: &[u8]) -> Option<CacheEntry> {
    let upstream: Upstream = SocketAddr::from(([192, 0, 2, 53], 53)).into();
    let ReplyCheck::Valid(reply) = check_reply(query, 7, &upstream, wire) else {
        return None;
    };

    let key = QueryKey {
        query: query.clone(),
        upstreams: [upstream].into(),
    };
    let upstreams = SharedUpstreams::new(Arc::clone(&key.upstreams));
    CacheEntry::new(&key, upstreams, &reply, CacheTime(5000))
}

/// The answer that an entry gives to a query; `dnssec_ok` is the DO bit, `None` without EDNS.
fn answer(entry: &CacheEntry, state: EntryState, name: &str, dnssec_ok: Option<bool>) -> Read {
    let mut out = b"before".to_vec();
    let ask = ask(name, dnssec_ok);
    entry.append_answer(
        state,
        &wire::Query::parse(&ask, wire::Transport::Udp).unwrap(),
        &mut out,
    );
    assert!(out.starts_with(b"before"));
    Read::parse(&out[6..]).unwrap()
}

fn ask(name: &str, dnssec_ok: Option<bool>) -> Vec<u8> {
    let ask = Ask::new(name, "A").id(0);
    match dnssec_ok {
        Some(dnssec_ok) => ask.opt(our_opt(dnssec_ok)),
        None => ask,
    }
    .wire()
}

/// The OPT record of the queries with EDNS. If the upstream's reply has no OPT record, the answer
/// to such a query has the same OPT record.
fn our_opt(dnssec_ok: bool) -> Opt {
    Opt {
        udp: 1232,
        dnssec_ok,
        ..Opt::default()
    }
}

/// A reply with one address.
fn one_address() -> Answer {
    to("x.test.", "A").answer("x.test. 60 IN A 192.0.2.1")
}

/// Name of the case, query type, reply, and the lifetime of its entry in seconds (`None`: not
/// cached).
type Lasting = (&'static str, &'static str, Vec<u8>, Option<u64>);

fn check(cases: Vec<Lasting>) {
    for (what, rtype, wire, seconds) in cases {
        let lifetime =
            entry(&query("x.test.", rtype), &wire).map(|entry| u64::from(entry.head().lifetime));
        assert_eq!(lifetime, seconds, "{what}");
    }
}

#[test]
fn positive_reply_lives_for_at_most_shortest_ttl() {
    let to = |rtype: &str| to("x.test.", rtype);
    let ttl = |ttl: u32| to("A").answer(&format!("x.test. {ttl} IN A 192.0.2.1"));
    let alias = to("A")
        .answer("x.test. 300 IN CNAME y.test.")
        .answer("y.test. 20 IN A 192.0.2.1");
    let authority = ttl(60).authority("test. 5 IN NS ns.test.");
    let glue = ttl(60).additional("ns.test. 7 IN A 192.0.2.2").edns(1232);
    let zero_beside = ttl(60).answer("x.test. 0 IN A 192.0.2.2");
    let unknown = to("TYPE65280").answer("x.test. 60 IN TYPE65280 \\# 2 abcd");
    let bad_version = {
        let mut wire = ttl(60).edns(1232).wire();
        let extended_rcode = wire.len() - 6;
        wire[extended_rcode] = 1;
        wire
    };
    check(vec![
        ("one address", "A", ttl(60).wire(), Some(60)),
        ("the shortest of several", "A", alias.wire(), Some(20)),
        ("in the authority", "A", authority.wire(), Some(5)),
        ("among the additional records", "A", glue.wire(), Some(7)),
        ("zero", "A", ttl(0).wire(), None),
        ("zero and another TTL", "A", zero_beside.wire(), None),
        ("the uppermost bit", "A", ttl(1 << 31).wire(), None),
        ("a week", "A", ttl(604_800).wire(), Some(86_400)),
        ("an unknown type", "TYPE65280", unknown.wire(), Some(60)),
        ("truncated", "A", ttl(60).truncated().wire(), None),
        ("BADVERS", "A", bad_version, None),
    ]);
}

/// RFC 2308, sections 2 and 5.
#[test]
fn negative_reply_lives_for_at_most_soa_minimum() {
    let to = |rtype: &str| to("x.test.", rtype);
    let missing = || to("A").rcode("NXDOMAIN");
    let with_soa = |ttl: u32, minimum: u32| {
        let soa = format!("test. {ttl} IN SOA ns.test. admin.test. 1 3600 600 86400 {minimum}");
        missing().authority(&soa).wire()
    };
    let alias = || to("A").answer("x.test. 50 IN CNAME y.test.");
    let asked_for = to("CNAME").answer("x.test. 60 IN CNAME y.test.");
    let nodata = to("A").authority(SOA).wire();
    let dead_end = alias().authority(SOA).wire();
    let referral = to("A").authority("test. 60 IN NS ns.test.").wire();
    check(vec![
        (
            "NXDOMAIN, MINIMUM below the TTL",
            "A",
            with_soa(900, 60),
            Some(60),
        ),
        (
            "NXDOMAIN, MINIMUM above the TTL",
            "A",
            with_soa(30, 600),
            Some(30),
        ),
        (
            "NXDOMAIN for a day",
            "A",
            with_soa(86_400, 86_400),
            Some(10_800),
        ),
        ("NXDOMAIN, MINIMUM zero", "A", with_soa(900, 0), None),
        ("NXDOMAIN without SOA", "A", missing().wire(), None),
        ("NODATA", "A", nodata, Some(60)),
        ("NODATA without SOA", "A", to("A").wire(), None),
        ("NODATA for the target of an alias", "A", dead_end, Some(50)),
        ("an alias without target", "A", alias().wire(), None),
        ("a query for an alias", "CNAME", asked_for.wire(), Some(60)),
        ("a referral", "A", referral, None),
    ]);
}

#[test]
fn ttls_are_counted_down() {
    let alias = to("x.test.", "A")
        .answer("x.test. 300 IN CNAME y.test.")
        .answer("y.test. 20 IN A 192.0.2.1");
    let week = to("x.test.", "A").answer("x.test. 604800 IN A 192.0.2.1");
    let nothing = to("x.test.", "A").rcode("NXDOMAIN").authority(SOA);
    let cases: [(&str, Answer, u32, &[u32]); 6] = [
        ("at first", alias.clone(), 0, &[300, 20]),
        ("later", alias.clone(), 19, &[281, 1]),
        ("past the shortest TTL", alias, 40, &[260, 0]),
        ("a week", week, 10, &[86_390]),
        // The SOA record's TTL of 900 is lowered to MINIMUM (60) before it is counted down.
        ("negative", nothing.clone(), 0, &[60]),
        ("negative, later", nothing, 59, &[1]),
    ];
    for (what, reply, age, ttls) in cases {
        let entry = entry(&query("x.test.", "A"), &reply.edns(1232).wire()).unwrap();
        for dnssec_ok in [None, Some(false)] {
            let answer = answer(&entry, EntryState::Fresh(age), "x.test.", dnssec_ok);
            let told: Vec<_> = answer
                .answer
                .iter()
                .chain(&answer.authority)
                .map(|record| record.ttl)
                .collect();
            assert_eq!(told, ttls, "{what}");
        }
    }
}

/// A reply with AA, AD, an EDNS option and an additional record.
fn odd() -> Vec<u8> {
    let reply = to("X.test.", "A")
        .authoritative()
        .answer("X.test. 60 IN A 192.0.2.1");
    let opt = Opt {
        udp: 4096,
        options: vec![(65_001, b"x".to_vec())],
        ..Opt::default()
    };
    let mut wire = reply
        .additional("y.test. 60 IN A 192.0.2.2")
        .opt(opt)
        .wire();
    wire[3] |= 0x20; // AD
    wire
}

#[test]
fn answer_always_has_query_name_but_opt_only_with_edns() {
    let entry = entry(&query("X.test.", "A"), &odd()).unwrap();
    for (name, dnssec_ok) in [
        ("x.TEST.", None),
        ("X.test.", Some(false)),
        ("x.test.", Some(true)),
    ] {
        let answer = answer(&entry, EntryState::Fresh(1), name, dnssec_ok);
        // AA is not set, because the answer comes from the cache.
        assert_eq!((answer.id, answer.flags().as_str()), (0, "qr rd ra ad"));
        assert_eq!(answer.questions[0].name, name);
        assert_eq!(answer.trailing, 0);
        assert_eq!((answer.answer.len(), answer.additional.len()), (1, 1));
        let opt = Opt {
            udp: 4096,
            options: vec![(65_001, b"x".to_vec())],
            ..Opt::default()
        };
        assert_eq!(answer.edns, dnssec_ok.map(|_| opt), "{dnssec_ok:?}");
    }
}

/// RFC 8767, section 4, and RFC 8914, sections 4.4 and 4.20.
#[test]
fn stale_answer_has_extended_error_only_with_edns() {
    let positive = entry(&query("X.test.", "A"), &odd()).unwrap();
    let negative = to("x.test.", "A").rcode("NXDOMAIN").authority(SOA).wire();
    let negative = entry(&query("x.test.", "A"), &negative).unwrap();
    for (entry, code, others) in [(&positive, 3, 1), (&negative, 19, 0)] {
        for dnssec_ok in [None, Some(false), Some(true)] {
            let stale = EntryState::Stale;
            let answer = answer(entry, stale, "x.test.", dnssec_ok);
            assert!(!answer.has("ad"));
            let sections = [&answer.answer, &answer.authority, &answer.additional];
            for record in sections.into_iter().flatten() {
                assert_eq!(record.ttl, 30, "{record}");
            }
            let options = answer.edns.map(|opt| opt.options);
            assert_eq!(options.is_some(), dnssec_ok.is_some());
            let errors = options.map(|options| options[others..].to_vec());
            assert_eq!(
                errors.unwrap_or_else(|| vec![(15, vec![0, code])]),
                [(15, vec![0, code])]
            );
        }
    }
}

#[test]
fn missing_upstream_opt_is_replaced() {
    let entry = entry(&query("x.test.", "A"), &one_address().wire()).unwrap();
    for dnssec_ok in [false, true] {
        let opt = answer(&entry, EntryState::Fresh(0), "x.test.", Some(dnssec_ok)).edns;
        assert_eq!(opt, Some(our_opt(dnssec_ok)));
    }
}

#[test]
fn entry_state_depends_on_age_and_failures() {
    let entry = || entry(&query("x.test.", "A"), &one_address().wire()).unwrap();
    let second = Duration::from_secs(1);
    let limits = CacheLimits {
        stale: 100 * second,
        recheck: 30 * second,
        ..CacheLimits::default()
    };
    let failing = Some(EntryState::Stale);
    let cases: [(&str, Option<u32>, u32, Option<EntryState>); 9] = [
        ("new", None, 0, Some(EntryState::Fresh(0))),
        ("in its last second", None, 59, Some(EntryState::Fresh(59))),
        ("expired: ask first", None, 60, None),
        ("failed a moment ago", Some(70), 70, failing),
        ("failed a while ago", Some(70), 99, failing),
        ("time to ask again", Some(70), 100, None),
        ("failed long ago", Some(70), 159, None),
        ("too old", Some(70), 160, None),
        (
            "failed when fresh",
            Some(10),
            20,
            Some(EntryState::Fresh(20)),
        ),
    ];
    for (what, failed, now, state) in cases {
        let entry = entry();
        let CacheTime(received) = entry.head().received;
        let after = |seconds: u32| CacheTime(received + 1000 * u64::from(seconds));
        if let Some(at) = failed {
            entry.record_failure(limits.recheck, after(at));
        }
        let now = after(now);
        assert_eq!(entry.state_at(&limits, now), state, "{what}");
        let off = CacheLimits {
            stale: Duration::ZERO,
            ..limits
        };
        let expected = state.filter(|state| matches!(state, EntryState::Fresh(_)));
        assert_eq!(entry.state_at(&off, now), expected, "{what}");
    }
}

/// A larger head would enlarge every entry of the cache.
#[test]
fn entry_head_has_48_octets() {
    assert_eq!(size_of::<EntryHead>(), 48);
}

proptest! {
    /// For any cached reply, the crate `wire` can parse the answer from the entry, and the answer
    /// has no octets after its last record. If the test kit can parse the reply, the test kit can
    /// parse the answer. The answer is longer than the reply by at most 17 octets: an OPT record
    /// with an extended error.
    #[test]
    fn entry_answers_can_be_parsed(
        flips in proptest::collection::vec((12..200_usize, any::<u8>()), 0..6),
        age in any::<u32>(),
        dnssec_ok in any::<Option<bool>>(),
        failing in any::<bool>(),
    ) {
        let mut octets = odd();
        for (at, octet) in flips {
            octets.get_mut(at).into_iter().for_each(|place| *place = octet);
        }
        let Some(entry) = entry(&query("x.test.", "A"), &octets) else { return Ok(()) };
        let state = if failing { EntryState::Stale } else { EntryState::Fresh(age) };
        let mut out = Vec::new();
        let ask = ask("x.test.", dnssec_ok);
        entry.append_answer(state, &wire::Query::parse(&ask, wire::Transport::Udp).unwrap(), &mut out);
        prop_assert_eq!(Message::parse(&out).map(|message| message.end()), Ok(out.len()));
        // The RDATA of the upstream is passed on as it is, well-formed or not.
        let was_readable = message::Message::parse(&octets).is_ok();
        prop_assert!(message::Message::parse(&out).is_ok() || !was_readable);
        prop_assert!(out.len() <= octets.len() + 17);
        prop_assert!(entry.size() as usize > entry.message().len());
    }
}
