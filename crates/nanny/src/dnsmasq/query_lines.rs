//! The lines that dnsmasq logs about one query with `--log-queries=extra`, joined into one event.
//!
//! Each line begins with the query's number and the client's address and port:
//!
//! ```text
//! 12 10.244.0.7/4711 query[A] www.example.test from 10.244.0.7
//! 12 10.244.0.7/4711 forwarded www.example.test to 192.0.2.1
//! 12 10.244.0.7/4711 reply www.example.test is 198.51.100.1
//! ```
//!
//! No line marks the end of a query, so the first line with an answer completes the query. A query
//! stops waiting for an answer after [`UNANSWERED_AFTER`], or when it is the oldest of more than
//! [`MAX_WAITING`] waiting queries. Such a query is reported without an RCODE, or not at all if its
//! answer may be in lost lines or in the lines of a repetition of the query.
//!
//! dnsmasq forwards identical queries of several clients only once. After the lines of the response
//! to one of these queries, dnsmasq logs the line `reply query is duplicate` for each of the
//! others. If a client repeats a query from the same port, dnsmasq answers only the last
//! repetition.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::{Duration, Instant, SystemTime};

use querylog::QueryLine;
use wire::mnemonic::{parse_rcode, parse_type, rcode_name, type_name};

/// Maximum number of queries remembered while they wait for an answer.
const MAX_WAITING: usize = 1024;
/// Maximum time for which a query waits for an answer.
const UNANSWERED_AFTER: Duration = Duration::from_secs(6);

/// The line of a query that shares the response to another client's query.
const DUPLICATE: (&str, &str) = ("reply", "query is duplicate");

/// A query with its answer, if there was one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LoggedQuery {
    pub(crate) client: IpAddr,
    /// The name in lower case, without a trailing dot, as the filters of the query log expect.
    pub(crate) name: String,
    pub(crate) qtype: u16,
    /// `None` if the query has no answer.
    pub(crate) rcode: Option<u16>,
    /// The source of the answer, such as `cache`, `config`, a hosts file, or a server. Without an
    /// answer, the last server to which dnsmasq forwarded the query. If neither is known,
    /// `dnsmasq`.
    pub(crate) by: String,
    pub(crate) took: Duration,
}

impl LoggedQuery {
    pub(crate) fn to_line(&self, time: SystemTime) -> QueryLine {
        QueryLine {
            time: querylog::format_timestamp(time),
            client: self.client.to_string(),
            transport: None,
            name: format!("{}.", self.name),
            qtype: type_name(self.qtype),
            rcode: self.rcode.map_or_else(|| "-".to_owned(), rcode_name),
            size: None,
            micros: Some(u64::try_from(self.took.as_micros()).unwrap_or(u64::MAX)),
            truncated: false,
            by: self.by.clone(),
        }
    }
}

/// A query that waits for its answer.
#[derive(Debug)]
struct UnansweredQuery {
    /// The query's number, and the client's address and port, as written. The number alone is not
    /// unique: dnsmasq's child processes for TCP number their queries separately.
    id: String,
    client: IpAddr,
    name: String,
    qtype: u16,
    /// The last server to which dnsmasq forwarded the query.
    server: Option<String>,
    since: Instant,
    /// The answer may be in other lines: in the lines of a repetition of this query, or in lost
    /// lines. Such a query is not reported as unanswered.
    may_be_answered: bool,
}

/// The answer in a line such as `reply NAME is VALUE`.
#[derive(Clone, Copy)]
struct LineAnswer<'l> {
    rcode: u16,
    /// `None` if the answer comes from the server to which the query was forwarded.
    by: Option<&'l str>,
}

/// Joins the lines of each query into a [`LoggedQuery`].
#[derive(Debug, Default)]
pub(crate) struct QueryLineJoiner {
    /// The queries that wait for an answer, oldest first.
    waiting: VecDeque<UnansweredQuery>,
    /// The last query that a server answered.
    last_answered: Option<LoggedQuery>,
}

