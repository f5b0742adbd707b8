//! Fetches from parts that answer and from parts that do not.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::*;

/// A server that sends `reply` to the first connection. With `hold`, the connection stays open.
async fn server(reply: Vec<u8>, hold: bool) -> (String, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut task = JoinSet::new();
    task.spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = [0; 1024];
        let _ = stream.read(&mut request).await;
        let _ = stream.write_all(&reply).await;
        if hold {
            std::future::pending::<()>().await;
        }
    });
    (format!("http://{address}/status"), task)
}

async fn answer(reply: impl Into<Vec<u8>>, hold: bool) -> Result<String, String> {
    let (url, _task) = server(reply.into(), hold).await;
    fetch_text(&url, &FileReads::default())
        .await
        .map_err(|error| error.to_string())
}

#[tokio::test]
async fn page_is_fetched_or_refused_by_status() {
    let ok = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nhello\n";
    assert_eq!(answer(ok, false).await, Ok("hello\n".to_owned()));
    assert_eq!(
        answer("HTTP/1.0 200 OK\r\n\r\n", false).await,
        Ok(String::new())
    );
    assert_eq!(
        answer("HTTP/1.1 404 Not Found\r\n\r\nno", false).await,
        Err("answered \"HTTP/1.1 404 Not Found\"".to_owned())
    );
    assert_eq!(
        answer("SSH-2.0-OpenSSH\r\n", false).await,
        Err("answered \"SSH-2.0-OpenSSH\"".to_owned())
    );
    assert_eq!(answer("", false).await, Err("answered \"\"".to_owned()));
}

#[tokio::test]
async fn silent_and_endless_pages_are_cut() {
    assert_eq!(
        answer("HTTP/1.1 200 OK\r\n\r\n", true).await,
        Err("no answer within 1s".to_owned())
    );
    let mut flood = b"HTTP/1.1 200 OK\r\n\r\n".to_vec();
    flood.resize(3 * 1024 * 1024, b'x');
    let error = answer(flood, true).await.unwrap_err();
    assert!(
        error == "more than 2097152 bytes" || error == "no answer within 1s",
        "{error}"
    );
}

#[tokio::test]
async fn source_is_a_file_or_http() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("status.json");
    std::fs::write(&path, "{}").unwrap();
    let files = FileReads::default();
    let fetch = async |source| fetch_text(source, &files).await;
    assert_eq!(fetch(path.to_str().unwrap()).await.unwrap(), "{}");
    let missing = fetch("/nonexistent/status.json")
        .await
        .unwrap_err()
        .to_string();
    assert!(missing.starts_with("No such file"), "{missing}");
    assert!(
        fetch("https://127.0.0.1/")
            .await
            .unwrap_err()
            .to_string()
            .starts_with("not an http URL")
    );
    assert!(fetch("http://user:secret@127.0.0.1/").await.is_err());
    assert!(fetch("http://127.0.0.1/a\r\nX: y").await.is_err());
    assert!(fetch("http://127.0.0.1:1/").await.is_err());
}

/// A named pipe stands for a file on a dead mount: opening it waits for a writer.
#[tokio::test]
async fn hanging_file_times_out() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("status.json");
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let files = FileReads::default();
    for attempt in 1..=2 {
        let error = fetch_text(path.to_str().unwrap(), &files)
            .await
            .unwrap_err()
            .to_string();
        assert_eq!(error, "no answer within 1s", "attempt {attempt}");
    }
    // The blocked thread can finish.
    drop(std::fs::OpenOptions::new().write(true).open(&path).unwrap());
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "{}").unwrap();
    testkit::eventually(Duration::from_secs(10), async || {
        fetch_text(path.to_str().unwrap(), &files)
            .await
            .is_ok_and(|text| text == "{}")
    })
    .await;
}
