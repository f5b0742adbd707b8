//! Fetches from HTTP servers and from files.

use std::time::Instant;

use testkit::http::ScriptedHttp;

use super::*;

async fn fetch_from(server: ScriptedHttp) -> Result<String, String> {
    fetch_text(&server.url("/status"), &FileReads::default())
        .await
        .map_err(|error| error.to_string())
}

/// Fetches from a server that sends `reply`.
async fn fetch_reply(reply: &str) -> Result<String, String> {
    fetch_from(ScriptedHttp::start(reply).await).await
}

#[tokio::test]
async fn only_http_response_with_status_200_is_fetched() {
    let not_http =
        |line| format!("the response is not HTTP, or is incomplete; its first line is {line:?}");
    let ok = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nhello\n";
    assert_eq!(fetch_reply(ok).await, Ok("hello\n".to_owned()));
    assert_eq!(
        fetch_reply("HTTP/1.0 200 OK\r\n\r\n").await,
        Ok(String::new())
    );
    let said = fetch_reply("HTTP/1.1 404 Not Found\r\n\r\nno").await;
    assert_eq!(
        said,
        Err("the server answered \"HTTP/1.1 404 Not Found\"".to_owned())
    );
    let said = fetch_reply("SSH-2.0-OpenSSH\r\n").await;
    assert_eq!(said, Err(not_http("SSH-2.0-OpenSSH")));
    assert_eq!(fetch_reply("").await, Err(not_http("")));
}

#[tokio::test]
async fn unfinished_and_endless_pages_are_errors() {
    let unfinished = ScriptedHttp::hanging("HTTP/1.1 200 OK\r\n\r\n").await;
    let error = fetch_from(unfinished).await.unwrap_err();
    assert_eq!(error, "no answer within 1s");
    let mut flood = b"HTTP/1.1 200 OK\r\n\r\n".to_vec();
    flood.resize(3 * 1024 * 1024, b'x');
    let endless = ScriptedHttp::hanging(flood).await;
    let error = fetch_from(endless).await.unwrap_err();
    // On a busy machine, so many octets may take longer than the timeout.
    assert!(
        error == "the data has more than 2097152 bytes" || error == "no answer within 1s",
        "{error}"
    );
}

#[tokio::test]
async fn file_is_fetched_but_missing_file_and_https_fail() {
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
    let encrypted = fetch("https://127.0.0.1/").await.unwrap_err();
    assert!(encrypted.to_string().starts_with("not an http URL"));
}

#[tokio::test]
async fn unusable_urls_fail() {
    let files = FileReads::default();
    let fetch = async |source| fetch_text(source, &files).await;
    // Credentials, a line break, and a port without a server.
    assert!(fetch("http://user:secret@127.0.0.1/").await.is_err());
    assert!(fetch("http://127.0.0.1/a\r\nX: y").await.is_err());
    assert!(fetch("http://127.0.0.1:1/").await.is_err());
}

/// A named pipe simulates a file on a dead mount: opening the pipe waits for a writer.
#[tokio::test]
async fn fetch_of_hanging_file_fails_until_released() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("status.json");
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let files = FileReads::default();
    for attempt in 1..=2 {
        let started = Instant::now();
        let error = fetch_text(path.to_str().unwrap(), &files)
            .await
            .unwrap_err()
            .to_string();
        assert_eq!(error, "no answer within 1s", "attempt {attempt}");

        // The second fetch fails at once: no second read starts while the first hangs.
        assert_eq!(started.elapsed() < TIMEOUT, attempt == 2);
    }

    // Opening the pipe for writing unblocks the read.
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

#[test]
fn only_authority_without_port_gets_port_80() {
    for (authority, address) in [
        ("kube-dns", "kube-dns:80"),
        ("kube-dns:8081", "kube-dns:8081"),
        ("127.0.0.1", "127.0.0.1:80"),
        ("[::1]", "[::1]:80"),
        ("[::1]:8081", "[::1]:8081"),
    ] {
        assert_eq!(with_port(authority), address);
    }
}
