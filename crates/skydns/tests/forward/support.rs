//! A forwarder with its metrics, the queries that tests send through the forwarder, and the
//! reactions of test upstreams.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use prometheus::Registry;
use skydns::forward::{
    CacheLimits, CacheMetrics, ForwardError, ForwardLimits, ForwardMetrics, Forwarder, ReplyCache,
    TlsTrust, UpstreamQuery, UpstreamReply,
};
use testkit::message::{Edns, Message};
use testkit::query;
use testkit::reply;
use testkit::upstream::{Asked, Reaction, Upstream};
use wire::Transport;

/// Timeout for events that must happen, even on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// A forwarder under test.
#[derive(Clone)]
pub(crate) struct Subject {
    pub(crate) forwarder: Arc<Forwarder>,
    registry: Registry,
    clients: Arc<AtomicU32>,
}

impl Subject {
    pub(crate) fn new(limits: ForwardLimits) -> Self {
        Self::trusting(limits, TlsTrust::default())
    }

    pub(crate) fn trusting(limits: ForwardLimits, trust: TlsTrust) -> Self {
        Self::start(limits, trust, None)
    }

    /// A forwarder with a cache.
    pub(crate) fn with_cache(limits: ForwardLimits, bounds: CacheLimits) -> Self {
        Self::start(limits, TlsTrust::default(), Some(bounds))
    }

    fn start(limits: ForwardLimits, trust: TlsTrust, bounds: Option<CacheLimits>) -> Self {
        let registry = Registry::new();
        let metrics = ForwardMetrics::new(&registry).unwrap();
        let cache = bounds
            .and_then(|bounds| ReplyCache::new(bounds, CacheMetrics::new(&registry).unwrap()));
        let forwarder = Forwarder::with_trust_and_cache(limits, metrics, trust, cache);
        Self {
            forwarder: Arc::new(forwarder),
            registry,
            clients: Arc::default(),
        }
    }

    /// Sends a query as a new client.
    pub(crate) async fn ask<U: Clone + Into<wire::Upstream>>(
        &self,
        question: Question,
        upstreams: &[U],
    ) -> Result<Arc<UpstreamReply>, ForwardError> {
        let client = Ipv4Addr::from_bits(self.clients.fetch_add(1, Ordering::Relaxed));
        self.ask_as(client.into(), question, upstreams).await
    }

    pub(crate) async fn ask_as<U: Clone + Into<wire::Upstream>>(
        &self,
        client: IpAddr,
        question: Question,
        upstreams: &[U],
    ) -> Result<Arc<UpstreamReply>, ForwardError> {
        let upstreams = upstreams.iter().cloned().map(Into::into).collect();
        self.forwarder
            .exchange(question.forwarded(), upstreams, client, question.transport)
            .await
    }

    /// Sends a query and returns the outcome as [`outcome_text`] formats it.
    pub(crate) async fn outcome<U: Clone + Into<wire::Upstream>>(
        &self,
        question: Question,
        upstreams: &[U],
    ) -> String {
        outcome_text(&self.ask(question, upstreams).await)
    }

    /// The outcome of a query for an address over UDP.
    pub(crate) async fn ask_a<U: Clone + Into<wire::Upstream>>(
        &self,
        name: &str,
        upstreams: &[U],
    ) -> String {
        self.outcome(a(name), upstreams).await
    }

    /// The value of the metric `kubedns_forward_<name>`, summed over all label sets that contain
    /// `labels`. For a histogram, the value is the number of observations.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "all values are whole numbers and not negative"
    )]
    pub(crate) fn metric(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        let families = self.registry.gather();
        let family = families
            .iter()
            .find(|family| family.name() == format!("kubedns_forward_{name}"));
        let metrics = family
            .map(prometheus::proto::MetricFamily::get_metric)
            .unwrap_or_default();
        let has = |metric: &prometheus::proto::Metric, (name, value): (&str, &str)| {
            metric
                .get_label()
                .iter()
                .any(|label| label.name() == name && label.value() == value)
        };
        let wanted = metrics
            .iter()
            .filter(|metric| labels.iter().all(|label| has(metric, *label)));
        wanted
            .map(|metric| {
                let value = metric.get_counter().get_value() + metric.get_gauge().get_value();
                value.round() as u64 + metric.get_histogram().get_sample_count()
            })
            .sum()
    }

    /// The value of a metric, summed over all label sets.
    pub(crate) fn count(&self, name: &str) -> u64 {
        self.metric(name, &[])
    }

    /// The value of `errors_total` for this cause, summed over all upstreams.
    pub(crate) fn errors(&self, cause: &str) -> u64 {
        self.metric("errors_total", &[("cause", cause)])
    }
}

