//! A table of messages and queries. The messages are written to etcd, and the queries are answered
//! from these messages.

use std::sync::Arc;
use std::time::Duration;

use etcd::records::ZoneRecords;
use etcd::{EtcdAccess, EtcdFeed, EtcdMetrics, EtcdSink, EtcdSnapshot, MessageTree, ZoneKeys};
use skydns::engine::{EngineOutcome, Identity, PendingAnswer, answer_message};
use skydns::external::{ExternalAnswer, ExternalAnswers, ExternalQuery, ExternalRecord};
use skydns::{FurtherZone, Zone, Zones};
use testkit::etcd::Etcd;
use testkit::message::Message;
use testkit::query::Query;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use wire::Name;
use wire::Transport;

/// A sink that keeps only the tree.
struct LastTree(watch::Sender<Option<MessageTree>>);

impl EtcdSink for LastTree {
    fn publish_tree(&self, tree: &MessageTree) {
        self.0.send_replace(Some(tree.clone()));
    }

    fn report_connection(&self, _failure: Option<String>) {}
}

/// A server with zones from etcd alone.
pub(crate) struct Served(EtcdSnapshot);

impl Served {
    /// Writes `messages` (names and values) to etcd, and serves `zones` and reverse names from
    /// etcd. Returns `None` if etcd is not installed.
    pub(crate) async fn from(
        zones: &[&str],
        messages: &[(&str, &str)],
        untested: &str,
    ) -> Option<Self> {
        let etcd = Etcd::start(untested).await?;
        for chunk in messages.chunks(100) {
            let put = |(name, value): &(&str, &str)| etcd.put_in_transaction(&key(name), value);
            etcd.transaction(chunk.iter().map(put).collect()).await;
        }
        let mut table = Zones::none();
        for domain in zones.iter().chain(&["arpa"]) {
            let domain = Name::parse(domain).unwrap();
            let records = Arc::new(ZoneRecords::from(listed(&etcd, &domain).await));
            let pointers = domain.label_count() == 1;
            table = table.with(FurtherZone {
                skydns: true,
                pointers,
                ..FurtherZone::new(&domain, records)
            });
        }
        let zone = Zone::new(&Name::parse(zones[0]).unwrap());
        Some(Self(EtcdSnapshot { zone, zones: table }))
    }

    /// Answers a query; returns the RCODE and the sorted records of the answer and additional
    /// sections, without TTL and class. `outside` has the records of upstreams.
    pub(crate) fn ask(&self, question: &str, outside: &[&str]) -> String {
        let (name, rtype) = question.split_once(' ').unwrap();
        let query = Query::new(&format!("{name}."), rtype).wire();
        let identity = Identity {
            version: String::new(),
        };
        let (mut known, mut out) = (ExternalAnswers::none(), Vec::new());
        loop {
            match answer_message(&self.0, &identity, &query, Transport::Tcp, &known, &mut out) {
                EngineOutcome::Reply(_) => return show(&out),
                EngineOutcome::Pending(PendingAnswer::External(questions)) => {
                    for question in questions {
                        let records = said(outside, &question);
                        known.insert(question, ExternalAnswer::Records(records));
                    }
                }
                other => return format!("{other:?}"),
            }
        }
    }

    /// Sends all queries. Each expected line is a record; records of the additional section begin
    /// with `+`.
    pub(crate) fn check(&self, cases: &[(&str, &str)], outside: &[&str]) {
        for (question, expected) in cases {
            let expected: Vec<&str> = expected
                .split('\n')
                .map(str::trim)
                .filter(|line| !line.is_empty())
                .collect();
            let answered = self.ask(question, outside);
            assert_eq!(
                answered.split('\n').collect::<Vec<_>>(),
                expected,
                "{question}"
            );
        }
    }
}

async fn listed(etcd: &Etcd, domain: &Name) -> MessageTree {
    let (sender, mut seen) = watch::channel(None);
    let metrics = EtcdMetrics::new().unwrap().for_zone("");
    let access = EtcdAccess {
        members: vec![etcd.url().parse().unwrap()],
        ..EtcdAccess::default()
    };
    let feed = EtcdFeed::new(
        access,
        ZoneKeys::new("/skydns", domain),
        LastTree(sender),
        metrics,
    );
    let mut running = JoinSet::new();
    running.spawn(feed.run(CancellationToken::new()));
    let listed = tokio::time::timeout(Duration::from_mins(1), seen.wait_for(Option::is_some)).await;
    listed.unwrap().unwrap().clone().unwrap()
}

fn key(name: &str) -> String {
    let labels: Vec<&str> = name.trim_end_matches('.').rsplit('.').collect();
    format!("/skydns/{}", labels.join("/"))
}

/// An upstream's answer to a query, from lines with `OWNER TYPE DATA`. If the name has a record,
/// the answer is all lines of the queried type and all CNAME lines. Otherwise the answer is empty.
fn said(lines: &[&str], question: &ExternalQuery) -> Vec<ExternalRecord> {
    let name = question.name.to_string();
    let is_there = lines
        .iter()
        .any(|line| line.starts_with(&format!("{} ", name.trim_end_matches('.'))));
    if is_there {
        lines
            .iter()
            .filter_map(|line| record(line, question.qtype))
            .collect()
    } else {
        Vec::new()
    }
}

fn record(line: &str, qtype: u16) -> Option<ExternalRecord> {
    let [owner, rtype, data] = line.split(' ').collect::<Vec<_>>().try_into().unwrap();
    let (rtype, rdata) = match rtype {
        "A" => (
            1,
            data.parse::<std::net::Ipv4Addr>()
                .unwrap()
                .octets()
                .to_vec(),
        ),
        "AAAA" => (
            28,
            data.parse::<std::net::Ipv6Addr>()
                .unwrap()
                .octets()
                .to_vec(),
        ),
        _ => (5, Name::parse(data).unwrap().wire().to_vec()),
    };
    let owner = Name::parse(owner).unwrap();
    (rtype == 5 || rtype == qtype).then(|| ExternalRecord {
        owner,
        rtype,
        rdata: rdata.into(),
    })
}

fn show(message: &[u8]) -> String {
    let message = Message::parse(message).unwrap();
    let lines = |records: &[testkit::record::Record], mark: &str| {
        let mut lines: Vec<String> = records
            .iter()
            .map(|record| format!("{mark}{}", plain(&record.to_string())))
            .collect();
        lines.sort();
        lines
    };
    let rcode =
        Some(message.rcode_name()).filter(|rcode| rcode != "NOERROR" || message.answer.is_empty());
    let rcode = rcode.map(|rcode| {
        if rcode == "NOERROR" {
            "NODATA".to_owned()
        } else {
            rcode
        }
    });
    let all = rcode
        .into_iter()
        .chain(lines(&message.answer, ""))
        .chain(lines(&message.additional, "+ "));
    all.collect::<Vec<_>>().join("\n")
}

/// Removes TTL and class from a record.
fn plain(record: &str) -> String {
    let words: Vec<&str> = record.split_whitespace().collect();
    [&words[..1], &words[3..]].concat().join(" ")
}
