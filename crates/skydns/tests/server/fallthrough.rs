//! `--fallthrough`: an upstream answers queries for names that the cluster does not have.

use skydns::forward::CacheLimits;
use skydns::{ExternalRules, OwnNames};
use wire::{Name, rcode};

use super::*;

/// The SOA record of the upstream. The upstream allows negative answers to be cached for a day.
const SOA: &str = ". 86400 IN SOA a.root-servers.test. nstld.test. 1 2 3 4 86400";

/// An upstream that has records of `vm.cluster.local` and of its alias `www.outside.test`. It signs
/// the negative answer for `signed.cluster.local`.
async fn upstream() -> Upstream {
    Upstream::start(|asked: &Asked| {
        let name = asked.name();
        let reply = Reply::to(&asked.packet);
        let negative = |reply: Reply| {
            reply
                .authority(SOA)
                .authority(". 86400 IN NS a.root-servers.test.")
        };
        match (name.as_str(), asked.rtype().as_str()) {
            ("vm.cluster.local.", "A") => reply.answer("vm.cluster.local. 86400 IN A 198.51.100.1"),
            ("vm.cluster.local.", _) => negative(reply),
            ("www.outside.test.", "A") => {
                reply.answer("www.outside.test. 86400 IN CNAME vm.cluster.local.")
            }
            ("signed.cluster.local.", _) => negative(reply)
                .authority(". 86400 IN RRSIG \\# 1 00")
                .rcode("NXDOMAIN"),
            _ => negative(reply).rcode("NXDOMAIN"),
        }
        .into()
    })
    .await
}

fn name(text: &str) -> Name {
    Name::parse(text).expect("the name must be valid")
}

/// RCODE, and owner, TTL and type of each record. An SOA record also shows its MINIMUM.
fn summary(answer: &str) -> String {
    let record = |line: &str| match line.split(' ').collect::<Vec<_>>()[..] {
        [owner, ttl, _, "SOA", .., minimum] => format!(" {owner} {ttl} SOA/{minimum}"),
        [owner, ttl, _, rtype, ..] => format!(" {owner} {ttl} {rtype}"),
        _ => panic!("not a record: {line}"),
    };
    let rcode = answer.trim_start_matches(";; ").split(',').next();
    let records = answer.lines().filter(|line| !line.starts_with(';'));
    rcode
        .map(str::to_owned)
        .into_iter()
        .chain(records.map(record))
        .collect()
}

/// The cases of a table, each with its title, its query and its two answers.
fn cases(table: &str) -> impl Iterator<Item = (&str, Query, [&str; 2])> {
    table.trim().split("\n\n").map(|case| {
        let lines: Vec<&str> = case.lines().map(str::trim).collect();
        let [what, question, first, second] = lines[..] else {
            panic!("not a case: {case}")
        };
        let (name, rtype) = question
            .split_once(' ')
            .expect("a question must have a name and a type");
        (what, Query::new(name, rtype), [first, second])
    })
}

/// Each case has a title, a query, and two answers. The negative TTL of the cluster is 60 seconds
/// for the first answer, and 5 seconds for the second.
const CASES: &str = "
    a missing name
    no.apps.svc.cluster.local. A
    NXDOMAIN . 60 NS . 60 SOA/60
    NXDOMAIN . 5 NS . 5 SOA/5

    no record of the type
    vm.cluster.local. AAAA
    NOERROR . 60 NS . 60 SOA/60
    NOERROR . 5 NS . 5 SOA/5

    a signed answer keeps the data of its records
    signed.cluster.local. A
    NXDOMAIN . 60 NS . 60 RRSIG . 60 SOA/86400
    NXDOMAIN . 5 NS . 5 RRSIG . 5 SOA/86400

    a zone below has its own negative TTL
    no.etcd.cluster.local. A
    NXDOMAIN . 60 NS . 60 SOA/60
    NXDOMAIN . 60 NS . 60 SOA/60

    an existing name
    vm.cluster.local. A
    NOERROR vm.cluster.local. 86400 A
    NOERROR vm.cluster.local. 86400 A

    an external name
    missing.test. A
    NXDOMAIN . 86400 NS . 86400 SOA/86400
    NXDOMAIN . 86400 NS . 86400 SOA/86400
";