impl QueryLineJoiner {
    /// Reads a line. Returns the queries that are to be reported now.
    pub(crate) fn join_line(&mut self, line: &str, now: Instant) -> Vec<LoggedQuery> {
        let mut complete = self.expire_waiting(now);
        let Some((id, rest)) = split_id(line) else {
            return complete;
        };

        if let Some(query) = rest.strip_prefix("query[") {
            complete.extend(self.begin_query(id, query, now));
            return complete;
        }
        if let Some((word, rest)) = rest.split_once(' ')
            && let Some(at) = self.waiting.iter().rposition(|waiting| waiting.id == id)
        {
            complete.extend(self.continue_query(at, word, rest, now));
        }
        complete
    }

    /// Reads a later line of the waiting query with the index `at`. `word` is the first word after
    /// the address, and `rest` follows that word.
    fn continue_query(
        &mut self,
        at: usize,
        word: &str,
        rest: &str,
        now: Instant,
    ) -> Option<LoggedQuery> {
        if word == "forwarded" {
            let (_, server) = rest.rsplit_once(" to ").unzip();
            self.waiting.get_mut(at)?.server = server.map(str::to_owned);
            return None;
        }
        if (word, rest) == DUPLICATE {
            let query = self.waiting.remove(at)?;
            return Some(query.complete_like(self.last_answered.as_ref(), now));
        }
        self.answer_query(at, parse_answer(word, rest)?, now)
    }

    /// Records that lines were lost. The lost lines may contain the answers to the waiting queries.
    pub(crate) fn mark_lines_lost(&mut self) {
        for waiting in &mut self.waiting {
            waiting.may_be_answered = true;
        }
    }

    /// Adds a query, and removes the oldest query if too many wait. Returns the removed query,
    /// unless its answer may be in other lines.
    fn begin_query(&mut self, id: &str, query: &str, now: Instant) -> Option<LoggedQuery> {
        let (qtype, rest) = query.split_once("] ")?;
        let (name, client) = rest.rsplit_once(" from ")?;
        // If dnsmasq knows no name for a type, it writes the number, as in `type=65`.
        let number = qtype.strip_prefix("type=").map(str::parse);
        let qtype = match number {
            Some(Ok(number)) => number,
            Some(Err(_)) | None => parse_type(qtype).unwrap_or_default(),
        };

        self.waiting.push_back(UnansweredQuery {
            id: id.to_owned(),
            client: client.parse().ok()?,
            name: name.to_ascii_lowercase(),
            qtype,
            server: None,
            since: now,
            may_be_answered: false,
        });
        if self.waiting.len() <= MAX_WAITING {
            return None;
        }
        let oldest = self.waiting.pop_front()?;
        (!oldest.may_be_answered).then(|| oldest.complete(None, None, now))
    }

    fn answer_query(
        &mut self,
        at: usize,
        answer: LineAnswer<'_>,
        now: Instant,
    ) -> Option<LoggedQuery> {
        let query = self.waiting.remove(at)?;
        for other in &mut self.waiting {
            // dnsmasq answers only the last repetition of a query.
            if other.is_repetition_of(&query) {
                other.may_be_answered = true;
            }
        }

        let answered = query.complete(Some(answer.rcode), answer.by, now);
        if answer.by.is_none() {
            self.last_answered = Some(answered.clone());
        }
        Some(answered)
    }

    /// Removes the queries that have waited too long. Returns them, except those whose answer may
    /// be in other lines.
    fn expire_waiting(&mut self, now: Instant) -> Vec<LoggedQuery> {
        let mut expired = Vec::new();
        while let Some(query) = self.waiting.pop_front_if(|query| query.is_late(now)) {
            if !query.may_be_answered {
                expired.push(query.complete(None, None, now));
            }
        }
        expired
    }
}

impl UnansweredQuery {
    fn is_late(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) >= UNANSWERED_AFTER
    }

    /// Returns whether `other` is the same query from the same address and port.
    fn is_repetition_of(&self, other: &Self) -> bool {
        self.qtype == other.qtype
            && self.name == other.name
            && self.client_port() == other.client_port()
    }

    /// The client's address and port.
    fn client_port(&self) -> &str {
        self.id.split_once(' ').map_or("", |(_, port)| port)
    }

    /// Completes the query: with the answer of `last` if both have the same name and type,
    /// otherwise without an answer.
    fn complete_like(self, last: Option<&LoggedQuery>, now: Instant) -> LoggedQuery {
        match last {
            Some(last) if last.qtype == self.qtype && last.name == self.name => {
                self.complete(last.rcode, Some(last.by.as_str()), now)
            }
            Some(_) | None => self.complete(None, None, now),
        }
    }

    fn complete(self, rcode: Option<u16>, by: Option<&str>, now: Instant) -> LoggedQuery {
        let by = by.map(str::to_owned).or(self.server);
        LoggedQuery {
            client: self.client,
            name: self.name,
            qtype: self.qtype,
            rcode,
            by: by.unwrap_or_else(|| "dnsmasq".to_owned()),
            took: now.saturating_duration_since(self.since),
        }
    }
}

