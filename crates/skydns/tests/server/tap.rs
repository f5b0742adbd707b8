//! Tests of the tap, which copies answered queries to its readers.

use skydns::ExternalRules;
use skydns::forward::CacheLimits;
use skydns::tap::{TapRecord, TapWatch, WatchSettings};
use wire::query_filter::QueryFilter;
use wire::{Name, rtype};

use super::*;

/// A watch of all queries with their messages, at most `rate` a second.
fn all_queries(rate: u32) -> WatchSettings {
    WatchSettings {
        filter: QueryFilter::default(),
        rate,
        messages: true,
    }
}

async fn next_record_in_time(watch: &mut TapWatch) -> TapRecord {
    tokio::time::timeout(TIMEOUT, watch.next_record())
        .await
        .expect("a record must arrive before the timeout")
}

#[tokio::test(flavor = "multi_thread")]
async fn each_answer_is_copied_and_counted_in_ranking() {
    let upstream = Upstream::start(|asked: &Asked| {
        Reply::to(&asked.packet)
            .answer(&format!("{} 60 IN A 192.0.2.1", asked.name()))
            .into()
    })
    .await;
    let mut rules = ExternalRules::new();
    rules.filter_types(&Name::default(), &[rtype::AAAA]);
    let view = Fixed::new(&[upstream.addr()]).external_rules(rules);
    let server = start(view.caching(CacheLimits::default()));
    let mut watch = server.tap.open_watch(all_queries(1000)).unwrap();
    let web = Query::new("Web.apps.svc.cluster.local.", "A");
    let missing = Query::new("no.apps.svc.cluster.local.", "AAAA");
    let outside = Query::new("www.outside.test.", "A");
    let filtered = Query::new("www.outside.test.", "AAAA");
    let malformed = [&[0, 7, 1, 0, 0, 2][..], &[0; 6]].concat();
    for (query, over_tcp, qtype, code, by) in [
        (web.wire(), false, 1, 0, "auth"),
        (web.wire(), true, 1, 0, "auth"),
        (missing.wire(), false, 28, 3, "auth"),
        (outside.wire(), false, 1, 0, "recursive"),
        (outside.wire(), true, 1, 0, "cache"),
        (filtered.wire(), false, 28, 0, "filterTypes"),
        (malformed, false, 0, 1, "auth"),
    ] {
        let answer = if over_tcp {
            exchange_tcp(server.address, &query).await
        } else {
            exchange_udp(server.address, &query).await
        };
        let record = next_record_in_time(&mut watch).await;
        let transport = if over_tcp { "tcp" } else { "udp" };
        assert_eq!((record.qtype, record.rcode, record.by), (qtype, code, by));
        let sender = (record.transport.as_str(), record.client.ip());
        assert_eq!(sender, (transport, Ipv4Addr::LOCALHOST.into()));
        assert_ne!(record.client.port(), 0);
        let messages = record.messages.unwrap();
        let octets = (&*messages.query, &*messages.response);
        assert_eq!(octets, (&query[..], &answer[..]));
        assert_eq!(record.size, answer.len());
    }
    let ranking = server.top.ranking(10);
    assert_eq!(ranking.queries, 7);
    let busiest = (ranking.clients[0].key, ranking.clients[0].queries);
    assert_eq!(busiest, (Ipv4Addr::LOCALHOST.into(), 7));
    assert_eq!(ranking.nxdomain[0].key, "no.apps.svc.cluster.local.");
    server.stop().await;
}

/// The maximum number of watches is open, and nobody reads their records.
#[tokio::test(flavor = "multi_thread")]
async fn all_queries_are_answered_while_tap_is_unread() {
    let server = start(Fixed::new(&[]));
    let choice = all_queries(100_000);
    let tap = Arc::clone(&server.tap);
    let watches: Vec<TapWatch> =
        std::iter::from_fn(|| tap.open_watch(choice.clone()).ok()).collect();
    assert_eq!(watches.len(), 8);
    let query = Query::new("web.apps.svc.cluster.local.", "A").wire();
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.connect(server.address).await.unwrap();
    for _ in 0..10_000 {
        socket.send(&query).await.unwrap();
        next_datagram(&socket).await;
    }
    let counts = tap.counts();
    assert_eq!(counts.taken + counts.dropped + counts.over_rate, 80_000);
    assert!(counts.dropped >= 8 * 5000, "{counts:?}");
    server.stop().await;
}
