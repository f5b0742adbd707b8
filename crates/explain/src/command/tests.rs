use super::*;

fn options(words: &str) -> Result<Options, Exit> {
    parse_words(words.split_whitespace().map(OsString::from))
}

#[test]
fn command_line_is_parsed() {
    let parsed =
        options("web.apps srv --search=prod --ndots 2 --server http://[::1]:8081/ --json").unwrap();
    assert_eq!(parsed.parameters.name, "web.apps");
    assert_eq!(parsed.parameters.qtype, "srv");
    assert_eq!(parsed.parameters.search, "prod");
    assert_eq!(parsed.parameters.ndots, "2");
    assert_eq!(parsed.server, "http://[::1]:8081/");
    assert!(parsed.json);

    let defaults = options("web").unwrap();
    assert_eq!(defaults.server, "http://127.0.0.1:8081");
    assert_eq!(defaults.parameters.search, "default");
    assert!(!defaults.json);
}

#[test]
fn help_lists_flags() {
    let exit = options("--help").unwrap_err();
    assert_eq!(exit.status, 0);
    assert_eq!(exit.stderr, "");
    let first = exit.stdout.lines().next();
    let expected = Some("Explains how a name resolves, or why it does not.");
    assert_eq!(first, expected);
    for flag in [
        "--search string",
        "--server string",
        "--ndots int",
        "--json",
    ] {
        assert!(exit.stdout.contains(flag), "{flag}");
    }
}

fn mk_page(status_line: &str, body: &str) -> Page {
    let status = status_line.split(' ').nth(1).unwrap().parse().unwrap();
    Page {
        status_line: status_line.to_owned(),
        status,
        body: body.into(),
    }
}

fn body_or_line(page: Result<Page, GetError>) -> Result<Vec<u8>, String> {
    successful_body("http://a:1", page).map_err(|error| error.to_string())
}

#[test]
fn failures_give_one_line_errors() {
    let page = |status_line, body| Ok(mk_page(status_line, body));
    let body = body_or_line(page("HTTP/1.1 200 OK", "{}"));
    assert_eq!(body, Ok(b"{}".to_vec()));
    let missing = "404 page not found";
    let coloured = "\x1b[31m\u{fffd}";
    for (reply, line) in [
        (
            page("HTTP/1.1 400 Bad Request", "no name\n"),
            "answers: no name",
        ),
        (
            page("HTTP/1.1 404 Not Found", missing),
            "answers: 404 page not found",
        ),
        (page("HTTP/1.0 500 Oops", ""), "answers: HTTP/1.0 500 Oops"),
        (page("HTTP/1.0 500 Oops", coloured), "answers: [31m\u{fffd}"),
        (Err(GetError::Slow(TIMEOUT)), "does not answer within 10s"),
        (
            Err(GetError::Large(MAX_SIZE)),
            "sends a response of more than 4194304 bytes",
        ),
    ] {
        assert_eq!(body_or_line(reply), Err(format!("http://a:1 {line}")));
    }
    for line in ["SSH-2.0-OpenSSH", ""] {
        let expected = format!(
            "cannot ask http://a:1: the response is not HTTP, or is incomplete; its first line is \
             {line:?}; is kubedns running there, and is this port its --healthz-port?"
        );
        let reply = Err(GetError::NotHttp(line.to_owned()));
        assert_eq!(body_or_line(reply), Err(expected));
    }
}
