use super::*;

fn mistake(words: &[&str]) -> (u8, String) {
    let exit = parse_options(words.iter().map(OsString::from)).unwrap_err();
    (exit.status, exit.stderr)
}

#[test]
fn command_line_is_parsed_or_rejected() {
    let options =
        parse_options(["--output=json", "--sidecar=", "--dns", "[::1]:5300"].map(OsString::from))
            .unwrap();
    assert_eq!(
        (
            options.output,
            options.sidecar.as_str(),
            options.dns.as_str()
        ),
        (ReportForm::Json, "", "[::1]:5300")
    );
    let (status, help) = mistake(&["--help"]);
    assert!(
        status == 0 && help.starts_with("Checks a running kube-dns"),
        "{help}"
    );
    for (words, line) in [
        (
            &["now"][..],
            "unexpected word \"now\": it accepts only flags",
        ),
        (
            &["--server=127.0.0.1"],
            "--server \"127.0.0.1\": http://HOST:PORT is accepted",
        ),
        (
            &["--sidecar=https://a:1"],
            "--sidecar \"https://a:1\": http://HOST:PORT is accepted",
        ),
        (
            &["--dns=10.0.0.300"],
            "--dns \"10.0.0.300\": bad IP address",
        ),
    ] {
        let (status, said) = mistake(words);
        assert!(
            status == 2 && said.starts_with(&format!("{NAME}: {line}")),
            "{words:?}: {said}"
        );
    }
    assert_eq!(mistake(&["--output=xml"]).0, 2);
}
