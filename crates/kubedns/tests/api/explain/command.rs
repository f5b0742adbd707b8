//! `kube-dns explain` against a running kubedns.

use testkit::http::ScriptedHttp;
use testkit::ports::free_port;
use testkit::table;

use super::{cluster, ready, run};

#[tokio::test]
async fn explain_prints_text_or_json() {
    let cluster = cluster();
    let kubedns = ready(&cluster, &[]).await;
    let (code, text, stderr) = kubedns.command(&["db-0.db", "A", "--search=apps"]).await;
    assert_eq!((code, stderr.as_str()), (0, ""));
    let begin = "db-0.db resolves to 10.244.1.20\nqueries    of a pod in namespace apps: ";
    assert!(text.starts_with(begin), "{text}");
    let end = "\nkubedns    records from the API server (Endpoints), configuration ";
    assert!(text.contains(end), "{text}");

    // The command also explains a name that does not resolve.
    let (code, json, stderr) = kubedns.command(&["--json", "wbe.apps"]).await;
    assert_eq!((code, stderr.as_str()), (0, ""));
    let explanation: serde_json::Value = serde_json::from_str(&json).unwrap();
    let near = &explanation["near"][0]["name"];
    assert_eq!(near, "web.apps.svc.cluster.local.");
}

/// The arguments, and the beginning of the error.
const MISTAKES: &str = r#"
                         | kube-dns explain: no name was given\nUsage of kube-dns explain: see kube-dns explain --help\n
    a..b                 | kube-dns explain: not a domain name: empty label in "a..b"\n
    web A AAAA           | kube-dns explain: only one name and one type are accepted: "AAAA" is one word too many\n
    web --ndots=99       | kube-dns explain: ndots "99": a number from 0 to 15 is accepted\n
    web --namespace=apps | Usage of kube-dns explain: see kube-dns explain --help\nunknown flag: --namespace\n
    web B                | kube-dns explain: unknown type "B"; expected one of A, AAAA, SRV,
    web --server=ftp://x | kube-dns explain: --server "ftp://x": only HOST:PORT or http://HOST:PORT is accepted\n
"#;

#[tokio::test]
async fn explain_exit_status_depends_on_error() {
    let cluster = cluster();
    let kubedns = ready(&cluster, &[]).await;
    let nobody = format!("http://127.0.0.1:{}", free_port());
    let nobody = ["web", "--server", &nobody];
    let (status, stdout, stderr) = run(&nobody).await;
    assert_eq!((status, stdout.as_str()), (1, ""), "{stderr}");
    let expected = format!(
        "kube-dns explain: cannot ask {}: Connection refused",
        nobody[2]
    );
    assert!(stderr.starts_with(&expected), "{stderr}");

    for [words, line] in table::rows(MISTAKES) {
        let words: Vec<&str> = words.split_whitespace().collect();
        let (status, stdout, stderr) = run(&words).await;
        assert_eq!((status, stdout.as_str()), (2, ""), "{words:?}: {stderr}");
        let line = line.replace("\\n", "\n");
        assert!(stderr.starts_with(&line), "{words:?}: {stderr}");
    }
    let (status, _, stderr) =
        run(&["web", "--server", &format!("http://{}/", kubedns.status)]).await;
    assert_eq!((status, stderr.as_str()), (0, ""));
}

#[tokio::test]
async fn explain_rejects_unexpected_responses() {
    for (reply, line) in [
        (
            "",
            "cannot ask URL: the response is not HTTP, or is incomplete; its first line is \"\"; is kubedns",
        ),
        (
            "HTTP/1.1 404 Not Found\r\n\r\n404 page not found\n",
            "URL answers: 404 page not found",
        ),
        (
            "HTTP/1.1 200 OK\r\n\r\nok\n",
            "the response of URL is not an explanation",
        ),
    ] {
        let other = ScriptedHttp::start(reply).await;
        let server = other.url("");
        let (status, stdout, stderr) = run(&["web", "--server", &server]).await;
        let request = "GET /explain?name=web&search=default&ndots=5 HTTP/1.0";
        assert_eq!(other.requests(), [request]);
        assert_eq!((status, stdout.as_str()), (1, ""));
        let expected = format!("kube-dns explain: {}", line.replace("URL", &server));
        assert!(stderr.starts_with(&expected), "{stderr}");
        assert_eq!(stderr.lines().count(), 1);
    }
}
