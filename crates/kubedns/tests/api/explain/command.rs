//! `kube-dns explain` against a running kubedns.

use testkit::ports::free_port;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::{cluster, ready, run};

/// The text without times and versions, which differ from run to run.
fn scrubbed(text: &str) -> String {
    let line = |line: &str| match line {
        line if line.contains(", created ") => {
            format!(
                "{}, created",
                line.split(", created ").next().unwrap_or_default()
            )
        }
        line if line.starts_with("kubedns ") => line
            .split(", configuration")
            .next()
            .unwrap_or_default()
            .to_owned(),
        line => line.to_owned(),
    };
    text.lines().map(|text| line(text) + "\n").collect()
}

#[tokio::test]
async fn explain_prints_text() {
    let cluster = cluster();
    let kubedns = ready(&cluster, &[]).await;
    let (code, stdout, stderr) = kubedns.command(&["db-0.db", "A", "--search=apps"]).await;
    let expected = "\
db-0.db resolves to 10.244.1.20
queries    of a pod in namespace apps: search apps.svc.cluster.local svc.cluster.local cluster.local, ndots:5
           db-0.db.apps.svc.cluster.local.  answers      10.244.1.20
           db-0.db.svc.cluster.local.       (not asked)
           db-0.db.cluster.local.           (not asked)
           db-0.db.                         (not asked)
answer     for db-0.db.apps.svc.cluster.local.
           A  10.244.1.20  ttl 30
from       Service apps/db, headless, created
             ports      sql 5432/TCP
             endpoints  1 ready, 0 not ready in Endpoints db
             ready      10.244.1.20 (db-0)
             pod ports  sql 5432/TCP
path       dnsmasq asks kubedns for cluster.local; it caches this for up to 30 s
kubedns    records from the API server (Endpoints)
";
    assert_eq!(
        (code, scrubbed(&stdout).as_str(), stderr.as_str()),
        (0, expected, "")
    );
}

#[tokio::test]
async fn explain_prints_json() {
    let cluster = cluster();
    let kubedns = ready(&cluster, &[]).await;
    let (code, stdout, stderr) = kubedns.command(&["--json", "wbe.apps"]).await;
    assert_eq!(
        (code, stderr.as_str()),
        (0, ""),
        "a name that does not resolve is explained all the same"
    );
    let explanation: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(
        explanation["near"][0]["name"],
        "web.apps.svc.cluster.local."
    );
}

#[tokio::test]
async fn explain_mistake_has_line_and_code() {
    let cluster = cluster();
    let kubedns = ready(&cluster, &[]).await;
    let nobody = format!("http://127.0.0.1:{}", free_port());
    for (words, code, line) in [
        (
            &[][..],
            2,
            "kube-dns explain: no name was given\nUsage of kube-dns explain: see kube-dns explain --help\n",
        ),
        (
            &["a..b"],
            2,
            "kube-dns explain: not a domain name: empty label in \"a..b\"\n",
        ),
        (
            &["web", "A", "AAAA"],
            2,
            "kube-dns explain: one name and one type are accepted, and \"AAAA\" is neither\n",
        ),
        (
            &["web", "--ndots=99"],
            2,
            "kube-dns explain: ndots \"99\": a number from 0 to 15 is accepted\n",
        ),
        (
            &["web", "--namespace=apps"],
            2,
            "Usage of kube-dns explain: see kube-dns explain --help\nunknown flag: --namespace\n",
        ),
        (
            &["web", "B"],
            2,
            "kube-dns explain: unknown type \"B\": A, AAAA, SRV,",
        ),
        (
            &["web", "--server=ftp://x"],
            2,
            "kube-dns explain: --server \"ftp://x\": http://HOST:PORT is accepted\n",
        ),
        (
            &["web", "--server", &nobody],
            1,
            &format!("kube-dns explain: cannot ask {nobody}: Connection refused"),
        ),
    ] {
        let (status, stdout, stderr) = run(words).await;
        assert_eq!((status, stdout.as_str()), (code, ""), "{words:?}: {stderr}");
        assert!(stderr.starts_with(line), "{words:?}: {stderr}");
    }
    let (status, _, stderr) =
        run(&["web", "--server", &format!("http://{}/", kubedns.status)]).await;
    assert_eq!((status, stderr.as_str()), (0, ""));
}

#[tokio::test]
async fn explain_rejects_unexpected_responses() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    for (reply, line) in [
        (&b""[..], "answers: "),
        (
            b"HTTP/1.1 404 Not Found\r\n\r\n404 page not found\n",
            "answers: 404 page not found",
        ),
        (
            b"HTTP/1.1 200 OK\r\n\r\nok\n",
            "answers something else than an explanation",
        ),
    ] {
        let serve = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                assert_ne!(
                    stream.read_buf(&mut head).await.unwrap(),
                    0,
                    "a whole request"
                );
            }
            assert!(head.starts_with(b"GET /explain?name=web&search=default&ndots=5 HTTP/1.0\r\n"));
            stream.write_all(reply).await.unwrap();
        };
        let words = ["web", "--server", &server];
        let ((status, stdout, stderr), ()) = tokio::join!(run(&words), serve);
        assert_eq!((status, stdout.as_str()), (1, ""));
        assert!(
            stderr.starts_with(&format!("kube-dns explain: {server} {line}")),
            "{stderr}"
        );
        assert_eq!(stderr.lines().count(), 1);
    }
}
