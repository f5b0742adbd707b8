//! Answered queries for those who watch: `GET /tap`, the query log and `GET /top`.
//!
//! The DNS server copies what a filter matches ([`skydns::tap`]); here it becomes lines.

pub(crate) mod log;
pub(crate) mod metrics;
pub(crate) mod top;

use std::sync::Arc;

use querylog::{Line, Source};
use skydns::name;
use skydns::tap::{Choice, Record, Tap, Watch};
use skydns::wire::text::{rcode_name, type_name};
use tokio_util::sync::CancellationToken;
use warp::reply::Response;
use warp::{Filter, Rejection};

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

/// `GET /tap`. Its replies end with `stop`.
pub(crate) fn route(
    tap: &Arc<Tap>,
    stop: CancellationToken,
) -> impl Filter<Extract = (Response,), Error = Rejection> + Clone + Send + Sync + 'static {
    let tap = Arc::clone(tap);
    let open = move |choice: &querylog::Choice| {
        let choice = Choice { filter: choice.filter.clone(), rate: choice.rate, messages: false };
        tap.watch(choice).map(Reader).map_err(|error| error.to_string())
    };
    querylog::serve::route(open, stop)
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
