//! The end of a set of tasks.

use std::io;

use super::*;

const BOUND: Duration = Duration::from_secs(5);

async fn until(stop: CancellationToken) -> io::Result<()> {
    stop.cancelled().await;
    Ok(())
}

#[tokio::test]
async fn all_end_when_told_to() {
    let stop = CancellationToken::new();
    let mut tasks = Tasks::new(stop.clone());
    tasks.critical("one", until(stop.clone()));
    stop.cancel();
    tasks.join(BOUND).await.unwrap();
}

#[tokio::test]
async fn an_early_end_stops_the_rest() {
    let stop = CancellationToken::new();
    let mut tasks = Tasks::new(stop.clone());
    tasks.critical("goes on", until(stop.clone()));
    tasks.critical("gives up", async { io::Result::Ok(()) });
    let error = tasks.join(BOUND).await.unwrap_err();
    assert_eq!(error.to_string(), "gives up exited unexpectedly");
    assert!(stop.is_cancelled());
}

#[tokio::test]
async fn a_task_without_errors_may_not_end_early_either() {
    let mut tasks = Tasks::new(CancellationToken::new());
    tasks.lasting("gives up", async {});
    let error = tasks.join(BOUND).await.unwrap_err();
    assert_eq!(error.to_string(), "gives up exited unexpectedly");
}

#[tokio::test]
async fn an_error_names_the_task_and_the_cause() {
    let mut tasks = Tasks::new(CancellationToken::new());
    tasks.critical("answer queries", async {
        Err(io::Error::other("socket gone"))
    });
    let error = anyhow::Error::from(tasks.join(BOUND).await.unwrap_err());
    assert_eq!(format!("{error:#}"), "answer queries: socket gone");
}

#[tokio::test]
async fn a_panic_is_a_failure() {
    let mut tasks = Tasks::new(CancellationToken::new());
    tasks.lasting("thinks", async { panic!("no") });
    assert!(matches!(
        tasks.join(BOUND).await,
        Err(TaskError::Panicked { task: "thinks" })
    ));
}

#[tokio::test]
async fn waiting_has_a_bound() {
    let stop = CancellationToken::new();
    let mut tasks = Tasks::new(stop.clone());
    tasks.critical("is deaf", std::future::pending::<io::Result<()>>());
    tasks.critical("listens", until(stop.clone()));
    stop.cancel();
    let error = tasks.join(Duration::from_millis(200)).await.unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with("still running after 200ms: ") && text.contains("is deaf"),
        "{text}"
    );
}

#[tokio::test]
async fn nothing_to_wait_for() {
    Tasks::new(CancellationToken::new())
        .join(BOUND)
        .await
        .unwrap();
}
