//! Tables of SkyDNS messages and of DNS queries, in the files of `tables/`. The messages are
//! written to etcd as values of keys, and the queries are answered from these messages.

use std::sync::Arc;

use etcd::records::ZoneRecords;
use etcd::{EtcdSnapshot, MessageTree};
use skydns::engine::{EngineOutcome, Identity, PendingAnswer, answer_message};
use skydns::external::{ExternalAnswer, ExternalAnswers, ExternalQuery};
use skydns::resolve::extract_external_answer;
use skydns::{FurtherZone, Zone, Zones};
use testkit::codes::type_name;
use testkit::etcd::Etcd;
use testkit::message::Message;
use testkit::query::Query;
use testkit::reply::Reply;
use wire::{Name, Transport, rcode};

use crate::access;
use crate::seen::SeenFeed;

/// A query, and the answers that it may get.
struct TableCase<'t> {
    question: &'t str,
    /// The lines of each answer, as [`Served::ask`] returns them. Lines of the additional section
    /// begin with `+`.
    accepted: Vec<Vec<&'t str>>,
}

/// Writes the messages of a table to etcd, and checks the answers to its queries. Does nothing if
/// etcd is not installed.
pub(crate) async fn check_table(table: &str, untested: &str) {
    let zones = section(table, "zones");
    let messages = section(table, "messages");
    let messages: Vec<_> = messages
        .iter()
        .map(|line| line.split_once(' ').unwrap())
        .collect();
    let Some(served) = Served::from(&zones, &messages, untested).await else {
        return;
    };

    let upstream = section(table, "upstream");
    let cases = cases(table);
    assert!(!cases.is_empty());
    for TableCase { question, accepted } in cases {
        let answered = served.ask(question, &upstream);
        let answered: Vec<&str> = answered.lines().collect();
        assert!(
            accepted.contains(&answered),
            "the answer to {question} is {answered:#?}, which is none of {accepted:#?}"
        );
    }
}

/// The lines of a section, without comments.
fn section<'t>(table: &'t str, title: &str) -> Vec<&'t str> {
    table
        .split("\n## ")
        .filter_map(|section| section.strip_prefix(title))
        .flat_map(str::lines)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect()
}

/// The queries of a table, each with the indented lines of its answer. The line `or` separates two
/// answers.
fn cases(table: &str) -> Vec<TableCase<'_>> {
    let mut cases: Vec<TableCase<'_>> = Vec::new();
    for line in section(table, "answers") {
        let Some(record) = line.strip_prefix("    ") else {
            match cases.last_mut().filter(|_| line == "  or") {
                Some(case) => case.accepted.push(Vec::new()),
                None => cases.push(TableCase {
                    question: line,
                    accepted: vec![Vec::new()],
                }),
            }
            continue;
        };
        let answer = cases.last_mut().and_then(|case| case.accepted.last_mut());
        answer.unwrap().push(record);
    }
    cases
}

/// A server that has only zones from etcd.
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

    /// Answers a query; returns the sorted records of the answer and additional sections, without
    /// TTL and class. The first line is the RCODE if it is not NOERROR, or `NODATA` if the answer
    /// section is empty. `outside` has the records of upstreams.
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
                        let answer = said(outside, &question);
                        known.insert(question, answer);
                    }
                }
                other => return format!("{other:?}"),
            }
        }
    }
}

async fn listed(etcd: &Etcd, domain: &Name) -> MessageTree {
    let seen = SeenFeed::of_zone(access(&etcd.url()), domain, usize::MAX);
    seen.until(|_| true).await;
    seen.tree()
}

fn key(name: &str) -> String {
    let labels: Vec<&str> = name.trim_end_matches('.').rsplit('.').collect();
    format!("/skydns/{}", labels.join("/"))
}

/// The answer of an upstream that has only `records` (in presentation format): all records of the
/// queried type and all aliases.
fn said(records: &[&str], question: &ExternalQuery) -> ExternalAnswer {
    let rtype = type_name(question.qtype);
    let query = Query::new(&question.name.to_string(), &rtype).wire();
    let mut reply = Reply::to(&query);
    for record in records {
        let found = record.split(' ').nth(3).unwrap();
        if found == rtype || found == "CNAME" {
            reply = reply.answer(record);
        }
    }
    extract_external_answer(question, |_| false, &reply.wire(), rcode::NOERROR)
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
    let mut all = match message.rcode_name() {
        rcode if rcode != "NOERROR" => vec![rcode],
        _ if message.answer.is_empty() => vec!["NODATA".to_owned()],
        _ => Vec::new(),
    };
    all.extend(lines(&message.answer, ""));
    all.extend(lines(&message.additional, "+ "));
    all.join("\n")
}

/// Removes TTL and class from a record.
fn plain(record: &str) -> String {
    let words: Vec<&str> = record.split_whitespace().collect();
    [&words[..1], &words[3..]].concat().join(" ")
}
