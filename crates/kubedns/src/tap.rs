//! Views of the answered queries: `GET /tap`, the query log, dnstap and `GET /top`.
//!
//! [`skydns::tap`] copies the queries that match a filter. This module formats the copies as lines
//! for `/tap` and the query log. `GET /top` reads the ranking of [`wire::top`] instead.

pub(crate) mod dnstap;
pub(crate) mod metrics;
pub(crate) mod owners;
pub(crate) mod top;

use std::sync::Arc;

use daemon::tasks::Tasks;
use dnsconfig::query_log::QueryLog;
use explain::DnsmasqTopology;
use querylog::log::{LogOpenError, LoggedQueries, QueryLogger};
use querylog::{LineSource, QueryLine};
use skydns::Backend;
use skydns::server::DnsServer;
use skydns::tap::{QueryTap, TapRecord, TapWatch, WatchSettings};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use warp::reply::Response;
use warp::{Filter, Rejection};
use wire::mnemonic::{rcode_name, type_name};
use wire::name;
use wire::top::TopQueries;

use self::owners::ClientOwners;
use crate::own_node::OwnNode;

/// The lowest verbosity (`-v`) at which every query is logged.
const EACH_QUERY: i32 = 6;
/// The name of the writer of the query log, if kubedns is behind dnsmasq. The nanny knows the
/// clients, but kubedns does not.
const NANNY: &str = "the nanny of the dnsmasq in front of kubedns";

/// The queries for one reader of `/tap`, or for the query log.
struct TapLines(TapWatch);

impl LineSource for TapLines {
    fn next_line(&mut self) -> Option<QueryLine> {
        self.0.take_record().map(|record| query_line(&record))
    }

    fn take_left_out(&mut self) -> u64 {
        self.0.take_left_out()
    }
}

/// The tap and the ranking of a DNS server, from which all views read the answered queries.
pub(crate) struct QueryViews {
    tap: Arc<QueryTap>,
    top: Arc<TopQueries>,
}

impl QueryViews {
    /// Creates the views of the queries of `server`.
    pub(crate) fn new<B: Backend>(server: &DnsServer<B>) -> Self {
        Self {
            tap: server.tap(),
            top: server.top(),
        }
    }

    /// Starts sending the queries to the reader of `--dnstap`.
    pub(crate) fn start_dnstap(
        &self,
        reader: dnstap::DnstapReader,
        tasks: &mut Tasks,
        stop: CancellationToken,
    ) {
        let version = format!("{} {}", daemon::version::PROJECT, daemon::version::VERSION);
        let sending = dnstap::run(reader, Arc::clone(&self.tap), version, stop);
        tasks.lasting("sending dnstap", sending);
    }

    /// Starts the query log. `verbosity` is the value of `-v`.
    pub(crate) fn start_log(
        &self,
        tasks: &mut Tasks,
        verbosity: i32,
        topology: DnsmasqTopology,
        config: watch::Receiver<dnsconfig::ConfigState>,
        stop: CancellationToken,
    ) {
        let queries = if verbosity >= EACH_QUERY {
            LoggedQueries::All
        } else {
            LoggedQueries::Configured
        };

        let open = query_log_opener(&self.tap, topology, queries);
        let logger = QueryLogger::new(open, config, queries);
        tasks.lasting("writing the query log", logger.run(stop));
    }

    /// The routes `GET /tap` and `GET /top`. Responses of `/tap` end at `stop`.
    pub(crate) fn routes(
        &self,
        owners: ClientOwners,
        node: Option<OwnNode>,
        topology: DnsmasqTopology,
        stop: CancellationToken,
    ) -> impl Filter<Extract = (Response,), Error = Rejection> + Clone + Send + Sync + 'static {
        let tap = Arc::clone(&self.tap);
        let live = querylog::serve::tap_route(move |request| open_tap(&tap, request), stop);
        let ranking = top::route(&self.top, topology, owners, node);
        live.or(ranking).unify()
    }
}

fn open_tap(tap: &Arc<QueryTap>, request: &querylog::TapRequest) -> Result<TapLines, String> {
    let watch = tap.open_watch(WatchSettings {
        filter: request.filter.clone(),
        rate: request.rate,
        messages: false,
    });
    watch.map(TapLines).map_err(|error| error.to_string())
}

/// Returns a function that opens the query log. Below `-v=6`, the function fails if kubedns is
/// behind dnsmasq, because the nanny then writes the log. From `-v=6` on, kubedns logs each query
/// that it receives, even behind dnsmasq.
fn query_log_opener(
    tap: &Arc<QueryTap>,
    topology: DnsmasqTopology,
    queries: LoggedQueries,
) -> impl Fn(&QueryLog) -> Result<TapLines, LogOpenError> + use<> {
    let tap = Arc::clone(tap);
    // Behind dnsmasq, kubedns knows neither the clients nor the queries that dnsmasq answers from
    // its cache. The nanny's log has both.
    let is_ours = queries == LoggedQueries::All || !topology.is_behind_dnsmasq();
    move |log| {
        if !is_ours {
            return Err(LogOpenError::Elsewhere(NANNY));
        }

        let watch = tap.open_watch(WatchSettings {
            filter: log.filter.clone(),
            rate: log.rate,
            messages: false,
        });
        watch
            .map(TapLines)
            .map_err(|error| LogOpenError::Failed(error.to_string()))
    }
}

fn query_line(record: &TapRecord) -> QueryLine {
    // A message that could not be parsed has neither name nor type.
    let (name, qtype) = if record.name.is_empty() {
        (String::new(), "-".to_owned())
    } else {
        (name::to_text(&record.name), type_name(record.qtype))
    };

    QueryLine {
        time: querylog::format_timestamp(record.time),
        client: record.client.ip().to_canonical().to_string(),
        transport: Some(record.transport.as_str().to_owned()),
        name,
        qtype,
        rcode: rcode_name(record.rcode),
        size: Some(record.size),
        micros: Some(u64::try_from(record.took.as_micros()).unwrap_or(u64::MAX)),
        truncated: record.truncated,
        by: record.by.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configured_log_behind_dnsmasq_is_left_to_nanny() {
        for (topology, queries, ours) in [
            (DnsmasqTopology::DropIn, LoggedQueries::Configured, false),
            (DnsmasqTopology::Cache, LoggedQueries::Configured, false),
            (DnsmasqTopology::Direct, LoggedQueries::Configured, true),
            (DnsmasqTopology::Alone, LoggedQueries::Configured, true),
            (DnsmasqTopology::DropIn, LoggedQueries::All, true),
        ] {
            let tap = Arc::new(QueryTap::default());
            let opened = query_log_opener(&tap, topology, queries)(&QueryLog::default());
            assert_eq!(opened.is_ok(), ours, "{topology:?} {queries:?}");
            assert_eq!(
                tap.counts().watches,
                usize::from(ours),
                "{topology:?} {queries:?}"
            );
        }
    }
}
