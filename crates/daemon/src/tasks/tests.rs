//! The end of a set of tasks.

use std::io;

use super::*;

const BOUND: Duration = Duration::from_secs(5);

async fn until(stop: CancellationToken) -> io::Result<()> {
    stop.cancelled().await;
    Ok(())
}

#[tokio::test]
async fn join_succeeds_if_tasks_end_after_stop() {
    let stop = CancellationToken::new();
    let mut tasks = Tasks::new(stop.clone());
    tasks.critical("one", until(stop.clone()));
    stop.cancel();
    tasks.join(BOUND).await.unwrap();
}

#[tokio::test]
async fn early_end_stops_other_tasks() {
    let stop = CancellationToken::new();
    let mut tasks = Tasks::new(stop.clone());
    tasks.critical("goes on", until(stop.clone()));
    tasks.critical("gives up", async { io::Result::Ok(()) });
    let error = tasks.join(BOUND).await.unwrap_err();
    assert_eq!(error.to_string(), "task \"gives up\" exited unexpectedly");
    assert!(stop.is_cancelled());
}

#[tokio::test]
async fn early_end_of_lasting_task_is_failure() {
    let mut tasks = Tasks::new(CancellationToken::new());
    tasks.lasting("gives up", async {});
    let error = tasks.join(BOUND).await.unwrap_err();
    assert_eq!(error.to_string(), "task \"gives up\" exited unexpectedly");
}

#[tokio::test]
async fn error_names_task_and_cause() {
    let mut tasks = Tasks::new(CancellationToken::new());
    tasks.critical("answer queries", async {
        Err(io::Error::other("socket gone"))
    });
    let error = anyhow::Error::from(tasks.join(BOUND).await.unwrap_err());
    assert_eq!(format!("{error:#}"), "answer queries: socket gone");
}

#[tokio::test]
async fn task_panic_is_failure() {
    let mut tasks = Tasks::new(CancellationToken::new());
    tasks.lasting("thinks", async { panic!("no") });
    assert!(matches!(
        tasks.join(BOUND).await,
        Err(TaskError::Panicked { task: "thinks" })
    ));
}

#[tokio::test]
async fn join_fails_if_task_outlasts_bound() {
    let stop = CancellationToken::new();
    let mut tasks = Tasks::new(stop.clone());
    tasks.critical("is deaf", std::future::pending::<io::Result<()>>());
    tasks.critical("listens", until(stop.clone()));
    stop.cancel();
    let error = tasks.join(Duration::from_millis(200)).await.unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with("tasks are still running after 200ms: ") && text.contains("is deaf"),
        "{text}"
    );
}

#[tokio::test]
async fn empty_set_joins_at_once() {
    Tasks::new(CancellationToken::new())
        .join(BOUND)
        .await
        .unwrap();
}
