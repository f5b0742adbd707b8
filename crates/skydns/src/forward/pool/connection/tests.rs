use prometheus::Registry;
use tokio::io::{DuplexStream, duplex};
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;
use wire::Upstream;
use wire::frame_message;

use super::*;
use crate::forward::ForwardMetrics;

/// A connection for `depth` queries in flight, the server's end of the connection, and the task
/// that returns the [`ConnectionEnd`].
fn connection(
    depth: usize,
) -> (
    UpstreamConnection,
    DuplexStream,
    JoinHandle<Option<ConnectionEnd>>,
) {
    let upstream: Upstream = "tcp://192.0.2.1".parse().unwrap();
    let metrics = ForwardMetrics::new(&Registry::new())
        .unwrap()
        .upstream(&upstream);
    let (ours, theirs) = duplex(256 * 1024);
    let (connection, questions) = UpstreamConnection::new(depth);
    let task = TaskTracker::new().spawn(async move {
        let mut ended = None;
        ConnectionWorker::new(ours, questions, metrics)
            .run(|end| ended = Some(end))
            .await;
        ended
    });
    (connection, theirs, task)
}

fn query() -> Vec<u8> {
    frame_message(&[0; HEADER])
}

/// Reads a query and sends it back.
async fn echo(server: &mut DuplexStream) {
    let mut question = vec![0; query().len()];
    server.read_exact(&mut question).await.unwrap();
    server.write_all(&question).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn idle_connection_is_closed() {
    let (connection, mut server, task) = connection(DEEP);
    let begun = Instant::now();
    let (answer, ()) = tokio::join!(connection.ask(query()), echo(&mut server));
    assert_eq!(answer.unwrap().1.len(), HEADER);
    let expected = ConnectionEnd {
        one_at_a_time: false,
        pipelined: false,
    };
    assert_eq!(task.await.unwrap(), Some(expected));
    assert_eq!(begun.elapsed().as_secs(), IDLE_TIMEOUT.as_secs());
    assert!(!connection.is_open());
    let late = connection.ask(query()).await;
    assert!(matches!(late, Err(AskError::Unsent)));
}

/// If queries wait and no reply comes for [`REPLY_TIMEOUT`], the connection takes no further
/// queries. It still waits for the replies to earlier queries, for at most [`DRAIN_TIMEOUT`].
#[tokio::test(start_paused = true)]
async fn silent_connection_takes_no_queries() {
    let (connection, mut server, task) = connection(DEEP);
    let begun = Instant::now();
    let silent = connection.ask(query());
    let late = async {
        connection.questions.closed().await;
        assert_eq!(begun.elapsed().as_secs(), REPLY_TIMEOUT.as_secs());
        echo(&mut server).await;
    };
    let (answer, ()) = tokio::join!(silent, late);
    answer.unwrap();
    task.await.unwrap();
    assert_eq!(begun.elapsed().as_secs(), REPLY_TIMEOUT.as_secs());

    let (connection, _server, task) = self::connection(DEEP);
    let begun = Instant::now();
    let silent = connection.ask(query()).await;
    let timeout = UpstreamFailure::Timeout;
    assert!(matches!(silent, Err(AskError::Failed(failure)) if failure == timeout));
    task.await.unwrap();
    let longest = REPLY_TIMEOUT + DRAIN_TIMEOUT;
    assert_eq!(begun.elapsed().as_secs(), longest.as_secs());
}

#[tokio::test(start_paused = true)]
async fn permits_are_freed_after_reply_or_abandonment() {
    let (connection, mut server, _task) = connection(2);
    for _ in 0..10 {
        let (one, two) = (connection.ask(query()), connection.ask(query()));
        let (one, two, ()) = tokio::join!(one, two, async {
            echo(&mut server).await;
            echo(&mut server).await;
        });
        assert!(one.is_ok() && two.is_ok());
        assert_eq!(connection.load(), 0);
    }
    let (connection, mut server, _task) = self::connection(2 * MANY_WAITING);
    for _ in 0..2 * MANY_WAITING - 1 {
        let gone = tokio::time::timeout(Duration::from_millis(1), connection.ask(query()));
        assert!(gone.await.is_err());
    }
    // If more than `MANY_WAITING` queries still wait after a reply, the connection frees the
    // permits of abandoned queries.
    let (answer, ()) = tokio::join!(connection.ask(query()), async {
        let mut questions = vec![0; query().len() * 2 * MANY_WAITING];
        server.read_exact(&mut questions).await.unwrap();
        server
            .write_all(&questions[query().len() * (2 * MANY_WAITING - 1)..])
            .await
            .unwrap();
    });
    answer.unwrap();
    assert_eq!(connection.load(), 0);
}

/// A reply to an abandoned query is not a mismatch (a reply whose ID belongs to no query).
#[tokio::test(start_paused = true)]
async fn late_reply_is_no_mismatch() {
    let (connection, mut server, _task) = connection(4 * MAX_MISMATCHES);
    let late = 2 * MAX_MISMATCHES;
    for _ in 0..late {
        let gone = tokio::time::timeout(Duration::from_millis(1), connection.ask(query()));
        assert!(gone.await.is_err());
    }
    let mut questions = vec![0; query().len() * (late + 1)];
    let (first, rest) = questions.split_at_mut(query().len() * late);
    server.read_exact(first).await.unwrap();
    for _ in 0..2 {
        // After the first reply, more than `MANY_WAITING` queries still wait. So the connection
        // frees the permits of abandoned queries, but their IDs stay in use. The next query must
        // still get its own reply.
        let (answer, ()) = tokio::join!(connection.ask(query()), async {
            server.read_exact(rest).await.unwrap();
            server.write_all(rest).await.unwrap();
        });
        answer.unwrap();
    }
    assert_eq!(connection.load(), 0);
    server.write_all(first).await.unwrap();
    let (answer, ()) = tokio::join!(connection.ask(query()), echo(&mut server));
    answer.unwrap();
}

/// `one_at_a_time` is true if the server closes the connection after it has answered only one of
/// several queries. `pipelined` is true if the server has answered more than one query.
#[tokio::test]
async fn connection_end_is_reported() {
    for (asked, answered, one_at_a_time, pipelined) in [
        (1, 0, false, false),
        (1, 1, false, false),
        (3, 1, true, false),
        (3, 2, false, true),
    ] {
        let (connection, mut server, task) = connection(DEEP);
        let asking = futures::future::join_all((0..asked).map(|_| connection.ask(query())));
        let serving = async {
            let mut questions = vec![0; query().len() * asked];
            server.read_exact(&mut questions).await.unwrap();
            server
                .write_all(&questions[..query().len() * answered])
                .await
                .unwrap();
            drop(server);
        };
        let (answers, ()) = tokio::join!(asking, serving);
        let closed = answers
            .iter()
            .filter(|answer| matches!(answer, Err(AskError::Failed(UpstreamFailure::Closed))));
        assert_eq!(closed.count(), asked - answered);
        let expected = ConnectionEnd {
            one_at_a_time,
            pipelined,
        };
        let end = task.await.unwrap();
        assert_eq!(end, Some(expected), "{answered} of {asked}");
    }
}

const DEEP: usize = 256;
