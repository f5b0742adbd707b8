//! Accepted commands, such as those of published manifests, and rejected commands.

use super::*;

/// The lookups of a command, each in the form `name server`.
fn read(text: &str) -> Result<Vec<String>, String> {
    let command: NslookupCommand = text
        .parse()
        .map_err(|error: NslookupCommandError| error.to_string())?;
    Ok(command
        .0
        .iter()
        .map(|lookup| format!("{} {}", lookup.name, lookup.server))
        .collect())
}

#[test]
fn nslookup_commands_are_parsed() {
    let [dnsmasq, kubedns] = ["a.b. 127.0.0.1:53", "a.b. 127.0.0.1:10053"];
    let both = "nslookup a.b 127.0.0.1 >/dev/null && nslookup a.b 127.0.0.1:10053 >/dev/null";
    let all_output = " nslookup  a.b. 127.0.0.1 >  /dev/null 2>&1";
    let no_redirection = "nslookup a.b 127.0.0.1&&nslookup c 127.0.0.1";
    for (case, text, lookups) in [
        (
            "Kubernetes up to 1.3",
            "nslookup a.b 127.0.0.1 >/dev/null",
            &[dnsmasq][..],
        ),
        ("Kubernetes 1.4", both, &[dnsmasq, kubedns]),
        (
            "Kubernetes 1.5",
            "nslookup a.b 127.0.0.1:10053 >/dev/null",
            &[kubedns],
        ),
        ("all output", all_output, &[dnsmasq]),
        (
            "no redirection",
            no_redirection,
            &[dnsmasq, "c. 127.0.0.1:53"],
        ),
    ] {
        assert_eq!(read(text).unwrap(), lookups, "{case}");
    }
}

#[test]
fn unsupported_commands_are_rejected() {
    let form = NslookupCommandError::Form.to_string();
    let cases = [
        ("nothing", "", &*form),
        ("another program", "echo healthz", &form),
        ("no server", "nslookup a.b", &form),
        ("more arguments", "nslookup -type=A a.b 127.0.0.1", &form),
        (
            "another operator",
            "nslookup a.b 127.0.0.1 || nslookup a.b 127.0.0.2",
            &form,
        ),
        ("a second command", "nslookup a.b 127.0.0.1; reboot", &form),
        ("nothing after &&", "nslookup a.b 127.0.0.1 &&", &form),
        ("a file", "nslookup a.b 127.0.0.1 >/tmp/x", &form),
        (
            "invalid name",
            "nslookup a..b 127.0.0.1",
            "invalid DNS name \"a..b\"",
        ),
    ];
    for (case, text, error) in cases {
        assert_eq!(read(text).unwrap_err(), *error, "{case}");
    }
    assert!(read("nslookup a.b 127.0.0.1:x").is_err());
}
