//! A forwarder with its metrics, and queries for it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use prometheus::Registry;
use skydns::forward::{
    CacheLimits, CacheMetrics, ForwardError, ForwardLimits, ForwardMetrics, Forwarder, ReplyCache,
    TlsTrust, UpstreamQuery, UpstreamReply,
};
use testkit::message::{Edns, Message};
use testkit::query;
use testkit::reply;
use testkit::upstream::{Asked, Reaction};
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
        let registry = Registry::new();
        let metrics = ForwardMetrics::new(&registry).unwrap();
        Self {
            forwarder: Arc::new(Forwarder::with_trust_and_cache(
                limits, metrics, trust, None,
            )),
            registry,
            clients: Arc::default(),
        }
    }

    /// A forwarder with a cache.
    pub(crate) fn with_cache(limits: ForwardLimits, bounds: CacheLimits) -> Self {
        let registry = Registry::new();
        let metrics = ForwardMetrics::new(&registry).unwrap();
        let cache = ReplyCache::new(bounds, CacheMetrics::new(&registry).unwrap());
        let forwarder = Arc::new(Forwarder::with_trust_and_cache(
            limits,
            metrics,
            TlsTrust::default(),
            cache,
        ));
        Self {
            forwarder,
            registry,
            clients: Arc::default(),
        }
    }

    /// Sends a query as a new client.
    pub(crate) async fn ask(
        &self,
        question: Question,
        upstreams: &[SocketAddr],
    ) -> Result<Arc<UpstreamReply>, ForwardError> {
        self.ask_as(self.client(), question, upstreams).await
    }

    fn client(&self) -> IpAddr {
        Ipv4Addr::from_bits(self.clients.fetch_add(1, Ordering::Relaxed)).into()
    }

    /// Sends a query to upstreams of any protocol.
    pub(crate) async fn ask_by(
        &self,
        question: Question,
        upstreams: &[wire::Upstream],
    ) -> Result<Arc<UpstreamReply>, ForwardError> {
        let transport = question.transport;
        self.forwarder
            .exchange(
                question.forwarded(),
                upstreams.into(),
                self.client(),
                transport,
            )
            .await
    }

    pub(crate) async fn ask_as(
        &self,
        client: IpAddr,
        question: Question,
        upstreams: &[SocketAddr],
    ) -> Result<Arc<UpstreamReply>, ForwardError> {
        let upstreams = upstreams
            .iter()
            .map(|upstream| (*upstream).into())
            .collect();
        self.forwarder
            .exchange(question.forwarded(), upstreams, client, question.transport)
            .await
    }

    /// Queries for an address over UDP and returns the reply as [`told`] formats it.
    pub(crate) async fn ask_a(&self, name: &str, upstreams: &[SocketAddr]) -> String {
        outcome_text(&self.ask(a(name), upstreams).await)
    }

    /// The value of a metric (for a histogram, its number of observations), summed over all label
    /// sets that contain `labels`.
    pub(crate) fn metric(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
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
                let histogram = u32::try_from(metric.get_histogram().get_sample_count()).unwrap();
                metric.get_counter().get_value()
                    + metric.get_gauge().get_value()
                    + f64::from(histogram)
            })
            .sum()
    }

    /// Number of upstream failures with this cause.
    pub(crate) fn errors(&self, cause: &str) -> f64 {
        self.metric("errors_total", &[("cause", cause)])
    }
}

/// Whether the value of a metric equals `expected`.
pub(crate) fn is_count(value: f64, expected: usize) -> bool {
    (value - f64::from(u32::try_from(expected).unwrap())).abs() < 0.1
}

/// The defaults with a shorter budget, for upstreams that are expected to fail.
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

/// Formats an outcome: the RCODE, `tc` if set, and the addresses; or the error.
pub(crate) fn outcome_text(outcome: &Result<Arc<UpstreamReply>, ForwardError>) -> String {
    match outcome {
        Ok(reply) => {
            let message = Message::parse(&reply.message).unwrap();
            assert_eq!(message.has("tc"), reply.truncated);
            assert_eq!(
                (message.answer.len(), message.trailing),
                (reply.answers.into(), 0)
            );
            let tc = message.has("tc").then(|| "tc".to_owned());
            [message.rcode_name()]
                .into_iter()
                .chain(tc)
                .chain(message.answer_data("A"))
                .collect::<Vec<_>>()
                .join(" ")
        }
        Err(ForwardError::AllFailed(failures)) => {
            let failures = failures.iter().map(|(_, failure)| format!("{failure:?}"));
            format!("failed: {}", failures.collect::<Vec<_>>().join(" "))
        }
        Err(error) => error.to_string(),
    }
}

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

/// An address without a listener.
pub(crate) fn unused_address() -> SocketAddr {
    ([127, 0, 0, 1], testkit::ports::free_port()).into()
}

/// The names of the metrics are a public interface. In other tests, a metric with a misspelt name
/// has the value zero.
#[tokio::test]
async fn forward_metrics_have_documented_names() {
    let subject = Subject::new(short_limits());
    // Metrics with labels are exported once they have a value.
    let good = testkit::upstream::Upstream::start(answers_with(1)).await;
    assert_eq!(
        subject
            .ask_a("x.test.", &[unused_address(), good.addr()])
            .await,
        "NOERROR 192.0.2.1"
    );
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
    for (name, count) in [
        ("requests_total", 2),
        ("request_duration_seconds", 1),
        ("errors_total", 1),
    ] {
        assert!(is_count(subject.metric(name, &[]), count), "{name}");
    }
    // The label is the client's transport, although the query is forwarded over UDP.
    assert_eq!(
        outcome_text(&subject.ask(a_over_tcp("x.test."), &[good.addr()]).await),
        "NOERROR 192.0.2.1"
    );
    for (transport, count) in [("udp", 2), ("tcp", 1)] {
        assert!(
            is_count(
                subject.metric("requests_total", &[("transport", transport)]),
                count
            ),
            "{transport}"
        );
    }
    assert!(is_count(subject.metric("tcp_retries_total", &[]), 0));
}
