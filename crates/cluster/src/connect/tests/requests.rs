//! Requests with credentials, plugins and proxies: what the API server or the proxy receives, or
//! the error.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use chrono::{TimeDelta, Utc};
use http::Request;
use kube::client::Body;
use serde_json::json;
use testkit::table;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::{Connection, kubeconfig, with_kubeconfig};

/// Reads the head of a request and sends `answer`.
async fn head(stream: &mut TcpStream, answer: &str) -> String {
    let mut text = Vec::new();
    while !text.ends_with(b"\r\n\r\n") {
        text.push(
            stream
                .read_u8()
                .await
                .expect("the rest of the head must arrive"),
        );
    }
    stream.write_all(answer.as_bytes()).await.unwrap();
    String::from_utf8(text).unwrap()
}

const CLOSE: &str = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

fn config(server: &str, cluster: &str, user: &str) -> tempfile::NamedTempFile {
    kubeconfig(&format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         clusters: [{{name: c, cluster: {{server: '{server}'{cluster}}}}}]\n\
         contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
         users: [{{name: u, user: {{{user}}}}}]\n"
    ))
}

async fn connection(config: &Path) -> Connection {
    Connection::new(with_kubeconfig(config)).await.unwrap()
}

async fn ask(connection: &Connection) -> Result<(), String> {
    let request = Request::get("/version").body(Body::empty()).unwrap();
    connection
        .client()
        .send(request)
        .await
        .map(drop)
        .map_err(|error| daemon::error_chain::brief(&error))
}

async fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// The head of the first request. `user` holds fields of the kubeconfig's user.
async fn said_with(user: &str) -> String {
    let (listener, address) = listener().await;
    let config = config(&format!("http://{address}"), "", user);
    let connection = connection(config.path()).await;
    let serve = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        head(&mut stream, OK).await
    };
    let (asked, head) = tokio::join!(ask(&connection), serve);
    asked.unwrap();
    head
}

#[tokio::test]
async fn user_agent_names_kube_dns() {
    let head = said_with("").await;
    let version = daemon::version::VERSION;
    let agent = head
        .lines()
        .find_map(|line| line.strip_prefix("user-agent: "))
        .unwrap();
    let (ours, rest) = agent.split_once(" (").unwrap();
    let (system, project) = rest.split_once(") ").unwrap();
    assert_eq!(
        (ours, project),
        (
            &*format!("kube-dns/{version}"),
            &*format!("kube-dns-rs/{version}")
        )
    );
    assert!(
        system.starts_with("linux/") && !system.contains("x86_64"),
        "{system}"
    );
}

/// The case, the fields of the kubeconfig's user, and the credentials that are sent.
const CREDENTIALS: &str = r#"
    in the kubeconfig          | token: inline                                       | Bearer inline
    a file with a line feed    | tokenFile: 'FILE'                                   | Bearer from-file
    a file and an inline token | token: inline, tokenFile: 'FILE'                    | Bearer from-file
    a file that is not there   | token: inline, tokenFile: /nonexistent/token        | Bearer inline
    a password                 | username: u, password: p                            | Basic dTpw
    a password and no file     | username: u, password: p, tokenFile: /nonexistent/t | Basic dTpw
    a plugin                   | exec: {command: sh, args: ['-c', 'echo ''{"status": {"token": "from-plugin"}}''']} | Bearer from-plugin
"#;

#[tokio::test]
async fn credentials_have_client_go_precedence() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "from-file\n").unwrap();
    let file = file.path().display();
    for [what, user, expected] in table::rows(CREDENTIALS) {
        let user = user.replace("FILE", &file.to_string());
        let head = said_with(&user).await;
        let authorization = head
            .lines()
            .find_map(|line| line.strip_prefix("authorization: "));
        assert_eq!(authorization, Some(expected), "{what}");
    }
}

#[tokio::test]
async fn failing_plugin_fails_the_request() {
    const FAILURES: &str = r#"
        exec sleep 1000                  | the exec plugin "sh" timed out after 20s
        echo no such profile >&2; exit 3 | failed with exit status: 3: no such profile
        echo {}                          | printed no ExecCredential with a token or a certificate and its key
        yes                              | the exec plugin "sh" printed more than 1048576 bytes
        yes >&2                          | the exec plugin "sh" printed more than 1048576 bytes
    "#;
    for [script, expected] in table::rows(FAILURES) {
        let config = config(
            "http://127.0.0.1:1",
            "",
            &format!("exec: {{command: sh, args: ['-c', '{script}']}}"),
        );
        let connection = connection(config.path()).await;
        // With paused time, the hanging plugin times out at once.
        if script.contains("sleep") {
            tokio::time::pause();
        }
        let error = ask(&connection).await.unwrap_err();
        if script.contains("sleep") {
            tokio::time::resume();
        }
        assert!(error.contains(expected), "{script}: {error}");
    }
}

