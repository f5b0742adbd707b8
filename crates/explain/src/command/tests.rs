use super::*;

fn options(words: &str) -> Result<Options, Exit> {
    parse_words(words.split_whitespace().map(OsString::from))
}

#[test]
fn command_line_is_parsed() {
    let parsed =
        options("web.apps srv --search=prod --ndots 2 --server http://[::1]:8081/ --json").unwrap();
    let [name, qtype, search, ndots] = ["web.apps", "srv", "prod", "2"].map(str::to_owned);
    assert_eq!(
        parsed.parameters,
        ExplainParameters {
            name,
            qtype,
            search,
            ndots
        }
    );
    assert_eq!(
        (parsed.server.as_str(), parsed.json),
        ("http://[::1]:8081/", true)
    );
    let defaults = options("web").unwrap();
    assert_eq!(
        (
            defaults.server.as_str(),
            defaults.parameters.search.as_str(),
            defaults.json
        ),
        ("http://127.0.0.1:8081", "default", false)
    );
}

#[test]
fn help_lists_flags() {
    let exit = options("--help").unwrap_err();
    assert_eq!(exit.status, 0);
    assert!(
        exit.stderr
            .starts_with("Explains how a name resolves, or why it does not.\n"),
        "{}",
        exit.stderr
    );
    for flag in [
        "--search string",
        "--server string",
        "--ndots int",
        "--json",
    ] {
        assert!(exit.stderr.contains(flag), "{flag}");
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
fn other_responses_are_one_line() {
    assert_eq!(
        body_or_line(Ok(mk_page("HTTP/1.1 200 OK", "{}"))),
        Ok(b"{}".to_vec())
    );
    for (reply, line) in [
        (
            Ok(mk_page("HTTP/1.1 400 Bad Request", "no name\n")),
            "http://a:1 answers: no name",
        ),
        (
            Ok(mk_page("HTTP/1.1 404 Not Found", "404 page not found\n")),
            "http://a:1 answers: 404 page not found",
        ),
        (
            Ok(mk_page("HTTP/1.0 500 Oops", "")),
            "http://a:1 answers: HTTP/1.0 500 Oops",
        ),
        (
            Ok(mk_page("HTTP/1.0 500 Oops", "\x1b[31m\u{fffd}")),
            "http://a:1 answers: [31m\u{fffd}",
        ),
        (
            Err(GetError::NotHttp("SSH-2.0-OpenSSH".to_owned())),
            "http://a:1 answers: SSH-2.0-OpenSSH",
        ),
        (
            Err(GetError::NotHttp(String::new())),
            "http://a:1 answers: ",
        ),
        (
            Err(GetError::Slow(TIMEOUT)),
            "http://a:1 does not answer within 10s",
        ),
        (
            Err(GetError::Large(MAX_SIZE)),
            "http://a:1 answers more than 4194304 bytes",
        ),
    ] {
        assert_eq!(body_or_line(reply), Err(line.to_owned()));
    }
}