/// Splits a line after its number and address.
fn split_id(line: &str) -> Option<(&str, &str)> {
    let (number, rest) = line.split_once(' ')?;
    let (address, _) = rest.split_once(' ')?;
    if number.is_empty() || !number.bytes().all(|b| b.is_ascii_digit()) || !address.contains('/') {
        return None;
    }

    let (id, rest) = line.split_at_checked(number.len() + 1 + address.len())?;
    Some((id, rest.trim_start()))
}

/// Parses the part of a line after the number and the address: its first word `source`, such as
/// `reply` or `cached`, and the rest. `None` for a line without an answer, and for a CNAME, because
/// a later line has the answer.
fn parse_answer<'l>(source: &'l str, rest: &str) -> Option<LineAnswer<'l>> {
    let (_, value) = rest.rsplit_once(" is ")?;
    if value == "<CNAME>" {
        return None;
    }

    // An address or NODATA means NOERROR.
    let first_word = value.split_whitespace().next();
    let rcode = first_word.and_then(|word| parse_rcode(word).ok());
    let by = match source {
        "reply" => None,
        "cached" | "cached-stale" | "stale" => Some("cache"),
        source => Some(source),
    };
    Some(LineAnswer {
        rcode: rcode.unwrap_or_default(),
        by,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The queries reported for these lines, which are a second apart.
    fn joined(lines: &str) -> Vec<String> {
        joined_each(Duration::from_secs(1), lines)
    }

    fn joined_each(step: Duration, lines: &str) -> Vec<String> {
        let mut joiner = QueryLineJoiner::default();
        let start = Instant::now();
        let mut found = Vec::new();
        for (at, line) in (0..).zip(lines.lines()) {
            let reported = joiner.join_line(line, start + at * step);
            found.extend(reported.iter().map(|query| {
                let QueryLine {
                    client,
                    name,
                    qtype,
                    rcode,
                    by,
                    ..
                } = query.to_line(SystemTime::now());
                format!("{client} {qtype} {name} {rcode} {by} {:?}", query.took)
            }));
        }
        found
    }

    #[test]
    fn lines_of_query_become_one_event() {
        // Lines as dnsmasq 2.90 logs them.
        let lines = "\
12 10.244.0.7/4711 query[A] Www.Example.test from 10.244.0.7
13 10.244.0.8/4711 query[AAAA] web.default.svc.cluster.local from 10.244.0.8
12 10.244.0.7/4711 forwarded www.example.test to 192.0.2.1
13 10.244.0.8/4711 forwarded web.default.svc.cluster.local to 127.0.0.1#10053
12 10.244.0.7/4711 reply www.example.test is <CNAME>
12 10.244.0.7/4711 reply a.example.test is 198.51.100.1
13 10.244.0.8/4711 reply web.default.svc.cluster.local is NODATA-IPv6
12 10.244.0.7/4711 reply a.example.test is 198.51.100.2
14 10.244.0.7/4712 query[A] www.example.test from 10.244.0.7
14 10.244.0.7/4712 cached www.example.test is 198.51.100.1
15 10.244.0.7/4713 query[A] gone.test from 10.244.0.7
15 10.244.0.7/4713 cached gone.test is NXDOMAIN
16 fd00::7/4713 query[A] broken.test from fd00::7
16 fd00::7/4713 forwarded broken.test to 192.0.2.1
16 fd00::7/4713 reply error is SERVFAIL
17 10.244.0.7/4714 query[A] localhost from 10.244.0.7
17 10.244.0.7/4714 /etc/hosts localhost is 127.0.0.1
18 10.244.0.7/4715 query[type=65] one from 10.244.0.7
18 10.244.0.7/4715 config one is NXDOMAIN";
        let expected = [
            "10.244.0.7 A www.example.test. NOERROR 192.0.2.1 5s",
            "10.244.0.8 AAAA web.default.svc.cluster.local. NOERROR 127.0.0.1#10053 5s",
            "10.244.0.7 A www.example.test. NOERROR cache 1s",
            "10.244.0.7 A gone.test. NXDOMAIN cache 1s",
            "fd00::7 A broken.test. SERVFAIL 192.0.2.1 2s",
            "10.244.0.7 A localhost. NOERROR /etc/hosts 1s",
            "10.244.0.7 HTTPS one. NXDOMAIN config 1s",
        ];
        assert_eq!(joined(lines), expected);
    }

    #[test]
    fn duplicate_query_shares_only_answer_to_same_question() {
        let lines = "\
1 127.0.0.2/53607 query[A] slow.test from 127.0.0.2
1 127.0.0.2/53607 forwarded slow.test to 192.0.2.1
2 127.0.0.3/57848 query[A] slow.test from 127.0.0.3
3 127.0.0.4/41945 query[A] slow.test from 127.0.0.4
4 127.0.0.2/53607 query[A] slow.test from 127.0.0.2
4 127.0.0.2/53607 forwarded slow.test to 192.0.2.1
4 127.0.0.2/53607 reply slow.test is NXDOMAIN
3 127.0.0.4/41945 reply query is duplicate
2 127.0.0.3/57848 reply query is duplicate
5 127.0.0.4/41945 query[A] other.test from 127.0.0.4
5 127.0.0.4/41945 reply query is duplicate";
        // The filler lines take ten seconds, more than `UNANSWERED_AFTER`. So query 1 expires. It
        // is not reported, because query 4 repeats it.
        let filler = "\nx".repeat(100);
        let expected = [
            "127.0.0.2 A slow.test. NXDOMAIN 192.0.2.1 200ms",
            "127.0.0.4 A slow.test. NXDOMAIN 192.0.2.1 400ms",
            "127.0.0.3 A slow.test. NXDOMAIN 192.0.2.1 600ms",
            "127.0.0.4 A other.test. - dnsmasq 100ms",
        ];
        assert_eq!(
            joined_each(Duration::from_millis(100), &format!("{lines}{filler}")),
            expected
        );
    }

    #[test]
    fn unanswered_query_is_reported_late() {
        let filler = "x\n".repeat(5);
        let lines = format!(
            "1 10.0.0.1/1 query[A] a.test from 10.0.0.1\n1 10.0.0.1/1 forwarded a.test to 192.0.2.1\n{filler}"
        );
        assert_eq!(joined(&lines), ["10.0.0.1 A a.test. - 192.0.2.1 6s"]);
    }

    #[test]
    fn queries_with_lost_answers_are_dropped() {
        let mut joiner = QueryLineJoiner::default();
        let now = Instant::now();
        for number in [1, 2] {
            joiner.join_line(
                &format!("{number} 10.0.0.1/{number} query[A] a.test from 10.0.0.1"),
                now,
            );
        }
        joiner.mark_lines_lost();
        assert_eq!(
            joiner
                .join_line("2 10.0.0.1/2 reply a.test is NXDOMAIN", now)
                .len(),
            1
        );
        joiner.join_line("3 10.0.0.1/3 query[A] b.test from 10.0.0.1", now);
        let late: Vec<_> = joiner
            .join_line("x", now + UNANSWERED_AFTER)
            .into_iter()
            .map(|query| query.name)
            .collect();
        assert_eq!(late, ["b.test"]);
    }

    #[test]
    fn waiting_queries_are_bounded() {
        let mut joiner = QueryLineJoiner::default();
        let now = Instant::now();
        let reported = (0..3000).map(|n| {
            joiner
                .join_line(
                    &format!("{n} 10.0.0.1/1 query[A] a.test from 10.0.0.1"),
                    now,
                )
                .len()
        });
        assert_eq!(reported.sum::<usize>(), 3000 - MAX_WAITING);
        assert_eq!(joiner.waiting.len(), MAX_WAITING);
    }

    #[test]
    fn malformed_lines_are_skipped() {
        let odd = "\n1\n1 a\n1 a/b\n1 a/b query[\n1 a/b query[A] x from y\nx 1/2 query[A] x from 10.0.0.1\n\
                   1 10.0.0.1/1 reply a is 1\nstarted, version 2.90\n1 a/b query[A] from 10.0.0.1";
        assert_eq!(joined(odd), [""; 0]);
    }
}