/// The default limits with shorter times, for upstreams that are expected to fail.
pub(crate) fn short_limits() -> ForwardLimits {
    let ms = Duration::from_millis;
    ForwardLimits {
        budget: ms(800),
        silence_timeout: ms(300),
        resend_after: ms(150),
        tcp_retry: ms(200),
        retry_pause: ms(20),
        ..ForwardLimits::default()
    }
}

/// A query of a client.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    query: query::Query,
    transport: Transport,
}

impl From<query::Query> for Question {
    /// A query over UDP.
    fn from(query: query::Query) -> Self {
        Self {
            query,
            transport: Transport::Udp,
        }
    }
}

impl Question {
    pub(crate) fn edns(self, edns: Edns) -> Self {
        Self {
            query: self.query.opt(edns),
            ..self
        }
    }

    pub(crate) fn over(self, transport: Transport) -> Self {
        Self { transport, ..self }
    }

    fn forwarded(&self) -> UpstreamQuery {
        UpstreamQuery::of_client(&wire::Query::parse(&self.query.wire(), self.transport).unwrap())
    }

    /// The answer that the client gets.
    pub(crate) fn answer(&self, reply: &UpstreamReply) -> Message {
        let query = self.query.wire();
        let mut answer = Vec::new();
        reply.append_answer(
            &wire::Query::parse(&query, self.transport).unwrap(),
            &mut answer,
        );
        Message::parse(&answer).unwrap()
    }
}

/// An OPT record with this UDP payload size, DO bit and options.
pub(crate) fn opt(udp: u16, dnssec_ok: bool, options: &[(u16, &[u8])]) -> Edns {
    let options = options.iter().map(|(code, value)| (*code, value.to_vec()));
    Edns {
        udp,
        dnssec_ok,
        options: options.collect(),
        ..Edns::default()
    }
}

/// A query with the flags of an ordinary stub resolver, without EDNS.
pub(crate) fn question(name: &str, rtype: &str, transport: Transport) -> Question {
    Question {
        query: query::Query::new(name, rtype),
        transport,
    }
}

pub(crate) fn a(name: &str) -> Question {
    question(name, "A", Transport::Udp)
}

pub(crate) fn a_over_tcp(name: &str) -> Question {
    question(name, "A", Transport::Tcp)
}

/// RCODE, `tc` if set, and addresses.
pub(crate) fn message_text(message: &Message) -> String {
    let tc = message.has("tc").then(|| "tc".to_owned());
    [message.rcode_name()]
        .into_iter()
        .chain(tc)
        .chain(message.answer_data("A"))
        .collect::<Vec<_>>()
        .join(" ")
}

/// Formats an outcome: the RCODE, `tc` if set, and the addresses; or the error.
pub(crate) fn outcome_text(outcome: &Result<Arc<UpstreamReply>, ForwardError>) -> String {
    match outcome {
        Ok(reply) => {
            let message = Message::parse(&reply.message).unwrap();
            assert_eq!(message.has("tc"), reply.truncated);
            let counts = (message.answer.len(), message.trailing);
            assert_eq!(counts, (reply.answers.into(), 0));
            message_text(&message)
        }
        Err(ForwardError::AllFailed(failures)) => {
            let failures = failures.iter().map(|(_, failure)| format!("{failure:?}"));
            format!("failed: {}", failures.collect::<Vec<_>>().join(" "))
        }
        Err(error) => error.to_string(),
    }
}

