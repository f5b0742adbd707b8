//! Checks that kubedns allocates no memory for an answer with the records of a Service. Some of the
//! tests limit the allocations for other names.

#![allow(
    clippy::unwrap_used,
    reason = "a test whose set-up fails has to end there"
)]

use std::sync::Arc;

use cluster::index::{Index, IndexOptions, PodMode};
use cluster::objects::{
    Change, Endpoints, EndpointsSource, Event, FromApi, ObjectKey, Pod, Service,
};
use cluster::snapshot::{Published, Snapshot};
use serde_json::Value;
use skydns::engine::{EngineOutcome, Identity, answer_message};
use skydns::external::ExternalAnswers;
use skydns::forward::{
    self, CacheLimits, CacheMetrics, ForwardLimits, ForwardMetrics, Forwarder, ReplyCache, TlsTrust,
};
use skydns::metrics::Metrics;
use skydns::resolve::{AnswerAttempt, Resolver};
use skydns::{Backend, FurtherZone, Search, Zone};
use testkit::message::{Edns, Message};
use testkit::objects::{mk_cluster_ip, mk_endpoints, mk_headless};
use testkit::query::Query;
use testkit::reply::Reply;
use testkit::upstream::{Asked, Upstream};
use wire::Name;
use wire::Transport;

/// Number of times that a query is sent while allocations are counted.
const TIMES: u64 = 100;

fn object<T: FromApi>(json: &Value) -> T {
    T::from_api(&json.to_string()).unwrap().object
}

fn zone() -> Zone {
    Zone::new(&Name::parse("cluster.local").unwrap())
}

fn records() -> Arc<Published> {
    records_in(zone())
}

/// The records of a cluster, and a pod of the namespace `apps`.
fn records_in(zone: Zone) -> Arc<Published> {
    let published = Arc::new(Published::new(Snapshot::new(zone)));
    let pods = if published.get().zone.search.is_some() {
        PodMode::Verified
    } else {
        PodMode::Insecure
    };
    let mut index = Index::with_options(
        IndexOptions {
            pods,
            ..IndexOptions::default()
        },
        Arc::clone(&published),
    );
    let pod = Pod {
        key: ObjectKey::new("apps", "client"),
        addresses: [[127, 0, 0, 1].into()].into(),
    };
    index.apply(Event::Pod(Change::Apply(pod)));
    index.apply(Event::Pod(Change::RelistDone));
    let web = mk_cluster_ip(
        "apps",
        "web",
        &["10.96.0.10", "fd00:10:96::10"],
        &["http:80", "metrics:9090"],
    );
    let plain = mk_cluster_ip("apps", "plain", &["10.96.0.11"], &["http:80"]);
    let db = mk_headless("apps", "db", &["sql:5432"]);
    let members = ["10.244.0.1 db-0", "10.244.0.2 db-1", "10.244.0.3 db-2"];
    let endpoints: Endpoints = object(&mk_endpoints("apps", "db", &members, &["sql:5432"]));
    for service in [web, plain, db] {
        index.apply(Event::Service(Change::Apply(object::<Service>(&service))));
    }
    index.apply(Event::Service(Change::RelistDone));
    index.apply(Event::Endpoints(Change::Apply(endpoints)));
    index.apply(Event::Endpoints(Change::RelistDone));
    index.apply(Event::EndpointsFrom(EndpointsSource::Endpoints));
    index.publish();
    published
}

/// Returns the response to a query over UDP, in wire format.
fn ask<'b>(
    published: &Published,
    identity: &Identity,
    query: &[u8],
    out: &'b mut Vec<u8>,
) -> &'b [u8] {
    static NOTHING: ExternalAnswers = ExternalAnswers::none();
    out.clear();
    let outcome = answer_message(
        &*published.view(),
        identity,
        query,
        Transport::Udp,
        &NOTHING,
        out,
    );
    assert!(matches!(outcome, EngineOutcome::Reply(_)), "{outcome:?}");
    out
}

