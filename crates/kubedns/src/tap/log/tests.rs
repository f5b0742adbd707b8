use std::collections::BTreeMap;

use tokio::task::JoinSet;

use super::*;

fn log(json: &str) -> QueryLog {
    let data = BTreeMap::from([("queryLog".to_owned(), json.as_bytes().to_vec())]);
    dnsconfig::parse(&data).unwrap().query_log.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_query_log_begins_and_ends() {
    let tap = Arc::new(Tap::default());
    for (json, open, lasts) in [
        ("{}", true, None),
        (r#"{"seconds": 60}"#, true, Some(60)),
        (r#"{"seconds": 0}"#, false, None),
        (r#"{"until": "2020-01-01T00:00:00Z"}"#, false, None),
    ] {
        let now = Instant::now();
        let writing = Writing::new(&tap, Some(&log(json)));
        let lasting = writing.end.map(|end| (end - now).as_secs());
        assert_eq!((writing.watch.is_some(), lasting), (open, lasts), "{json}");
        assert_eq!(tap.counts().watches, usize::from(open), "{json}");
    }
    assert_eq!(tap.counts().watches, 0);
}

/// The state of a configuration that is edited.
#[tokio::test(start_paused = true)]
async fn an_edit_is_followed() {
    let tap = Arc::new(Tap::default());
    let state = |json: Option<&str>| {
        let config = dnsconfig::Config { query_log: json.map(log), ..dnsconfig::Config::default() };
        dnsconfig::Source::Fixed(Box::new(config)).open().subscribe().borrow().clone()
    };
    let sender = watch::Sender::new(state(None));
    let stop = CancellationToken::new();
    let mut tasks = JoinSet::new();
    tasks.spawn(run(Arc::clone(&tap), sender.subscribe(), false, stop.clone()));
    for (json, open) in [(None, 0), (Some("{}"), 1), (Some(r#"{"seconds": 60}"#), 1), (None, 0)] {
        sender.send(state(json)).unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(tap.counts().watches, open, "{json:?}");
    }
    sender.send(state(Some(r#"{"seconds": 60}"#))).unwrap();
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert_eq!(tap.counts().watches, 0, "it is over");
    // Another edit does not restart it.
    sender.send(state(Some(r#"{"seconds": 60}"#))).unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(tap.counts().watches, 0);
    stop.cancel();
    tasks.join_next().await.unwrap().unwrap();

    let stop = CancellationToken::new();
    tasks.spawn(run(Arc::clone(&tap), sender.subscribe(), true, stop.clone()));
    tokio::time::sleep(Duration::from_secs(1000)).await;
    assert_eq!(tap.counts().watches, 1, "--v=6 has no end");
    stop.cancel();
    tasks.join_next().await.unwrap().unwrap();
}