/// Whether the process runs. A zombie has ended, even though no process has waited for it yet.
fn is_running(id: &str) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/stat", id.trim()));
    status.is_ok_and(|status| !status.contains(") Z "))
}

#[tokio::test]
async fn plugin_children_end_with_plugin() {
    let directory = tempfile::tempdir().unwrap();
    let child = directory.path().join("child");
    let token = r#"{"status": {"token": "from-plugin"}}"#;
    for (end, expected) in [
        (format!("echo '{token}'"), "sent"),
        ("sleep 1000".to_owned(), "timed out after 20s"),
    ] {
        let _ = std::fs::remove_file(&child);
        // The child holds the plugin's output open.
        let script = directory.path().join("plugin");
        std::fs::write(
            &script,
            format!("sleep 1000 &\necho $! >{}\n{end}", child.display()),
        )
        .unwrap();
        let (listener, address) = listener().await;
        let user = format!("exec: {{command: sh, args: ['{}']}}", script.display());
        let config = config(&format!("http://{address}"), "", &user);
        let connection = connection(config.path()).await;
        let serve = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            head(&mut stream, CLOSE).await;
        };

        let written = async || std::fs::read_to_string(&child).is_ok_and(|id| id.ends_with('\n'));
        let time = async {
            testkit::eventually(Duration::from_secs(10), written).await;
            if expected != "sent" {
                tokio::time::pause();
            }
            std::future::pending::<()>().await;
        };
        let begun = std::time::Instant::now();
        let outcome = tokio::select! {
            () = serve => "sent".to_owned(),
            Err(error) = ask(&connection) => error,
            () = time => unreachable!("`time` never ends"),
        };
        if expected != "sent" {
            tokio::time::resume();
        }

        assert!(outcome.contains(expected), "{outcome}");
        assert!(
            begun.elapsed() < Duration::from_secs(15),
            "{expected}: the request must not wait for the child"
        );
        let child = std::fs::read_to_string(&child).unwrap_or_default();
        let ended = async || !is_running(&child);
        testkit::eventually(Duration::from_secs(10), ended).await;
    }
}

#[tokio::test]
async fn failed_renewal_keeps_token_until_it_expires() {
    for (what, valid, expected) in [
        (
            "in its last minute",
            TimeDelta::seconds(30),
            Ok("Bearer first"),
        ),
        (
            "expired",
            TimeDelta::seconds(-1),
            Err("failed with exit status: 3: out of order"),
        ),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let (script, run) = (
            directory.path().join("plugin"),
            directory.path().join("run"),
        );
        let expires = (Utc::now() + valid).to_rfc3339();
        let status = json!({ "status": { "token": "first", "expirationTimestamp": expires } });
        let run = run.display();
        let text = format!(
            "test -e {run} && {{ echo out of order >&2; exit 3; }}\n: >{run}\necho '{status}'"
        );
        std::fs::write(&script, text).unwrap();
        let (listener, address) = listener().await;
        let user = format!("exec: {{command: sh, args: ['{}']}}", script.display());
        let config = config(&format!("http://{address}"), "", &user);
        let connection = connection(config.path()).await;
        let token = async || {
            let serve = async {
                let (mut stream, _) = listener.accept().await.unwrap();
                head(&mut stream, CLOSE).await
            };
            tokio::select! {
                head = serve => Ok(head),
                Err(error) = ask(&connection) => Err(error),
            }
        };
        let head = token().await.unwrap();
        assert!(
            head.contains("authorization: Bearer first\r\n"),
            "{what}: {head}"
        );
        match (token().await, expected) {
            (Ok(head), Ok(token)) => assert!(head.contains(token), "{what}: {head}"),
            (Err(error), Err(reason)) => assert!(error.contains(reason), "{what}: {error}"),
            (found, _) => panic!("{what}: {found:?}"),
        }
    }
}

