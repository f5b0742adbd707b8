use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::JoinSet;

use super::*;

/// The rate of each log that the logger tried to open, and `-` for each log that it closed, in
/// order.
#[derive(Clone, Default)]
struct OpenedLogs(Arc<Mutex<Vec<String>>>);

impl OpenedLogs {
    fn take(&self) -> String {
        std::mem::take(&mut *self.0.lock().unwrap()).join(" ")
    }

    fn open(&self, log: &QueryLog) -> Result<EmptySource, LogOpenError> {
        self.0.lock().unwrap().push(log.rate.to_string());
        match log.rate {
            1 => Err(LogOpenError::Elsewhere("another")),
            2 => Err(LogOpenError::Failed("no room".to_owned())),
            _ => Ok(EmptySource(self.clone())),
        }
    }
}

struct EmptySource(OpenedLogs);

impl LineSource for EmptySource {
    fn next_line(&mut self) -> Option<QueryLine> {
        None
    }

    fn take_left_out(&mut self) -> u64 {
        0
    }
}

impl Drop for EmptySource {
    fn drop(&mut self) {
        self.0.0.lock().unwrap().push("-".to_owned());
    }
}

/// The state of a configuration with this query log.
fn state(json: Option<&str>) -> ConfigState {
    let entry = json.map(|json| ("queryLog".to_owned(), json.as_bytes().to_vec()));
    ConfigState::new(dnsconfig::parse(&BTreeMap::from_iter(entry)).unwrap())
}

#[tokio::test(start_paused = true)]
async fn only_unexpired_query_log_is_opened() {
    for (json, expected) in [
        (None, (false, None)),
        (Some("{}"), (true, None)),
        (Some(r#"{"seconds": 60}"#), (true, Some(60))),
        (Some(r#"{"seconds": 0}"#), (false, None)),
        (Some(r#"{"until": "2020-01-01T00:00:00Z"}"#), (false, None)),
        (Some(r#"{"rate": 1}"#), (false, None)),
        (Some(r#"{"rate": 2}"#), (false, None)),
    ] {
        let opened = OpenedLogs::default();
        let state = watch::Sender::new(state(json));
        let open = |log: &QueryLog| opened.open(log);
        let logger = QueryLogger::new(open, state.subscribe(), LoggedQueries::Configured);
        let end = logger.open_log.as_ref().and_then(|log| log.end);
        let lasts = end.map(|end| (end - Instant::now()).as_secs());
        assert_eq!((logger.open_log.is_some(), lasts), expected, "{json:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn query_log_follows_edits() {
    let opened = OpenedLogs::default();
    let sender = watch::Sender::new(state(None));
    let mut tasks = JoinSet::new();
    let logger = |queries| {
        let opened = opened.clone();
        QueryLogger::new(
            move |log: &QueryLog| opened.open(log),
            sender.subscribe(),
            queries,
        )
    };
    let stop = CancellationToken::new();
    tasks.spawn(logger(LoggedQueries::Configured).run(stop.clone()));
    let edits = [
        (None, ""),
        (Some("{}"), "1000"),
        (Some(r#"{ "rate": 1000 }"#), ""),
        // The new log is opened before the old log is closed.
        (Some(r#"{"rate": 7}"#), "7 -"),
        // The log with rate 1 cannot be opened, but the old log is closed nevertheless.
        (Some(r#"{"rate": 1}"#), "1 -"),
        (Some(r#"{"rate": 8}"#), "8"),
        (None, "-"),
        (Some(r#"{"rate": 9, "seconds": 60}"#), "9"),
    ];
    for (json, expected) in edits {
        sender.send(state(json)).unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(opened.take(), expected, "{json:?}");
    }
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert_eq!(opened.take(), "-", "the log must end after its 60 seconds");
    // An edit without a change of `queryLog` does not open the log again.
    sender
        .send(state(Some(r#"{"rate": 9, "seconds": 60}"#)))
        .unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(opened.take(), "");
    stop.cancel();
    tasks.join_next().await.unwrap().unwrap();

    let stop = CancellationToken::new();
    tasks.spawn(logger(LoggedQueries::All).run(stop.clone()));
    sender.send(state(None)).unwrap();
    tokio::time::sleep(Duration::from_secs(1000)).await;
    assert_eq!(
        opened.take(),
        "1000",
        "the log of all queries must open, and stay open"
    );
    // The log continues after the source of edits has ended.
    drop(sender);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!((opened.take(), tasks.len()), (String::new(), 1));
    stop.cancel();
    tasks.join_next().await.unwrap().unwrap();
    assert_eq!(opened.take(), "-");
}