/// Name, type, and the expected response: RCODE, and the numbers of answer records and additional
/// records.
type Case = (&'static str, &'static str, &'static str, usize, usize);

/// The records, and the same records in a further zone.
fn records_twice() -> Arc<Published> {
    let published = records();
    let zone = FurtherZone::new(&Name::parse("other.test").unwrap(), published.get());
    let mut index = Index::new(Arc::clone(&published));
    index.set_further_zone(zone);
    index.publish();
    published
}

/// The names of `cases` whose responses take more than `allowed` allocations, without or with EDNS.
fn allocating(published: &Published, cases: &[Case], allowed: u64) -> Vec<String> {
    let identity = Identity {
        version: "test".to_owned(),
    };
    let mut out = Vec::with_capacity(4096);
    let mut allocating = Vec::new();
    for &(name, rtype, rcode, answers, additional) in cases {
        for query in [
            Query::new(name, rtype).wire(),
            Query::new(name, rtype).edns(1232).wire(),
        ] {
            // The first response includes the allocations that a thread makes only once.
            let reply = Message::parse(ask(published, &identity, &query, &mut out)).unwrap();
            let counts = (reply.answer.len(), reply.additional.len());
            assert_eq!(reply.rcode_name(), rcode, "{name} {rtype}");
            assert_eq!(counts, (answers, additional), "{name} {rtype}");
            let counted = allocation_counter::measure(|| {
                for _ in 0..TIMES {
                    ask(published, &identity, &query, &mut out);
                }
            });
            if counted.count_total > allowed * TIMES {
                allocating.push(format!(
                    "{name} {rtype}: {} in {TIMES} answers",
                    counted.count_total
                ));
            }
        }
    }
    allocating
}

#[test]
fn service_names_need_no_allocation() {
    let cases = [
        ("web.apps.svc.cluster.local", "A", "NOERROR", 1, 0),
        ("WEB.apps.svc.cluster.LOCAL", "A", "NOERROR", 1, 0),
        ("web.apps.svc.cluster.local", "AAAA", "NOERROR", 1, 0),
        // A single SRV record covers both families: the target has an address of each family.
        (
            "_http._tcp.web.apps.svc.cluster.local",
            "SRV",
            "NOERROR",
            1,
            2,
        ),
        ("db.apps.svc.cluster.local", "A", "NOERROR", 3, 0),
        (
            "_sql._tcp.db.apps.svc.cluster.local",
            "SRV",
            "NOERROR",
            3,
            3,
        ),
        ("db-1.db.apps.svc.cluster.local", "A", "NOERROR", 1, 0),
        ("plain.apps.svc.cluster.local", "AAAA", "NOERROR", 0, 0),
        ("web.apps.svc.cluster.local", "TXT", "NOERROR", 0, 0),
        ("missing.apps.svc.cluster.local", "A", "NXDOMAIN", 0, 0),
        (
            "www.example.com.apps.svc.cluster.local",
            "A",
            "NXDOMAIN",
            0,
            0,
        ),
        ("10.0.96.10.in-addr.arpa", "PTR", "NOERROR", 1, 0),
        ("1.0.244.10.in-addr.arpa", "PTR", "NOERROR", 1, 0),
        ("cluster.local", "SOA", "NOERROR", 1, 0),
        ("web.apps.svc.cluster.local", "ANY", "REFUSED", 0, 0),
    ];
    assert_eq!(allocating(&records(), &cases, 0), [""; 0]);
    let found = allocating(&records_twice(), &cases, 0);
    assert_eq!(found, [""; 0], "with a further zone");
}

#[test]
fn further_zone_names_need_no_allocation() {
    let cases = [
        ("web.apps.svc.other.test", "A", "NOERROR", 1, 0),
        ("_http._tcp.web.apps.svc.other.test", "SRV", "NOERROR", 1, 2),
        ("db.apps.svc.other.test", "A", "NOERROR", 3, 0),
        ("plain.apps.svc.other.test", "AAAA", "NOERROR", 0, 0),
        ("missing.apps.svc.other.test", "A", "NXDOMAIN", 0, 0),
        ("other.test", "SOA", "NOERROR", 1, 0),
    ];
    assert_eq!(allocating(&records_twice(), &cases, 0), [""; 0]);
}

#[test]
fn pod_names_need_at_most_one_allocation() {
    let cases = [("10-244-0-1.apps.pod.cluster.local", "A", "NOERROR", 1, 0)];
    assert_eq!(allocating(&records(), &cases, 1), [""; 0]);
}

fn resolver(
    records: Arc<Published>,
    forwarder: Arc<Forwarder>,
    runtime: tokio::runtime::Handle,
) -> Resolver<Published> {
    let identity = Identity {
        version: "test".to_owned(),
    };
    let shard = Metrics::new("skydns", "skydns").shared_shard();
    Resolver::new(records, identity, forwarder, shard, runtime)
}

/// The number of allocations for [`TIMES`] answers to the client 127.0.0.`client`. A first answer
/// is not counted.
fn allocations_of(resolver: &Resolver<Published>, query: &[u8], client: u8) -> u64 {
    let client = [127, 0, 0, client].into();
    let mut out = Vec::with_capacity(4096);
    let mut ask = || {
        out.clear();
        let outcome = resolver.attempt_query(query, client, Transport::Udp, &mut out);
        assert!(matches!(outcome, AnswerAttempt::Answered(_)));
    };
    ask();
    allocation_counter::measure(|| (0..TIMES).for_each(|_| ask())).count_total
}

/// Cached external names are answered on the thread that received the query.
#[test]
fn cached_external_names_need_no_allocation() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let upstream = runtime.block_on(Upstream::start(|asked: &Asked| {
        Reply::to(&asked.packet)
            .answer(&format!("{} 60 IN A 192.0.2.1", asked.name()))
            .edns(1232)
            .into()
    }));
    let zone = Zone {
        upstreams: [upstream.addr().into()].into(),
        ..zone()
    };
    let upstreams = Arc::clone(&zone.upstreams);
    let registry = prometheus::Registry::new();
    let cache = ReplyCache::new(
        CacheLimits::default(),
        CacheMetrics::new(&registry).unwrap(),
    );
    let metrics = ForwardMetrics::new(&registry).unwrap();
    let forwarder = Arc::new(Forwarder::with_trust_and_cache(
        ForwardLimits::default(),
        metrics,
        TlsTrust::default(),
        cache,
    ));
    let question = forward::UpstreamQuery::new(Name::parse("www.outside.test").unwrap().wire(), 1);
    let asking = forwarder.exchange(question, upstreams, [127, 0, 0, 1].into(), Transport::Udp);
    runtime.block_on(asking).unwrap();
    let records = Arc::new(Published::new(Snapshot::new(zone)));
    let resolver = resolver(records, forwarder, runtime.handle().clone());
    let cookie = Edns {
        udp: 1232,
        options: vec![(10, vec![1; 8])],
        ..Edns::default()
    };
    let www = || Query::new("www.outside.test", "A");
    for query in [
        www(),
        Query::new("WWW.outside.TEST", "A"),
        www().edns(1232),
        www().opt(cookie),
    ] {
        assert_eq!(allocations_of(&resolver, &query.wire(), 1), 0);
    }
    assert_eq!(upstream.count(), 1);
}

/// With autopath, an answer for a cluster name needs no allocation, unless kubedns walks the search
/// list of the client.
#[test]
fn only_walk_of_search_list_allocates() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let forwarder = Forwarder::new(
        ForwardLimits::default(),
        ForwardMetrics::new(&prometheus::Registry::new()).unwrap(),
    );
    let search = Some(Arc::new(Search::new(None, true, [])));
    let records = records_in(Zone { search, ..zone() });
    let resolver = resolver(records, Arc::new(forwarder), runtime.handle().clone());
    for (name, client, nothing) in [
        ("web.apps.svc.cluster.local", 1, true),
        ("missing.kube-system.svc.cluster.local", 1, true),
        ("missing.svc.cluster.local", 1, true),
        ("missing.apps.svc.cluster.local", 2, true),
        ("missing.apps.svc.cluster.local", 1, false),
    ] {
        let count = allocations_of(&resolver, &Query::new(name, "A").wire(), client);
        assert_eq!(
            count == 0,
            nothing,
            "{name} of client {client}: {count} allocations"
        );
    }
}

#[test]
fn allocations_are_counted() {
    let counted = allocation_counter::measure(|| drop(std::hint::black_box(vec![1])));
    assert_eq!(counted.count_total, 1);
}
