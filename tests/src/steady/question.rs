//! A query that the client of [`crate::steady`] repeats, and the check of the answer.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use testkit::client::{self, AskError};
use testkit::message::Message;
use testkit::query::Query;

use super::PATIENCE;
use super::ledger::Outcome;
use crate::lab::in_a_line;

/// Responses of a server that cannot answer, as [`in_a_line`] shows them. Such a response counts as
/// failed, not as wrong, unless it is one of the right answers.
const FAILURES: [&str; 2] = ["SERVFAIL", "REFUSED"];

/// The servers to query, in turn. The test may replace the list, just as the endpoints of a Service
/// may change. Clones share the list.
#[derive(Clone, Debug)]
pub struct Endpoints(Arc<Mutex<Vec<SocketAddr>>>);

impl Endpoints {
    /// A list of one server.
    pub fn of(server: SocketAddr) -> Self {
        Self(Arc::new(Mutex::new(vec![server])))
    }

    /// Replaces the servers.
    pub fn set(&self, servers: &[SocketAddr]) {
        servers.clone_into(&mut self.0.lock());
    }

    fn next(&self) -> SocketAddr {
        let mut servers = self.0.lock();
        servers.rotate_left(1);
        *servers.first().expect("the question must have a server")
    }
}

/// A query with its right answers.
#[derive(Clone, Debug)]
pub struct Question {
    /// The path that the query belongs to; see [`crate::steady`].
    pub path: &'static str,
    /// The servers to query.
    pub servers: Endpoints,
    /// The queried name.
    pub name: String,
    /// The queried type.
    pub rtype: &'static str,
    /// Whether the query is sent over TCP.
    pub tcp: bool,
    /// The maximum number of attempts, and the timeout of each query. An attempt sends a second
    /// query, over TCP, if the answer over UDP is truncated.
    pub tries: (u32, Duration),
    /// The right answers, each as [`in_a_line`] shows it.
    pub right: Vec<String>,
}

impl Question {
    /// A query over UDP to a port of 127.0.0.1, with one right answer such as `NOERROR 10.0.0.1`.
    pub fn new(
        path: &'static str,
        port: u16,
        name: &str,
        rtype: &'static str,
        right: &str,
    ) -> Self {
        Self {
            path,
            servers: Endpoints::of((Ipv4Addr::LOCALHOST, port).into()),
            name: name.to_owned(),
            rtype,
            tcp: false,
            tries: (1, PATIENCE),
            right: vec![right.to_owned()],
        }
    }

    /// Replaces the servers to query.
    #[must_use]
    pub fn follows(mut self, endpoints: &Endpoints) -> Self {
        self.servers = endpoints.clone();
        self
    }

    /// Sets the maximum number of attempts, and the timeout of each query.
    #[must_use]
    pub fn tries(mut self, most: u32, patience: Duration) -> Self {
        self.tries = (most, patience);
        self
    }

    /// Adds another right answer.
    #[must_use]
    pub fn or(mut self, right: &str) -> Self {
        self.right.push(right.to_owned());
        self
    }

    /// Sends the query until the outcome is not `Outcome::Lost`, or until all attempts are used.
    pub(super) async fn ask(&self) -> Outcome {
        let (most, patience) = self.tries;
        let mut outcome = self.ask_once(patience).await;
        for _ in 1..most {
            if !matches!(outcome, Outcome::Lost(_)) {
                break;
            }
            outcome = self.ask_once(patience).await;
        }
        outcome
    }

    async fn ask_once(&self, patience: Duration) -> Outcome {
        let query = Query::new(&self.name, self.rtype).wire();
        let server = self.servers.next();
        let answer = if self.tcp {
            client::tcp(server, &query, patience).await
        } else {
            udp_then_tcp(server, &query, patience).await
        };
        match answer {
            Ok(answer) => self.judge(&query, &answer),
            Err(error) => Outcome::Lost(format!("{self}: {server}: {}", reason(&error))),
        }
    }

    fn judge(&self, asked: &[u8], answer: &[u8]) -> Outcome {
        let message = match Message::parse(answer) {
            Ok(message) => message,
            Err(malformed) => return Outcome::Wrong(format!("{self}: malformed: {malformed}")),
        };
        let line = in_a_line(&message);
        let odd = format!("{self}: {line}");
        let same_id = asked.get(..2) == answer.get(..2);
        let same_question = message
            .questions
            .first()
            .is_some_and(|question| question.name == self.name);
        if !same_id || !same_question {
            return Outcome::Wrong(format!(
                "{odd}, but the ID or the question is not that of the query: {:?}",
                message.questions
            ));
        }
        if self.right.contains(&line) {
            return Outcome::Right;
        }
        if FAILURES.contains(&line.as_str()) {
            Outcome::Failed(odd)
        } else {
            Outcome::Wrong(odd)
        }
    }
}

/// Sends a query over UDP. If the answer is truncated, sends the query again over TCP, as resolvers
/// do.
async fn udp_then_tcp(
    server: SocketAddr,
    query: &[u8],
    patience: Duration,
) -> Result<Vec<u8>, AskError> {
    let answer = client::udp(server, query, patience).await?;
    let is_truncated = answer.get(2).is_some_and(|octet| octet & 0x02 != 0);
    if is_truncated {
        client::tcp(server, query, patience).await
    } else {
        Ok(answer)
    }
}

fn reason(error: &AskError) -> String {
    match error {
        AskError::Io(error) => error.to_string(),
        other => other.to_string(),
    }
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let transport = if self.tcp { "TCP" } else { "UDP" };
        write!(f, "{} {} over {transport}", self.name, self.rtype)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::reply::Reply;
    use testkit::upstream::{Asked, Reaction, Upstream, Zone};

    const SHORT: Duration = Duration::from_millis(300);

    #[tokio::test]
    async fn each_outcome_is_recognized() {
        let honest = Upstream::start(Zone::new(["a.test. 1 IN A 192.0.2.1"]).handler()).await;
        let failing = |asked: &Asked| Reply::to(&asked.packet).rcode("SERVFAIL").into();
        let lying = |asked: &Asked| Reply::to(&asked.packet).wrong_id().into();
        let [failing, lying] = [Upstream::start(failing).await, Upstream::start(lying).await];
        let silent = Upstream::start(|_: &Asked| Reaction::silence()).await;
        let question = |server: &Upstream, right: &str| {
            let mut question = Question::new("x", 0, "a.test.", "A", right);
            question.servers = Endpoints::of(server.addr());
            question
        };
        for tcp in [false, true] {
            let ask = async |mut question: Question| {
                question.tcp = tcp;
                question.ask_once(SHORT).await
            };
            let outcome = ask(question(&honest, "NOERROR 192.0.2.1")).await;
            assert_eq!(outcome, Outcome::Right);
            let outcome = ask(question(&honest, "NXDOMAIN").or("NOERROR 192.0.2.1")).await;
            assert_eq!(outcome, Outcome::Right);
            let other = ask(question(&honest, "NXDOMAIN")).await;
            let odd = |line| format!("a.test. A over {}: {line}", if tcp { "TCP" } else { "UDP" });
            assert_eq!(other, Outcome::Wrong(odd("NOERROR 192.0.2.1")));
            let failed = ask(question(&failing, "NXDOMAIN")).await;
            assert_eq!(failed, Outcome::Failed(odd("SERVFAIL")));
            assert!(matches!(
                ask(question(&lying, "NOERROR")).await,
                Outcome::Wrong(_)
            ));
            assert!(matches!(
                ask(question(&silent, "NOERROR")).await,
                Outcome::Lost(_)
            ));
        }
    }
}