#[tokio::test(flavor = "multi_thread")]
async fn fallthrough_limits_negative_ttl_to_that_of_zone() {
    let upstream = upstream().await;
    let view = |negative_ttl| {
        let etcd = Fixed::empty().address_at(&["www"], "192.0.2.1");
        Fixed::new(&[upstream.addr()])
            .ttls(30, negative_ttl)
            .fallthrough(&["cluster.local", "etcd.cluster.local"])
            .further("etcd.cluster.local", etcd)
    };
    let minute = start(view(60));
    let seconds = start(view(5));

    for (what, query, [in_minute, in_seconds]) in cases(CASES) {
        let found = answer_over_udp(minute.address, &query).await;
        assert_eq!(summary(&found), in_minute, "{what}");
        let found = answer_over_udp(seconds.address, &query).await;
        assert_eq!(summary(&found), in_seconds, "{what}, --negative-ttl=5s");
        let found = answer_over_tcp(seconds.address, &query).await;
        assert_eq!(summary(&found), in_seconds, "{what}, over TCP");
    }
    for server in [minute, seconds] {
        server.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cached_fallthrough_answer_has_negative_ttl_of_zone() {
    let upstream = upstream().await;
    let view = Fixed::new(&[upstream.addr()])
        .ttls(30, 5)
        .fallthrough(&["cluster.local"]);
    let server = start(view.caching(CacheLimits::default()));
    let name = "no.apps.svc.cluster.local.";

    for _ in 0..3 {
        let answer = answer_over_udp(server.address, &Query::new(name, "A")).await;
        assert_eq!(summary(&answer), "NXDOMAIN . 5 NS . 5 SOA/5");
    }
    let queries = upstream.count_of(name, "A");
    assert_eq!(queries, 1, "the other answers must be from the cache");
    server.stop().await;
}

/// Each case has a title, a query, and two answers: with `--fallthrough` and without it.
const ALIASES: &str = "
    the upstream has an address for the target of the Service
    legacy.apps.svc.cluster.local. A
    NOERROR legacy.apps.svc.cluster.local. 30 CNAME vm.cluster.local. 30 A
    NOERROR legacy.apps.svc.cluster.local. 30 CNAME

    the upstream has no record of the type
    legacy.apps.svc.cluster.local. AAAA
    NOERROR legacy.apps.svc.cluster.local. 30 CNAME
    NOERROR legacy.apps.svc.cluster.local. 30 CNAME

    an alias of the configuration
    old.own.test. A
    NOERROR old.own.test. 30 CNAME vm.cluster.local. 30 A
    NXDOMAIN old.own.test. 60 SOA/60

    an alias of the configuration, for another type
    old.own.test. MX
    NOERROR old.own.test. 30 CNAME
    NXDOMAIN old.own.test. 60 SOA/60

    an alias of the configuration whose target exists
    web.own.test. A
    NOERROR web.own.test. 30 A
    NOERROR web.own.test. 30 A

    the upstream answers with an alias whose target is missing in the cluster
    out.apps.svc.cluster.local. A
    NOERROR out.apps.svc.cluster.local. 30 CNAME vm.cluster.local. 30 A www.outside.test. 30 CNAME
    NOERROR out.apps.svc.cluster.local. 30 CNAME www.outside.test. 30 CNAME

    an NS query for a missing name falls through, too
    zone.cluster.local. NS
    NXDOMAIN . 60 NS . 60 SOA/60
    NOERROR cluster.local. 60 SOA/60
";

/// The target of an alias is looked up like a query name: a target that the cluster does not have
/// falls through. Rules for external names do not apply to a missing name in the cluster domain.
#[tokio::test(flavor = "multi_thread")]
async fn missing_target_of_alias_falls_through() {
    let upstream = upstream().await;
    let view = |fallthrough: &[&str]| {
        let mut own = OwnNames::new();
        own.add_alias(&name("old.own.test"), &name("vm.cluster.local"));
        own.add_alias(&name("web.own.test"), &name("web.apps.svc.cluster.local"));
        let mut rules = ExternalRules::new();
        rules.deny_names(&name("vm.cluster.local"), rcode::NXDOMAIN);
        Fixed::new(&[upstream.addr()])
            .alias_at(&["svc", "apps", "legacy"], "vm.cluster.local")
            .alias_at(&["svc", "apps", "out"], "www.outside.test")
            .own_names(own)
            .external_rules(rules)
            .fallthrough(fallthrough)
    };
    let through = start(view(&["cluster.local"]));
    let without = start(view(&[]));

    for (what, query, [in_through, in_without]) in cases(ALIASES) {
        let found = answer_over_udp(through.address, &query).await;
        assert_eq!(summary(&found), in_through, "{what}");
        let found = answer_over_udp(without.address, &query).await;
        assert_eq!(summary(&found), in_without, "{what}, without --fallthrough");
    }
    for server in [through, without] {
        server.stop().await;
    }
}
