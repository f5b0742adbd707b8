//! A client that repeats one query, and measures for how long it has had no usable answer.
//! Answers with NOERROR or NXDOMAIN are usable.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use testkit::client::try_ask;
use testkit::query::Query;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};

/// The minimum interval between the starts of two queries.
const PAUSE: Duration = Duration::from_millis(500);
/// Timeout of a query.
const PATIENCE: Duration = Duration::from_secs(2);

/// A running client. It ends when this value is dropped.
pub(super) struct Client {
    outage: Arc<Mutex<Outage>>,
    _task: JoinSet<()>,
}

/// The outage in progress, if there is one, and the last result of a query.
#[derive(Default)]
struct Outage {
    since: Option<Instant>,
    last: String,
}

impl Client {
    /// Starts asking for the A records of a name.
    pub(super) fn start(port: u16, name: &str) -> Self {
        let outage = Arc::new(Mutex::new(Outage::default()));
        let server = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut task = JoinSet::new();
        task.spawn(ask_repeatedly(server, name.to_owned(), Arc::clone(&outage)));
        Self {
            outage,
            _task: task,
        }
    }

    /// The duration of the outage in progress; zero without an outage. An outage begins with a
    /// query that gets no usable answer. The next usable answer ends the outage.
    pub(super) fn outage(&self) -> Duration {
        let since = self.outage.lock().since;
        since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// The last result of a query.
    pub(super) fn last(&self) -> String {
        self.outage.lock().last.clone()
    }
}

async fn ask_repeatedly(server: SocketAddr, name: String, outage: Arc<Mutex<Outage>>) {
    let mut ticks = interval(PAUSE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let sent = Instant::now();
        let answer = try_ask(server, &Query::new(&name, "A"), PATIENCE).await;
        let rcode = answer.map(|answer| answer.rcode_name());

        let mut outage = outage.lock();
        outage.since = match rcode.as_deref() {
            Ok("NOERROR" | "NXDOMAIN") => None,
            _ => outage.since.or(Some(sent)),
        };
        outage.last = rcode.unwrap_or_else(|error| error);
    }
}