/// The outcome of a query to an upstream with the handler `answers_with(1)`.
pub(crate) const GOOD: &str = "NOERROR 192.0.2.1";
/// The outcome of a query to an upstream with the handler `answers_with(2)`.
pub(crate) const OTHER: &str = "NOERROR 192.0.2.2";

/// A correct reply with the address 192.0.2.`n`.
pub(crate) fn address(asked: &Asked, n: u8) -> reply::Reply {
    reply::Reply::to(&asked.packet).answer(&format!("{} 60 IN A 192.0.2.{n}", asked.name()))
}

/// A handler that replies 192.0.2.`n` to everything.
pub(crate) fn answers_with(n: u8) -> impl Fn(&Asked) -> Reaction + Send + Sync + 'static {
    move |asked| address(asked, n).into()
}

/// A handler that replies `rcode` to everything.
pub(crate) fn refuses(rcode: &'static str) -> impl Fn(&Asked) -> Reaction + Send + Sync + 'static {
    move |asked| reply::Reply::to(&asked.packet).rcode(rcode).into()
}

pub(crate) fn silent(_: &Asked) -> Reaction {
    Reaction::silence()
}

pub(crate) fn good(asked: &Asked) -> Reaction {
    address(asked, 1).into()
}

pub(crate) fn servfail(asked: &Asked) -> Reaction {
    refuses("SERVFAIL")(asked)
}

/// A handler of an upstream: returns the reaction to a query.
pub(crate) type Does = fn(&Asked) -> Reaction;

/// An upstream whose behaviour a test changes step by step.
pub(crate) struct Fickle {
    pub(crate) upstream: Upstream,
    next: Arc<AtomicUsize>,
}

impl Fickle {
    /// Starts the upstream with the first handler of `does`. [`Fickle::goes_on`] switches to the
    /// next handler.
    pub(crate) async fn start(does: &'static [Does]) -> Self {
        let next = Arc::new(AtomicUsize::new(0));
        let now = Arc::clone(&next);
        let upstream =
            Upstream::start(move |asked: &Asked| does[now.load(Ordering::SeqCst)](asked)).await;
        Self { upstream, next }
    }

    pub(crate) fn goes_on(&self) {
        self.next.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn upstreams(&self) -> [SocketAddr; 1] {
        [self.upstream.addr()]
    }
}

/// Advances the clock without waiting in real time, and lets the tasks run whose timers are due.
pub(crate) async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::task::yield_now().await;
    tokio::time::resume();
}

/// An address without a listener.
pub(crate) fn unused_address() -> SocketAddr {
    ([127, 0, 0, 1], testkit::ports::free_port()).into()
}

/// The names of the metrics are a public interface. Other tests would read a metric with a misspelt
/// name as zero.
#[tokio::test]
async fn forward_metrics_have_documented_names_and_count_queries() {
    let subject = Subject::new(short_limits());
    // A metric with labels is exported only after it has got a value.
    let upstream = Upstream::start(answers_with(1)).await;
    let upstreams = [unused_address(), upstream.addr()];
    assert_eq!(subject.ask_a("x.test.", &upstreams).await, GOOD);
    let families = subject.registry.gather();
    let names: Vec<_> = families
        .iter()
        .filter_map(|family| family.name().strip_prefix("kubedns_forward_"))
        .collect();
    let expected = [
        "errors_total",
        "failed_total",
        "in_flight",
        "joined_total",
        "overloaded_total",
        "request_duration_seconds",
        "requests_total",
        "tcp_retries_total",
    ];
    assert_eq!(names, expected);
    assert_eq!(subject.count("requests_total"), 2);
    assert_eq!(subject.count("request_duration_seconds"), 1);
    assert_eq!(subject.count("errors_total"), 1);
    // The label `transport` is the client's transport, although the query is forwarded over UDP.
    let over_tcp = subject.outcome(a_over_tcp("x.test."), &upstreams[1..]);
    assert_eq!(over_tcp.await, GOOD);
    for (transport, count) in [("udp", 2), ("tcp", 1)] {
        let labels = [("transport", transport)];
        let requests = subject.metric("requests_total", &labels);
        assert_eq!(requests, count, "{transport}");
    }
    assert_eq!(subject.count("tcp_retries_total"), 0);
}
