use super::*;

fn mistake(words: &[&str]) -> (u8, String) {
    let exit = parse_options(words.iter().map(OsString::from)).unwrap_err();
    (exit.status, exit.stdout + &exit.stderr)
}

#[test]
fn command_line_is_parsed_or_rejected() {
    let options =
        parse_options(["--output=json", "--sidecar=", "--dns", "[::1]:5300"].map(OsString::from))
            .unwrap();
    assert_eq!(options.output, ReportForm::Json);
    assert_eq!(options.sidecar, "");
    assert_eq!(options.dns, "[::1]:5300");
    let (status, help) = mistake(&["--help"]);
    assert!(
        status == 0 && help.starts_with("Checks a running kube-dns"),
        "{help}"
    );
    let word = "unexpected word \"now\": the command accepts only flags";
    let server = "--server \"127.0.0.1\": only HOST:PORT or http://HOST:PORT is accepted";
    let sidecar = "--sidecar \"https://a:1\": only HOST:PORT or http://HOST:PORT is accepted";
    let dns = "--dns \"10.0.0.300\": bad IP address";
    for (argument, line) in [
        ("now", word),
        ("--server=127.0.0.1", server),
        ("--sidecar=https://a:1", sidecar),
        ("--dns=10.0.0.300", dns),
    ] {
        let (status, said) = mistake(&[argument]);
        let expected = format!("{NAME}: {line}");
        assert!(status == 2 && said.starts_with(&expected), "{said}");
    }
    assert_eq!(mistake(&["--output=xml"]).0, 2);
}