#[tokio::test]
async fn kubeconfig_http_proxy_is_used() {
    let (listener, address) = listener().await;
    let cluster = format!(", proxy-url: 'http://user:pass%20word@{address}'");
    let config = config("http://192.0.2.1:6443", &cluster, "");
    let connection = connection(config.path()).await;
    let serve = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let connect = head(&mut stream, "HTTP/1.1 200 Connection established\r\n\r\n").await;
        (connect, head(&mut stream, OK).await)
    };
    let (asked, (connect, request)) = tokio::join!(ask(&connection), serve);
    asked.unwrap();
    assert!(
        connect.starts_with("CONNECT 192.0.2.1:6443 HTTP/1.1\r\n"),
        "{connect}"
    );
    let connect = connect.to_lowercase();
    assert!(
        connect.contains("proxy-authorization: basic dxnlcjpwyxnzihdvcmq=\r\n"),
        "{connect}"
    );
    assert!(
        request.starts_with("GET /version HTTP/1.1\r\n"),
        "{request}"
    );
}

/// The server side of SOCKS 5 (RFC 1928). Expects name and password if `user` is set. Returns the
/// requested address.
async fn socks(stream: &mut TcpStream, user: Option<(&str, &str)>) -> Vec<u8> {
    async fn read<const N: usize>(stream: &mut TcpStream) -> [u8; N] {
        let mut bytes = [0; N];
        stream
            .read_exact(&mut bytes)
            .await
            .expect("the rest of the message must arrive");
        bytes
    }
    async fn text(stream: &mut TcpStream) -> String {
        let mut text = vec![0; stream.read_u8().await.unwrap().into()];
        stream
            .read_exact(&mut text)
            .await
            .expect("the rest of the text must arrive");
        String::from_utf8(text).unwrap()
    }
    let method = if user.is_some() { 2 } else { 0 };
    assert_eq!(read(stream).await, [5, 1, method]);
    stream.write_all(&[5, method]).await.unwrap();
    if let Some((name, password)) = user {
        assert_eq!(read(stream).await, [1]);
        assert_eq!([text(stream).await, text(stream).await], [name, password]);
        stream.write_all(&[1, 0]).await.unwrap();
    }
    let [version, command, _, kind] = read(stream).await;
    assert_eq!((version, command), (5, 1), "CONNECT");
    let length = match kind {
        1 => 4,
        3 => stream.read_u8().await.unwrap().into(),
        other => panic!("address type {other}"),
    };
    let mut address = vec![0; length + 2];
    stream.read_exact(&mut address).await.unwrap();
    stream
        .write_all(&[5, 0, 0, 1, 127, 0, 0, 1, 0, 0])
        .await
        .unwrap();
    address
}

#[tokio::test]
async fn kubeconfig_socks_proxy_is_used() {
    for (user_of_url, user, server, expected) in [
        (
            "",
            None,
            "http://192.0.2.1:6443",
            &[192, 0, 2, 1, 0x19, 0x2b][..],
        ),
        (
            "user:pass%20word@",
            Some(("user", "pass word")),
            "http://api.test:80",
            b"api.test\0\x50",
        ),
    ] {
        let (listener, address) = listener().await;
        let cluster = format!(", proxy-url: 'socks5://{user_of_url}{address}'");
        let config = config(server, &cluster, "");
        let connection = connection(config.path()).await;
        let serve = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let requested = socks(&mut stream, user).await;
            (requested, head(&mut stream, OK).await)
        };
        let (asked, (requested, request)) = tokio::join!(ask(&connection), serve);
        asked.unwrap();
        assert_eq!(requested, expected, "{server}");
        assert!(
            request.starts_with("GET /version HTTP/1.1\r\n"),
            "{request}"
        );
    }
}

/// The fields of the kubeconfig's cluster and user, and the error.
const UNSUPPORTED: &str = r#"
    , proxy-url: 'https://proxy.example:3128' | | a proxy-url of scheme "https" is not supported; accepted: http://HOST:PORT and socks5://HOST:PORT
    | auth-provider: {name: gcp, config: {cmd-path: /bin/true}} | auth-provider "gcp" is not supported; accepted: token, tokenFile, client certificate, username and password, exec
    | token: "a\nb"                                | the user's token has characters that an HTTP header cannot have
    | tokenFile: /nonexistent/token                | cannot read the token file /nonexistent/token: No such file
    | client-certificate: /nonexistent/tls.crt     | client certificate and client key must be given together
"#;

#[tokio::test]
async fn unusable_kubeconfig_gives_error_of_one_line() {
    for [cluster, user, expected] in table::rows(UNSUPPORTED) {
        let config = config("https://192.0.2.1:6443", cluster, user);
        let refused = Connection::new(with_kubeconfig(config.path())).await;
        let error = refused.unwrap_err().to_string();
        assert!(
            error.starts_with("cannot set up the connection to https://192.0.2.1:6443/: "),
            "{error}"
        );
        assert!(error.contains(expected), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}
