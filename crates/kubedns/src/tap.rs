//! Views of answered queries: `GET /tap`, the query log, dnstap and `GET /top`.
//!
//! The DNS server copies the queries that match a filter ([`skydns::tap`]); this module turns them into lines.

pub(crate) mod dnstap;
pub(crate) mod log;
pub(crate) mod metrics;
pub(crate) mod owners;
pub(crate) mod top;

use std::sync::Arc;

use cluster::snapshot::Published;
use daemon::tasks::Tasks;
use explain::Topology;
use querylog::{Line, Source};
use skydns::name;
use skydns::server::Server;
use skydns::tap::{Choice, Record, Tap, Watch};
use skydns::top::Top;
use skydns::wire::text::{rcode_name, type_name};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use warp::reply::Response;
use warp::{Filter, Rejection};

use self::owners::Owners;
use crate::options::Options;

/// A reader of `/tap`.
struct Reader(Watch);

impl Source for Reader {
    fn next(&mut self) -> Option<Line> {
        self.0.take().map(|record| line(&record))
    }

    fn left_out(&mut self) -> u64 {
        self.0.left_out()
    }
}

/// The answered queries of a server.
pub(crate) struct Queries {
    tap: Arc<Tap>,
    top: Arc<Top>,
    owners: Arc<Owners>,
}

impl Queries {
    /// Takes the queries from `server`, and the pods of its clients from `owners`.
    pub(crate) fn new(server: &Server<Published>, owners: Owners) -> Self {
        Self { tap: server.tap(), top: server.top(), owners: Arc::new(owners) }
    }

    /// Starts the query log and dnstap.
    pub(crate) fn follow(
        &self,
        tasks: &mut Tasks,
        options: &Options,
        config: watch::Receiver<dnsconfig::State>,
        stop: &CancellationToken,
    ) {
        if let Some(reader) = options.dnstap.0.clone() {
            let version = format!("{} {}", daemon::version::PROJECT, daemon::version::VERSION);
            let sending = dnstap::run(reader, Arc::clone(&self.tap), version, stop.clone());
            tasks.lasting("sending dnstap", sending);
        }
        let all = options.log.v.0 >= log::EACH_QUERY;
        let writing = log::run(Arc::clone(&self.tap), config, all, stop.clone());
        tasks.lasting("writing the query log", writing);
    }

    /// `GET /tap` and `GET /top`. Responses of `/tap` end with `stop`.
    pub(crate) fn routes(
        &self,
        published: &Arc<Published>,
        topology: Topology,
        stop: CancellationToken,
    ) -> impl Filter<Extract = (Response,), Error = Rejection> + Clone + Send + Sync + 'static {
        let tap = Arc::clone(&self.tap);
        let open = move |choice: &querylog::Choice| {
            let choice = Choice { filter: choice.filter.clone(), rate: choice.rate, messages: false };
            tap.watch(choice).map(Reader).map_err(|error| error.to_string())
        };
        let top = top::route(&self.top, published, topology, &self.owners);
        querylog::serve::route(open, stop).or(top).unify()
    }
}

fn line(record: &Record) -> Line {
    let known = !record.name.is_empty();
    Line {
        time: querylog::timestamp(record.time),
        client: record.client.ip().to_canonical().to_string(),
        transport: Some(record.transport.as_str().to_owned()),
        name: if known { name::to_text(&record.name) } else { String::new() },
        qtype: if known { type_name(record.qtype) } else { "-".to_owned() },
        rcode: rcode_name(record.rcode),
        size: Some(record.size),
        micros: Some(u64::try_from(record.took.as_micros()).unwrap_or(u64::MAX)),
        truncated: record.truncated,
        by: record.by.to_owned(),
    }
}
