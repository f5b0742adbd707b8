//! Tests with negative answers, other answers, and malformed messages.

use testkit::dig::show;
use testkit::query::Query;
use testkit::reply::Reply;

use super::*;

const SOA: &str = "test. 900 IN SOA ns.test. hostmaster.test. 1 2 3 4 600";

/// The records of `reply` after `limit_ttls` with a limit of `seconds`.
fn limited(reply: &Reply, seconds: u32) -> String {
    let mut message = reply.wire();
    limit_ttls(&mut message, seconds);
    let text = show(&message);
    text.lines()
        .filter(|line| !line.starts_with(';'))
        .collect::<Vec<_>>()
        .join("; ")
}

fn soa_text(ttl: u32, minimum: u32) -> String {
    format!("test. {ttl} IN SOA ns.test. hostmaster.test. 1 2 3 4 {minimum}")
}

#[test]
fn negative_ttl_is_at_most_limit() {
    let empty = Reply::to(&Query::new("no.test.", "A").wire());
    let alias = empty.clone().answer("no.test. 800 IN CNAME gone.test.");
    let soa = || empty.clone().authority(SOA);
    for (what, reply, seconds, expected) in [
        (
            "the limit lowers the TTL and MINIMUM",
            soa(),
            60,
            &*soa_text(60, 60),
        ),
        (
            "the limit lowers only the TTL",
            soa(),
            700,
            &soa_text(700, 600),
        ),
        (
            "the limit lowers neither field",
            soa(),
            900,
            &soa_text(900, 600),
        ),
        ("a limit of zero", soa(), 0, &soa_text(0, 0)),
        (
            "an alias of a missing name keeps its own TTL",
            alias
                .authority(SOA)
                .additional("ns.test. 700 IN A 192.0.2.1"),
            60,
            "no.test. 800 IN CNAME gone.test.; test. 60 IN SOA ns.test. hostmaster.test. 1 2 3 4 60; \
             ns.test. 700 IN A 192.0.2.1",
        ),
        (
            "a referral has no negative TTL",
            empty.clone().authority("test. 900 IN NS ns.test."),
            60,
            "test. 900 IN NS ns.test.",
        ),
    ] {
        assert_eq!(limited(&reply, seconds), expected, "{what}");
    }
}

#[test]
fn incomplete_message_stays_unchanged() {
    let whole = Reply::to(&Query::new("no.test.", "A").wire())
        .authority(SOA)
        .wire();
    for length in 0..whole.len() {
        let mut message = whole[..length].to_vec();
        limit_ttls(&mut message, 60);
        assert_eq!(message, whole[..length], "{length} octets");
    }
}
